"""Everything a broker serves of some topics, read over the wire, and what must be true of it.

In: a broker's address, ours or an original. Out: each queue's records as they came, byte for byte,
and assertions. Rules:

1. The ends are asked for (30, 31), then every queue is pulled (11) from its first message to its
   last: each number between must come, once and in order.
2. What a look-up by key (12) must find follows from the pulled records: the newest 64 with that
   key, in the order of the log. An original indexes one record twice when it opens a folder after
   a kill; what it then finds twice takes two of the 64 places.
3. An original fills its queues and index a moment after it acknowledged; `await_readable` waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orbitmq.wire.properties import KEYS, UNIQ_KEY, parse_properties, split_keys
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.requests import pull_request
from tests.foreign.asking import await_claim
from tests.foreign.loads import QUEUE_COUNT, TOPICS, Sent
from tests.wire_client import WireClient

QUERY, SEARCH, MAX_OFFSET, MIN_OFFSET, EARLIEST = 12, 29, 30, 31, 32
FOUND, QUERY_NOT_FOUND = 0, 22
QUERY_COUNT_MAX = 64
EVER = {"beginTimestamp": 0, "endTimestamp": 2**62}
GROUP = "Exchange_Group"
READABLE_LIMIT_S = 30

QueueKey = tuple[str, int]


@dataclass(frozen=True)
class QueueContents:
    """The ends of a queue and its records, back to back."""

    min_offset: int
    max_offset: int
    data: bytes

    @property
    def records(self) -> list[Record]:
        return list(scan_records(self.data))


Contents = Mapping[QueueKey, QueueContents]


def read_contents(address: str, topics: Iterable[str] = TOPICS) -> Contents:
    """Read every queue of some topics from its first message to its last."""
    with WireClient(address) as client:
        return {
            (topic, queue_id): _read_queue(client, topic, queue_id)
            for topic in topics
            for queue_id in range(QUEUE_COUNT)
        }


def _read_queue(client: WireClient, topic: str, queue_id: int) -> QueueContents:
    low = _offset(client, MIN_OFFSET, topic, queue_id)
    high = _offset(client, MAX_OFFSET, topic, queue_id)
    data, at = bytearray(), low
    while at < high:
        answer = client.call(pull_request(topic, GROUP, at, queueId=queue_id))
        assert answer.code == FOUND, (topic, queue_id, at, answer.code, answer.remark)
        offsets = [record.queue_offset for record in scan_records(answer.body)]
        assert offsets == list(range(at, at + len(offsets))), (topic, queue_id)
        assert offsets
        assert int(answer.fields["nextBeginOffset"]) == at + len(offsets)
        data += answer.body
        at += len(offsets)
    return QueueContents(low, high, bytes(data))


def _offset(client: WireClient, code: int, topic: str, queue_id: int) -> int:
    return int(client.ask(code, topic=topic, queueId=queue_id).fields["offset"])


def all_records(contents: Contents) -> list[Record]:
    """The records of all queues in the order of the log."""
    found = [record for queue in contents.values() for record in queue.records]
    return sorted(found, key=lambda record: record.log_offset)


def await_readable(address: str, sent: Sequence[Sent]) -> None:
    """Return when the newest of the acknowledged messages can be pulled and found by key."""
    ends: dict[QueueKey, int] = {}
    for one in sent:
        key = one.topic, one.queue_id
        ends[key] = max(ends.get(key, 0), one.queue_offset + 1)
    with WireClient(address) as client:

        def is_readable() -> bool:
            is_there = all(_offset(client, MAX_OFFSET, *key) >= end for key, end in ends.items())
            return is_there and bool(find_by_key(client, sent[-1].topic, sent[-1].own_key))

        await_claim(is_readable, f"{address} shows what it has acknowledged", READABLE_LIMIT_S)


def find_by_key(
    client: WireClient, topic: str, key: str, *, is_unique: bool = False
) -> list[Record]:
    """Ask for the messages of a topic that have a key."""
    extra = {"_UNIQUE_KEY_QUERY": "true"} if is_unique else {}
    answer = client.ask(QUERY, topic=topic, key=key, maxNum=QUERY_COUNT_MAX, **EVER, **extra)
    assert answer.code in (FOUND, QUERY_NOT_FOUND), answer.remark
    return list(scan_records(answer.body))


def assert_holds(contents: Contents, sent: Iterable[Sent]) -> None:
    """Every acknowledged message is where its acknowledgement said, and queues begin at 0."""
    bodies = {
        key: {record.queue_offset: record.body for record in queue.records}
        for key, queue in contents.items()
    }
    assert {queue.min_offset for queue in contents.values()} == {0}
    lost = [
        (one.topic, one.queue_id, one.queue_offset, one.own_key)
        for one in sent
        if bodies[one.topic, one.queue_id].get(one.queue_offset) != one.body
    ]
    assert lost == [], f"{len(lost)} acknowledged messages are not where they were"


def assert_found_by_keys(address: str, contents: Contents, sample_size: int = 60) -> None:
    """A sample of the messages is found by each of its keys, with all others that have the key."""
    by_key: dict[tuple[str, str], list[Record]] = {}
    records = all_records(contents)
    for record in records:
        for key in _keys(record):
            by_key.setdefault((record.topic, key), []).append(record)
    step = max(1, len(records) // sample_size)
    with WireClient(address) as client:
        for record in [*records[::step], *records[-3:]]:
            unique, *others = _keys(record)
            found = find_by_key(client, record.topic, unique, is_unique=True)
            assert_newest(found, [record], unique)
            for key in others:
                found = find_by_key(client, record.topic, key)
                assert_newest(found, by_key[record.topic, key], key)
        assert find_by_key(client, TOPICS[0], "no-such-key") == []


def assert_newest(found: list[Record], expected: list[Record], key: str) -> None:
    """An answer holds the newest of the messages with a key, as many as it may hold."""
    once = list({record.log_offset: record for record in found}.values())
    assert once == expected[-len(once) :], key
    assert len(found) >= min(QUERY_COUNT_MAX, len(expected)), key


def _keys(record: Record) -> list[str]:
    """The unique key, then the others."""
    properties = parse_properties(record.properties)
    return [properties[UNIQ_KEY], *split_keys(properties.get(KEYS, ""))]


def assert_found_by_time(address: str, contents: Contents) -> None:
    """Every queue gives, for the store time of a message, a message of that very time."""
    with WireClient(address) as client:
        for (topic, queue_id), queue in contents.items():
            records = queue.records
            times = {record.queue_offset: record.store_ms for record in records}
            place: dict[str, str | int] = {"topic": topic, "queueId": queue_id}
            earliest = client.ask(EARLIEST, **place).fields["timestamp"]
            assert int(earliest) == records[0].store_ms
            for record in records[:: max(1, len(records) // 10)]:
                answer = client.ask(SEARCH, **place, timestamp=record.store_ms)
                assert times[int(answer.fields["offset"])] == record.store_ms
            first, last = records[0].store_ms, records[-1].store_ms
            outside = [
                int(client.ask(SEARCH, **place, timestamp=at).fields["offset"])
                for at in (first - 1_000, last + 1_000)
            ]
            assert [times[offset] for offset in outside] == [first, last]


def grew_from(before: Contents, after: Contents) -> bool:
    """Whether every queue still begins with the bytes it had."""
    return all(after[key].data.startswith(queue.data) for key, queue in before.items())
