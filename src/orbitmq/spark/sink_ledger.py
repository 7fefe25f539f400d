"""What earlier attempts of a batch have stored, read from the queues themselves.

In: a topic, the batch's prefix of ids, and the offset of each queue from which on to look. Out: for
each task of the batch the rows that are stored, and whether it is complete.

Why queues and not the brokers' index: an original writes its index behind the log, and after a
crash it throws the newest index file away and builds only what lies in the last log files again.
A key that the index has is stored; a key that it has not may be stored all the same. Queues are
built again from the log in full before a broker serves.

Rules:
1. A ledger looks at each offset once: `catch_up` goes on where it was, and a worker process keeps
   the ledger for the next tasks of the batch. So a worker reads what was stored since the batch
   began once, however many tasks it runs.
2. Rows of a complete task are forgotten. What is kept is as much as tasks under way have stored.
3. A row is known by its contents, for a shuffle changes the order, and by where it lies.
4. A queue that was known is looked at, though its broker has left the route: it may hold rows.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from orbitmq.client.instance import Instance
from orbitmq.client.pulling import peek_request
from orbitmq.client.queue_offsets import max_offset
from orbitmq.errors import OutcomeUnknown
from orbitmq.spark.cluster import Cluster, Retries
from orbitmq.spark.data_loss import name_of
from orbitmq.spark.sink_keys import BATCH_DIGITS, END, TASK_DIGITS
from orbitmq.spark.sink_patience import patiently, readable_queues
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.compression import plain_body
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import PullMessageAnswer
from orbitmq.wire.properties import (
    KEYS,
    NAME_END,
    TAGS,
    UNIQ_KEY,
    is_reserved,
    parse_properties,
    stored_property,
)
from orbitmq.wire.record import scan_records

PULL_COUNT = 1_024
"""Brokers give fewer: 32 at an original's defaults."""
RETRIES = Retries(count=20, interval_s=0.5)
"""A broker that was killed is back by then, or the task fails and Spark repeats it."""

PULL_ANSWERS = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)

_UNIQUE = UNIQ_KEY.encode()


Place = tuple[str, int]
"""A queue of the topic: its broker's name and its number."""


class Stored(NamedTuple):
    """A row that is stored: the hash of its contents, and where it lies."""

    contents: int
    place: Place


class Found(msgspec.Struct):
    """What is stored of one task: the rows by their numbers."""

    rows: dict[int, Stored] = {}
    is_complete: bool = False


class Ledger:
    """Reads one topic for one batch. Its coroutines run on the cluster's loop."""

    def __init__(
        self, cluster: Cluster, topic: str, batch_prefix: str, starts: Mapping[MessageQueue, int]
    ) -> None:
        self.topic = topic
        self._cluster = cluster
        self._marker = f"{UNIQ_KEY}{NAME_END}{batch_prefix}".encode()
        self._prefix = batch_prefix
        self._positions = dict(starts)
        self._tasks: dict[int, Found] = {}
        self._looking = asyncio.Lock()

    def of_task(self, partition: int) -> Found:
        """Return what was found of a task so far."""
        return self._tasks.setdefault(partition, Found())

    async def catch_up(self) -> None:
        """Look at everything that was stored since the last time; raises QueueFailed."""
        async with self._looking:
            there = await patiently(
                lambda: readable_queues(self._cluster, self.topic), RETRIES.count
            )
            queues = sorted({*there, *self._positions})
            await self._cluster.ask_each("what it has stored", self._read, queues, RETRIES)

    async def _read(self, instance: Instance, queue: MessageQueue) -> None:
        end = await max_offset(instance, queue)
        position = self._positions.get(queue, 0)
        address = await instance.routes.master_address(queue)
        while position < end:
            answer = await instance.remote.ask(
                address, peek_request(queue, position, PULL_COUNT), expected=PULL_ANSWERS
            )
            if answer.code == ResponseCode.SUCCESS:
                self._take(answer.body, (queue.broker_name, queue.queue_id))
            following = read_header(PullMessageAnswer, answer.fields).next_begin_offset
            if following <= position:
                raise _stuck(queue, position, answer)
            self._positions[queue] = position = following

    def _take(self, data: bytes, place: Place) -> None:
        if self._marker not in data:  # seldom a record has to be read
            return
        for record in scan_records(data):
            unique_id = stored_property(record.properties, _UNIQUE)
            row = _row_of(unique_id) if unique_id.startswith(self._prefix) else None
            if row is None:
                continue
            partition, number = row
            found = self.of_task(partition)
            if number == END:
                found.is_complete = True
                found.rows.clear()
            if not found.is_complete:
                body = plain_body(record.body, record.sys_flag)
                contents = contents_hash(body, record.flag, record.properties)
                found.rows[number] = Stored(contents, place)


def _stuck(queue: MessageQueue, position: int, answer: Command) -> OutcomeUnknown:
    """Return the failure of a broker that gives neither rows nor a next offset; it may pass."""
    return OutcomeUnknown(
        f"{name_of(queue)} answers {answer.code} at offset {position} and names no next one"
    )


def _row_of(unique_id: str) -> tuple[int, int] | None:
    """Return partition and number of a row, if the id is one of ours."""
    if not _OURS.fullmatch(unique_id):
        return None
    return int(unique_id[BATCH_DIGITS:TASK_DIGITS], 16), int(unique_id[TASK_DIGITS:], 16)


_OURS = re.compile("[0-9A-F]{32}")


def contents_hash(body: bytes, flag: int, properties: bytes) -> int:
    """A number for what a row says; brokers' own properties and the row's id do not count."""
    own = (
        (name, value)
        for name, value in parse_properties(properties).items()
        if not is_reserved(name) or name in _COMPARED
    )
    return hash((body, flag, frozenset(own)))


_COMPARED = (TAGS, KEYS)


def contents_hashes(bodies: Any, flags: Any, properties: Any) -> Iterable[int]:
    """Return those of many rows, of Arrow's columns."""
    each = zip(bodies.to_pylist(), flags.tolist(), properties.to_pylist(), strict=True)
    return (contents_hash(*row) for row in each)
