"""Those who wait until a change of a table is in its file.

In: the numbers of changes, and what to call when they are saved. Out: those calls, on the loop.

Rules:
1. They are called in the order they came, also where a later change is saved with an earlier one.
2. Nobody waits longer than WAIT_MAX_S, nor does anybody begin to when WAITING_MAX wait already: a
   disk that hangs must neither silence answers that are true nor fill the memory.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

WAIT_MAX_S = 1.0
"""Clients wait three seconds for an answer, and then send the message again."""

WAITING_MAX = 10_000


class _Wait(NamedTuple):
    mark: int
    due_s: float
    done: Callable[[], None]


class WaitingSaves:
    """The waiting of one table. Made on first use, on the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waits: list[_Wait] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waits)

    def add(self, mark: int, done: Callable[[], None]) -> None:
        """Have `done` called when this change is saved, or has waited long enough."""
        if len(self._waits) >= WAITING_MAX:
            done()
            return
        self._waits.append(_Wait(mark, self._loop.time() + WAIT_MAX_S, done))
        if self._timer is None:
            self._timer = self._loop.call_later(WAIT_MAX_S, self._expire)

    def serve(self, mark: int) -> None:
        """Let those go on who wait for this change or an earlier one."""
        self._let_go(lambda wait: wait.mark <= mark)

    def close(self) -> None:
        """Forget them all: nobody is there to be answered any more."""
        self._waits.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        self._let_go(lambda wait: wait.due_s <= now_s)
        if self._waits:
            self._timer = self._loop.call_at(self._waits[0].due_s, self._expire)

    def _let_go(self, is_over: Callable[[_Wait], bool]) -> None:
        over = [wait for wait in self._waits if is_over(wait)]
        self._waits = [wait for wait in self._waits if not is_over(wait)]
        for wait in over:
            wait.done()
