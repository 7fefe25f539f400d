"""Overload: refused sends say why, accepted ones are kept, everything else goes on, and it ends."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.context import Context
from orbitmq.broker.overload import Overload
from orbitmq.config import BrokerSettings
from orbitmq.metrics import Registry
from orbitmq.net.turn import Turn
from orbitmq.store.refusals import RefusalKind
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.frame import BINARY
from orbitmq.wire.record import scan_records
from orbitmq.world import memory
from orbitmq.world.clock import SystemClock
from orbitmq.world.machine import memory_bytes
from orbitmq.world.net import run
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.broker.flooding import Account, flood
from tests.broker.running import running
from tests.foreign.judged import up_command
from tests.foreign.running import Program, started
from tests.namesrv.registering import HandClock
from tests.net.running import Client, connected, until
from tests.store.opened import open_store
from tests.wire_client import WireClient

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
FLOOD_S = 60.0 if IS_LONG else 4.0
TIMES_MIN = 2.0 if IS_LONG else 1.0
"""So many times what the broker stores is sent at least; beside other tests a flood may be thin."""

CAUSES = ("waitTimeMillsInSendQueue", "queue and index entries wait to be written, limit")
"""What a flood can bring to its limit: the loop, or, for as long as a minute, the queue files."""

NORMAL_S = 5.0
"""So long after the end of a flood everything is as before."""
MIB = 1 << 20


# --- the loop, by a clock that a test moves ---


class Watched:
    """An Overload on a real store, with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(folder)
        self.clock = HandClock()
        self.turn = Turn(asyncio.get_running_loop())
        self.settings = SETTINGS
        self.overload = Overload(
            self.store, self.turn, self.clock, lambda: self.settings, Registry()
        )

    def read_after(self, passed_s: float) -> RefusalKind | None:
        """Let time pass, then read something; return what stands in the way of sends."""
        self.clock.now_s += passed_s
        now_s = self.overload.now_s()
        if now_s >= self.overload.look_s:
            self.overload.note_read(now_s)
        return self.kind()

    def kind(self) -> RefusalKind | None:
        """Return what stands in the way of sends."""
        return self.store.refusal_kind


def test_a_turn_longer_than_the_limit_is_behind_until_it_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = Watched(tmp_path)
        assert site.read_after(5.0) is None, "an idle loop is not behind"
        assert site.read_after(0.19) is None
        assert site.read_after(0.0415) is RefusalKind.BUSY
        assert site.store.tail.refusal.startswith(
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue:"
            " 231ms, size of queue: 0"
        )
        assert "limit 200 ms (waitTimeMillsInSendQueue)" in site.store.tail.refusal
        await asyncio.sleep(0)  # the turn asked for its end by itself
        assert site.kind() is None
        assert site.read_after(10.0) is None
        site.store.close()

    run(scenario())


def test_the_limit_in_force_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = Watched(tmp_path)
        site.settings = msgspec.structs.replace(SETTINGS, wait_time_mills_in_send_queue=1_000)
        site.read_after(0.0)
        assert site.read_after(0.9) is None
        assert site.read_after(0.2) is RefusalKind.BUSY
        site.store.close()

    run(scenario())


def test_without_fast_failure_a_late_loop_refuses_nothing_and_memory_still_does(
    tmp_path: Path,
) -> None:
    """Symptom: brokerFastFailureEnable=false was accepted, and sends were refused all the same."""

    async def scenario() -> None:
        site = Watched(tmp_path)
        site.settings = msgspec.structs.replace(SETTINGS, broker_fast_failure_enable=False)
        site.read_after(0.0)
        assert site.read_after(60.0) is None
        await asyncio.sleep(0)
        site.settings = msgspec.structs.replace(site.settings, memory_bytes_max=MIB)
        await site.overload.look()
        assert site.kind() is RefusalKind.BUSY
        site.store.close()

    run(scenario())


