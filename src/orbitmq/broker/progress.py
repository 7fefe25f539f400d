"""How far a followed queue is dealt with: staged, written, on the disk, and so in its file.

In: each step of the queue's follower, and what becomes of the turn it is part of. Out: from where
to go on after a refused write, and from where after a crash.

Rules:
1. A step is staged with the records that it stands for. It counts when the turn is written; a turn
   is written and synced as a whole, so only its last step is kept. A refused turn has no steps.
2. A position is durable when the log is, up to the end of the step's records: `settle`. Owners save
   durable positions only, all of them settled at the same moment and with that log offset. What
   was dealt with behind it a start finds in the log.
3. None is the position of a queue that nothing was done of: its first entry is next.
"""

from collections import deque
from collections.abc import Callable

UNSYNCED_COUNT_MAX = 4_096
"""So many steps are remembered before those that are on the disk are taken together."""


class Progress:
    """The position of one followed queue: the next entry to deal with."""

    __slots__ = ("_durable_end", "_staged", "_unsynced", "durable", "written")

    def __init__(self, saved: int | None, durable_end: Callable[[], int]) -> None:
        """`durable_end` says where what is surely on the disk ends, of what steps stand for."""
        self.written = saved
        self.durable = saved
        self._durable_end = durable_end
        self._staged: tuple[int, int] | None = None
        self._unsynced: deque[tuple[int, int]] = deque()

    def stage(self, position: int, end: int) -> bool:
        """Move with this turn, by records that end at `end`; whether it is the turn's first step.

        Of that one, `end_turn` is to be told what became of the turn.
        """
        is_first = self._staged is None
        self._staged = (position, end)
        return is_first

    def end_turn(self, *, is_written: bool) -> None:
        """Take the turn's step in, or forget it."""
        staged, self._staged = self._staged, None
        if is_written and staged is not None:
            self.note_written(*staged)

    def note_written(self, position: int, end: int) -> None:
        """Say that the queue is dealt with up to `position`, by records that end at `end`."""
        self.written = position
        self._unsynced.append((position, end))
        if len(self._unsynced) >= UNSYNCED_COUNT_MAX:
            self.settle(self._durable_end())

    def move(self, position: int) -> None:
        """Say that it stands at `position`, whatever the log holds."""
        self.written = self.durable = position
        self._unsynced.clear()

    def settle(self, durable_end: int) -> None:
        """Take in what is on the disk by now."""
        unsynced = self._unsynced
        while unsynced and unsynced[0][1] <= durable_end:
            self.durable = unsynced.popleft()[0]
