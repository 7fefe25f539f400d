"""Reading one range of a log: its wanted records as Arrow batches, its damage as the options say.

In: a LogRange and the columns that are wanted. Out: batches.

Rules:
1. A batch has BATCH_ROWS rows or BATCH_BYTES of the log at most, and one record more; where no
   column is long, SHORT_TIMES as much: each batch costs Python and Java something of its own.
2. What follows a bad record is not believed: the batch ends before it, and reading goes on where
   the log surely goes on. Behind damage batches are small at first.
3. Damage fails the query, is a warning, or is a row (log_rows.py). It is never lost, and
   is reported before anything is left out: what is damaged is nobody's.
4. Queue files that do not fit the log are not followed: the range is read whole instead.
5. Only the columns that decide are read for a filter: bodies of others are never touched.
"""

import logging
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.arrow.columns import are_short, arrow_schema
from orbitmq.arrow.decode import BatchDecoder, Damage
from orbitmq.arrow.segments import mask_of, numbers_of, plain_array, text_array
from orbitmq.arrow.starts import Bytes, Positions, good_count, walk
from orbitmq.core import is_end_of_file
from orbitmq.errors import CorruptRecord
from orbitmq.spark.data_loss import KEEP_FILES, removed_bytes, report_loss
from orbitmq.spark.log_damage import BadRange, behind_damage
from orbitmq.spark.log_options import LogOptions
from orbitmq.spark.log_planning import LogRange
from orbitmq.spark.log_queues import FilePart, QueueSearch, knows_all
from orbitmq.spark.log_rows import LogRows
from orbitmq.store.layout import Folder
from orbitmq.store.record_search import last_record_end
from orbitmq.wire.record import RECORD_SIZE_MIN
from orbitmq.world.files import SystemFiles
from orbitmq.world.mapped import mapped

log = logging.getLogger(__name__)


class LogFilter:
    """Chooses records."""

    def __init__(self, options: LogOptions) -> None:
        queues = np.array(sorted(options.chosen_queues), dtype=np.int32)
        chosen = {
            "topic": text_array(sorted(options.chosen_topics)),
            "queueId": plain_array(queues, pa.int32()),
            "tags": text_array(sorted(options.tag_filter.tags)),
        }
        self._chosen = {name: values for name, values in chosen.items() if len(values)}
        self._starting_ms, self._ending_ms = options.starting_ms, options.ending_ms
        self._has_times = self._starting_ms is not None or self._ending_ms is not None
        names = [*self._chosen, *(["storeTimestamp"] if self._has_times else [])]
        self._decoder = BatchDecoder(arrow_schema(names)) if names else None

    def wanted(self, data: Bytes, positions: Positions) -> tuple[Positions, list[Damage]]:
        """Return the positions of wanted records, and what is damaged."""
        if self._decoder is None or not len(positions):
            return positions, []
        decoded = self._decoder.decode(data, positions)
        bad = {damage.position for damage in decoded.damage}
        if bad:
            positions = positions[~np.isin(positions, list(bad))]
        return positions[self._mask(decoded.batch)], decoded.damage

    def _mask(self, batch: Any) -> Any:
        mask = np.ones(batch.num_rows, dtype=np.bool_)
        for name, chosen in self._chosen.items():
            mask &= mask_of(pc.is_in(batch.column(name), chosen))
        if self._has_times:
            times_us = numbers_of(batch.column("storeTimestamp"), np.int64)
            if self._starting_ms is not None:
                mask &= times_us >= self._starting_ms * 1_000
            if self._ending_ms is not None:
                mask &= times_us < self._ending_ms * 1_000
        return mask


BATCH_ROWS = 8_192
BATCH_ROWS_MIN = 16
BATCH_BYTES = 8 << 20
SHORT_TIMES = 2

_WHY = {
    "zero": "zeros instead of a record",
    "cut": "the record is longer than the file",
    "blank": "a blank that does not fill its file",
    "damage": "no record begins here",
    "end": "no record begins here",
}


