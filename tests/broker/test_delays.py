"""Delivery of delayed messages: when, in which order, and what may stand in the way."""

import asyncio
import errno
from pathlib import Path
from typing import Literal

import pytest

from orbitmq.broker.delays import TURN_COUNT_MAX
from orbitmq.broker.puts import NewMessage, put
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record, scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.delaying import BORN_HOST, ROOT, SCHEDULE_TOPIC, own_of, site
from tests.broker.running import Running, running
from tests.stalls import StallWatch
from tests.store.driven import HandClock
from tests.world.memory_files import MemoryFiles

OFFSETS = ROOT / "config" / "delayOffset.json"


def saved(files: MemoryFiles) -> bytes:
    """What delayOffset.json holds; level numbers are its keys, as the original writes them."""
    return files.contents()[OFFSETS]


def test_a_message_is_delivered_at_its_time_and_not_before() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            await at.until_waiting(0)
            placed = at.send("a", 1)
            assert (placed.queue.topic, placed.queue.queue_id) == (SCHEDULE_TOPIC, 0)
            due_ms = int.from_bytes(placed.queue.entries[12:20], "big")
            assert due_ms == at.clock.now_ms + 1_000, "the entry says when it is due"
            await at.at(999)
            assert at.bodies() == []
            await at.at(1)
            (record,) = at.records()
            assert (record.body, record.flag, record.born_ms) == (b"a", 3, 7)
            assert (record.topic, record.queue_id, record.queue_offset) == ("T", 0, 0)
            assert record.born_host.ip == "10.0.0.9"
            assert parse_properties(record.properties) == {
                "UNIQ_KEY": "a",
                "TAGS": "TagA",
                "DELAY": "1",
                "REAL_TOPIC": "T",
                "REAL_QID": "0",
                "CLUSTER": "DefaultCluster",
            }
            queue = at.store.queue("T", 0)
            assert int.from_bytes(queue.entries[12:20], "big") == tag_code("TagA")

    run(inner())


def test_levels_do_not_wait_for_each_other_and_each_keeps_its_order() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            for number in range(9):
                at.send(f"{number}", 1 + number % 3)
                at.clock.now_ms += 10
            await at.until_waiting(9)
            await at.at(1_000)
            assert at.bodies() == [b"0", b"3", b"6"]
            await at.at(4_000)
            assert at.bodies()[3:] == [b"1", b"4", b"7"]
            await at.at(5_000)
            assert at.bodies()[6:] == [b"2", b"5", b"8"]
            assert at.metric("orbitmq_broker_delivered_delayed_messages_total") == 9

    run(inner())


def test_started_twice_it_delivers_once() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            at.delays.start()
            at.send("a", 1)
            await at.until_waiting(1)
            at.delays.start()
            await at.at(1_000)
            assert at.bodies() == [b"a"]
            assert at.metric("orbitmq_broker_delivered_delayed_messages_total") == 1

    run(inner())


def test_one_turn_delivers_a_bounded_number_and_the_next_ones_the_rest() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            await at.until_waiting(0)
            names = [f"{number}" for number in range(TURN_COUNT_MAX * 3)]
            for name in names:
                at.send(name, 1)
            await at.turn()
            at.clock.now_ms += 1_000
            at.delays.look_soon()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert 0 < len(at.bodies()) <= TURN_COUNT_MAX
            await at.until_waiting(0)
            assert at.bodies() == [name.encode() for name in names]

    run(inner())


def test_a_clock_that_was_set_back_delivers_at_once_what_it_would_keep_too_long() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            at.send("before", 3)
            await at.until_waiting(1)
            await at.at(-60_000)
            assert at.bodies() == [b"before"]

    run(inner())


def test_after_the_clock_was_set_back_new_messages_wait_as_long_as_their_level_says() -> None:
    """Symptom: store times do not go back, so every message seemed to lie too far ahead."""

    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            at.send_plain("the newest store time")
            await at.until_waiting(0)
            await at.at(-60_000)
            at.send("a", 1)
            await at.turn()
            at.clock.now_ms += 500
            at.send("b", 1)
            await at.turn()
            await at.at(499)
            assert at.bodies() == []
            await at.at(1)
            assert at.bodies() == [b"a"]
            await at.at(499)
            assert at.bodies() == [b"a"]
            await at.at(1)
            assert at.bodies() == [b"a", b"b"]
            await at.at(60_000)
            at.send("c", 1)
            await at.turn()
            await at.at(999)
            assert len(at.bodies()) == 2
            await at.at(1)
            assert at.bodies()[2:] == [b"c"]

    run(inner())


