"""Raw bytes of another broker's log: cut into whole records before any of them is written.

In: bytes in pieces of any size, in log order. Out: the bytes of whole records, to be written, and
then what these bring to queues and index.

Rules:
1. Only whole records go to the log. What has come of the next one waits here: a record written in
   two pieces could be torn by a power cut where no checksum of it shows that.
   Of a blank record that is longer than any message (it stands for a file that the other broker has
   lost) only the head is kept and written: the rest of a new file is zeros anyway.
2. Bytes that are no record, or not the next of its queue, are refused before anything is written,
   with their place: the other log is damaged, and guessing would make two logs out of one.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from orbitmq.core import LogTail, Queue, Walked, record_at
from orbitmq.errors import StoreError
from orbitmq.store.follow import entry_code, in_queues, index_rows
from orbitmq.store.publishing import Written
from orbitmq.wire.record import BLANK_MAGIC, BLANK_SIZE, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MAX

_PREFIX = struct.Struct(">iI")  # size, magic
_MAGICS = frozenset((MAGIC_V1, MAGIC_V2, BLANK_MAGIC))


class RawBatch(NamedTuple):
    """Whole records, and the beginning of the one that comes next."""

    data: bytes
    rest: bytes
    records: list[Walked]
    jump_size: int = 0
    """So many zeros follow `data` in the log, before `rest`: they need not be written."""
    dropped_size: int = 0
    """How much has come of the long blank record of which `rest` is the head."""


class RawFollower:
    """Cuts what comes for `append_raw`, and follows it."""

    def __init__(
        self, tail: LogTail, queue_of: Callable[[str, int], Queue], delays_ms: tuple[int, ...]
    ) -> None:
        self._tail = tail
        self._queue_of = queue_of
        self._delays_ms = delays_ms
        self.rest = b""
        """What has come of a record whose end has not."""
        self._dropped_size = 0

    @property
    def waiting_size(self) -> int:
        """How many bytes have come that are not in the log."""
        return len(self.rest) + self._dropped_size

    def forget(self) -> None:
        """Drop what has come of a record whose end has not."""
        self.rest, self._dropped_size = b"", 0

    def cut(self, data: bytes) -> RawBatch:
        """Cut what has come into whole records; nothing is changed. Raises StoreError."""
        data = self.rest + data
        records: list[Walked] = []
        next_offsets: dict[tuple[str, int], int] = {}
        position = 0
        while size := self._size_at(data, position):
            if size > RECORD_SIZE_MAX:
                return self._cut_at_long_blank(data, position, size, records)
            if size > len(data) - position:
                break
            record = self._record_at(data, position)
            if record is not None:
                for one in in_queues(record):
                    self._check_number(one, next_offsets)
                records.append(record)
            position += size
        return RawBatch(data[:position], data[position:], records)

    def _cut_at_long_blank(
        self, data: bytes, position: int, size: int, records: list[Walked]
    ) -> RawBatch:
        """End a batch with a blank record, or before it when not all of it has come."""
        behind_head = position + BLANK_SIZE
        dropped_size = len(data) - behind_head + (self._dropped_size if position == 0 else 0)
        missing_size = size - BLANK_SIZE - dropped_size
        if missing_size > 0:
            head = data[position:behind_head]
            return RawBatch(data[:position], head, records, dropped_size=dropped_size)
        rest = data[len(data) + missing_size :]
        return RawBatch(data[:behind_head], rest, records, jump_size=size - BLANK_SIZE)

    def take(self, batch: RawBatch) -> Written:
        """Return what a batch that was written brings."""
        grown: dict[Queue, int] = {}
        rows = bytearray()
        copy_count = left_out = 0
        for record in batch.records:
            own, left = index_rows(record)
            rows += own
            left_out += left
            queues = [self._add_entry(one) for one in in_queues(record)]
            copy_count += len(queues[1:])
            grown.update((queue, queue.next_offset) for queue in queues)
            self._tail.advance_clock(record.store_ms)
        self.rest, self._dropped_size = batch.rest, batch.dropped_size
        counts = (len(batch.records), copy_count, left_out)
        return Written(self._tail.end_offset, list(grown.items()), bytes(rows), *counts)

    def _size_at(self, data: bytes, position: int) -> int:
        """Return the size of what begins at a position, or 0 when not even that has come."""
        if len(data) - position < _PREFIX.size:
            return 0
        size, magic = _PREFIX.unpack_from(data, position)
        at = self._tail.end_offset + position
        left = self._tail.file_size - at % self._tail.file_size
        is_size = 0 < size <= min(left, RECORD_SIZE_MAX)
        if magic == BLANK_MAGIC:
            is_size = size == left
        if magic not in _MAGICS or not is_size:
            raise self._no_record(at)
        return int(size)

    def _record_at(self, data: bytes, position: int) -> Walked | None:
        """Return the whole record at a position; None when it only fills the file."""
        if _PREFIX.unpack_from(data, position)[1] == BLANK_MAGIC:
            return None
        record = record_at(memoryview(data), position, self._tail.end_offset)
        if record is None:
            raise self._no_record(self._tail.end_offset + position)
        return record

    def _no_record(self, at: int) -> StoreError:
        return StoreError(
            f"the bytes at log offset {at} that came from the other log are no record; run"
            " `orbitmq store check` there"
        )

    def _check_number(self, record: Walked, next_offsets: dict[tuple[str, int], int]) -> None:
        key = (record.topic, record.queue_id)
        due = next_offsets.get(key)
        if due is None:
            due = self._queue_of(*key).next_offset
        if record.queue_offset != due:
            raise StoreError(
                f"the record at log offset {record.log_offset} is number {record.queue_offset} of"
                f" topic {record.topic}, queue {record.queue_id}, where {due} is due: the two logs"
                " are not the same"
            )
        next_offsets[key] = due + 1

    def _add_entry(self, record: Walked) -> Queue:
        queue = self._queue_of(record.topic, record.queue_id)
        code = entry_code(record, self._delays_ms)
        queue.put_entry(record.log_offset, record.size, code)
        return queue
