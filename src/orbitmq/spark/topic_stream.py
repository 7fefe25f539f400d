"""A stream of topics: which offsets each micro-batch takes, and its tasks.

In: Spark's offsets and limits, what the cluster holds. Out: the next end, partitions, rows, and the
group's progress at the brokers.

Rules:
1. A batch's offsets come from its two dicts alone: run again, it reads the same messages in the
   same tasks.
2. The reader is copied to workers: what it knows of a running stream stays behind.
3. An end that brings nothing new is the start itself, to the letter.
4. With nothing new it waits, `longPollMs` at most, and goes on the moment there is something.
5. Offsets that went back, or other messages before them than were read (topic_looks.py), mean that
   a topic was made again: a loss, or a start from its beginning. Ranges of a topic that was deleted
   (topic_loss.py) are a loss, or left out.
6. A small batch has one task; its rows may be sent along with the plan (`topic_small`).
7. Queues of a checkpoint that the options no longer ask for stay where they are in it, unread and
   not committed: the stream goes on with them there if they are asked for again.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from orbitmq.errors import MQError
from orbitmq.spark.cluster import QueueFailed, cluster_of
from orbitmq.spark.data_loss import messages_replaced, report_loss
from orbitmq.spark.internals import are_used, carrying_class
from orbitmq.spark.offsets import (
    batch_end,
    marks_in,
    nested,
    offsets_in,
    record_bytes_in,
    starts_in,
)
from orbitmq.spark.topic_choice import is_chosen
from orbitmq.spark.topic_commits import store_progress
from orbitmq.spark.topic_looks import others, record_bytes
from orbitmq.spark.topic_loss import readable, without_deleted
from orbitmq.spark.topic_offsets import Bounds, forget_start, start_of
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.spark.topic_planning import Range, TopicPartition, planned
from orbitmq.spark.topic_progress import Stream
from orbitmq.spark.topic_reading import read_ranges
from orbitmq.spark.topic_small import is_small, small_rows

log = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches."""

    def __init__(self, options: TopicOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._stream: Stream | None = None
        self._carried: list[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to this process (rule 2)."""
        return {**self.__dict__, "_stream": None, "_carried": None}

    def _running(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(self._options)
        return self._stream

    # --- offsets ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the stream begins; asked for again until its first batch is done."""
        stream = self._running()
        if stream.initial is None:
            stream.initial = start_of(stream.cluster, self._options)
        return nested(stream.initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the first limit that the options have; `latestOffset` keeps to all of them."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the next end (rules 3 to 5); raises DataLoss, MQError."""
        stream = self._running()
        at = offsets_in(start)
        left = {
            queue: offset for queue, offset in at.items() if not is_chosen(self._options, queue)
        }
        stream.tell_left(left)
        chosen = {queue: offset for queue, offset in at.items() if queue not in left}
        found = stream.next_end(chosen, marks_in(start), limit)
        if found is None:
            return start
        ends, starts, marks = found
        end = batch_end(left | ends, starts, marks)
        try:
            size = self._record_bytes(ranges_between(start, end))
        except QueueFailed as error:
            log.info("the size of messages is left to the plan of the tasks: %s", error)
            size = None
        stream.planned = batch_end(left | ends, starts, marks, size)
        return stream.planned

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take what is there now as the end of the query; raises MQError when a queue is silent."""
        self._running().aim()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the newest ends, for those who want to know the lag."""
        ends = self._running().known_ends
        return nested(ends) if ends else None

    # --- rows ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the tasks of a batch (rule 1); raises DataLoss, MQError."""
        options = self._options
        ranges = self._readable(self._still_there(ranges_between(start, end), end))
        if is_small(ranges, options):
            self._carry(ranges)
            return [TopicPartition(ranges)]
        size = record_bytes_in(end) or self._record_bytes(ranges)
        return list(planned(ranges, options, size))

    def _readable(self, ranges: list[Range]) -> list[Range]:
        """Return what can be read of ranges; brokers are waited for, deleted topics are not."""
        options = self._options
        try:
            return _readable_now(
                msgspec.structs.replace(options, fetch_offset_num_retries=0), ranges
            )
        except QueueFailed as error:
            log.info("offsets are asked for again: %s", error)
        there = without_deleted(cluster_of(options), options, ranges)
        return _readable_now(_patient(options), there)

    def _record_bytes(self, ranges: list[Range]) -> int | None:
        """Return how large messages are about; None where no option asks for it."""
        options = self._options
        if options.max_bytes_per_partition is None:
            return None
        return record_bytes(cluster_of(options), options, ranges)

    def _still_there(self, ranges: list[Range], end: dict[str, Any]) -> list[Range]:
        """Leave out ranges of a batch that was planned in another life, if they hold others now."""
        options = self._options
        if not ranges or (self._stream is not None and self._stream.planned == end):
            return ranges
        ends = {each.queue: each.end for each in ranges}
        gone = others(cluster_of(options), options, ends, marks_in(end))
        for queue in gone:
            report_loss(queue, messages_replaced(ends[queue]), fails=options.fail_on_data_loss)
        return [each for each in ranges if each.queue not in gone]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one task, in a worker."""
        if isinstance(partition, TopicPartition):  # an empty plan is one partition of Spark's own
            yield from read_ranges(partition.ranges, self._options, self._schema)

    def _carry(self, ranges: list[Range]) -> None:
        """Read the rows of a batch now, and be of Spark's class that sends them (rule 6)."""
        if CarryingReader is not None and are_used():
            self._carried = small_rows(ranges, self._options, self._schema)
            self.__class__ = CarryingReader

    # --- progress ---

    def commit(self, end: dict[str, Any]) -> None:
        """Tell brokers the group's progress: this batch is done."""
        forget_start(self._options)
        options = self._options
        if not options.commits:
            return
        gone = self._running().follower.gone
        read = {
            queue: at
            for queue, at in offsets_in(end).items()
            if is_chosen(options, queue) and queue not in gone
        }
        try:
            store_progress(options, read)
        except MQError as error:
            log.warning("the group's progress is not kept for now: %s", error)


def _carrying_reader() -> Any:
    """Return the class of a reader that holds the rows of the batch that is planned."""
    spark_class = carrying_class()
    if spark_class is None:
        return None

    def take_carried(self: Any, _start: Any, _end: Any) -> Iterator[Any] | None:
        """Return the rows once, and be an ordinary reader again; None: a task reads them."""
        self.__class__ = TopicStreamReader
        rows, self._carried = self._carried, None
        return None if rows is None else iter(rows)

    body = {"getCache": take_carried, "__module__": __name__}
    return type("CarryingReader", (TopicStreamReader, spark_class), body)


CarryingReader = _carrying_reader()
"""What a reader is from the moment it has planned a small batch until Spark has taken them;
None in a Spark that takes none."""


def ranges_between(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
    """Return what a batch reads; queues that begin with it say so in its end."""
    if start == end:  # also when the end says where its queues began: that batch was another one
        return []
    begins = offsets_in(start) | starts_in(end)
    ends = offsets_in(end)
    ranges = [Range(queue, begins[queue], ends[queue]) for queue in sorted(ends) if queue in begins]
    return [each for each in ranges if each.length > 0]


def _readable_now(options: TopicOptions, ranges: list[Range]) -> list[Range]:
    bounds = Bounds(cluster_of(options), options, [each.queue for each in ranges])
    return readable(ranges, bounds, fails=options.fail_on_data_loss)


def _patient(options: TopicOptions) -> TopicOptions:
    """Return options with which a broker that restarts does not end a query."""
    interval_ms = max(1, options.fetch_offset_retry_interval_ms)
    retries = max(options.fetch_offset_num_retries, options.pull_timeout_ms // interval_ms)
    return msgspec.structs.replace(options, fetch_offset_num_retries=retries)
