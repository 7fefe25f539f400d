"""The writers of format `rocketmq`: a task's rows become messages, all of them acknowledged.

In: Arrow batches of one task. Out: a SinkCommit that says what was stored, or SinkFailed.

Rules:
1. `write` returns when every row is stored. A task without rows connects to nobody.
2. An idempotent task sends its first row before all others and its last one after all others
   (sink_keys rule 2), and leaves out what is stored already (sink_earlier).
3. Topics only grow: a batch write in mode overwrite is refused. A stream in complete mode appends
   the whole result with each batch.
4. What travels to the tasks holds no connection: options, the names of columns, a time.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from orbitmq.errors import SettingError
from orbitmq.spark.cluster import Cluster, cluster_of
from orbitmq.spark.data_loss import name_of
from orbitmq.spark.internals import shorten_rest
from orbitmq.spark.sink_earlier import Earlier
from orbitmq.spark.sink_keys import END, TaskKey, Write, current_task
from orbitmq.spark.sink_ledger import BatchStarts, earliest_ms, keep_ends
from orbitmq.spark.sink_messages import Messages, messages_of, named_columns, rows_by_topic
from orbitmq.spark.sink_options import FORMAT, SinkOptions, check_sink_topic, sink_options
from orbitmq.spark.sink_patience import patiently
from orbitmq.spark.sink_requests import Requests
from orbitmq.spark.sink_schema import check_schema
from orbitmq.spark.sink_sending import Outbox, SinkFailed, publish_queues
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.world.clock import SystemClock
from orbitmq.world.machine import keep_freed_memory

log = logging.getLogger(__name__)


@dataclass
class SinkCommit(WriterCommitMessage):
    """What one task has stored."""

    query: str = ""
    rows: int = 0
    skipped: int = 0
    """Rows that an earlier attempt had stored."""
    ends: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """The offset behind its last row in each queue: topic, broker, queue id."""


class SinkPlan(msgspec.Struct, frozen=True):
    """What tasks need to know."""

    options: SinkOptions
    columns: tuple[str, ...]
    is_stream: bool = False
    begun_ms: int | None = None
    """When a batch write began that has no name."""

    @property
    def write(self) -> Write:
        """What the keys of its rows are made of."""
        return Write(self.is_stream, self.options.write_id, self.options.is_idempotent)


def batch_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer of a batch; raises SettingError for wrong options or columns."""
    if overwrite:
        raise SettingError(f'{FORMAT}: topics only grow; write with mode("append")')
    shorten_rest()
    options = sink_options(given)
    if options.is_idempotent and not options.write_id:
        log.warning(
            "%s: delivery=idempotent without writeId: repeated tasks store nothing twice, but"
            " running this write again does; give it a name with writeId",
            FORMAT,
        )
    begun_ms = None if options.write_id else SystemClock().wall_ms()
    columns = check_schema(schema, options)
    return TopicBatchWriter(SinkPlan(options, columns, begun_ms=begun_ms))


def stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """Return the writer of a stream; raises SettingError for wrong options or columns."""
    shorten_rest()
    options = sink_options(given)
    if options.write_id:
        raise SettingError(f"{FORMAT}: writeId is for batch writes; a stream has its checkpoint")
    return TopicStreamWriter(SinkPlan(options, check_schema(schema, options), is_stream=True))


