"""Our own requests on one connection, until the peer answers them.

In: requests and responses. Out: numbered requests, and each response at its caller.

Rules:
1. Every connection numbers its requests by itself, apart from the numbers its peer uses.
2. A request leaves the table when it is answered, timed out or given up; a response that finds
   nothing there was not asked for.
"""

import asyncio
from collections.abc import Callable

from orbitmq.errors import LimitExceeded
from orbitmq.wire.command import Command

OPAQUE_MAX = 2**31 - 1


class Calls:
    """The requests that one peer has not answered yet."""

    __slots__ = ("_count_max", "_opaque", "_waiting")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._opaque = 0
        self._waiting: dict[int, asyncio.Future[Command]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def open(self, answer: asyncio.Future[Command]) -> int:
        """Give a free number to a request whose response `answer` waits for."""
        if len(self._waiting) >= self._count_max:
            raise LimitExceeded(
                f"{self._count_max} requests are waiting for one peer's answers already "
                "(calls_per_connection_max)"
            )
        self._opaque = self._opaque + 1 if self._opaque < OPAQUE_MAX else 1
        while self._opaque in self._waiting:
            self._opaque = self._opaque + 1 if self._opaque < OPAQUE_MAX else 1
        self._waiting[self._opaque] = answer
        return self._opaque

    def settle(self, response: Command) -> bool:
        """Hand a response to its caller; give False when nobody waits for it."""
        answer = self._waiting.pop(response.opaque, None)
        if answer is None or answer.done():
            return False
        answer.set_result(response)
        return True

    def forget(self, opaque: int) -> None:
        """Wait for this answer no longer."""
        self._waiting.pop(opaque, None)

    def fail(self, error: Callable[[], Exception]) -> None:
        """Tell every caller that no answer will come."""
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error())