def test_while_the_store_takes_nothing_messages_wait_and_keep_their_order() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            for name in "abc":
                at.send(name, 1)
            await at.until_waiting(3)
            at.store._refusals.note_disk("no room")
            await at.at(2_000)
            assert at.bodies() == []
            at.store._refusals.note_disk("")
            await at.at(200)
            assert at.bodies() == [b"a", b"b", b"c"]

    run(inner())


def test_a_write_that_the_disk_refuses_is_tried_again_and_delivers_once() -> None:
    async def inner() -> None:
        files = MemoryFiles(ROOT)
        async with site(files, HandClock()) as at:
            for name in "abc":
                at.send(name, 1)
            await at.until_waiting(3)
            files.fail("write", lambda op: "commitlog" in str(op), errno.ENOSPC)
            await at.at(1_000)
            assert at.context.delays.waiting_count() == 3
            files.heal()
            await at.at(200)
            assert at.bodies() == [b"a", b"b", b"c"]
            assert at.context.delays.waiting_count() == 0
            size = at.store.queue("T", 0).put_bytes
            assert at.context.counts.delivered == {0: (3, size, 3)}, "refused ones are no gets"

    run(inner())


def test_a_damaged_message_is_counted_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock) as at:
            places = [at.send(name, 1) for name in "abc"]
            await at.until_waiting(3)
        (log,) = (path for path in files.contents() if "commitlog" in str(path))
        data = bytearray(files.contents()[log])
        data[places[1].log_offset + 88] ^= 0xFF  # the body
        files.put(log, bytes(data))
        clock.now_ms += 1_000
        async with site(files, clock) as at:
            await at.until_waiting(0)
            assert at.bodies() == [b"a", b"c"]
            assert at.metric("orbitmq_broker_lost_delayed_messages_total") == 1

    run(inner())
    assert "level 1, queue offsets from 1 on" in caplog.text


@pytest.mark.parametrize(
    "properties",
    [
        "REAL_TOPIC\x01T",
        "REAL_TOPIC\x01T\x02REAL_QID\x01x",
        "REAL_TOPIC\x01bad topic!\x02REAL_QID\x010",
        "REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010",
    ],
)
def test_a_message_that_names_no_place_of_its_own_is_passed_over(properties: str) -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            put(
                at.context,
                NewMessage(
                    topic=SCHEDULE_TOPIC,
                    queue_id=0,
                    body=b"strange",
                    own=own_of(f"DELAY\x011\x02{properties}"),
                    born_ms=7,
                    born_host=BORN_HOST,
                    tags_code=0,
                ),
            )
            at.send("good", 1)
            await at.until_waiting(2)
            await at.at(1_000)
            assert at.context.delays.waiting_count() == 0
            assert at.bodies() == [b"good"]
            assert at.metric("orbitmq_broker_lost_delayed_messages_total") == 1

    run(inner())


def test_old_messages_are_read_from_the_files_after_a_restart() -> None:
    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        names = [f"{number:03}" for number in range(150)]
        async with site(files, clock) as at:
            for name in names:
                at.send(name, 2)
            await at.until_waiting(150)
        async with site(files, clock) as at:
            await at.until_waiting(150)
            await at.at(4_999)
            await asyncio.sleep(0.05)
            assert at.bodies() == []
            await at.at(1)
            await at.until_waiting(0)
            assert at.bodies() == [name.encode() for name in names]

    run(inner())


def test_a_disk_that_cannot_be_read_for_a_while_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock) as at:
            at.send("a", 1)
            await at.until_waiting(1)
        async with site(files, clock) as at:
            while not at.is_ready:
                await at.turn()
            files.fail("read", times=None)
            await at.at(2_000)
            while "delayed messages of level 1 wait" not in caplog.text:
                await asyncio.sleep(0.001)
            files.heal()
            assert at.context.delays.waiting_count() == 1
            await at.at(1_000)
            await at.until_waiting(0)
            assert at.bodies() == [b"a"]
            assert at.metric("orbitmq_broker_lost_delayed_messages_total") == 0

    run(inner())


def test_writes_refused_among_old_messages_lose_none_and_deliver_none_twice() -> None:
    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        names = [f"{number:03}" for number in range(200)]
        async with site(files, clock) as at:
            for name in names:
                at.send(name, 1)
            await at.until_waiting(200)
        async with site(files, clock) as at:
            await at.until_waiting(200)
            for number in (1, 2, 2):
                files.fail("write", number, errno.ENOSPC)
            clock.now_ms += 1_000
            async with asyncio.timeout(10):
                while at.context.delays.waiting_count():
                    await at.at(10)
                    await asyncio.sleep(0.001)
            assert at.bodies() == [name.encode() for name in names]

    run(inner())


