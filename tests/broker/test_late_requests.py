"""Pulls and heartbeats that waited too long, and sends behind a slow write, are refused as busy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.context import Context
from orbitmq.broker.store_opening import this_machine
from orbitmq.config import BrokerSettings
from orbitmq.metrics import Registry
from orbitmq.net.turn import Turn
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import BINARY
from orbitmq.wire.record import scan_records
from orbitmq.world.files import BigFile, SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.broker.running import Running, running
from tests.broker.test_overload import StepClock, Watched, answers, let_finish
from tests.namesrv.registering import HandClock
from tests.net.running import connected

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
BUSY = ResponseCode.SYSTEM_BUSY
TIMED_OUT = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "


def other_request() -> Command:
    """A request that waits in no queue of the original's that has a time."""
    return Command(RequestCode.GET_MAX_OFFSET, fields={"topic": "T", "queueId": "0"})


def heartbeat(serialization: int = 0) -> Command:
    body = heartbeat_body("client", "G", "T")
    return Command(RequestCode.HEART_BEAT, body=body, serialization=serialization)


@asynccontextmanager
async def stepping(folder: Path, **settings: object) -> AsyncIterator[tuple[Running, Context, int]]:
    """A broker with one message, whose clock moves 150 ms with each read; and its port."""
    turn = Turn(asyncio.get_running_loop())
    async with running(folder, turn, msgspec.structs.replace(SETTINGS, **settings)) as site:
        assert (await site.call(send_request("T", b"first"))).code == 0
        assert (await site.call(heartbeat())).code == 0
        context = site.broker._context
        let_finish(site.broker)
        context.overload.now_s = StepClock().monotonic_s
        yield site, context, int(site.broker.address.rpartition(":")[2])


def test_each_kind_is_late_after_its_own_time_and_no_longer_than_the_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = Watched(tmp_path)
        told: list[bool] = []
        site.overload.on_late = lambda: told.append(site.overload.is_late)
        site.read_after(0.0)
        site.read_after(4.9)
        assert not site.overload.is_late
        assert site.kind() is not None, "sends have waited longer than 200 ms"
        site.read_after(0.2)
        assert site.overload.late_pull.startswith(TIMED_OUT + "5100ms, size of queue: 0")
        assert "limit 5000 ms (waitTimeMillsInPullQueue)" in site.overload.late_pull
        assert not site.overload.late_heartbeat
        site.read_after(26.0)
        assert "limit 31000 ms (waitTimeMillsInHeartbeatQueue)" in site.overload.late_heartbeat
        assert site.overload.late_pull
        await asyncio.sleep(0)  # the turn asked for its end by itself
        assert (site.overload.late_pull, site.overload.late_heartbeat) == ("", "")
        assert not site.overload.is_late
        assert told[-1] is False
        site.store.close()

    run(scenario())


def test_without_fast_failure_pulls_and_heartbeats_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = Watched(tmp_path)
        site.settings = msgspec.structs.replace(SETTINGS, broker_fast_failure_enable=False)
        site.read_after(0.0)
        site.read_after(60.0)
        assert not site.overload.is_late
        site.store.close()

    run(scenario())


