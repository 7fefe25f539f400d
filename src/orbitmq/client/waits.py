"""Where sends wait for a route or a connection, in their order.

In: sends that cannot go out yet, and what opens the gate. Out: the same sends, in the same order,
when it is open or has failed; each that waited too long on its own.

Rules:
1. One task per gate, not per send, and only while somebody waits at it.
2. While a gate is shut, everything for it goes through it: nothing overtakes.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

STEP_S = 0.05
"""So often those who wait are looked at; a deadline is noticed late by that much."""


class Waiter(Protocol):
    """What can wait."""

    deadline_s: float

    def admitted(self) -> None:
        """Go on: the gate is open."""
        ...

    def refused(self, error: Exception | None) -> None:
        """Learn that it stays shut, and why; None: the time is up."""
        ...


class Waits:
    """The gates of one producer, by name."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, list[Waiter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __contains__(self, gate: str) -> bool:
        return gate in self._waiting

    def add(
        self, gate: str, waiter: Waiter, opening: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        """Have somebody wait; the first at a gate has it opened. What `opening` raises refuses."""
        waiting = self._waiting.get(gate)
        if waiting is None:
            waiting = self._waiting[gate] = []
            task = self._loop.create_task(self._open(gate, opening()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting.append(waiter)

    async def close(self, error: Exception) -> None:
        """Refuse all who wait; returns when no task is left."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        gates, self._waiting = self._waiting, {}
        for waiting in gates.values():
            for waiter in waiting:
                waiter.refused(error)

    async def _open(self, gate: str, opening: Coroutine[Any, Any, object]) -> None:
        opened = self._loop.create_task(opening)
        try:
            while not opened.done():
                await asyncio.wait({opened}, timeout=STEP_S)
                self._refuse_late(gate)
        finally:
            opened.cancel()
        error = opened.exception()
        for waiter in self._waiting.pop(gate):
            if isinstance(error, Exception):  # also what a hook of the program's own raises
                waiter.refused(error)
            else:
                waiter.admitted()

    def _refuse_late(self, gate: str) -> None:
        now_s = self._loop.time()
        waiting = self._waiting[gate]
        late = [waiter for waiter in waiting if waiter.deadline_s <= now_s]
        if late:
            waiting[:] = [waiter for waiter in waiting if waiter.deadline_s > now_s]
        for waiter in late:
            waiter.refused(None)
