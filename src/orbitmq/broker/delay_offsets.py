"""How far each delay level's queue was delivered: `delayOffset.json`.

In: the file, ours or the original's, and offsets as messages are delivered. Out: the next entry of
each level's queue to look at, and how many messages wait.

Rules:
1. Level n has queue n - 1 of SCHEDULE_TOPIC_XXXX. A level without an offset begins at its queue's
   first message.
2. An offset outside its queue is moved to the nearer end, as the original does at its start.
"""

from pathlib import Path

import msgspec

from orbitmq.broker.table import TableFile
from orbitmq.store.store import Store
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.world.files import Files


class _DelayOffsetTable(msgspec.Struct, frozen=True, kw_only=True):
    offset_table: dict[int, int] = msgspec.field(name="offsetTable", default={})


class DelayOffsets:
    """The progress of all delay levels of one broker."""

    def __init__(self, files: Files, folder: Path, store: Store, level_count: int) -> None:
        self._store = store
        self._level_count = level_count
        self.file = TableFile(files, folder / "delayOffset.json", self.snapshot)
        saved = self.file.load(_DelayOffsetTable)
        self._offsets = dict(saved.offset_table) if saved is not None else {}
        for level, offset in list(self._offsets.items()):
            first, end = self._bounds(level)
            if not first <= offset <= end:
                self.move(level, min(max(offset, first), end))

    def find(self, level: int) -> int:
        """Give the next entry of a level's queue to look at."""
        return self._offsets.get(level, self._bounds(level)[0])

    def move(self, level: int, offset: int) -> None:
        """Say that a level was delivered up to `offset`."""
        self._offsets[level] = offset
        self.file.mark()

    def waiting_count(self) -> int:
        """Give how many messages of all levels wait to be delivered."""
        levels = range(1, self._level_count + 1)
        return sum(max(0, self._bounds(level)[1] - self.find(level)) for level in levels)

    def snapshot(self) -> _DelayOffsetTable:
        """Give the whole table as it is saved."""
        return _DelayOffsetTable(offset_table=dict(sorted(self._offsets.items())))

    def _bounds(self, level: int) -> tuple[int, int]:
        queue = self._store.find_queue(SCHEDULE_TOPIC, level - 1)
        return (0, 0) if queue is None else (queue.min_offset, queue.readable_offset)
