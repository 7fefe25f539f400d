"""What the broker itself stores: not judged by what senders may, and whose topic was removed."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from orbitmq.broker.delays import Delays
from orbitmq.config import BrokerSettings
from orbitmq.errors import RequestFailed
from orbitmq.net.turn import Turn
from orbitmq.store.store import largest_body
from orbitmq.wire.bodies_namesrv import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.record import scan_records
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.delaying import ROOT, SETTINGS, site
from tests.broker.running import LIMIT_S, Running, begin
from tests.broker.test_send_checks import context_of, with_broker
from tests.store.driven import HandClock
from tests.world.memory_files import MemoryFiles

OFFSETS = ROOT / "config" / "delayOffset.json"
LOST = "orbitmq_broker_lost_delayed_messages_total"
DELETE_TOPIC = 215


# --- the limit for senders ---


def test_delayed_messages_are_delivered_after_the_limit_for_senders_was_lowered() -> None:
    """Symptom: messages that waited were thrown away as too large; after a kill, those behind them
    came twice."""

    async def inner() -> None:
        files, clock, names = MemoryFiles(ROOT), HandClock(), ["one", "B" * 5_000, "three"]
        async with site(files, clock) as at:
            await at.until_waiting(0)
            begun = files.contents()[OFFSETS]
            for name in names:
                at.send(name, 1)
            at.context.change_settings({"maxMessageSize": "1024"})
            await at.at(60_000)
            await at.until_waiting(0)
            assert at.bodies() == [name.encode() for name in names]
        files.put(OFFSETS, begun)  # as a kill before the next save leaves it
        async with site(files, clock) as at:
            at.context.change_settings({"maxMessageSize": "1024"})
            await at.until_waiting(0)
            assert at.bodies() == [name.encode() for name in names]

    run(inner())


def test_senders_of_delayed_messages_keep_to_their_limit(tmp_path: Path) -> None:
    async def act(at: Running) -> None:
        for size, code in ((1_024, 0), (1_025, 13)):
            sent = send_request("T", bytes(size), i="DELAY\x011")
            assert (await at.call(sent)).code == code

    with_broker(tmp_path, act, max_message_size=1_024)


def test_a_message_above_the_limit_for_senders_can_still_be_given_back(tmp_path: Path) -> None:
    """Symptom: code 1 for ever, to each try of the consumer."""

    async def act(at: Running) -> None:
        sent = await at.call(send_request("T", bytes(5_000)))
        context_of(at).change_settings({"maxMessageSize": "1024"})
        log_offset = int(sent.fields["msgId"][-16:], 16)
        assert (await at.ask(36, offset=log_offset, group="G", delayLevel=-1)).code == 0
        assert (await at.ask(30, topic="%DLQ%G", queueId=0)).fields["offset"] == "1"

    with_broker(tmp_path, act)


def test_what_no_file_can_hold_is_refused_whoever_stores_it() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            largest = largest_body(SETTINGS.mapped_file_size_commit_log)
            at.send("x" * largest, 1, properties="")
            with pytest.raises(RequestFailed, match="mappedFileSizeCommitLog") as refused:
                at.send("x" * (largest + 1), 1, properties="")
            assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL

    run(inner())


# --- while the broker is busy ---


def test_delayed_messages_are_delivered_while_the_broker_is_busy() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            await at.until_waiting(0)
            at.send("a", 1)
            await at.turn()
            at.store.note_busy("busy")
            await at.at(1_000)
            assert at.bodies() == [b"a"]
            at.store._refusals.note_disk("the disk is full")
            with pytest.raises(RequestFailed, match="full"):
                at.send("b", 1)
            at.store._refusals.note_disk("")
            at.store.note_busy("")

    run(inner())


# --- topics that were removed ---


def test_a_delayed_message_does_not_bring_its_removed_topic_back() -> None:
    """Symptom: deleteTopic, then a message that had waited was stored; the next start made the
    topic again, with one queue, and registered it."""

    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock) as at:
            await at.until_waiting(0)
            begun = files.contents()[OFFSETS]
            at.context.topics.put(TopicConfig(topic_name="Gone"))
            at.send("first", 1)
            at.send("gone", 1, topic="Gone")
            at.send("last", 1)
            await at.turn()
            at.context.topics.remove(["Gone"])
            await at.at(1_000)
            await at.until_waiting(0)
            assert at.store.find_queue("Gone", 0) is None
            assert at.metric(LOST) == 1
            assert at.bodies() == [b"first", b"last"]
        files.put(OFFSETS, begun)  # as a kill before the next save leaves it
        async with site(files, clock) as at:
            await at.until_waiting(0)
            assert at.context.topics.find("Gone") is None
            assert at.bodies() == [b"first", b"last"], "what came behind it does not come again"

    run(inner())


def test_a_delayed_message_comes_into_its_topic_that_was_made_again() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            await at.until_waiting(0)
            at.context.topics.put(TopicConfig(topic_name="Again"))
            at.send("a", 1, topic="Again")
            await at.turn()
            at.context.topics.remove(["Again"])
            at.context.topics.put(TopicConfig(topic_name="Again"))
            await at.at(1_000)
            assert at.bodies("Again") == [b"a"]

    run(inner())


def test_a_delayed_message_is_delivered_though_its_topic_was_forgotten_without_removal() -> None:
    """A kill may come before topics.json has a topic that its first, delayed message has made."""

    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            await at.until_waiting(0)
            at.send("a", 1, topic="Unknown")
            await at.at(1_000)
            assert at.bodies("Unknown") == [b"a"]

    run(inner())


class Stopping(SystemFiles):
    """Files that stop before topics.json is replaced, when they are told to."""

    def __init__(self) -> None:
        self.is_stopping = False
        self.stopped = threading.Event()
        self.go_on = threading.Event()

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        if self.is_stopping and path.name == "topics.json":
            self.stopped.set()
            assert self.go_on.wait(LIMIT_S)
        super().replace(path, data, keep_backup=keep_backup)


def test_a_kill_while_a_topic_is_removed_leaves_its_settings_or_nothing(tmp_path: Path) -> None:
    """Symptom: the topic came back with 3 queues instead of 16, other permissions and no offsets,
    for its table was saved before its files were removed."""

    async def remove() -> None:
        files = Stopping()
        settings = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
        at = await begin(tmp_path / "data", Turn(asyncio.get_running_loop()), settings, files)
        try:
            config = TopicConfig(
                topic_name="T", read_queue_count=16, write_queue_count=16, perm=6, order=True
            )
            context_of(at).topics.put(config)
            assert (await at.call(send_request("T", e=2))).code == 0
            await at.ask(15, consumerGroup="G", topic="T", queueId=2, commitOffset=1)
            await at.broker._mark_offsets()
            await at.broker._save_tables()
            files.is_stopping = True
            removing = asyncio.create_task(at.ask(DELETE_TOPIC, topic="T"))
            assert await asyncio.to_thread(files.stopped.wait, LIMIT_S)
            lock = shutil.ignore_patterns("lock")
            shutil.copytree(tmp_path / "data", tmp_path / "killed", ignore=lock)
            files.go_on.set()
            assert (await removing).code == 0
        finally:
            files.go_on.set()
            await at.stop()

    async def after_kill(at: Running) -> None:
        found = context_of(at).topics.find("T")
        assert found is not None
        assert (found.read_queue_count, found.order) == (16, True)
        pulled = await at.call(pull_request("T", "G", 0, queueId=2))
        assert list(scan_records(pulled.body)) == []
        offset = await at.ask(14, consumerGroup="G", topic="T", queueId=2)
        assert offset.fields["offset"] == "0", "what comes next is not passed over"

    async def after_stop(at: Running) -> None:
        assert context_of(at).topics.find("T") is None

    run(remove())
    with_broker(tmp_path / "killed", after_kill, mapped_file_size_commit_log=1 << 20)
    with_broker(tmp_path / "data", after_stop, mapped_file_size_commit_log=1 << 20)


def test_a_broker_whose_store_is_halted_saves_its_tables_though_a_topic_waits_to_be_removed(
    tmp_path: Path,
) -> None:
    async def act(at: Running) -> None:
        context = context_of(at)
        assert (await at.call(send_request("T"))).code == 0
        context.topics.remove(["T"])
        context.store._refusals.halt("cannot sync the log")
        await asyncio.wait_for(at.broker._save_tables(), LIMIT_S)
        assert b'"T"' not in (tmp_path / "config" / "topics.json").read_bytes()

    with_broker(tmp_path, act)


# --- finding out what was delivered ---


def test_a_bug_in_finding_out_what_was_delivered_does_not_end_delivery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: any error but StoreError ended the task unseen; nothing was delivered any more."""
    monkeypatch.setattr("orbitmq.broker.delays.RECOVERY_RETRY_S", 0.01)
    failed: list[int] = []
    find = Delays._find_delivered

    async def fails_once(delays: Delays, start: int) -> None:
        if not failed:
            failed.append(start)
            raise ValueError("a bug")
        await find(delays, start)

    monkeypatch.setattr(Delays, "_find_delivered", fails_once)

    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock) as at:
            at.send("a", 1)
            await at.turn()
        clock.now_ms += 1_000
        async with site(files, clock) as at:
            await at.until_waiting(0)
            assert at.bodies() == [b"a"]
        assert failed

    run(inner())
