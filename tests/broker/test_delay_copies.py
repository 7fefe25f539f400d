"""Delivering the short way: the same bytes as the long way, for every message that takes it.

In: records of the schedule topic as clients, other brokers and damage leave them. Out: a failure
when the two ways store anything different.
"""

from pathlib import Path

import pytest

from orbitmq.broker import delays
from orbitmq.broker.context import Context
from orbitmq.broker.delay_copies import KIND_SIZE_MAX, Place, place_of, stage_copy
from orbitmq.broker.puts import origin_of
from orbitmq.broker.queue_follower import FollowedRecord
from orbitmq.core import append
from orbitmq.wire.expression import tag_code
from orbitmq.world.net import run
from tests.broker.delaying import BORN_HOST, ROOT, SCHEDULE_TOPIC, Site, site
from tests.store.driven import HandClock
from tests.world.memory_files import MemoryFiles

CLUSTER = b"CLUSTER\x01DefaultCluster"
ID = b"UNIQ_KEY\x017F00000100002A139A550001E2400001\x02"
PLACE = b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x012\x02"
END = CLUSTER

SHORT = {
    "the id first": ID + b"TAGS\x01TagA\x02" + PLACE + END,
    "the id later": b"WAIT\x01true\x02KEYS\x01k1 k2\x02" + ID + PLACE + END,
    "the id last": PLACE + ID + END,
    "a short id": b"UNIQ_KEY\x01a\x02" + PLACE + END,
    "no id but its name": b"UNIQ_KEY\x01\x02" + PLACE + END,
    "an id with a name's end": b"UNIQ_KEY\x01a\x01b\x02" + PLACE + END,
    "an id like the cluster": b"UNIQ_KEY\x01CLUSTER\x01x\x02" + PLACE + END,
    "two ids": ID + PLACE + b"UNIQ_KEY\x01b\x02" + END,
    "two places": ID + b"REAL_TOPIC\x01bad!\x02" + PLACE + b"REAL_QID\x011\x02" + END,
    "a tag in Chinese": ID + "TAGS\x01标签\x02".encode() + PLACE + END,
    "two tags": ID + b"TAGS\x01a\x02" + PLACE + b"TAGS\x01b\x02" + END,
    "a tag in a name": ID + b"XTAGS\x01a\x02" + PLACE + END,
}
LONG = {
    "without an id": b"TAGS\x01TagA\x02" + PLACE + END,
    "an id in a value": b"KEY\x01UNIQ_KEY\x01a\x02" + PLACE + END,
    "an id that is no text": b"UNIQ_KEY\x01\xff\x02" + PLACE + END,
    "a value that is no text": ID + b"TAGS\x01\xff\x02" + PLACE + END,
    "no cluster": ID + PLACE,
    "no cluster and no end": ID + PLACE[:-1],
    "nothing behind the id": PLACE + ID[:-1],
    "another cluster": ID + PLACE + b"CLUSTER\x01Other",
    "two clusters": ID + b"CLUSTER\x01Other\x02" + PLACE + END,
    "the cluster first": END + b"\x02" + ID + PLACE,
    "an end too many": ID + PLACE + END + b"\x02",
    "an empty entry at the end": ID + PLACE + b"\x02" + END,
    "an empty entry at the front": b"\x02" + ID + PLACE + END,
    "no place": ID + b"TAGS\x01TagA\x02" + END,
    "a queue that is no number": ID + PLACE + b"REAL_QID\x01x\x02" + END,
    "a long topic": ID + PLACE + b"REAL_TOPIC\x01%b\x02" % (b"T" * 128) + END,
    "its own topic": ID + PLACE + b"REAL_TOPIC\x01SCHEDULE_TOPIC_XXXX\x02" + END,
    "half messages": ID + PLACE + b"REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02" + END,
    "much of it": ID + b"big\x01%b\x02" % (b"x" * KIND_SIZE_MAX) + PLACE + END,
}
ELSEWHERE = {
    "a queue that is new": ID + PLACE.replace(b"\x012\x02", b"\x013\x02") + END,
    "a topic that is unknown": ID + PLACE.replace(b"\x01T\x02", b"\x01U\x02") + END,
}


@pytest.mark.parametrize("properties", SHORT.values(), ids=SHORT)
def test_what_stays_as_it_is_takes_the_short_way(properties: bytes) -> None:
    place = place_of(properties, CLUSTER)
    assert place is not None
    assert (place.topic, place.queue_id in (1, 2)) == ("T", True)


def test_place_and_tag_are_those_that_the_properties_name() -> None:
    assert place_of(SHORT["the id first"], CLUSTER) == Place("T", 2, tag_code("TagA"))
    assert place_of(SHORT["two places"], CLUSTER) == Place("T", 1, 0)
    assert place_of(SHORT["two tags"], CLUSTER) == Place("T", 2, tag_code("b"))


@pytest.mark.parametrize("properties", LONG.values(), ids=LONG)
def test_what_would_change_takes_the_long_way(properties: bytes) -> None:
    assert place_of(properties, CLUSTER) is None


async def _prepare(at: Site) -> None:
    await at.until_waiting(0)
    config = at.context.topics.make_from_template("T", "TBW102", 4)
    assert config is not None
    for queue_id in (1, 2):
        at.context.topics.queue(config, queue_id)


def _park(at: Site, properties: bytes, sys_flag: int, born_host: bytes) -> None:
    """Put a record into the schedule topic, whatever its properties are."""
    tail = at.context.core.tail
    tail.store_ms = at.clock.now_ms
    stamp = (5, sys_flag, 77, 2, 0, at.clock.now_ms + 1_000)
    origin = origin_of(born_host, at.context.packed_store_host)
    append(tail, at.store.queue(SCHEDULE_TOPIC, 0), origin, stamp, b"body", properties)
    at.context.writer.request_write()


def _delivered(monkeypatch: pytest.MonkeyPatch, *, is_short: bool) -> dict[Path, bytes]:
    """Deliver every kind of record; return the files of a broker that has stopped."""
    files = MemoryFiles(ROOT)
    staged: list[int | None] = []

    def stage(context: Context, record: FollowedRecord) -> int | None:
        staged.append(stage_copy(context, record) if is_short else None)
        return staged[-1]

    async def inner() -> None:
        async with site(files, HandClock()) as at:
            await _prepare(at)
            for properties in (*SHORT.values(), *LONG.values(), *ELSEWHERE.values()):
                _park(at, properties, 0, BORN_HOST)
                _park(at, properties, 0x101, bytes(15) + b"\1\0\0\x12\x34")
            await at.turn()
            at.clock.now_ms += 1_000
            await at.until_waiting(2)  # those that wait once more, for they name the schedule topic
            assert len(at.records("T", 2)) > len(SHORT)

    with monkeypatch.context() as patched:
        patched.setattr(delays, "stage_copy", stage)
        run(inner())
    count = sum(log_offset is not None for log_offset in staged)
    # Two of each, and the second one for the queue that is new: by then it is there.
    assert count == (2 * len(SHORT) + 1 if is_short else 0)
    return files.contents()


def test_both_ways_store_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = (_delivered(monkeypatch, is_short=is_short) for is_short in (True, False))
    assert set(short) == set(long)
    kept = [path for path in short if {"commitlog", "consumequeue", "index"} & set(path.parts)]
    assert len(kept) > 3
    for path in kept:
        assert short[path] == long[path], path
