"""The tasks of reading a log: ranges of its bytes.

In: a log's files, the options, and the range that is asked for. Out: partitions.

Rules:
1. A task takes the records and the damage that begin in its ranges. A range that begins in the
   middle of a file is read from a whole record before it on, so that it finds what the task before
   it finds. So every record and every damage is one task's.
2. Files and parts of files that hold nothing of the asked store times are left out (log_times.py).
3. Short files share a task, long ones have several.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from orbitmq.spark.log_files import Log, LogFile, log_end
from orbitmq.spark.log_options import LogOptions
from orbitmq.spark.log_queues import complete_below, has_queues
from orbitmq.spark.log_times import asked_times, files_in_time, part_in_time
from orbitmq.world.files import Files


class LogRange(NamedTuple):
    """Records that begin in [begin, end) of the log, all in one file; without path: no file."""

    path: str
    base: int
    begin: int
    end: int
    is_exact: bool = True
    """Whether a record begins at `begin`."""
    queue_root: str = ""
    """The store folder whose queues know all records of the range; empty: read it whole."""

    @property
    def size(self) -> int:
        """How many bytes of the log it is."""
        return self.end - self.begin if self.path else 0


class LogPartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: list[LogRange]) -> None:
        super().__init__(ranges[0].begin)
        self.ranges = ranges


class Span(NamedTuple):
    """[begin, end) of the log; `is_exact`: a record begins at `begin`."""

    begin: int
    end: int
    is_exact: bool


def whole_span(files: Files, log: Log, options: LogOptions) -> Span:
    """Return the range of the log that the options ask for, as it is now."""
    first = log.files[0].base if log.files else 0
    begin, end = options.starting_physical_offset, options.ending_physical_offset
    last = log_end(files, log.files)
    begin = first if begin is None else max(begin, first)
    return Span(begin, last if end is None else min(end, last), is_exact=begin == first)


def planned(files: Files, log: Log, options: LogOptions, span: Span) -> list[LogPartition]:
    """Return the tasks for a range of the log."""
    splits = [
        split
        for each in _file_ranges(files, log, options, span)
        for split in _splits(each, options.split_size_bytes)
    ]
    partitions: list[LogPartition] = []
    taken: list[LogRange] = []
    for split in _with_queues(files, log, options, splits):
        if taken and sum(each.size for each in taken) + split.size > options.split_size_bytes:
            partitions.append(LogPartition(taken))
            taken = []
        taken.append(split)
    return [*partitions, LogPartition(taken)] if taken else partitions


def _file_ranges(files: Files, log: Log, options: LogOptions, span: Span) -> Iterator[LogRange]:
    """Return what is asked for of each file, and what is missing between files."""
    asked = asked_times(options)
    kept = set(log.files if asked is None else files_in_time(log, asked))
    first, last = part_in_time(files, log, options, *_held(kept, span))
    before = None
    for log_file in log.files:
        is_gap = log.is_whole and before is not None and before.end < log_file.base
        if is_gap and before is not None and span.begin <= before.end < span.end:
            yield LogRange("", before.end, before.end, log_file.base)
        before = log_file
        begin, end = max(first, log_file.base), min(last, log_file.end)
        if log_file in kept and begin < end:
            is_exact = begin == log_file.base or (span.is_exact and begin == span.begin)
            yield LogRange(log_file.path, log_file.base, begin, end, is_exact)


def _held(kept: set[LogFile], span: Span) -> tuple[int, int]:
    """Return [begin, end) of what is asked for in some files."""
    begin = min((log_file.base for log_file in kept), default=span.end)
    end = max((log_file.end for log_file in kept), default=span.end)
    return max(begin, span.begin), max(begin, min(end, span.end))


def _splits(whole: LogRange, size: int) -> Iterator[LogRange]:
    """Return the parts of a range; a rest that is very short is not worth a task."""
    part = whole
    while part.end - part.begin > size + size // 4:
        middle = part.begin + size
        yield part._replace(end=middle)
        part = part._replace(begin=middle, is_exact=False)
    yield part


def _with_queues(
    files: Files, log: Log, options: LogOptions, splits: list[LogRange]
) -> list[LogRange]:
    """Say which ranges are read through the queues."""
    folder = log.folder
    if folder is None or not options.is_chosen or options.use_consume_queue == "false":
        return splits
    if options.use_consume_queue == "auto" and not has_queues(files, folder, options.chosen_topics):
        return splits
    is_forced = options.use_consume_queue == "true"
    sure = complete_below(files, log)
    return [
        split._replace(queue_root=str(folder.root))
        if split.path and (is_forced or split.end <= sure)
        else split
        for split in splits
    ]
