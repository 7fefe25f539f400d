"""The model that a store must agree with, and the judgement whether it does.

In: what was sent, in order. Out: `Model`, the whole log as bytes and every queue as a list, by its
own count and its own encoding; and `judge_…`, which compare a real store with it.

Rules:
1. Nothing of orbitmq.store or orbitmq.core is asked what the truth is: records are encoded by
   wire.record, offsets are counted here.
2. A disagreement is a `Violation`; its text begins with the promise that is broken.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.core import CoreState, PullStatus, Queue, gather
from orbitmq.store.reading import ColdLimits, gather_cold, offset_by_time, snapshot
from orbitmq.store.store import KeyQuery, Store
from orbitmq.wire.java import index_hash
from orbitmq.wire.properties import KEYS, UNIQ_KEY, parse_properties
from orbitmq.wire.record import BLANK_MAGIC, BLANK_SIZE, MAGIC_V1, Record, encode_record
from tests.core.hot import BORN, STORE

OUTSIDE_QUEUE = 0x4
ROLLED_BACK = 0xC
EVER_MS = 1 << 61
COUNT_MAX = 1_000

Place = tuple[str, int]
"""Topic and queue id."""


class Violation(AssertionError):
    """A promise is broken."""


def demand(is_kept: bool, promise: str, *facts: object) -> None:
    """Raise Violation unless a promise is kept."""
    if not is_kept:
        raise Violation(f"{promise}: " + ", ".join(map(str, facts)))


class Sent(NamedTuple):
    """What a sender says."""

    place: Place
    body: bytes
    properties: bytes = b""
    sys_flag: int = 0


class Message(NamedTuple):
    """A message and where it must be."""

    sent: Sent
    queue_offset: int | None
    log_offset: int
    store_ms: int
    data: bytes


class Model:
    """The log as it must be."""

    def __init__(self, file_size: int) -> None:
        self.file_size = file_size
        self.log = bytearray()
        self.messages: list[Message] = []
        self.queues: dict[Place, list[Message]] = {}
        self.first_offset = 0

    def make_room(self, size: int) -> None:
        """Fill the file when something of this size does not fit."""
        left = self.file_size - len(self.log) % self.file_size
        if size + BLANK_SIZE > left:
            self.log += struct.pack(">iI", left, BLANK_MAGIC).ljust(left, b"\0")

    def add(self, store_ms: int, *batch: Sent) -> list[Message]:
        """Put messages at the end, back to back in one file."""
        self.make_room(sum(len(self._encoded(sent, 0, 0, store_ms)) for sent in batch))
        return [self._add(sent, store_ms) for sent in batch]

    def _add(self, sent: Sent, store_ms: int) -> Message:
        queue = self.queues.setdefault(sent.place, [])
        number = None if sent.sys_flag & OUTSIDE_QUEUE else len(queue)
        at = len(self.log)
        message = Message(sent, number, at, store_ms, self._encoded(sent, number, at, store_ms))
        self.log += message.data
        self.messages.append(message)
        if number is not None:
            queue.append(message)
        return message

    def _encoded(self, sent: Sent, number: int | None, log_offset: int, store_ms: int) -> bytes:
        return encode_record(
            Record(
                topic=sent.place[0],
                queue_id=sent.place[1],
                flag=0,
                queue_offset=number or 0,
                log_offset=log_offset,
                sys_flag=sent.sys_flag,
                born_ms=1,
                born_host=BORN,
                store_ms=store_ms,
                store_host=STORE,
                reconsume_times=0,
                prepared_offset=0,
                body=sent.body,
                properties=sent.properties,
                crc=0,
                magic=MAGIC_V1,
            )
        )

    def prefix(self, end_offset: int) -> "Model":
        """Return the model of the log up to an offset; Violation when no record ends there."""
        model = Model(self.file_size)
        model.first_offset = self.first_offset
        for message in self.messages:
            if message.log_offset < end_offset:
                model.messages.append(message)
                queue = model.queues.setdefault(message.sent.place, [])
                if message.queue_offset is not None:
                    queue.append(message)
        model.log = self.log[:end_offset]
        last = model.messages[-1] if model.messages else None
        behind_last = last.log_offset + len(last.data) if last else 0
        is_whole = end_offset in (behind_last, -(-behind_last // self.file_size) * self.file_size)
        demand(is_whole, "P1 a record is whole or not there", end_offset, behind_last)
        return model

    def visible(self, place: Place, visible_offset: int) -> list[Message]:
        """Return the messages of a queue that may be seen, removed ones included."""
        queue = self.queues.get(place, [])
        return [message for message in queue if message.log_offset < visible_offset]


def keys_of(message: Message) -> set[str]:
    """Return the keys by which a message is found."""
    if message.sent.sys_flag & ROLLED_BACK == ROLLED_BACK:
        return set()
    properties = parse_properties(message.sent.properties)
    return {properties.get(UNIQ_KEY, ""), *properties.get(KEYS, "").split(" ")} - {""}


# --- Judging ---


def judge_queues(store: Store, model: Model) -> None:
    """Compare everything that can be read by queue offset."""
    visible_offset = store.tail.visible_offset
    demand(visible_offset <= len(model.log), "P2 nothing is there that was not sent")
    for place in model.queues:
        messages = model.visible(place, visible_offset)
        queue = store.queue(*place)
        demand(
            queue.readable_offset == len(messages),
            "P3 a queue goes on with its next number",
            place,
            queue.readable_offset,
            len(messages),
        )
        first = sum(message.log_offset < model.first_offset for message in messages)
        is_begun = (
            queue.min_offset <= first if not store.cleaner.is_trimmed else queue.min_offset == first
        )
        demand(is_begun, "P4 a queue begins at its first message", place, queue.min_offset, first)
        _compare(place, list(read_queue(store, queue, first)), messages[first:])
    for topic, count in store.queue_counts().items():
        for queue_id in range(count):
            found = store.find_queue(topic, queue_id)
            is_known = (topic, queue_id) in model.queues or not (found and found.readable_offset)
            demand(is_known, "P2 nothing is there that was not sent", topic, queue_id)


def read_queue(store: Store, queue: Queue, at: int) -> Iterator[bytes]:
    """Return the records of a queue from an offset on, hot or cold, back to back in pieces."""
    state = CoreState(store.tail, "c", "r")
    while at < queue.readable_offset:
        found = gather(state, queue, at, 32, None)
        if found.status is PullStatus.COLD:
            limits = ColdLimits(COUNT_MAX, 1 << 20)
            found = gather_cold(store.reader, snapshot(queue), at, COUNT_MAX, limits=limits)
        demand(found.next_offset > at, "P4 a reader gets on", queue.topic, queue.queue_id, at)
        yield b"".join(found.parts)
        at = found.next_offset


def _compare(place: Place, pieces: list[bytes], messages: list[Message]) -> None:
    found = b"".join(pieces)
    wanted = b"".join(message.data for message in messages)
    if found == wanted:
        return
    for message in messages:
        demand(message.data in found, "P1 nothing is lost", place, message.queue_offset)
    demand(len(found) <= len(wanted), "P5 nothing is there twice", place)
    raise Violation(f"P4 messages keep their order: {place}")


def judge_key(
    store: Store, model: Model, place: Place, key: str, times_ms: tuple[int, int]
) -> None:
    """Compare what is found by key, at any time and between two times."""
    query = KeyQuery(place[0], key, 0, EVER_MS, COUNT_MAX)
    wanted_hash = index_hash(f"{place[0]}#{key}")
    messages = [
        message
        for message in reversed(model.messages)
        if model.first_offset <= message.log_offset < store.tail.visible_offset
        and any(
            index_hash(f"{message.sent.place[0]}#{one}") == wanted_hash for one in keys_of(message)
        )
    ]
    wanted = [message.log_offset for message in messages]
    found = [offset for offset in store.lookup(query)() if offset >= model.first_offset]
    demand(found == wanted, "a key finds its messages, newest first", key, found, wanted)
    begin_ms, end_ms = times_ms
    some = set(store.lookup(query._replace(begin_ms=begin_ms, end_ms=end_ms))())
    for message in messages:
        is_inside = begin_ms <= message.store_ms <= end_ms
        is_far = not begin_ms - 1000 < message.store_ms < end_ms + 1000
        is_found = message.log_offset in some
        demand(is_found or not is_inside, "a key finds what was stored between", key, times_ms)
        demand(not is_found or not is_far, "a key finds only what was stored between", key)


def judge_time(store: Store, model: Model, place: Place, at_ms: int) -> None:
    """Compare where a queue stood at a time: the nearest message, of two as near the older."""
    messages = model.visible(place, store.tail.visible_offset)
    first = sum(message.log_offset < model.first_offset for message in messages)
    older = [(m.store_ms, m.queue_offset) for m in messages[first:] if m.store_ms < at_ms]
    newer = [(m.store_ms, m.queue_offset) for m in messages[first:] if m.store_ms >= at_ms]
    wanted: int | None = first
    if newer:
        wanted = newer[0][1]
    if older and (not newer or at_ms - older[-1][0] <= newer[0][0] - at_ms):
        wanted = older[-1][1]
    found = offset_by_time(store.reader, snapshot(store.queue(*place)), at_ms)
    demand(found == wanted, "a time finds the nearest message", place, at_ms, found, wanted)