class LogReading:
    """Reads ranges of one log, with one choice of columns."""

    def __init__(self, options: LogOptions, schema: Any) -> None:
        """`schema` is Arrow's; see Rows."""
        self._options = options
        self._rows = LogRows(schema, options)
        self._filter = LogFilter(options)
        times = SHORT_TIMES if are_short(self._rows.record_schema) else 1
        self._batch_rows, self._batch_bytes = BATCH_ROWS * times, BATCH_BYTES * times
        self._decoder = BatchDecoder(
            self._rows.record_schema,
            broker_name=options.broker_name or None,
            decompresses=options.decompress,
            verifies_crc=options.verify_crc,
        )

    def batches(self, log_range: LogRange) -> Iterator[Any]:
        """Return the rows of a range; raises CorruptRecord, DataLoss."""
        if not log_range.path:
            why = "log files are missing here"
            yield from self._bad(None, log_range, BadRange(log_range.begin, log_range.end, why))
            return
        view = mapped(Path(log_range.path))
        if view is None:
            self._lost(log_range)
            return
        found = self._in_queues(view, log_range)
        if found is not None:
            yield from self._chosen(view, log_range, found)
        else:
            yield from self._walked(view, log_range)

    # --- the whole range ---

    def _walked(self, view: memoryview, log_range: LogRange) -> Iterator[Any]:
        base, begin = log_range.base, log_range.begin - log_range.base
        end = min(log_range.end - base, len(view))
        position = begin if log_range.is_exact else last_record_end(view, begin, base)
        rows = self._batch_rows
        while position < end:
            is_before = position < begin  # the damage there is the task's before this one
            chunk_end = min(begin if is_before else end, position + self._batch_bytes)
            starts = walk(view, position, chunk_end, base=base, count_max=rows)
            batch, damage = self._decoded(view, starts.positions)
            if batch.num_rows and not is_before:
                yield self._rows.of_records(batch)
            if damage is None and starts.stop == "end":
                position, rows = starts.end, min(rows * 2, self._batch_rows)
                continue
            if damage is None and is_end_of_file(view, starts.end):
                return
            if damage is None:
                damage = Damage(starts.end, 0, _WHY[starts.stop])
            position = yield from self._passed(view, log_range, damage)
            rows = BATCH_ROWS_MIN

    def _decoded(self, view: memoryview, positions: Positions) -> tuple[Any, Damage | None]:
        """Return the wanted records up to the first that is bad, and that one."""
        wanted, damage = self._filter.wanted(view, positions)
        if damage:
            wanted = wanted[wanted < damage[0].position]
        decoded = self._decoder.decode(view, wanted)
        if not decoded.damage:
            return decoded.batch, damage[0] if damage else None
        first = decoded.damage[0]
        return decoded.batch.slice(0, int(np.searchsorted(wanted, first.position))), first

    def _passed(
        self, view: memoryview, log_range: LogRange, damage: Damage
    ) -> Generator[Any, None, int]:
        """Tell of damage that begins in the range; return the position where the log goes on."""
        base = log_range.base
        following = behind_damage(view, damage.position, base)
        end = len(view) if following is None else following
        bad = BadRange(base + damage.position, base + end, damage.why)
        if bad.begin >= log_range.begin:
            yield from self._bad(view, log_range, bad)
        return end

    # --- through the queues ---

    def _in_queues(self, view: memoryview, log_range: LogRange) -> Positions | None:
        """Return where the wanted records begin; None when the queues do not know."""
        if not log_range.queue_root:
            return None
        options = self._options
        files, folder = SystemFiles(), Folder(Path(log_range.queue_root))
        if not options.chosen_topics and options.use_consume_queue == "auto":
            part = FilePart(view, log_range.base, log_range.begin, log_range.end)
            if not knows_all(files, folder, part):
                return None
        search = QueueSearch(files, folder, options.chosen_topics, options.chosen_queues)
        found = search.log_offsets(log_range.begin, log_range.end, options.tag_filter)
        positions = found - log_range.base
        is_inside = not len(positions) or positions[-1] <= len(view) - RECORD_SIZE_MIN
        if is_inside and good_count(view, positions, log_range.base) == len(positions):
            return positions
        log.warning("%s: the queues do not fit the log here; it is read whole", log_range.path)
        return None

    def _chosen(self, view: memoryview, log_range: LogRange, positions: Positions) -> Iterator[Any]:
        begin = 0
        while begin < len(positions):
            end = int(np.searchsorted(positions, positions[begin] + self._batch_bytes))
            end = min(max(end, begin + 1), begin + self._batch_rows)
            wanted, damage = self._filter.wanted(view, positions[begin:end])
            decoded = self._decoder.decode(view, wanted)
            if decoded.batch.num_rows:
                yield self._rows.of_records(decoded.batch)
            for each in sorted((*damage, *decoded.damage)):
                at = log_range.base + each.position
                yield from self._bad(view, log_range, BadRange(at, at + each.size, each.why))
            begin = end

    # --- what is not there ---

    def _bad(self, view: memoryview | None, log_range: LogRange, bad: BadRange) -> Iterator[Any]:
        where = f"bytes {bad.begin} to {bad.end - 1} of the log ({log_range.path or 'no file'})"
        mode = self._options.on_corrupt_record
        if mode == "fail":
            raise CorruptRecord(
                bad.begin,
                f"{bad.why}; {where} cannot be read: set the option 'onCorruptRecord' to skip or "
                "quarantine to read on, or repair the store with `orbitmq store repair`",
            )
        if mode == "skip":
            log.warning("%s are skipped: %s", where, bad.why)
            return
        part = b"" if view is None else view[bad.begin - log_range.base : bad.end - log_range.base]
        yield self._rows.of_damage(bad, part)

    def _lost(self, log_range: LogRange) -> None:
        what = removed_bytes(log_range.begin, log_range.end)
        fails = self._options.fail_on_data_loss
        report_loss(log_range.path, what, fails=fails, advice=KEEP_FILES)
