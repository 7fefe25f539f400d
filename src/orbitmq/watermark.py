"""A number that only rises, and those who wait until it has come far enough.

In: `advance`, from whoever moves the number; waiters, each with the number it waits for. Out: the
end of each wait, once: reached, failed or late.

Rules:
1. The number never falls. After a failure it stays where it is.
2. Nobody is called while the number moves, for that is in the midst of a change: `wake` does it in
   the same turn of the loop, in the order of the numbers; for one number, in the order they came.
   Who begins to wait meanwhile is left to the next `wake`.
3. A deadline is a second wait of the same waiter, for a time: see `net.later.Deadlines`.
4. Who comes when too many wait already is late at once, and counted.
5. A waiter that raises holds up no other: the first error is raised when all are ended.
"""

import heapq
import sys
from collections.abc import Callable
from itertools import islice

from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import StoreError

WAITERS_MAX = 100_000


class Waiter:
    """Somebody who waits, and learns by one of these calls how that ended."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: tuple[tuple[Watermark, _Place], ...] = ()

    def reached(self) -> None:
        """Go on: the number has come."""

    def failed(self, error: StoreError) -> None:
        """Take in that the number will not come."""

    def late(self) -> None:
        """Take in that it did not come in time, or that too many wait."""

    def leave(self) -> None:
        """Wait no longer, and learn of nothing any more."""
        places, self._places = self._places, ()
        for mark, place in places:
            del place[self]
            mark.waiter_count -= 1


_Place = dict[Waiter, None]
"""Those who wait for one number, in the order they came."""


class Call(Waiter):
    """Calls a function, with what went wrong if anything did."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[StoreError | None], None]) -> None:
        super().__init__()
        self._done = done

    def reached(self) -> None:
        """Go on."""
        self._done(None)

    def failed(self, error: StoreError) -> None:
        """Hand the error on."""
        self._done(error)

    def late(self) -> None:
        """Say that it took too long."""
        self._done(StoreError("it was not done in time, or too many wait for it"))


class Watermark:
    """One such number and those who wait for it."""

    __slots__ = (
        "_numbers",
        "_waiters_max",
        "_waiting",
        "failure",
        "number",
        "refused_count",
        "waiter_count",
    )

    def __init__(self, number: int = 0, *, waiters_max: int = WAITERS_MAX) -> None:
        self.number = number
        self.failure: StoreError | None = None
        """Why it will never rise again."""
        self.waiter_count = 0
        self.refused_count = 0
        """How many were late at once (rule 4)."""
        self._waiters_max = waiters_max
        self._waiting: dict[int, _Place] = {}
        self._numbers: list[int] = []
        """The keys of `_waiting`, as a heap."""

    @property
    def next_number(self) -> int | None:
        """The least number that is, or lately was, waited for."""
        return self._numbers[0] if self._numbers else None

    def wait(self, number: int, waiter: Waiter) -> bool:
        """Have `waiter` ended by the first `wake` that finds the number reached.

        False: too many wait, and it is late already.
        """
        if self.waiter_count >= self._waiters_max:
            self.refused_count += 1
            waiter.leave()
            waiter.late()
            return False
        place = self._waiting.get(number)
        if place is None:
            place = self._waiting[number] = {}
            heapq.heappush(self._numbers, number)
        place[waiter] = None
        waiter._places = (*waiter._places, (self, place))  # noqa: SLF001 - same module
        self.waiter_count += 1
        return True

    def advance(self, number: int) -> None:
        """Raise the number, unless it has failed; calls nobody."""
        if number < self.number:
            raise BrokenInvariant("a watermark never falls")
        if self.failure is None:
            self.number = number

    def fail(self, error: StoreError) -> None:
        """Say that the number will never rise again; calls nobody."""
        self.failure = self.failure or error

    def wake(self, count_max: int = sys.maxsize) -> None:
        """End those whose number is reached, at most so many; after a failure, all others, too."""
        if not self._numbers:
            return  # most turns end without anybody who waits
        self._end(self.number, self._reach, count_max)
        if self.failure is not None:
            self.refuse(self.failure)

    def refuse(self, error: StoreError, number: float = float("inf")) -> None:
        """End all who wait now for numbers up to this one: what they wait for was taken back."""
        self._end(number, lambda waiter: waiter.failed(error), sys.maxsize)

    def _reach(self, waiter: Waiter) -> None:
        waiter.reached()

    def _end(self, number: float, end: Callable[[Waiter], None], left: int) -> None:
        due: list[tuple[_Place, Waiter]] = []
        while self._numbers and self._numbers[0] <= number and len(due) < left:
            place = self._waiting[self._numbers[0]]
            some = list(islice(place, left - len(due)))
            due += [(place, waiter) for waiter in some]
            if len(some) == len(place):
                del self._waiting[heapq.heappop(self._numbers)]
        first: Exception | None = None
        for place, waiter in due:
            if waiter in place:  # else one before it has ended it
                waiter.leave()
                try:
                    end(waiter)
                except Exception as error:
                    first = first or error
        if first is not None:
            raise first
