"""The records of queue entries that are about to be written, read back from the log.

In: runs of entries, each in log order. Out: what each record says of itself, all runs together in
log order, so that the log is read once however many queues there are.

Rules:
1. Every record is checked; None stands for what is not the record that an entry says.
2. The log is read by path, in windows: nothing of the store's state is touched.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence

from orbitmq.core import Walked, record_at
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import ReadFailed

WINDOW_SIZE = 1 << 20

ReadLog = Callable[[int, int], bytes | None]
"""Gives bytes of one log file from a log offset on, short at its end, None when it is gone."""

Entries = bytes | bytearray | memoryview


def records_of(read: ReadLog, runs: Sequence[Entries]) -> Iterator[tuple[int, int, Walked | None]]:
    """The number of the run, the code and the record of each entry; a run keeps its order."""
    end = max((_end_of(entries) for entries in runs if entries), default=0)
    start, data = 0, memoryview(b"")
    for log_offset, size, code, number in heapq.merge(*map(_rows, runs, range(len(runs)))):
        at = log_offset - start
        if at < 0 or at + size > len(data):
            start, at = log_offset, 0
            wanted = max(size, min(WINDOW_SIZE, end - log_offset))
            data = memoryview(_read_or_nothing(read, log_offset, wanted))
        record = record_at(data, at, start)
        yield number, code, record if record is not None and record.size == size else None


def _read_or_nothing(read: ReadLog, log_offset: int, size: int) -> bytes:
    """Return bytes of the log; none when the disk refuses: a unit is no reason to stop a flush."""
    try:
        return read(log_offset, size) or b""
    except ReadFailed:
        return b""


def _end_of(entries: Entries) -> int:
    log_offset, size, _ = ENTRY.unpack_from(entries, len(entries) - ENTRY_SIZE)
    return int(log_offset + size)


def _rows(entries: Entries, number: int) -> Iterator[tuple[int, int, int, int]]:
    for log_offset, size, code in ENTRY.iter_unpack(entries):
        yield log_offset, size, code, number
