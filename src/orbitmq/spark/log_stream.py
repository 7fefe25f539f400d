"""A stream of a log: which range of it each micro-batch takes, and its tasks.

In: Spark's offsets and limits, a log's files. Out: the next end, partitions, rows.
An offset is `{"physicalOffset": N}`: the log offset at which a record begins, or will begin.

Rules:
1. A batch's range comes from its two offsets alone: run again, it reads the same records.
2. An end is where a whole record begins, or the log's: damage is in one batch only.
3. With nothing new it waits, WAIT_S at most, and looks again meanwhile: files tell nobody.
4. What retention removed before it was read is a loss: an error, or a warning and the next file.
5. A log that ends before an offset of the checkpoint is another one, or was cut: a loss as well.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from orbitmq.errors import SettingError
from orbitmq.spark.data_loss import KEEP_FILES, removed_bytes, report_loss
from orbitmq.spark.internals import shorten_rest
from orbitmq.spark.log_files import Log, find_log, has_grown, log_end
from orbitmq.spark.log_options import FORMAT, LogOptions
from orbitmq.spark.log_planning import LogPartition, Span, planned
from orbitmq.store.record_search import next_record
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from orbitmq.world.mapped import mapped
from orbitmq.world.pauses import pause

OFFSET = "physicalOffset"
WAIT_S = 1.0
LOOK_EVERY_S = 0.05

log = logging.getLogger(__name__)

"""Gives the position of a record in a file, from a position on; the last is the file's base."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches."""

    def __init__(self, options: LogOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._initial: int | None = None
        self._target: int | None = None
        self._end = 0
        """How far the log was seen to reach."""

    # --- offsets ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the stream begins; asked for again until its first batch is done."""
        if self._initial is None:
            found = self._log()
            first = found.files[0].base if found.files else 0
            asked = self._options.starting_physical_offset
            is_inside = asked is not None and asked > first
            if is_inside and asked is not None and asked > self._seen_end(found):
                raise SettingError(
                    f"{FORMAT}: option 'startingPhysicalOffset': {asked} is behind the log's end, "
                    f"{self._end}; begin there, or wait until the log is that long"
                )
            self._initial = self._record_from(found, asked or 0) if is_inside else first
        return {OFFSET: self._initial}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options."""
        bytes_max = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if bytes_max is None else ReadMaxBytes(bytes_max)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the next end (rules 2 to 5); raises DataLoss, SettingError."""
        begin = int(start[OFFSET])
        found, end = self._next(begin)
        if self._end < begin:
            self._lose(f"the log ends at {self._end}, before {begin}, which was read already")
            return {OFFSET: self._end}
        if end <= begin:
            return start
        if isinstance(limit, ReadMaxBytes) and end - begin > limit.max_bytes:
            end = min(end, self._record_from(found, begin + limit.max_bytes))
        return {OFFSET: end}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take what is there now as the end of the query."""
        self._target = self._seen_end(self._log())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return how far the log reaches, for those who want to know the lag."""
        return {OFFSET: self._end} if self._end else None

    # --- rows ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the tasks of a batch (rule 1); raises DataLoss."""
        found = self._log()
        first = found.files[0].base if found.files else int(end[OFFSET])
        begin, last = int(start[OFFSET]), int(end[OFFSET])
        if last < begin:  # the log was made anew: latestOffset has reported it
            begin = first
        if begin < first:
            self._lose(removed_bytes(begin, first))
            begin = first
        return list(planned(SystemFiles(), found, self._options, Span(begin, last, is_exact=True)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one task, in a worker."""
        if isinstance(partition, LogPartition):
            from orbitmq.spark.log_reading import LogReading  # workers alone need it

            shorten_rest()
            reading = LogReading(self._options, self._schema)
            for log_range in partition.ranges:
                yield from reading.batches(log_range)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint has the offset."""

    # --- the log ---

    def _log(self) -> Log:
        return find_log(SystemFiles(), self._options.path)

    def _next(self, begin: int) -> tuple[Log, int]:
        """Return the log and its end, after waiting for something behind `begin`."""
        clock = SystemClock()
        until_s = clock.monotonic_s() + WAIT_S
        files, found = SystemFiles(), self._log()
        end = self._bounded(found)
        while end <= begin and self._target is None and clock.monotonic_s() < until_s:
            pause(LOOK_EVERY_S)
            if has_grown(files, found.files, begin) or self._is_next_file_there(found, begin):
                found = self._log()
                end = self._bounded(found)
        return found, end

    def _is_next_file_there(self, found: Log, begin: int) -> bool:
        """Whether the log goes on in a file that was not there before."""
        return not found.files or begin >= found.files[-1].end

    def _seen_end(self, found: Log) -> int:
        known = self._end
        if found.files and known > found.files[-1].end:
            known = 0  # another log has this path now
        self._end = log_end(SystemFiles(), found.files, known)
        return self._end

    def _bounded(self, found: Log) -> int:
        """Return the end that is asked for, or the log's; it is where a record begins (rule 2)."""
        end = self._seen_end(found)
        if self._target is not None:
            end = min(end, self._target)
        asked = self._options.ending_physical_offset
        if asked is not None and asked < end:
            end = min(end, self._record_from(found, asked))
        return end

    def _record_from(self, found: Log, log_offset: int) -> int:
        """Return the first record that begins at a log offset or behind it, or the log's end."""
        for log_file in found.files:
            if log_offset < log_file.end:
                view = mapped(Path(log_file.path)) or memoryview(b"")
                at = next_record(view, max(log_offset - log_file.base, 0), log_file.base)
                if at is not None:
                    return log_file.base + at
        return self._seen_end(found)

    # --- losses ---

    def _lose(self, what: str) -> None:
        options = self._options
        place = f"{FORMAT}: {options.path}"
        advice = f"{KEEP_FILES}Or begin with a new checkpoint. "
        report_loss(place, what, fails=options.fail_on_data_loss, advice=advice)
