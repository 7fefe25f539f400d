"""Gathering in plain Python: the records that a pull gets, as views of the log.

In: a queue, an offset, how much may be taken, which tag codes pass. Out: views of the mapped log,
and where to go on.

Rules:
1. Nothing past the queue's `readable_offset` is looked at.
2. Nothing is copied. Neighbouring records become one view.
3. Only memory is touched here: entries that the queue holds, and records that are hot. The rest is
   COLD and must be read from the files in a thread, where a slow disk stops nobody.
"""

from enum import StrEnum
from typing import NamedTuple

from orbitmq.core.state import ENTRY, SCAN_COUNT_LEAST, CoreState, LogTail, Queue


class PullStatus(StrEnum):
    """How a look into a queue ended; the text is the remark of the answer."""

    COLD = "COLD"
    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"


class Gathered(NamedTuple):
    """What a look into a queue found: records as views of the log, back to back."""

    status: PullStatus
    next_offset: int
    parts: list[memoryview]
    size: int
    message_count: int = 0
    """How many records that are."""


def gather(
    state: CoreState,
    queue: Queue,
    queue_offset: int,
    count_max: int,
    codes: frozenset[int] | None,
    *,
    is_bulk: bool = False,
) -> Gathered:
    """Collect readable records from `queue_offset` on, at most `count_max` of them.

    With `codes`, entries of other tags are passed over. One record always fits, whatever its size.
    """
    readable = queue.readable_offset
    if readable == 0:
        return Gathered(PullStatus.NO_MESSAGE_IN_QUEUE, 0, [], 0)
    if queue_offset >= readable:
        status = PullStatus.OFFSET_OVERFLOW_ONE
        if queue_offset > readable:
            status = PullStatus.OFFSET_OVERFLOW_BADLY
        return Gathered(status, readable, [], 0)
    if queue_offset < queue.min_offset:
        return Gathered(PullStatus.OFFSET_TOO_SMALL, queue.min_offset, [], 0)
    if queue_offset < queue.base_offset:
        return Gathered(PullStatus.COLD, queue_offset, [], 0)
    count_limit, bytes_max = state.pull_limits(is_bulk=is_bulk)
    count_max = min(count_max, count_limit)
    scan_count = count_max if codes is None else max(SCAN_COUNT_LEAST, count_max)
    entries = queue.read_entries(queue_offset, scan_count)
    scanned, ranges, size, count = _choose(entries, count_max, bytes_max, codes)
    next_offset = queue_offset + scanned
    if not ranges:
        return Gathered(PullStatus.NO_MATCHED_MESSAGE, next_offset, [], 0)
    if ranges[0][0] < state.tail.hot_offset:
        return Gathered(PullStatus.COLD, queue_offset, [], 0)
    parts = _log_views(state.tail, ranges)
    return Gathered(PullStatus.FOUND, next_offset, parts, size, count)


def _choose(
    entries: bytes, count_max: int, bytes_max: int, codes: frozenset[int] | None
) -> tuple[int, list[tuple[int, int]], int, int]:
    """Return how many entries were looked at, where those chosen lie, their bytes and count."""
    ranges: list[tuple[int, int]] = []
    scanned = chosen = size = 0
    range_start = range_end = -1
    for log_offset, record_size, code in ENTRY.iter_unpack(entries):
        if codes is not None and code not in codes:
            scanned += 1
            continue
        if chosen == count_max or (chosen and size + record_size > bytes_max):
            break
        if log_offset != range_end:
            ranges.append((range_start, range_end))  # the first one closed so is no range
            range_start = log_offset
        range_end = log_offset + record_size
        size += record_size
        chosen += 1
        scanned += 1
    ranges.append((range_start, range_end))
    return scanned, ranges[1:], size, chosen


def _log_views(tail: LogTail, ranges: list[tuple[int, int]]) -> list[memoryview]:
    parts: list[memoryview] = []
    file_start = file_end = -1
    for start, end in ranges:
        if not file_start <= start < file_end:
            file_start = start - start % tail.file_size
            file_end = file_start + tail.file_size
            view = tail.views[file_start // tail.file_size]
        parts.append(view[start - file_start : end - file_start])
    return parts
