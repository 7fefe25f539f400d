"""Topics that a request made: they are in their file before the request is answered."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker import broker as broker_module
from orbitmq.broker import keeping, table
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import encode_command
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import LIMIT_S, RefusingTables, Running, begin
from tests.broker.slow_disk import SlowDisk
from tests.net.running import connected

ASYNC = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)


@pytest.fixture(autouse=True)
def never_saved_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "TABLE_SAVE_S", 3_600.0)


class SlowTopics(SystemFiles):
    """Files whose topic table is replaced only while the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        if path.name == "topics.json":
            self.asked.set()
            assert self.gate.wait(LIMIT_S), "the test left the gate shut"
        super().replace(path, data, keep_backup=keep_backup)


def with_broker(
    folder: Path, files: SystemFiles, use: Callable[[Running], Awaitable[None]], **changes: str
) -> None:
    """Run a broker; afterwards it ends as a killed process does."""

    async def inner() -> None:
        settings = msgspec.structs.replace(ASYNC, **changes)
        site = await begin(folder, Turn(asyncio.get_running_loop()), settings, files)
        try:
            await use(site)
        finally:
            site.peer.close()
            await site.broker.abandon()

    run(inner())


def saved_topics(folder: Path) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, dict[str, int]]] = json.loads(
        (folder / "config" / "topics.json").read_bytes()
    )
    return table["topicConfigTable"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_topic_with_acknowledged_messages_lost_its_settings_in_a_kill(
    tmp_path: Path, flush: str
) -> None:
    """Symptom: an original that took the folder over did not know the topic at all."""

    async def use(site: Running) -> None:
        assert (await site.call(send_request("Orders", defaultTopicQueueNums=4))).code == 0

    with_broker(tmp_path, SystemFiles(), use, flush_disk_type=flush)
    assert saved_topics(tmp_path)["Orders"]["writeQueueNums"] == 4


@pytest.mark.parametrize(("level", "made"), [(-1, "%DLQ%G"), (1, "%RETRY%G")])
def test_a_topic_of_messages_given_back_is_saved_before_the_answer(
    tmp_path: Path, level: int, made: str
) -> None:
    async def use(site: Running) -> None:
        sent = await site.call(send_request("Orders"))
        log_offset = decode_offset_id(sent.fields["msgId"]).log_offset
        assert (await site.ask(36, offset=log_offset, group="G", delayLevel=level)).code == 0

    with_broker(tmp_path, SystemFiles(), use)
    assert made in saved_topics(tmp_path)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_answers_of_a_new_topic_wait_for_its_file_and_nobody_elses_do(
    tmp_path: Path, flush: str
) -> None:
    files = SlowTopics()

    async def use(site: Running) -> None:
        assert (await site.call(send_request("Known"))).code == 0
        files.gate.clear()
        files.asked.clear()
        sends = [asyncio.create_task(site.call(send_request("New", body))) for body in (b"1", b"2")]
        assert await asyncio.to_thread(files.asked.wait, LIMIT_S)
        assert (await site.call(send_request("Known"))).code == 0
        assert (await site.call(pull_request("New", "G", 0))).body, "the log has them already"
        assert not any(send.done() for send in sends)
        files.gate.set()
        answers = await asyncio.gather(*sends)
        assert [(each.code, each.fields["queueOffset"]) for each in answers] == [(0, "0"), (0, "1")]
        assert _is_hot(site, "New"), "from here on it is a topic like all others"

    with_broker(tmp_path, files, use, flush_disk_type=flush)


def test_answers_to_sends_that_made_a_topic_overtook_each_other(tmp_path: Path) -> None:
    """Symptom: what came just after the save was answered before what had waited for it."""

    async def use(site: Running) -> None:
        port = int(site.broker.address.rpartition(":")[2])
        async with connected(port) as client:
            sends = [send_request("New", b"%d" % number) for number in range(400)]
            for number, request in enumerate(sends):
                request.opaque = number
                client.write(encode_command(request))
            answers = [await client.answer() for _ in sends]
        assert [answer.opaque for answer in answers] == list(range(400))
        assert {answer.code for answer in answers} == {0}

    with_broker(tmp_path, SystemFiles(), use)


def test_a_topic_table_that_cannot_be_saved_holds_up_no_answer(tmp_path: Path) -> None:
    """The message is in the log; the table is saved as soon as the disk takes it."""
    files = RefusingTables()

    async def use(site: Running) -> None:
        files.is_full = True
        assert (await site.call(send_request("Orders"))).code == 0
        assert not _is_hot(site, "Orders"), "it is tried again with the next send"
        files.is_full = False
        assert (await site.call(send_request("Orders"))).code == 0
        assert _is_hot(site, "Orders")

    with_broker(tmp_path, files, use)
    assert "Orders" in saved_topics(tmp_path)


def test_a_disk_that_hangs_silenced_sends_to_new_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: stored and never answered, so clients sent it again; and all of them were held."""
    monkeypatch.setattr(keeping, "WAIT_MAX_S", 0.05)
    monkeypatch.setattr(table, "WAITING_MAX", 2)
    files = SlowTopics()

    async def use(site: Running) -> None:
        files.gate.clear()
        sends = [site.call(send_request("New", b"%d" % number)) for number in range(5)]
        answers = await asyncio.gather(*sends)
        assert {answer.code for answer in answers} == {0}
        assert not _is_hot(site, "New")
        files.gate.set()
        assert (await site.call(send_request("New"))).code == 0

    with_broker(tmp_path, files, use)
    assert "New" in saved_topics(tmp_path)


def test_a_send_that_made_a_topic_cost_another_its_settings(tmp_path: Path) -> None:
    """Symptom: killed then, a topic that was being removed came back with one queue."""
    order: list[str] = []

    class Watched(SystemFiles):
        def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
            order.append(path.name)
            super().replace(path, data, keep_backup=keep_backup)

    async def use(site: Running) -> None:
        keeper = site.broker._context.keeper
        assert (await site.call(send_request("Old"))).code == 0
        held, finish = asyncio.Event(), keeper._finish_removals

        async def finish_late() -> None:
            await held.wait()
            await finish()

        keeper._finish_removals = finish_late
        removing = asyncio.create_task(site.ask(215, topic="Old"))
        await _until_unknown(site, "Old")
        order.clear()
        sending = asyncio.create_task(site.call(send_request("New")))
        answered, _ = await asyncio.wait({sending}, timeout=0.2)
        assert not answered, "the removed topic's files come first"
        assert "topics.json" not in order
        held.set()
        assert ((await sending).code, (await removing).code) == (0, 0)

    with_broker(tmp_path, Watched(), use)
    assert "Old" not in saved_topics(tmp_path)
    assert "New" in saved_topics(tmp_path)


def test_a_sync_that_failed_while_the_topic_was_saved_looked_like_a_slow_one(
    tmp_path: Path,
) -> None:
    """Symptom: FLUSH_DISK_TIMEOUT, which clients take for sent, though the store had halted."""

    class Broken(SlowDisk):
        def __init__(self) -> None:
            super().__init__()
            self.topics_gate = threading.Event()

        def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
            if path.name == "topics.json":
                assert self.topics_gate.wait(LIMIT_S)
            super().replace(path, data, keep_backup=keep_backup)

    files = Broken()

    async def use(site: Running) -> None:
        files.is_broken = True
        sending = asyncio.create_task(site.call(send_request("New")))
        async with asyncio.timeout(LIMIT_S):
            while not site.broker._store.is_halted:
                await asyncio.sleep(0.001)
        files.topics_gate.set()
        assert (await sending).code == ResponseCode.SYSTEM_ERROR

    with_broker(tmp_path, files, use, flush_disk_type="SYNC_FLUSH")


def test_a_topic_removed_before_it_was_saved_leaves_nothing_to_wait_for(tmp_path: Path) -> None:
    files = SlowTopics()

    async def use(site: Running) -> None:
        files.gate.clear()
        sending = asyncio.create_task(site.call(send_request("Brief")))
        assert await asyncio.to_thread(files.asked.wait, LIMIT_S)
        removing = asyncio.create_task(site.ask(215, topic="Brief"))
        await _until_unknown(site, "Brief")
        files.gate.set()
        assert ((await sending).code, (await removing).code) == (0, 0)

    with_broker(tmp_path, files, use)
    assert "Brief" not in saved_topics(tmp_path)


def _is_hot(site: Running, topic: str) -> bool:
    """Whether the hot path takes sends to the topic."""
    return site.broker._context.core.topics[topic].is_plain


async def _until_unknown(site: Running, topic: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while site.broker._context.topics.find(topic) is not None:
            await asyncio.sleep(0.001)
