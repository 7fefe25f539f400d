"""How far each delay level's queue was delivered: `delayOffset.json`.

In: the file, ours or the original's, and what was delivered. Out: the next entry of each level's
queue to look at, how many messages wait, and the table that is saved.

Rules:
1. Level n has queue n - 1 of SCHEDULE_TOPIC_XXXX. A level without an offset begins at its queue's
   first message.
2. An offset outside its queue is moved to the nearer end, as the original does at its start.
3. The file never tells of more than the disk has: its offsets count what is delivered before
   `deliveredLogOffset`, and the log is synced so far. What was delivered behind it a start finds in
   the log (see `delay_recovery`). The original ignores that key, and a file of its own lacks it.
"""

from pathlib import Path

import msgspec

from orbitmq.broker.progress import Progress
from orbitmq.broker.table import TableFile, written
from orbitmq.store.store import Store
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.world.files import Files

UNSAVED_BYTES_MAX = 16 * 1_048_576
"""The file is saved when the log has grown by this much, also when nothing was delivered: a start
reads the log from there."""


class _DelayOffsetTable(msgspec.Struct, frozen=True, kw_only=True):
    offset_table: dict[int, int] = msgspec.field(name="offsetTable", default={})
    delivered_log_offset: int | None = msgspec.field(name="deliveredLogOffset", default=None)


class DelayOffsets:
    """The progress of all delay levels of one broker."""

    def __init__(
        self, files: Files, folder: Path, store: Store, delays_ms: tuple[int, ...]
    ) -> None:
        self._store = store
        self.delays_ms = delays_ms
        """How long level 1, 2, 3 … waits."""
        self.file = TableFile(files, folder / "delayOffset.json", written(self.snapshot))
        saved = self.file.load(_DelayOffsetTable) or _DelayOffsetTable()
        self.saved_log_offset = saved.delivered_log_offset
        """Up to where the log is covered by the offsets of the file; None when it does not say."""
        self._progress = {
            level: Progress(saved.offset_table.get(level), lambda: store.durable_offset)
            for level in {*saved.offset_table, *range(1, len(delays_ms) + 1)}
        }
        self._log_offset = saved.delivered_log_offset
        self._marked = saved
        self._is_recovered = saved.delivered_log_offset is None
        if self._is_recovered:
            self.file.mark()
        for level, offset in saved.offset_table.items():
            first, end = self._bounds(level)
            if not first <= offset <= end:
                self._progress[level].move(min(max(offset, first), end))
                self.file.mark()

    @property
    def level_max(self) -> int:
        """The highest level."""
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """Return the level that a message waits in which asks for `level`."""
        return min(level, self.level_max)

    def progress(self, level: int) -> Progress:
        """Return how far a level is delivered, to follow its queue and to move on."""
        return self._progress[level]

    def find(self, level: int) -> int:
        """Return the next entry of a level's queue to look at."""
        progress = self._progress.get(level)
        written = None if progress is None else progress.written
        return self._bounds(level)[0] if written is None else written

    def note_recovered(self) -> None:
        """Say that what was delivered behind `saved_log_offset` is found: the file may go on."""
        self._is_recovered = True

    def mark_if_changed(self) -> None:
        """Mark the file for saving when it can tell more than it does."""
        now, marked = self.snapshot(), self._marked
        grown = (now.delivered_log_offset or 0) - (marked.delivered_log_offset or 0)
        if now.offset_table != marked.offset_table or grown >= UNSAVED_BYTES_MAX:
            self._marked = now
            self.file.mark()

    def waiting_count(self) -> int:
        """Return how many messages of all levels wait to be delivered."""
        levels = range(1, self.level_max + 1)
        return sum(max(0, self._bounds(level)[1] - self.find(level)) for level in levels)

    def snapshot(self) -> _DelayOffsetTable:
        """Return the table as it is saved: what is delivered and on the disk, and up to where.

        Until what was delivered before the start is found, it tells what the file told.
        """
        if self._is_recovered:
            self._log_offset = self._store.durable_offset
            for progress in self._progress.values():
                progress.settle(self._log_offset)
        positions = sorted((level, one.durable) for level, one in self._progress.items())
        return _DelayOffsetTable(
            offset_table={level: at for level, at in positions if at is not None},
            delivered_log_offset=self._log_offset,
        )

    def _bounds(self, level: int) -> tuple[int, int]:
        queue = self._store.find_queue(SCHEDULE_TOPIC, level - 1)
        return (0, 0) if queue is None else (queue.min_offset, queue.readable_offset)
