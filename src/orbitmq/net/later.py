"""An answer that comes later: after a new message, a file that was saved, or a time-out.

In: a handler returns a Later instead of a reply and keeps it; whoever can answer calls `answer`.
Out: exactly one answer, or none when the connection ends first.

Rules:
1. A Later is done once: answered, timed out or cancelled. What comes after that is ignored.
2. Their number is bounded per connection and in all; over a limit the request is refused as busy
   and the Later is cancelled.
3. A time-out is a wait for a tick of the clock, with one timer for all: a Later costs no timer, and
   one that is answered in time leaves nothing behind. A time-out is late by at most one tick.
4. `Deadlines` and `Arrival` serve all that waits for a watermark, whoever waits.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from orbitmq.ensure import ensure
from orbitmq.errors import StoreError
from orbitmq.watermark import WAITERS_MAX, Waiter, Watermark
from orbitmq.wire.command import Command

if TYPE_CHECKING:
    from orbitmq.net.connection import Parts

TICK_S = 0.05
EXPIRE_SLICE = 500
"""Time-outs handled in one turn: some milliseconds at most."""


class Owner(Protocol):
    """What a Later belongs to once its handler has returned it."""

    def later_done(self, later: "Later", request: Command, reply: "Command | Parts | None") -> None:
        """Send the reply, if there is one, and forget the Later."""
        ...

    def later_failed(self, request: Command, error: Exception) -> "Command | None":
        """Report that a Later's own function failed; return what to answer instead."""
        ...


class Later(Waiter):
    """One answer owed."""

    __slots__ = (
        "_early",
        "_on_cancel",
        "_on_timeout",
        "_owner",
        "_request",
        "done",
        "timeout_s",
    )

    def __init__(
        self,
        timeout_s: float,
        on_timeout: "Callable[[], Command | Parts | None]",
        on_cancel: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.done = False
        self.timeout_s = timeout_s
        self._on_timeout: Callable[[], Command | Parts | None] | None = on_timeout
        self._on_cancel = on_cancel
        self._owner: Owner | None = None
        self._request: Command | None = None
        self._early: Command | Parts | None = None

    def answer(self, reply: "Command | Parts") -> None:
        """Send the reply, unless the Later is done already."""
        if self.done:
            return
        if self._owner is None:  # answered before the handler returned it
            self.done = True
            self._early = reply
            return
        self._finish(reply)

    def adopt(self, owner: Owner, request: Command) -> "Command | Parts | None":
        """Take note of whom it belongs to; return the answer if there is one already."""
        ensure(self._owner is None, "a Later answers one request")
        self._owner = owner
        self._request = request
        early, self._early = self._early, None
        return early

    def late(self) -> None:
        """Answer with what `on_timeout` gives."""
        if self.done or self._owner is None or self._request is None:
            return
        reply: Command | Parts | None = None
        try:
            if self._on_timeout is not None:
                reply = self._on_timeout()
        except Exception as error:  # a bug of the handler must not stop the others
            reply = self._owner.later_failed(self._request, error)
        if not self.done:  # on_timeout may have answered by itself
            self._finish(reply)

    def cancel(self) -> None:
        """Give up: nobody waits for the answer any more."""
        if self.done:
            return
        on_cancel = self._on_cancel
        owner, request = self._owner, self._request
        self._finish(None)
        if on_cancel is None:
            return
        try:
            on_cancel()
        except Exception as error:  # the connection's other Laters are cancelled, too
            if owner is None or request is None:
                raise
            owner.later_failed(request, error)

    def _finish(self, reply: "Command | Parts | None") -> None:
        self.done = True
        owner, request = self._owner, self._request
        self._let_go()
        if owner is not None and request is not None:
            owner.later_done(self, request, reply)

    def _let_go(self) -> None:
        """Drop every reference, so that no cycle outlives the answer."""
        self.leave()
        self._owner = None
        self._request = None
        self._on_timeout = None
        self._on_cancel = None


class Arrival(Waiter):
    """A wait of a coroutine: await its `future`, which raises why the number did not come."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        super().__init__()
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reached(self) -> None:
        """Go on."""
        if not self.future.done():  # else nobody waits any more
            self.future.set_result(None)

    def failed(self, error: StoreError) -> None:
        """Raise the error where the number is waited for."""
        if not self.future.done():
            self.future.set_exception(error)

    def late(self) -> None:
        """Raise that too many wait."""
        self.failed(StoreError("too many wait for the same"))


class Deadlines(Watermark):
    """Ends what waits when its time is over: a watermark of ticks, moved by one timer."""

    __slots__ = ("_loop", "_timer", "_timer_tick")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, waiters_max: int = WAITERS_MAX) -> None:
        super().__init__(waiters_max=waiters_max)
        self._loop = loop
        self._timer: asyncio.Handle | None = None
        self._timer_tick = 0

    def add(self, waiter: Waiter, timeout_s: float) -> None:
        """Have `waiter` told that it is late, unless it has ended before."""
        tick = int((self._loop.time() + timeout_s) / TICK_S) + 1
        self.wait(tick, waiter)
        if self._timer is None or tick < self._timer_tick:
            self._arm()

    def wait_for(self, mark: Watermark, number: int, waiter: Waiter, timeout_s: float) -> None:
        """Have `waiter` ended when a watermark has come so far, or else as late."""
        if mark.wait(number, waiter):
            self.add(waiter, timeout_s)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.close()
        tick = self.next_number
        if tick is None:
            return
        self._timer_tick = tick
        if tick <= self.number:  # more than one turn's share
            self._timer = self._loop.call_soon(self._expire)
        else:
            self._timer = self._loop.call_at(tick * TICK_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.advance(int(self._loop.time() / TICK_S))
        try:
            self.wake(EXPIRE_SLICE)
        finally:
            self._arm()

    def _reach(self, waiter: Waiter) -> None:
        waiter.late()
