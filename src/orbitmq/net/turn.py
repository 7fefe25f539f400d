"""The end of a loop's turn: first what must be written, then every answer.

In: connections that have output, steps that must come before any of it (the store's one write).
Out: each step once, then one write per touched connection.

Rules:
1. All reads of one poll are handled before the turn ends, so their records share one write.
2. When a step fails, nothing of this turn goes out: an answer may promise what was not written.
   The connections are closed, their peers see an unknown outcome.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)


class Writer(Protocol):
    """What has output for the end of the turn."""

    def write_turn(self) -> None:
        """Write all queued output to the socket at once."""
        ...

    def drop(self, reason: str) -> None:
        """Close at once, without writing anything more."""
        ...


class Turn:
    """One per loop, shared by all servers and peers on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._steps: list[Callable[[], None]] = []
        self._touched: list[Writer] = []
        self.is_requested = False
        """Whether the end of this turn is asked for already."""

    def before_write(self, step: Callable[[], None]) -> None:
        """Run `step` at the end of every turn, before any output and after earlier steps."""
        self._steps.append(step)

    def touch(self, connection: Writer) -> None:
        """Note that a connection has output; it calls this once a turn."""
        self._touched.append(connection)
        if not self.is_requested:
            self.request()

    def request(self) -> None:
        """Have the turn finished even if there is no output."""
        if not self.is_requested:
            self.is_requested = True
            self.loop.call_soon(self.finish)

    def finish(self) -> None:
        """Run all steps (they may touch more connections), then write each connection once."""
        try:
            for step in self._steps:
                step()
        except Exception:
            logger.exception("a step before writing failed; no answer of this turn is sent")
            for connection in self._take_touched():
                connection.drop("internal-error")
            return
        for connection in self._take_touched():
            try:
                connection.write_turn()
            except Exception:
                logger.exception("output to %s failed", connection)
                connection.drop("internal-error")

    def _take_touched(self) -> list[Writer]:
        """The connections that have output; from here on a touch belongs to the next turn."""
        touched, self._touched = self._touched, []
        self.is_requested = False
        return touched
