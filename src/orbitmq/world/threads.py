"""Threads: for work that waits for the disk, and for an event loop beside the program's own.

In: functions that may block; coroutines of a loop in another thread. Out: their outcome as a future.
Rule: threads are made here only, few and with a name; what runs in `Threads` touches no state of
the loop.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from orbitmq.ensure import ensure
from orbitmq.world.net import run

T = TypeVar("T")


class Threads:
    """A few threads of one kind; with one, functions run one after the other."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, f"orbitmq-{name}")

    def run(self, action: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a function in one of the threads."""
        return asyncio.get_running_loop().run_in_executor(self._pool, action)

    def close(self) -> None:
        """End the threads; what they are at is finished first."""
        self._pool.shutdown()


class LoopThread:
    """An event loop that runs in a thread of its own until it is closed.

    A program that ends without closing it is not held up.
    """

    def __init__(self, name: str) -> None:
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ended: Future[None] = Future()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=f"orbitmq-{name}", daemon=True)
        self._thread.start()
        self._loop, self._end = self._started.result()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine there; the future is for any other thread, or `asyncio.wrap_future`."""
        ensure(threading.current_thread() is not self._thread, "the loop waits for no work there")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop and return when the thread is gone; what still runs there is cancelled."""
        self.begin_close().result()
        self._thread.join()

    def begin_close(self) -> "Future[None]":
        """Have the loop end; the future tells when it has. Once more does nothing."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon_threadsafe(self._end.set)
        return self._ended

    def _run(self) -> None:
        try:
            run(self._main())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _main(self) -> None:
        end = asyncio.Event()
        self._started.set_result((asyncio.get_running_loop(), end))
        await end.wait()
