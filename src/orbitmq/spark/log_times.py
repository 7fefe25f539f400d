"""Which part of a log can hold records of the asked store times.

In: a log's files, the options, and a range of the log. Out: files, and a shorter range.

Rules:
1. Store times grow with the log, but for clocks that are set back by CLOCK_STEP_MS at most. So one
   record tells of all: those before it are not stored more than that later, those behind it not
   more than that earlier. `AskedTimes` is the only place that knows it.
2. Files are left out by their first records. Inside of files the border is looked for by halves in
   queue entries, each with the times of the records it points at. The log itself is not searched:
   bodies, and what a crash has left behind the end of a file, may look like records.
3. Only what is proven to be out is left out; where the rest goes wrong more is read, no less. Times
   have no checksum: two whole records side by side must agree, so that one damaged is no proof.
4. The range begins and ends where whole records begin, so no damage lies across its borders.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbitmq.arrow.starts import walk
from orbitmq.core import Walked, record_at
from orbitmq.spark.log_files import Log, LogFile
from orbitmq.spark.log_options import LogOptions
from orbitmq.spark.log_queues import (
    Entries,
    entries_of,
    first_at_or_behind,
    queues_of,
    topics_in,
    written_count,
)
from orbitmq.store.layout import Folder
from orbitmq.world.files import Files
from orbitmq.world.mapped import mapped

CLOCK_STEP_MS = 60_000
"""A broker's clock may be set back so far, and records be stored before those before them."""

WITNESS_COUNT = 2
NEAR_BYTES = 65_536
"""A border is not looked for more exactly."""

QUEUE_FILES_MAX = 1_000
"""So many queue files are looked at for a border; they are opened for it."""


class AskedTimes(NamedTuple):
    """The asked store times, [begin_ms, end_ms); None is no limit."""

    begin_ms: int | None
    end_ms: int | None

    def are_all_before_out(self, seen_ms: Sequence[int]) -> bool:
        """Whether these and all records before them are too old."""
        if self.begin_ms is None or len(seen_ms) < WITNESS_COUNT:
            return False
        return max(seen_ms) + CLOCK_STEP_MS < self.begin_ms

    def are_all_behind_out(self, seen_ms: Sequence[int]) -> bool:
        """Whether these and all records behind them are too young."""
        if self.end_ms is None or len(seen_ms) < WITNESS_COUNT:
            return False
        return min(seen_ms) - CLOCK_STEP_MS >= self.end_ms


def asked_times(options: LogOptions) -> AskedTimes | None:
    """Return the asked times; None when all are."""
    asked = AskedTimes(options.starting_ms, options.ending_ms)
    return None if asked == (None, None) else asked


def files_in_time(log: Log, asked: AskedTimes) -> list[LogFile]:
    """Leave out files whose records are all too old or too young, by first records."""
    firsts = [_first_times(log_file) for log_file in log.files]
    kept: list[LogFile] = []
    for log_file, first, following in zip(log.files, firsts, [*firsts[1:], ()], strict=True):
        if not asked.are_all_before_out(following) and not asked.are_all_behind_out(first):
            kept.append(log_file)
    return kept


def _first_times(log_file: LogFile) -> list[int]:
    view = mapped(Path(log_file.path), is_read_ahead=False) or memoryview(b"")
    positions = walk(view, base=log_file.base, count_max=WITNESS_COUNT).positions.tolist()
    found = [record_at(view, position, log_file.base) for position in positions]
    return [record.store_ms for record in found if record is not None]


def part_in_time(
    files: Files, log: Log, options: LogOptions, begin: int, end: int
) -> tuple[int, int]:
    """Return the part of [begin, end) of the log outside of which no record is in time."""
    asked = asked_times(options)
    if asked is None or log.folder is None or options.use_consume_queue == "false":
        return begin, end
    records = _Records(log)
    first = _Border(begin, end, asked.are_all_before_out)
    last = _Border(begin, end, lambda seen_ms: not asked.are_all_behind_out(seen_ms))
    if asked.begin_ms is None or records.is_younger(begin, asked.begin_ms):
        first.high = begin
    if asked.end_ms is None:
        last.low = end
    found = _asked_entries(files, log.folder, options.chosen_topics)
    while (borders := [each for each in (first, last) if each.is_open]) and (
        entries := next(found, None)
    ) is not None:
        for border in borders:
            border.close_in(entries, records)
    return first.low, max(first.low, last.high)


def _asked_entries(files: Files, folder: Folder, topics: frozenset[str]) -> Iterator[Entries]:
    """Return the entries of the topics' queue files, of all topics without some."""
    queues = queues_of(files, folder, topics or topics_in(files, folder))
    found = (entries for _, queue in queues for entries in entries_of(files, queue))
    yield from islice(found, QUEUE_FILES_MAX)


class _Border:
    """Where the log changes, as far as known: what is before `low` is left, behind `high` right."""

    def __init__(self, low: int, high: int, is_left: Callable[[Sequence[int]], bool]) -> None:
        self.low, self.high = low, high
        self._is_left = is_left

    @property
    def is_open(self) -> bool:
        """Whether it is worth coming nearer."""
        return self.high - self.low > NEAR_BYTES

    def close_in(self, entries: Entries, records: "_Records") -> None:
        """Come nearer by the entries of a queue file; what cannot be believed ends it."""
        written = written_count(entries)
        first = first_at_or_behind(entries, self.low, written)
        last = first_at_or_behind(entries, self.high, written) - WITNESS_COUNT + 1
        while first < last and self.is_open:
            middle = (first + last) // 2
            seen_ms = list(records.times(entries[middle : middle + WITNESS_COUNT]))
            log_offset = int(entries[middle]["log_offset"])
            if len(seen_ms) < WITNESS_COUNT or not self.low <= log_offset < self.high:
                return
            if self._is_left(seen_ms):
                self.low, first = log_offset, middle + 1
            else:
                self.high, last = log_offset, middle


class _Records:
    """Records by their places in the log."""

    def __init__(self, log: Log) -> None:
        self._files = log.files
        self._bases = [log_file.base for log_file in log.files]
        self._views: dict[int, memoryview] = {}

    def times(self, entries: Entries) -> Iterator[int]:
        """Return when the records of entries were stored, without those that do not fit them."""
        for entry in entries:
            record = self._at(int(entry["log_offset"]))
            if record is not None and record.size == entry["size"]:
                yield record.store_ms

    def is_younger(self, log_offset: int, time_ms: int) -> bool:
        """Whether a record begins here that shows nothing before the time to be out."""
        record = self._at(log_offset)
        return record is not None and record.store_ms + CLOCK_STEP_MS >= time_ms

    def _at(self, log_offset: int) -> Walked | None:
        number = bisect_right(self._bases, log_offset) - 1
        if number < 0:
            return None
        log_file = self._files[number]
        if number not in self._views:
            view = mapped(Path(log_file.path), is_read_ahead=False)
            self._views[number] = memoryview(b"") if view is None else view
        return record_at(self._views[number], log_offset - log_file.base, log_file.base)
