"""Rows of a task: its ranges pulled, checked, decoded and filtered, batch by batch.

In: ranges of offsets, options, the columns that are wanted. Out: Arrow batches of that schema.

Rules:
1. Pulls go on in the background while a batch is decoded and Spark takes it.
2. Without a filter there is a row for every offset of the range, or DataLoss; a record that is
   damaged is an error.
3. Brokers compare hashes of tags, so tags are compared again; keys are compared here only.
4. A topic that was deleted meanwhile is DataLoss, or the end of the range (topic_loss.py).
5. A batch has about BATCH_ROWS rows or BATCH_BYTES bytes, whatever is less.
"""

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.arrow.decode import BatchDecoder
from orbitmq.arrow.segments import repeated, text_array
from orbitmq.arrow.starts import walk
from orbitmq.errors import RemoteProtocolError
from orbitmq.spark.cluster import Cluster, QueueFailed, cluster_of
from orbitmq.spark.data_loss import removed, report_loss
from orbitmq.spark.internals import shorten_rest
from orbitmq.spark.topic_loss import may_be_deleted, without_deleted
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.spark.topic_planning import Range
from orbitmq.spark.topic_pulls import Piece, QueuePulls
from orbitmq.wire.record import FIELD

BATCH_ROWS = 4_096
BATCH_BYTES = 4 << 20

_OFFSET_AT = FIELD["queue_offset"].position
_OFFSET = np.dtype([("before", f"V{_OFFSET_AT}"), ("queue_offset", ">i8")])


def read_ranges(ranges: tuple[Range, ...], options: TopicOptions, schema: Any) -> Iterator[Any]:
    """Return the rows of ranges, one after the other; raises MQError that names the queue."""
    cluster = cluster_of(options)
    shorten_rest()
    for each in ranges:
        yield from RangeReader(cluster, options, schema, each).batches()


class RangeReader:
    """Reads one range of one queue."""

    def __init__(self, cluster: Cluster, options: TopicOptions, schema: Any, whole: Range) -> None:
        self._cluster = cluster
        self._options = options
        self._range = whole
        self._schema = schema
        self._is_filtered = options.selector is not None
        self._tags = _tags(options)
        self._keys = [key.strip() for key in options.keys.split(",") if key.strip()]
        self._decoder = BatchDecoder(
            self._with_filter_columns(),
            broker_name=whole.queue.broker_name,
            decompresses=options.decompress,
            verifies_crc=options.verify_crc,
        )

    def _with_filter_columns(self) -> Any:
        schema = self._schema
        for name, is_wanted in (("tags", self._tags), ("keys", self._keys)):
            if is_wanted and name not in schema.names:
                schema = schema.append(pa.field(name, pa.string()))
        return schema

    def batches(self) -> Generator[Any, None, None]:
        """Return the batches of the range; what is not taken is not pulled any further."""
        pulls = QueuePulls(self._cluster, self._options, self._range.queue)
        pieces = pulls.pieces(self._range.begin, self._range.end)
        coming = self._cluster.submit(_some(pieces))
        try:
            while found := coming.result():
                coming = self._cluster.submit(_some(pieces))
                batch = self._decoded(found)
                if batch.num_rows:
                    yield batch
        except QueueFailed as error:
            if not may_be_deleted(error) or self._is_there():
                raise
        finally:
            coming.cancel()
            self._cluster.submit(_ended(pieces))

    def _is_there(self) -> bool:
        """Whether the topic was not deleted; raises DataLoss if that is to be an error."""
        return bool(without_deleted(self._cluster, self._options, [self._range]))

    def _decoded(self, pieces: list[Piece]) -> Any:
        for piece in pieces:
            if piece.lost_count:
                gap = removed(piece.end - piece.lost_count, piece.end)
                report_loss(self._range.queue, gap, fails=self._options.fail_on_data_loss)
        data = b"".join([piece.body for piece in pieces])
        starts = walk(data)
        if starts.stop != "end":
            raise RemoteProtocolError(
                "records", f"{self._place(pieces)}: no record at byte {starts.end} of the answers"
            )
        positions = starts.positions
        if self._is_filtered:
            positions = positions[_offsets(data, positions) < self._range.end]
        else:
            self._check_count(pieces, len(positions))
        decoded = self._decoder.decode(data, positions)
        for damage in decoded.damage:
            what = f"a message of {self._place(pieces)} is damaged ({damage.why})"
            report_loss(self._range.queue, what, fails=self._options.fail_on_data_loss)
        return self._chosen(decoded.batch)

    def _check_count(self, pieces: list[Piece], row_count: int) -> None:
        """Refuse answers that left out messages (rule 2)."""
        count = sum(piece.end - piece.begin - piece.lost_count for piece in pieces)
        if row_count != count:
            first, end = pieces[0].begin, pieces[-1].end
            what = f"the offsets from {first} to {end - 1} have {row_count} messages, not {count}"
            report_loss(self._range.queue, what, fails=self._options.fail_on_data_loss)

    def _place(self, pieces: list[Piece]) -> str:
        return f"the offsets {pieces[0].begin} to {pieces[-1].end - 1}"

    def _chosen(self, batch: Any) -> Any:
        """Return the rows that the filters let through, with the columns that are wanted."""
        if self._tags:
            batch = batch.filter(pc.is_in(batch.column("tags"), value_set=text_array(self._tags)))
        if self._keys:
            texts = batch.column("keys").to_pylist()
            wanted = set(self._keys)
            batch = batch.filter(
                pa.array(
                    [text is not None and not wanted.isdisjoint(text.split()) for text in texts]
                )
            )
        if batch.schema.names != self._schema.names:
            batch = batch.select(self._schema.names)
        return self._with_topic(batch)

    def _with_topic(self, batch: Any) -> Any:
        """Return the topic the user's name: stored ones have the namespace in theirs."""
        if not self._options.namespace or "topic" not in self._schema.names:
            return batch
        at = self._schema.names.index("topic")
        topics = repeated(self._range.queue.topic, batch.num_rows)
        return batch.set_column(at, self._schema.field(at), topics)


def _tags(options: TopicOptions) -> list[str]:
    if options.selector is None or options.sql92:
        return []
    return sorted({tag.strip() for tag in options.tags.split("||") if tag.strip()})


def _offsets(data: bytes, positions: Any) -> Any:
    """Return the queue offsets of the records at these positions."""
    if not len(positions):
        return positions
    size = _OFFSET.itemsize
    items = np.ndarray(len(data) - size + 1, np.dtype(f"V{size}"), data, strides=(1,))
    return items[positions].view(_OFFSET)["queue_offset"]


async def _some(pieces: AsyncIterator[Piece]) -> list[Piece]:
    """Return the next pieces, enough for a batch; nothing at the end."""
    found: list[Piece] = []
    row_count = byte_count = 0
    async for piece in pieces:
        found.append(piece)
        row_count += piece.end - piece.begin
        byte_count += len(piece.body)
        if row_count >= BATCH_ROWS or byte_count >= BATCH_BYTES:
            break
    return found


async def _ended(pieces: Any) -> None:
    await pieces.aclose()