def test_memory_above_its_limit_refuses_until_a_look_finds_it_below(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = Watched(tmp_path)
        await site.overload.look()
        assert site.kind() is None
        site.settings = msgspec.structs.replace(SETTINGS, memory_bytes_max=MIB)
        await site.overload.look()
        assert site.kind() is RefusalKind.BUSY
        assert site.store.tail.refusal.startswith(
            "[OVERLOAD]system busy, start flow control for a while: the broker uses "
        )
        assert "limit 1 MiB (memoryBytesMax)" in site.store.tail.refusal
        site.read_after(0.0)
        site.read_after(0.3)
        await asyncio.sleep(0)
        assert site.kind() is RefusalKind.BUSY, "the end of a turn frees no memory"
        site.settings = SETTINGS
        await site.overload.look()
        assert site.kind() is None
        site.store.close()

    run(scenario())


def test_a_graver_reason_is_told_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = Watched(tmp_path)
        site.store.note_busy("busy")
        site.store._refusals.note_disk("the disk is full")
        assert (site.kind(), site.store.tail.refusal) == (
            RefusalKind.DISK,
            "the disk is full",
        )
        site.store._refusals.note_disk("")
        assert site.store.tail.refusal == "busy"
        site.store.note_busy("")
        site.store.close()

    run(scenario())


# --- memory as the system tells it ---


def test_own_memory_counts_what_is_ours_and_not_mapped_files(tmp_path: Path) -> None:
    before = memory.own_bytes()
    ours = bytearray(os.urandom(1)) * (64 * MIB)
    assert 60 * MIB < memory.own_bytes() - before < 100 * MIB
    del ours
    memory.give_back()
    assert memory.own_bytes() - before < 30 * MIB


@pytest.mark.parametrize(
    ("group", "file", "text", "expected"),
    [
        ("0::/a/b", "a/b/memory.max", "1048576", MIB),
        ("0::/a/b", "a/memory.max", "1048576", MIB),
        ("0::/", "memory.max", "1048576", MIB),
        ("0::/a", "a/memory.max", "max", None),
        ("4:cpu,memory:/a", "memory/a/memory.limit_in_bytes", "1048576", MIB),
        ("4:cpu:/a", "cpu/a/memory.max", "1048576", None),
    ],
)
def test_the_limit_of_a_container_counts(
    tmp_path: Path, group: str, file: str, text: str, expected: int | None
) -> None:
    (tmp_path / "cgroup").write_text(f"{group}\n")
    path = tmp_path / "groups" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
    found = memory.allowed_bytes(tmp_path / "cgroup", tmp_path / "groups")
    assert found == (expected or memory_bytes())


# --- a broker that is busy ---


class StepClock(SystemClock):
    """A clock that moves each time it is asked, by 150 ms unless told otherwise."""

    def __init__(self, step_s: float = 0.15) -> None:
        self.now_s = 0.0
        self._step_s = step_s

    def monotonic_s(self) -> float:
        self.now_s += self._step_s
        return self.now_s

    def wall_ms(self) -> int:
        return 4_000_000_000_000 + round(self.now_s * 1000)


def let_finish(broker: Broker) -> None:
    """Have the broker handle one read in one turn, however slow the machine is."""
    watch = broker._server._watch
    watch.limits = msgspec.structs.replace(watch.limits, handling_s=60.0)


async def answers(client: Client, *requests: Command) -> dict[int, Command]:
    """Send requests in one piece; return the answers by the places of their requests."""
    for place, request in enumerate(requests):
        request.opaque = place
    client.write(b"".join(map(encode_command, requests)))
    wanted = [request for request in requests if not request.is_oneway]
    found: dict[int, Command] = {}
    while len(found) < len(wanted):
        answer = await client.answer()
        if answer.is_response:  # else the broker tells us that we joined a group
            found[answer.opaque] = answer
    return found


@pytest.mark.parametrize(("step_s", "apart_ms"), [(0.01, 20), (0.0001, 0)])
def test_messages_of_a_long_turn_have_the_time_at_which_they_were_read(
    tmp_path: Path, step_s: float, apart_ms: int
) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            assert (await site.call(send_request("T", b"made"))).code == 0
            context: Context = site.broker._context
            let_finish(site.broker)
            clock = context.clock = context.hot._clock = StepClock(step_s)
            context.overload.now_s = clock.monotonic_s
            port = int(site.broker.address.rpartition(":")[2])
            async with connected(port) as client:
                queue = {"topic": "T", "queueId": "0"}
                others = [Command(RequestCode.GET_MAX_OFFSET, fields=queue) for _ in range(2)]
                await answers(client, send_request("T", b"1"), *others, send_request("T", b"2"))
                found = await answers(client, pull_request("T", "G", 1))
                first, second = scan_records(found[0].body)
                assert second.store_ms - first.store_ms == apart_ms

    run(scenario())


def test_sends_that_come_late_in_a_long_turn_are_refused_and_all_else_is_answered(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            assert (await site.call(send_request("T", b"first"))).code == 0
            context: Context = site.broker._context
            let_finish(site.broker)
            context.overload.now_s = StepClock().monotonic_s
            port = int(site.broker.address.rpartition(":")[2])
            heartbeat = Command(RequestCode.HEART_BEAT, body=heartbeat_body("client", "G", "T"))
            async with connected(port) as client:
                found = await answers(
                    client,
                    heartbeat,
                    Command(RequestCode.GET_MAX_OFFSET, fields={"topic": "T", "queueId": "0"}),
                    send_request("T", b"late"),
                    send_request("T", b"late and one-way", flag=2),
                    pull_request("T", "G", 0),
                    send_request("T", b"late, too", serialization=BINARY),
                )
                assert [found[place].code for place in (0, 1, 2, 4, 5)] == [0, 0, 2, 0, 2]
                for place in (2, 5):
                    remark = found[place].remark or ""
                    assert remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
                assert found[2].fields == {}, (
                    "as the original's, which is refused before its handler"
                )
                assert [one.body for one in scan_records(found[4].body)] == [b"first"]
                again = await answers(client, send_request("T", b"next turn"))
                assert (again[0].code, again[0].fields["queueOffset"]) == (0, "1")
            refused = context.overload._refused
            assert refused.value("loop") == 3

    run(scenario())


def busy_requests() -> dict[str, Command]:
    batch = encode_batch([BatchMessage(b"one", b"", 0), BatchMessage(b"two", b"", 0)])
    old_names = {
        "producerGroup": "PG",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": "",
    }
    batched = send_request("T", batch, m="true")
    return {
        "310": send_request("T"),
        "10": Command(RequestCode.SEND_MESSAGE, fields=old_names),
        "320": Command(RequestCode.SEND_BATCH_MESSAGE, fields=batched.fields, body=batch),
        "310-binary": send_request("T", serialization=BINARY),
        "310-unknown-topic": send_request("NOT_THERE"),
    }


@pytest.mark.parametrize("kind", busy_requests())
def test_every_kind_of_send_is_refused_while_memory_is_short(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            assert (await site.call(send_request("T"))).code == 0
            context = site.broker._context
            context.settings = msgspec.structs.replace(context.settings, memory_bytes_max=1)
            await until(lambda: context.store.refusal_kind is RefusalKind.BUSY)
            answer = await site.call(busy_requests()[kind])
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert (answer.remark or "").startswith("[OVERLOAD]system busy")
            assert "(memoryBytesMax)" in (answer.remark or "")
            pulled = await site.call(pull_request("T", "G", 0))
            assert pulled.code == 0
            context.settings = msgspec.structs.replace(context.settings, memory_bytes_max=0)
            await until(lambda: context.store.refusal_kind is None)
            assert (await site.call(send_request("T"))).fields["queueOffset"] == "1"

    run(scenario())


# --- a flood on a broker of its own ---


def own_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("RssAnon:")[2].split()[0]) // 1024


class Bystander:
    """Pulls, sends and beats while a flood goes on, and looks at the broker's memory."""

    def __init__(self, program: Program, topic: str) -> None:
        self._pid = program._process.pid
        self._client = WireClient(program.ready["broker"])
        self._topic = topic
        self._ended = threading.Event()
        self.codes: set[int] = set()
        self.rounds = 0
        self.peak_mib = 0
        self.longest_s = 0.0
        self.refused = 0
        self.refused_s = 0.0
        """When a send of its own was last refused."""

    def run(self) -> None:
        while not self._ended.wait(0.05):
            begin_s = time.monotonic()
            heartbeat = heartbeat_body("bystander", "G", self._topic)
            self.codes.add(self._client.ask(RequestCode.HEART_BEAT, heartbeat).code)
            self.codes.add(self._client.call(pull_request(self._topic, "G", 0)).code)
            sent = self._client.call(send_request("Beside"))
            assert sent.code in (0, ResponseCode.SYSTEM_BUSY), sent.remark
            if sent.code:
                self.refused += 1
                self.refused_s = time.monotonic()
            self.rounds += 1
            self.longest_s = max(self.longest_s, time.monotonic() - begin_s)
            self.peak_mib = max(self.peak_mib, own_mib(self._pid))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._client.close()


def read_all(client: WireClient, topic: str, count: int) -> int:
    """Pull the whole queue; return how many messages it has."""
    offset = 0
    while offset < count:
        answer = client.call(pull_request(topic, "G", offset))
        assert answer.code == 0, (offset, answer.remark)
        offset = int(answer.fields["nextBeginOffset"])
    return offset


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(90 + 6 * FLOOD_S)
@pytest.mark.parametrize(
    ("limit_ms", "connections"), [(200, 256), (20, 32)], ids=["default", "20-ms"]
)
def test_a_flood_is_refused_with_its_cause_and_nothing_accepted_is_lost(
    tmp_path: Path, limit_ms: int, connections: int
) -> None:
    """The default limit needs as many connections that a turn, 256 KiB of each, takes longer."""
    options = ("-D", f"waitTimeMillsInSendQueue={limit_ms}") if limit_ms != 200 else ()
    with (
        started(up_command(tmp_path, *options)) as program,
        WireClient(program.ready["broker"]) as client,
    ):
        assert client.call(send_request("T")).code == 0
        before_mib = own_mib(program._process.pid)
        bystander = Bystander(program, "T")
        with bystander.at_work():
            account = run_flood(program.ready["broker"], connections)
            answered_s = time.monotonic() - account.ended_s
            again = client.call(send_request("T"))
            assert again.code == 0, again.remark
        normal_s = max(0.0, bystander.refused_s - account.ended_s)
        count = int(again.fields["queueOffset"]) + 1
        assert read_all(client, "T", count) == count
    stored, refused = len(account.stored), account.refused_count
    print(
        f"overload {FLOOD_S:g} s, {connections} connections, limit {limit_ms} ms: sent"
        f" {account.sent}, stored {stored}, refused {refused}, memory {before_mib} to"
        f" {bystander.peak_mib} MiB, {bystander.rounds} rounds beside, the longest"
        f" {bystander.longest_s:.2f} s, {bystander.refused} sends refused; after the end they were"
        f" refused for {normal_s:.2f} s, and all was answered in {answered_s:.2f} s"
    )
    assert (account.failed, account.lost, account.answered) == (set(), 0, account.sent)
    assert sorted(account.stored) == list(range(1, stored + 1))
    assert count == stored + 2
    assert stored > 0
    assert refused > 0
    assert account.sent >= TIMES_MIN * stored
    assert all(
        "busy, start flow control for a while" in cause and any(known in cause for known in CAUSES)
        for cause in account.refused
    ), account.refused
    assert max(normal_s, answered_s) < NORMAL_S
    assert bystander.codes == {0}
    assert bystander.rounds > 1
    assert bystander.peak_mib < before_mib + 256


def run_flood(address: str, connections: int) -> Account:
    found: list[Account] = []

    async def scenario() -> None:
        found.append(await flood(address, "T", connections, FLOOD_S))

    run(scenario())
    return found[0]
