"""An event loop in a thread of its own, beside the program's.

In: coroutines for that loop, from any other thread. Out: futures of what becomes of them.
Rule: a program that ends without closing the thread is not held up by it.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from orbitmq.ensure import ensure
from orbitmq.world.net import run

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a thread until it is closed."""

    def __init__(self, name: str) -> None:
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ended: Future[None] = Future()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=f"orbitmq-{name}", daemon=True)
        self._thread.start()
        self._loop, self._end = self._started.result()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine there; the future is for any other thread, or `asyncio.wrap_future`."""
        ensure(not self.is_current, "the loop waits for no work there")
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
