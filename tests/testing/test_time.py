"""Time that a test moves: what is due comes at once, and nobody is thrown out by it."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orbitmq.testing import EmbeddedBroker
from orbitmq.testing.moved_time import AHEAD_S_MAX, MovableClock, MovedFiles
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.consumers import join
from tests.behaviour.requests import fill, pull_request, send_request
from tests.behaviour.test_locks import lock
from tests.store.driven import HandClock
from tests.wire_client import WireClient

LEVEL_18_S = 7_200
FIRST_RETRY_S = 10
MANY = 3_000

T = TypeVar("T")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.broker) as connected:
        yield connected


def delayed(level: int) -> str:
    return f"DELAY\x01{level}\x02WAIT\x01true"


def pulled(client: WireClient, topic: str, **changes: str | int) -> list[Record]:
    return list(scan_records(client.call(pull_request(topic, "G", 0, **changes)).body))


def in_broker(broker: EmbeddedBroker, work: Coroutine[Any, Any, T]) -> T:
    return broker._run(work)


# --- delays and retries ---


def test_a_message_of_two_hours_comes_at_once_and_not_a_second_early(
    broker: EmbeddedBroker, client: WireClient
) -> None:
    fill(client, "Late", [b"late"], i=delayed(18))
    assert broker.delayed_count == 1
    broker.advance(LEVEL_18_S - 60)
    assert pulled(client, "Late") == []
    broker.advance(60)
    assert [record.body for record in pulled(client, "Late")] == [b"late"]
    assert broker.delayed_count == 0


def test_a_pull_that_is_held_gets_the_message_at_once(
    broker: EmbeddedBroker, client: WireClient
) -> None:
    fill(client, "Held", [b"held"], i=delayed(18))
    asked = client.send(pull_request("Held", "G", 0, sysFlag=6, suspendTimeoutMillis=15_000))
    broker.advance(LEVEL_18_S)
    answer = client.receive_answer(asked, 5)
    assert [record.body for record in scan_records(answer.body)] == [b"held"]


def test_a_retry_comes_at_once(broker: EmbeddedBroker, client: WireClient) -> None:
    join(client, "c@1", "G_retry", "Retried")
    sent = client.call(send_request("Retried", b"again"))
    offset = decode_offset_id(sent.fields["msgId"])[1]
    for times in (1, 2):  # the second waits for 30 s, the first for 10
        answer = client.ask(36, offset=offset, group="G_retry", delayLevel=0)
        assert answer.code == 0, answer.remark
        broker.wait_for_delayed()
        broker.advance(FIRST_RETRY_S if times == 1 else 30)
        records = pulled(client, "%RETRY%G_retry")
        assert [record.reconsume_times for record in records] == list(range(1, times + 1))
        offset = records[-1].log_offset
    assert parse_properties(records[-1].properties)["RETRY_TOPIC"] == "Retried"


def test_all_that_is_due_can_be_read_when_time_has_been_moved(
    broker: EmbeddedBroker, client: WireClient
) -> None:
    for number in range(MANY):
        client.send(send_request("Many", b"%d" % number, i=delayed(16 + number % 3)))
    for _ in range(MANY):
        assert client.receive().code == 0
    assert broker.delayed_count == MANY
    broker.advance(LEVEL_18_S)
    assert broker.delayed_count == 0
    assert client.ask(30, topic="Many", queueId=0).fields["offset"] == str(MANY)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_messages_that_only_the_files_have_come_at_once_after_a_restart(flush: str) -> None:
    settings = {"flushDiskType": flush}
    with EmbeddedBroker(settings=settings) as broker:
        with WireClient(broker.broker) as client:
            fill(client, "Cold", [b"%d" % number for number in range(100)], i=delayed(18))
        broker.restart()
        broker.advance(LEVEL_18_S)
        with WireClient(broker.broker) as client:
            assert client.ask(30, topic="Cold", queueId=0).fields["offset"] == "100"


def test_waiting_for_a_delayed_message_ends_when_it_comes_or_tells_what_to_look_at(
    broker: EmbeddedBroker, client: WireClient
) -> None:
    with pytest.raises(TimeoutError, match=r"0 delayed messages wait .* did its handler fail"):
        broker.wait_for_delayed(timeout=0.05)

    async def wait() -> None:
        waiting = asyncio.create_task(broker.wait_for_delayed_async(2))
        await asyncio.to_thread(fill, client, "Waited", [b"1", b"2"], i=delayed(18))
        await waiting

    asyncio.run(wait())
    assert broker.delayed_count == 2
    broker.advance(LEVEL_18_S)


def test_a_retry_that_comes_late_is_waited_for(broker: EmbeddedBroker, client: WireClient) -> None:
    sending = threading.Thread(target=fill, args=(client, "Soon", [b"1"]), kwargs={"i": delayed(5)})
    sending.start()
    broker.wait_for_delayed()
    sending.join()
    broker.advance(60)
    assert [record.body for record in pulled(client, "Soon")] == [b"1"]


# --- what does not move ---


def test_a_jump_throws_no_consumer_out_and_frees_no_lock(
    broker: EmbeddedBroker, client: WireClient
) -> None:
    join(client, "c@1", "G_jump", "Jumped")
    assert lock(client, "G_jump", "c@1", 0) == [0]
    broker.advance(3_600)
    in_broker(broker, broker._running()._running._expire_clients())
    assert b"c@1" in client.ask(38, consumerGroup="G_jump").body
    assert lock(client, "G_jump", "c@2", 0) == []
    assert client.arrived() is None, "somebody was told of a change"


def test_a_jump_ends_no_held_pull(broker: EmbeddedBroker, client: WireClient) -> None:
    broker.create_topic("Patient", queues=1)
    asked = client.send(pull_request("Patient", "G", 0, sysFlag=6, suspendTimeoutMillis=15_000))
    broker.advance(3_600)
    with WireClient(broker.broker) as other:
        fill(other, "Patient", [b"new"])
    answer = client.receive_answer(asked, 5)
    assert [record.body for record in scan_records(answer.body)] == [b"new"]


def test_a_jump_does_not_take_the_broker_out_of_the_routes(broker: EmbeddedBroker) -> None:
    broker.create_topic("Routed")
    broker.advance(86_400)

    async def expire() -> None:
        state = broker._running()._namesrv._state
        assert state is not None
        state.expire()

    in_broker(broker, expire())
    with WireClient(broker.namesrv) as client:
        assert client.ask(105, topic="Routed").code == 0


# --- times and ages ---


def test_store_times_follow_and_never_go_back(broker: EmbeddedBroker, client: WireClient) -> None:
    fill(client, "Timed", [b"1"])
    broker.advance(3_600)
    fill(client, "Timed", [b"2"])
    broker.advance(0)
    fill(client, "Timed", [b"3"])
    first, second, third = (record.store_ms for record in pulled(client, "Timed"))
    assert first + 3_600_000 <= second <= third < first + 3_660_000
    with pytest.raises(ValueError, match="cannot go back"):
        broker.advance(-1)
    with pytest.raises(ValueError, match="50 years"):
        broker.advance(AHEAD_S_MAX)


def test_files_age_with_the_clock_they_were_written_by(tmp_path: Path) -> None:
    clock = MovableClock(machine := HandClock())
    files, old, new = MovedFiles(clock), tmp_path / "old", tmp_path / "new"
    old.touch()
    machine.now_ms = (files.modified_ms(old) or 0) + 1_000
    clock.advance(7_200)
    new.touch()
    moved_ms = clock.moved_ms(machine.now_ms + 5)
    assert clock.wall_ms() - (files.modified_ms(old) or 0) == 7_201_000
    assert moved_ms == machine.now_ms + 5 + 7_200_000
    assert files.modified_ms(tmp_path / "none") is None
    assert clock.monotonic_s() == machine.monotonic_s()
    assert clock.file_stamp(5) == machine.file_stamp(5)


def test_log_files_are_removed_by_age_when_time_is_moved_and_new_ones_are_not() -> None:
    settings = {
        "fileReservedTime": 1,
        "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
        "mappedFileSizeCommitLog": 131_072,
    }

    with EmbeddedBroker(settings=settings) as broker, WireClient(broker.broker) as client:
        log = broker.folder / "store" / "commitlog"
        fill(client, "Aged", [bytes(40_000)] * 10)
        old = sorted(path.name for path in log.iterdir())
        inner = broker._running()._running
        in_broker(broker, inner._clean())
        assert sorted(path.name for path in log.iterdir()) == old
        broker.advance(7_200)
        fill(client, "Aged", [bytes(40_000)] * 10)
        new = {path.name for path in log.iterdir()} - set(old)
        for _ in range(3):
            in_broker(broker, flushed(broker))
            in_broker(broker, inner._clean())
        left = {path.name for path in log.iterdir()}
        assert not left & set(old[:-1])
        assert left >= new


async def flushed(broker: EmbeddedBroker) -> None:
    """Return when the store's log is on the disk, queue entries and all: only then files may go."""
    broker._running()._running._store.flush_all()