def test_after_a_restart_a_clock_that_was_set_back_delivers_at_once() -> None:
    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock) as at:
            at.send("a", 3)
            await at.until_waiting(1)
        clock.now_ms -= 600_000
        async with site(files, clock) as at:
            await at.until_waiting(0)
            assert at.bodies() == [b"a"]

    run(inner())


def test_messages_whose_log_files_were_removed_are_counted_and_passed_over() -> None:
    async def inner() -> None:
        async with site(MemoryFiles(ROOT), HandClock()) as at:
            for name in "abc":
                at.send(name, 1)
            await at.until_waiting(3)
            at.store.queue(SCHEDULE_TOPIC, 0).min_offset = 2  # as retention moves it
            await at.at(1_000)
            assert at.bodies() == [b"c"]
            assert at.metric("orbitmq_broker_lost_delayed_messages_total") == 2

    run(inner())


def test_what_was_delivered_before_a_stop_is_not_delivered_after_it() -> None:
    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock) as at:
            at.send("a", 1)
            at.send("b", 3)
            await at.until_waiting(2)
            await at.at(1_000)
            assert at.bodies() == [b"a"]
            end = at.store.tail.end_offset
        assert saved(files) == b'{"deliveredLogOffset":%d,"offsetTable":{1:1}}' % end
        clock.now_ms += 60_000
        async with site(files, clock) as at:
            await at.until_waiting(0)
            assert at.bodies() == [b"a", b"b"]

    run(inner())


def test_a_file_of_the_original_says_where_to_go_on() -> None:
    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock, is_started=False) as at:
            for name in "abcd":
                at.send(name, 1)
            await at.turn()
        files.put(OFFSETS, b'{\n\t"offsetTable":{1:2\n\t}\n}')
        clock.now_ms += 60_000
        async with site(files, clock) as at:
            await at.until_waiting(0)
            assert at.bodies() == [b"c", b"d"]

    run(inner())


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_level_of_no_delay_is_delivered_at_once(
    tmp_path: Path, flush: Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
) -> None:
    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        settings = BrokerSettings(listen_port=0, message_delay_level="0s 1h", flush_disk_type=flush)
        async with running(tmp_path, turn, settings) as at:
            await at.call(send_request("T", b"x"))
            await at.call(send_request("T", b"late", i="DELAY\x011"))
            hold = pull_request("T", "G", 1, sysFlag=6, suspendTimeoutMillis=5_000)
            answer = await at.call(hold)
            assert [record.body for record in scan_records(answer.body)] == [b"late"]

    run(inner())


async def _lateness_ms(at: Running, offset: int) -> list[int]:
    """How late the next messages came: level 1's queue and the topic's hold the same ones."""
    hold = pull_request("D", "G", offset, sysFlag=6, suspendTimeoutMillis=5_000, maxMsgNums=20)
    records: list[Record] = []
    while len(records) < 20:
        hold.fields["queueOffset"] = str(offset + len(records))
        hold.fields["maxMsgNums"] = str(20 - len(records))
        records += scan_records((await at.call(hold)).body)
    answer = await at.call(pull_request(SCHEDULE_TOPIC, "G", offset, maxMsgNums=20))
    waited = list(scan_records(answer.body))
    assert [record.body for record in waited] == [record.body for record in records]
    return [
        record.store_ms - waiting.store_ms - 1_000
        for record, waiting in zip(records, waited, strict=True)
    ]


def test_under_load_messages_come_within_100_ms_of_their_time(tmp_path: Path) -> None:
    """In real time: 600 delayed messages while others are sent as fast as they are answered.

    By as much as the machine kept the loop from its work, they may be later (tests/stalls.py).
    """
    lateness_ms: list[int] = []
    watch = StallWatch()

    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        settings = BrokerSettings(listen_port=0)
        async with running(tmp_path, turn, settings) as at:
            await at.call(send_request("D", b"x", e=1))
            is_over = asyncio.Event()

            async def load() -> None:
                while not is_over.is_set():
                    await at.call(send_request("L", bytes(1_000)))

            loads = [asyncio.create_task(load()) for _ in range(4)]
            for number in range(600):
                sent = await at.call(send_request("D", b"%d" % number, i="DELAY\x011"))
                assert sent.code == 0
            for offset in range(0, 600, 20):
                lateness_ms.extend(await _lateness_ms(at, offset))
            is_over.set()
            await asyncio.gather(*loads)

    async def watched() -> None:
        async with watch:
            await inner()

    run(watched())
    assert len(lateness_ms) == 600
    assert min(lateness_ms) >= 0, "none came early"
    assert max(lateness_ms) <= 100 + watch.longest_ms()
