"""What every synchronous client class is made of: an asynchronous one on a loop in the background.

In: calls from any thread. Out: what the asynchronous twin gives, or raises, once it is done.

Rules:
1. All synchronous clients of a process share one background loop. It begins with the first of them
   and ends when the last is closed.
2. A client belongs to the process that made it: after a fork the child is told to make its own.
3. The classes beside this one are made from their asynchronous twins by `tools/blocking_source.py`,
   and a test compares them: they cannot drift.
4. An interrupted wait (Ctrl-C) cancels what it waited for.
5. Whoever closes while another thread does waits for the same end. An exception that is under way
   in the program's thread is under way for the twin's close as well.
6. What needs no waiting is also done on the loop itself, and after the end.
7. What programs call for each message of thousands (`submit`, `room`) waits for no other thread.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from orbitmq.errors import ClientStateError
from orbitmq.world.loop_thread import LoopThread
from orbitmq.world.shared_loop import SharedLoop
from orbitmq.world.stop_signals import stop_signals
from orbitmq.world.threads import new_event, new_lock

BACKGROUND = SharedLoop("client")

T = TypeVar("T")


class Twin(Protocol):
    """What a facade needs of its asynchronous twin."""

    def start(self) -> Coroutine[Any, Any, Any]:
        """Begin."""
        ...

    def close(self) -> Coroutine[Any, Any, None]:
        """End; a second time does nothing."""
        ...

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        """End, and know whether that is because something was raised."""
        ...


C = TypeVar("C", bound=Twin)


class Facade(Generic[C]):
    """The common part of synchronous clients."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._pid = os.getpid()
        self._lock = new_lock()
        self._ending: Future[None] | None = None
        self._thread: LoopThread | None = BACKGROUND.join()
        try:
            self._twin = self._there(make)
        except BaseException:
            self._leave()
            raise

    def start(self) -> Self:
        """Connect and begin; `with` does it."""
        self._wait(self._twin.start())
        return self

    def close(self) -> None:
        """Finish what is under way and disconnect; a second call does nothing."""
        error = sys.exc_info()[1]
        self._end(self._twin.close if error is None else lambda: _amid(error, self._twin.close))

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(lambda: self._twin.__aexit__(kind, error, trace))

    def _end(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._thread is None or self._pid != os.getpid():
            return
        with self._lock:
            if self._ending is None:
                self._ending = self._begin(end())
        try:
            _result(self._ending)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            BACKGROUND.leave(thread)

    def _running(self) -> LoopThread:
        if self._pid != os.getpid():
            raise ClientStateError(
                f"this client was made in process {self._pid} and cannot be used in its fork "
                f"{os.getpid()}; make a new one there"
            )
        if self._thread is None:
            raise ClientStateError("this client is closed; make a new one")
        if self._thread.is_current:
            raise ClientStateError(
                "a synchronous client cannot be waited for on its own loop: make the handler a "
                "plain function, or use orbitmq.aio in it"
            )
        return self._thread

    def _begun(self) -> C:
        """Return the twin, for what may be called on it in any thread (rule 7)."""
        self._running()
        return self._twin

    def _begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Have a coroutine run in the background."""
        try:
            thread = self._running()
        except BaseException:
            work.close()
            raise
        return thread.submit(work)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine gives in the background."""
        return _result(self._begin(work))

    def _there(self, act: Callable[[], T]) -> T:
        """Return what a plain function gives when it is called on the loop (rule 6)."""
        thread = self._thread
        if self._pid == os.getpid() and (thread is None or thread.is_current):
            return act()

        async def call() -> T:
            return act()

        return self._wait(call())

    def _run(self) -> None:
        """Start, wait for SIGTERM or Ctrl-C in the program's own thread, and close."""
        stopped = new_event()
        with self, stop_signals(stopped.set):
            stopped.wait()

    def _each(self, begin: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Return what an asynchronous iterator gives, one by one."""
        source = self._there(begin)
        while True:
            try:
                item = self._wait(_next(source))
            except StopAsyncIteration:
                return
            except (ClientStateError, CancelledError):
                if self._thread is None and self._pid == os.getpid():
                    return  # somebody has closed it
                raise
            yield item


def _result(future: "Future[T]") -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _amid(error: BaseException, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `end` as if it was called while an exception is on its way."""
    trace = error.__traceback__
    try:
        raise error  # noqa: TRY301 - only to be under way
    except BaseException:
        error.__traceback__ = trace
        await end()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)