class TopicBatchWriter(DataSourceArrowWriter):
    """Writes the rows of one batch write."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[Any]) -> SinkCommit:
        """Store the rows of a task."""
        return write_rows(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: rows are stored when their tasks have ended."""
        shorten_rest()


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[Any]) -> SinkCommit:
        """Store the rows of a task."""
        return write_rows(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Keep where the batch has ended, for those that may be repeated."""
        shorten_rest()
        commits = [each for each in messages if isinstance(each, SinkCommit) and each.ends]
        if self._plan.options.is_idempotent and commits:
            ends = [
                {MessageQueue(*place): end for place, end in each.ends.items()} for each in commits
            ]
            keep_ends(cluster_of(self._plan.options), commits[0].query, batchId, ends)


@cache
def _keep_memory_of_requests() -> None:
    """Once in a worker, whatever it did before: else each page of a request costs a fault."""
    keep_freed_memory()


def write_rows(plan: SinkPlan, batches: Iterator[Any]) -> SinkCommit:
    """Store all rows of the task that runs here; return what was stored."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return SinkCommit()
    shorten_rest()
    _keep_memory_of_requests()
    return write_task(plan, current_task(plan.write), first, rows)


def write_task(plan: SinkPlan, task: TaskKey, first: Any, rows: Iterator[Any]) -> SinkCommit:
    """Store the rows of a task: those of an Arrow batch and all that come after it."""
    writing = Writing(plan, cluster_of(plan.options), task)
    try:
        if plan.options.is_idempotent:
            writing.write_marked(first, rows)
        else:
            writing.write_all(first, rows)
    finally:
        writing.close()
    return writing.commit()


class Writing:
    """One task's way from rows to stored messages."""

    def __init__(self, plan: SinkPlan, cluster: Cluster, task: TaskKey) -> None:
        self._plan = plan
        self._options = plan.options
        self._cluster = cluster
        self._task = task
        self._earlier: Earlier | None = None
        if self._options.is_idempotent:
            since_ms = earliest_ms(self._options.look_back_ms, plan.begun_ms)
            starts = BatchStarts(cluster, task, since_ms)
            self._earlier = Earlier(cluster, self._options, task, starts)
        self._outbox = Outbox(cluster, self._options, self._earlier)
        self._requests: dict[str, Requests] = {}
        self._position = 0
        self._count = 0

    def close(self) -> None:
        """End what is under way, if the task has failed."""
        self._outbox.abandon()

    def commit(self) -> SinkCommit:
        """Return what was stored."""
        ends = {
            (queue.topic, queue.broker_name, queue.queue_id): end
            for queue, end in self._outbox.ends.items()
        }
        skipped = self._earlier.skipped if self._earlier is not None else 0
        return SinkCommit(self._task.query, self._count, skipped, ends)

    def write_all(self, first: Any, rows: Iterator[Any]) -> None:
        """Send rows as they come."""
        self._send(first)
        for batch in rows:
            self._send(batch)
        self._outbox.flush()

    def write_marked(self, first: Any, rows: Iterator[Any]) -> None:
        """Send the first row, then all others, then the last one (rule 2)."""
        if self._is_stored():
            self._skip(first, rows)
            return
        following = list(islice(rows, 1)) if first.num_rows == 1 else []
        if first.num_rows > 1 or following:
            self._send(first.slice(0, 1))
            self._outbox.flush()
            first = first.slice(1)
        held = first
        for batch in chain(following, rows):
            self._send(held)
            held = batch
        self._send(held.slice(0, held.num_rows - 1))
        self._outbox.flush()
        self._send(held.slice(held.num_rows - 1), is_last=True)
        self._outbox.flush()

    def _is_stored(self) -> bool:
        """Whether the task has one topic, and everything of it is there."""
        topic = self._options.topic
        if not topic or self._earlier is None:
            return False
        return self._earlier.is_complete(self._cluster.wrap(topic))

    def _skip(self, first: Any, rows: Iterator[Any]) -> None:
        """Read the rows to their end: Spark wants to use this process again."""
        count = first.num_rows + sum(batch.num_rows for batch in rows)
        if self._earlier is not None:
            self._earlier.skipped += count

    # --- one Arrow batch ---

    def _send(self, batch: Any, *, is_last: bool = False) -> None:
        count = batch.num_rows
        if not count:
            return
        numbers = np.arange(self._position, self._position + count, dtype=np.uint64)
        self._position += count
        if is_last:
            numbers[-1] = END
        columns = named_columns(self._plan.columns, batch)
        for topic, part, theirs in rows_by_topic(columns, numbers, self._options.topic):
            wrapped = self._cluster.wrap(topic)
            messages = self._unsent(wrapped, part, theirs)
            for request in self._requests_of(wrapped).of(messages) if len(messages) else ():
                self._outbox.put(request)
            self._count += len(messages)

    def _unsent(self, topic: str, columns: dict[str, Any], numbers: Any) -> Messages:
        namespace = self._options.namespace
        messages = messages_of(self._task, columns, numbers, namespace)
        if self._earlier is None:
            return messages
        if not self._earlier.is_known(topic):
            self._earlier.is_complete(topic)
        unsent = self._earlier.unsent(topic, messages)
        if unsent is None:
            return messages
        positions, renumbered = unsent
        left = {name: column.take(positions) for name, column in columns.items()}
        return messages_of(self._task, left, renumbered, namespace)

    def _requests_of(self, topic: str) -> Requests:
        found = self._requests.get(topic)
        if found is None:
            check_sink_topic(topic)
            asked = patiently(lambda: self._queues(topic), self._options.retries)
            queues = self._cluster.wait(asked)
            found = self._requests[topic] = Requests(topic, queues, self._options)
        return found

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        instance = await self._cluster.instance()
        queues = await publish_queues(instance, topic, self._options)
        route = instance.routes.known(topic)
        if self._earlier is not None and route is not None and not route.is_template:
            _ensure_readable(set(queues).difference(route.subscribe_queues))
        return queues


def _ensure_readable(unreadable: Collection[MessageQueue]) -> None:
    """Raise SinkFailed for queues in which nobody can look what is stored."""
    if unreadable:
        raise SinkFailed(
            f"delivery=idempotent looks up what is stored, but {name_of(min(unreadable))} can be"
            " written and not read; give the topic as many queues to read as to write and the"
            " permission to read, or write with delivery=at-least-once"
        )