def test_plain_pulls_that_come_late_in_a_long_turn_are_refused_and_sends_are_not(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        times = {"wait_time_mills_in_send_queue": 60_000, "wait_time_mills_in_pull_queue": 200}
        async with stepping(tmp_path, **times) as (_, context, port), connected(port) as client:
            found = await answers(
                client,
                other_request(),
                other_request(),
                send_request("T", b"second"),
                pull_request("T", "G", 0),
                pull_request("T", "G", 0, serialization=BINARY),
                heartbeat(),
            )
            assert [found[place].code for place in range(6)] == [0, 0, 0, BUSY, BUSY, 0]
            for place in (3, 4):
                remark = found[place].remark or ""
                assert remark.startswith(TIMED_OUT)
                assert "limit 200 ms (waitTimeMillsInPullQueue)" in remark
            assert found[3].fields == {}
            assert context.overload._refused_late.value("pull") == 2
            again = await answers(client, pull_request("T", "G", 0))
            assert [one.body for one in scan_records(again[0].body)] == [b"first", b"second"]
            assert context.core.is_pull_plain, "the hot core answers pulls again"

    run(scenario())


def test_heartbeats_that_come_late_in_a_long_turn_are_refused_and_pulls_are_not(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        times = {"wait_time_mills_in_heartbeat_queue": 200, "wait_time_mills_in_send_queue": 9_000}
        async with stepping(tmp_path, **times) as (_, context, port), connected(port) as client:
            found = await answers(
                client,
                other_request(),
                other_request(),
                heartbeat(),
                pull_request("T", "G", 0),
                heartbeat(BINARY),
            )
            assert [found[place].code for place in range(5)] == [0, 0, BUSY, 0, BUSY]
            for place in (2, 4):
                assert "limit 200 ms (waitTimeMillsInHeartbeatQueue)" in (found[place].remark or "")
            assert context.overload._refused_late.value("heartbeat") == 2
            assert (await answers(client, heartbeat()))[0].code == 0

    run(scenario())


@pytest.mark.parametrize(
    ("key", "request_of"),
    [
        ("waitTimeMillsInPullQueue", lambda: pull_request("T", "G", 0)),
        ("waitTimeMillsInHeartbeatQueue", heartbeat),
    ],
)
def test_a_changed_time_counts_at_once(tmp_path: Path, key: str, request_of: object) -> None:
    assert callable(request_of)

    async def scenario() -> None:
        async with stepping(tmp_path) as (site, _, port), connected(port) as client:
            several = [other_request(), other_request(), request_of()]
            assert (await answers(client, *several))[2].code == 0
            assert (await site.call(Command(25, body=f"{key}=200".encode()))).code == 0
            several = [other_request(), other_request(), request_of()]
            assert (await answers(client, *several))[2].code == BUSY

    run(scenario())


# --- slow writes ---


class _SlowFile:
    """A log file whose writes take time by a clock that a test moves."""

    def __init__(self, inner: BigFile, files: "SlowWrites") -> None:
        self._inner = inner
        self._files = files
        self.size = inner.size
        self.read_at = inner.read_at
        self.view = inner.view
        self.sync = inner.sync
        self.close = inner.close

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._inner.write_at(position, data)
        self._files.clock.now_s += self._files.write_s


class SlowWrites(SystemFiles):
    """Files whose log takes `write_s` for each write."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.write_s = 0.0

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        inner = super().open_big(path, size, is_mapped=is_mapped)
        return _SlowFile(inner, self) if path.parent.name == "commitlog" else inner


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [0, BUSY, 0]),
        ({"os_page_cache_busy_time_out_mills": 2_000}, [0, 0, 0]),
        ({"broker_fast_failure_enable": False}, [0, 0, 0]),
    ],
    ids=["limit 1000 ms", "limit 2000 ms", "no fast failure"],
)
def test_sends_behind_a_write_that_took_too_long_are_refused_for_one_turn(
    tmp_path: Path, change: dict[str, object], expected: list[int]
) -> None:
    async def scenario() -> None:
        files, turn = SlowWrites(), Turn(asyncio.get_running_loop())
        settings = msgspec.structs.replace(SETTINGS, **change)
        outside = this_machine(files, files.clock)
        broker = Broker(settings, tmp_path, turn, Registry(), outside=outside)
        await broker.start()
        site = Running(broker, turn)
        try:
            assert (await site.call(send_request("T", b"makes the topic"))).code == 0
            files.write_s = 1.5
            found = [await site.call(send_request("T", b"slow"))]
            files.write_s = 0.0
            found.append(await site.call(send_request("T", b"waited")))
            found.append(await site.call(send_request("T", b"later")))
            assert [one.code for one in found] == expected
            if BUSY in expected:
                remark = found[1].remark or ""
                assert remark.startswith(
                    "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in"
                    " queue: 1500ms, size of queue: 0"
                )
                assert "limit 1000 ms (osPageCacheBusyTimeOutMills)" in remark
                assert broker._context.overload._refused.value("disk") == 1
        finally:
            await site.stop()

    run(scenario())


def test_a_slow_write_of_long_ago_refuses_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = Watched(tmp_path)
        site.overload.note_slow_write(1.5)
        assert site.read_after(60.0) is None
        site.store.close()

    run(scenario())
