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

from collections import deque
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.broker.table import TableFile, written
from orbitmq.store.store import Store
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.world.files import Files

UNSAVED_BYTES_MAX = 16 * 1_048_576
"""The file is saved when the log has grown by this much, also when nothing was delivered: a start
reads the log from there."""

UNSYNCED_COUNT_MAX = 4_096
"""So many steps are remembered before those that are on the disk are taken together."""


class _DelayOffsetTable(msgspec.Struct, frozen=True, kw_only=True):
    offset_table: dict[int, int] = msgspec.field(name="offsetTable", default={})
    delivered_log_offset: int | None = msgspec.field(name="deliveredLogOffset", default=None)


class _Delivered(NamedTuple):
    """A step of a level whose copy ends at `log_end` and may not be on the disk yet."""

    log_end: int
    level: int
    next_offset: int


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
        self._offsets = dict(saved.offset_table)
        self._durable = dict(saved.offset_table)
        self._durable_log_offset = saved.delivered_log_offset
        self._unsynced: deque[_Delivered] = deque()
        self._marked_log_offset = saved.delivered_log_offset or 0
        self._is_recovered = saved.delivered_log_offset is None
        if self._is_recovered:
            self.file.mark()
        for level, offset in list(self._offsets.items()):
            first, end = self._bounds(level)
            if not first <= offset <= end:
                self.move(level, min(max(offset, first), end))

    @property
    def level_max(self) -> int:
        """The highest level."""
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """Return the level that a message waits in which asks for `level`."""
        return min(level, self.level_max)

    def find(self, level: int) -> int:
        """Return the next entry of a level's queue to look at."""
        return self._offsets.get(level, self._bounds(level)[0])

    def move(self, level: int, offset: int) -> None:
        """Say that a level stands at `offset`, whatever the log holds; the file is marked."""
        self._offsets[level] = self._durable[level] = offset
        self.file.mark()

    def note_recovered(self) -> None:
        """Say that what was delivered behind `saved_log_offset` is found: the file may go on."""
        self._is_recovered = True

    def note_delivered(self, level: int, next_offset: int, log_end: int) -> None:
        """Say that a level was delivered up to `next_offset`, by a record that ends at `log_end`.

        It is written; when it is on the disk, the file says so.
        """
        self._offsets[level] = next_offset
        self._unsynced.append(_Delivered(log_end, level, next_offset))
        if len(self._unsynced) >= UNSYNCED_COUNT_MAX:
            self._fold()

    def mark_if_changed(self) -> None:
        """Mark the file for saving when it can tell more than it does."""
        if not self._is_recovered:
            return
        is_changed = self._fold()
        durable_offset = self._store.durable_offset
        if is_changed or durable_offset - self._marked_log_offset >= UNSAVED_BYTES_MAX:
            self._marked_log_offset = durable_offset
            self.file.mark()

    def waiting_count(self) -> int:
        """Return how many messages of all levels wait to be delivered."""
        levels = range(1, self.level_max + 1)
        return sum(max(0, self._bounds(level)[1] - self.find(level)) for level in levels)

    def snapshot(self) -> _DelayOffsetTable:
        """Return the table as it is saved: what is delivered and on the disk, and up to where."""
        self._fold()
        return _DelayOffsetTable(
            offset_table=dict(sorted(self._durable.items())),
            delivered_log_offset=self._durable_log_offset,
        )

    def _fold(self) -> bool:
        """Take in what is on the disk by now; whether that changed an offset."""
        if not self._is_recovered:
            return False
        durable_offset = self._store.durable_offset
        is_changed = False
        while self._unsynced and self._unsynced[0].log_end <= durable_offset:
            one = self._unsynced.popleft()
            self._durable[one.level] = one.next_offset
            is_changed = True
        self._durable_log_offset = durable_offset
        return is_changed

    def _bounds(self, level: int) -> tuple[int, int]:
        queue = self._store.find_queue(SCHEDULE_TOPIC, level - 1)
        return (0, 0) if queue is None else (queue.min_offset, queue.readable_offset)
