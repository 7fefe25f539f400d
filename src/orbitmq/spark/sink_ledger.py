"""What earlier attempts of a batch have stored, read from the queues, and where these begin.

In: a topic, the batch's prefix of ids, what was committed of the query or named write. Out: for
each task of the batch the rows that are stored, and whether it is complete. Why the queues and not
the brokers' index: docs/internals/spark-sink.md.

Rules:
1. A ledger looks at each offset once: `catch_up` goes on where it was, and a worker process keeps
   it for the next tasks of the batch. Rows of a complete task are forgotten.
2. A row is known by its contents, for a shuffle changes the order, and by where it lies.
3. A queue that was known is looked at, though its broker has left the route: it may hold rows.
4. Batch n begins where n - 1 ended, kept as offsets of a group; even and odd batches have one each,
   as n may still be repeated. Older offsets are only slower; without any, time decides.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from orbitmq.client.instance import Instance
from orbitmq.client.pulling import peek_request
from orbitmq.client.queue_offsets import max_offset
from orbitmq.errors import MQError, OutcomeUnknown
from orbitmq.spark.cluster import Cluster, Retries
from orbitmq.spark.data_loss import name_of
from orbitmq.spark.sink_keys import BATCH_DIGITS, END, TASK_DIGITS, TaskKey
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
from orbitmq.world.clock import SystemClock

log = logging.getLogger(__name__)

GROUP_PREFIX = "SPARK_SINK_"
CLOCK_SLACK_MS = 10 * 60 * 1000
"""So much the clocks of program and brokers may differ."""
KEEP_RETRIES = Retries(count=1, interval_s=0.5)
LOOK_RETRIES = Retries(count=20, interval_s=0.5)


class BatchStarts:
    """Where the rows of one batch begin."""

    def __init__(self, cluster: Cluster, task: TaskKey, earliest_ms: int) -> None:
        self._cluster = cluster
        self._group = group_of(task.query, task.batch - 1)
        self._earliest_ms = earliest_ms

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic; none when it does not exist."""
        return self._cluster.wait(
            patiently(lambda: readable_queues(self._cluster, topic), LOOK_RETRIES.count)
        )

    def starts(self, topic: str) -> dict[MessageQueue, int]:
        """Return the first offset of each queue at which a row of the batch can be."""
        queues = self.queues(topic)
        kept = self._cluster.group_offsets(self._group, queues, LOOK_RETRIES)
        ends = self._cluster.max_offsets(queues, LOOK_RETRIES)
        known = {queue: at for queue, at in kept.items() if at and at <= ends[queue]}
        unknown = {queue: self._earliest_ms for queue in queues if queue not in known}
        by_time = self._cluster.offsets_for_times(unknown, LOOK_RETRIES)
        return {**{queue: max(0, at) for queue, at in by_time.items()}, **known}


def earliest_ms(look_back_ms: int, begun_ms: int | None = None) -> int:
    """Return the time before which nothing is stored (rule 3); `begun_ms`: of a nameless write."""
    if begun_ms is not None:
        return max(0, begun_ms - CLOCK_SLACK_MS)
    return max(0, SystemClock().wall_ms() - look_back_ms)


def group_of(query: str, batch: int) -> str:
    """Return the consumer group in whose name brokers keep the ends of a batch (rule 1)."""
    digest = hashlib.blake2b(query.encode(), digest_size=8)
    return f"{GROUP_PREFIX}{digest.hexdigest()}_{batch % 2}"


def keep_ends(
    cluster: Cluster, query: str, batch: int, ends: Iterable[Mapping[MessageQueue, int]]
) -> None:
    """Have brokers keep where a batch has ended (rules 1 and 4)."""
    highest: dict[MessageQueue, int] = {}
    for each in ends:
        for queue, end in each.items():
            highest[queue] = max(end, highest.get(queue, 0))
    group = group_of(query, batch)
    try:
        cluster.store_group_offsets(group, highest, KEEP_RETRIES)
    except MQError as error:
        log.info("the end of batch %d is not kept, a repeated one reads more: %s", batch, error)


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


class StoredRow(NamedTuple):
    """A row that is stored: the hash of its contents, and where it lies."""

    contents: int
    place: Place


class Found(msgspec.Struct):
    """What is stored of one task: the rows by their numbers."""

    rows: dict[int, StoredRow] = {}
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
                found.rows[number] = StoredRow(contents, place)


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
