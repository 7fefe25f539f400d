"""Our own requests on one connection, until the peer answers them.

In: requests and responses. Out: numbered requests, and each response at whoever asked.

Rules:
1. Every connection numbers its requests by itself, apart from the numbers its peer uses.
2. A request leaves the table when it is answered, overdue or given up; a response that finds
   nothing there was not asked for.
3. There is one timer, for the earliest deadline in the table, and it is set anew only when it has
   run out or an earlier deadline comes: a request costs no timer of its own. Who waits longer than
   its deadline learns of it within `LATE_S`.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Protocol

from orbitmq.errors import LimitExceeded, RequestTimeout
from orbitmq.wire.command import Command, encode_command

OPAQUE_MAX = 2**31 - 1
LATE_S = 0.01
"""So far apart are two looks at the deadlines, at least: each looks at the whole table."""


class Asking(Protocol):
    """A request under way, as its connection sees it. Exactly one of three things happens to it."""

    deadline_s: float
    """When it is too late for an answer, by the loop's clock."""

    def frame(self, opaque: int) -> "list[bytes | memoryview]":
        """Return the request's bytes with this number in it."""
        ...

    def answered(self, answer: Command) -> None:
        """Take the response, whatever its code."""
        ...

    def overdue(self, peer: str) -> None:
        """Learn that no response has come in time."""
        ...

    def failed(self, error: Exception) -> None:
        """Learn that no response will come: the connection has ended."""
        ...


class Call:
    """A request that a coroutine waits for, as an Asking."""

    __slots__ = ("_request", "_timeout_s", "answer", "deadline_s", "opaque")

    def __init__(
        self, request: Command, timeout_s: float, deadline_s: float, answer: asyncio.Future[Command]
    ) -> None:
        self.deadline_s = deadline_s
        self.answer = answer
        self.opaque = 0
        self._request = request
        self._timeout_s = timeout_s

    def frame(self, opaque: int) -> list[bytes | memoryview]:
        """Return the request's bytes; the caller's Command stays as it is."""
        request, self.opaque = self._request, opaque
        numbered = Command(
            request.code,
            opaque,
            request.flag,
            request.fields,
            request.body,
            request.remark,
            request.language,
            request.version,
            request.serialization,
        )
        return [encode_command(numbered)]

    def answered(self, answer: Command) -> None:
        """Hand the response to who waits for it."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def overdue(self, peer: str) -> None:
        """Raise RequestTimeout there."""
        self.failed(RequestTimeout(self._request.code, peer, self._timeout_s))

    def failed(self, error: Exception) -> None:
        """Raise the error there."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Calls:
    """The requests that one peer has not answered yet."""

    __slots__ = ("_count_max", "_due_s", "_loop", "_opaque", "_timer", "peer", "waiting")

    def __init__(self, count_max: int, loop: asyncio.AbstractEventLoop) -> None:
        self.waiting: dict[int, Asking] = {}
        """By their numbers. Code that reads responses by itself takes them out of here."""
        self.peer = ""
        self._count_max = count_max
        self._loop = loop
        self._opaque = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = inf

    def open(self, asking: Asking) -> int:
        """Return a free number to a request; raises LimitExceeded when too many wait already."""
        waiting = self.waiting
        if len(waiting) >= self._count_max:
            raise LimitExceeded(
                f"{self._count_max} requests are waiting for one peer's answers already "
                "(calls_per_connection_max)",
                self._count_max,
                "calls_per_connection_max",
            )
        opaque = self._opaque + 1 if self._opaque < OPAQUE_MAX else 1
        while opaque in waiting:
            opaque = opaque + 1 if opaque < OPAQUE_MAX else 1
        self._opaque = opaque
        waiting[opaque] = asking
        if asking.deadline_s < self._due_s:
            self._arm(asking.deadline_s)
        return opaque

    def settle(self, response: Command) -> bool:
        """Hand a response to who asked; give False when nobody waits for it."""
        asking = self.waiting.pop(response.opaque, None)
        if asking is None:
            return False
        asking.answered(response)
        return True

    def forget(self, opaque: int) -> None:
        """Wait for this answer no longer."""
        self.waiting.pop(opaque, None)

    def fail(self, error: Callable[[], Exception]) -> None:
        """Tell everybody who waits that no answer will come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due_s = None, inf
        waiting, self.waiting = self.waiting, {}
        for asking in waiting.values():
            asking.failed(error())

    # --- deadlines ---

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = due_s
        self._timer = self._loop.call_at(due_s, self._look)

    def _look(self) -> None:
        """Tell those who are overdue, and come again for the next."""
        self._timer, self._due_s = None, inf
        now_s = self._loop.time()
        overdue = [opaque for opaque, one in self.waiting.items() if one.deadline_s <= now_s]
        for opaque in overdue:
            asking = self.waiting.pop(opaque, None)
            if asking is not None:
                asking.overdue(self.peer)
        if self.waiting:
            due_s = max(now_s + LATE_S, min(one.deadline_s for one in self.waiting.values()))
            if due_s < self._due_s:
                self._arm(due_s)
