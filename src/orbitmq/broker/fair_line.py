"""A line in which owners take turns, so that one who asks for much makes nobody else wait for it.

In: things that wait, each with its owner. Out: whose turn it is; what has no room any more.

Rules:
1. Of one owner the oldest comes first. Owners take turns: whoever is in line waits for at most one
   thing of each other owner before its own next one.
2. The line has room for `count_max`. In a full one, the newest thing of the owner with most in line
   is refused; of as many, the one that came just now.
3. An owner that rests keeps its place in the count, and has no turn.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from orbitmq.ensure import ensure

O = TypeVar("O")  # noqa: E741 - owners
T = TypeVar("T")


class FairLine(Generic[O, T]):
    """Things that wait, by owner; both are hashable, and a thing is in line once."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._owner_of: dict[T, O] = {}
        # Ordered ones: in a plain dict, finding the first costs more with each that was removed.
        self._lines: dict[O, OrderedDict[T, None]] = {}
        self._turns: OrderedDict[O, None] = OrderedDict()
        self._resting: set[O] = set()

    def __len__(self) -> int:
        return len(self._owner_of)

    def count_of(self, owner: O) -> int:
        """Return how many things of one owner are in line."""
        return len(self._lines.get(owner, ()))

    def add(self, owner: O, one: T) -> T | None:
        """Put a thing in line; return what is refused for it, if anything: `one` or another."""
        ensure(one not in self._owner_of, "a thing is in line once")
        refused = None
        if len(self) >= self._count_max:
            most = max(self._lines, key=self.count_of, default=owner)
            if self.count_of(owner) + 1 >= self.count_of(most):
                return one
            refused = next(reversed(self._lines[most]))
            self.forget(refused)
        self._owner_of[one] = owner
        self._lines.setdefault(owner, OrderedDict())[one] = None
        if owner not in self._resting:
            self._turns.setdefault(owner)
        return refused

    def first(self) -> O | None:
        """Return whose turn it is; None when nobody's."""
        return next(iter(self._turns), None)

    def take(self) -> T:
        """Take a thing of the owner whose turn it is; then it is the next one's."""
        owner = next(iter(self._turns))
        one = next(iter(self._lines[owner]))
        self._turns.move_to_end(owner)
        self.forget(one)
        return one

    def rest(self, owner: O) -> None:
        """Give an owner no turn until it goes on."""
        self._resting.add(owner)
        self._turns.pop(owner, None)

    def go_on(self, owner: O) -> None:
        """Give an owner its turns again, behind the others."""
        self._resting.discard(owner)
        if owner in self._lines:
            self._turns.setdefault(owner)

    def forget(self, one: T) -> None:
        """Have a thing wait no more, if it does."""
        if one not in self._owner_of:
            return
        owner = self._owner_of.pop(one)
        line = self._lines[owner]
        del line[one]
        if not line:
            del self._lines[owner]
            self._turns.pop(owner, None)

    def clear(self) -> None:
        """Have nothing wait any more."""
        self._owner_of.clear()
        self._lines.clear()
        self._turns.clear()
        self._resting.clear()
