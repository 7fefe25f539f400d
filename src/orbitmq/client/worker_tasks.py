"""A fixed number of tasks that take work from one line.

In: items. Out: one call of `handle` for each, at most so many at a time.

Rules:
1. No task is made for an item. A worker takes item after item without leaving the loop's turn as
   long as `handle` does not wait; another one wakes up only while items are waiting.
2. A worker lets others have the loop after TURN_COUNT items, and no second one goes on meanwhile.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

TURN_COUNT = 32

T = TypeVar("T")


class WorkerTasks(Generic[T]):
    """Tasks that handle items; they are made when they are first needed."""

    def __init__(self, count: int, handle: Callable[[T], Awaitable[None]]) -> None:
        self._count_max = count
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._items: deque[T] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._busy = 0
        self._is_waking = False
        self._yielding = 0
        self._quiet: asyncio.Future[None] | None = None

    def put(self, items: Iterable[T]) -> None:
        """Have items handled, in about this order."""
        self._items.extend(items)
        self._wake_one()

    def withdraw(self) -> list[T]:
        """Take back the items that no worker has begun."""
        withdrawn = list(self._items)
        self._items.clear()
        return withdrawn

    async def wait_quiet(self) -> None:
        """Return when no worker is at an item."""
        while self._busy:
            self._quiet = self._loop.create_future()
            await asyncio.shield(self._quiet)

    async def wait_empty(self) -> None:
        """Return when all items are handled."""
        while self._busy or self._items:
            await self.wait_quiet()
            await asyncio.sleep(0)  # a worker that was woken has not begun yet

    async def close(self) -> None:
        """End the workers, whatever they are at."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _wake_one(self) -> None:
        """Have one more worker look, unless one is about to: it will wake the next."""
        if self._is_waking:
            return
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
                self._is_waking = True
                return
        if len(self._tasks) < self._count_max:
            self._tasks.append(self._loop.create_task(self._work()))
            self._is_waking = True

    async def _work(self) -> None:
        items = self._items
        self._is_waking = False
        while True:
            while not items or self._yielding:
                waiting = self._loop.create_future()
                self._idle.append(waiting)
                await waiting
                self._is_waking = False
            self._busy += 1
            try:
                await self._take_turn()
            except Exception:  # a bug of ours: the other items need their worker
                log.exception("handling failed; its worker goes on")
            finally:
                self._busy -= 1
                if not self._busy and self._quiet is not None and not self._quiet.done():
                    self._quiet.set_result(None)
            if items:
                self._yielding += 1
                try:
                    await asyncio.sleep(0)
                finally:
                    self._yielding -= 1

    async def _take_turn(self) -> None:
        items = self._items
        for _ in range(TURN_COUNT):
            if not items:
                return
            item = items.popleft()
            if items and not self._is_waking:
                self._wake_one()
            await self._handle(item)
