"""What the connections of one server share: limits, counters, owed answers, and one sweep.

In: connections as they come and go. Out: refusals over the limits, and the end of those that take
too long.

Rules:
1. One timer looks at all connections; a connection has no timers of its own and reads no clock
   while it moves bytes.
2. How many there may be and what they hold together counts for the whole process: `admission`.
"""

import asyncio
from typing import TYPE_CHECKING

from orbitmq.metrics import Registry
from orbitmq.net.admission import Admission
from orbitmq.net.dispatch import Failures
from orbitmq.net.later import Deadlines
from orbitmq.net.limits import Limits
from orbitmq.net.proxy_protocol import Proxies
from orbitmq.net.traffic import Traffic
from orbitmq.world.clock import SystemClock

if TYPE_CHECKING:
    from orbitmq.net.connection import Connection

SWEEP_SLICE = 1_000
"""Connections looked at in one turn: a millisecond or two."""

SHARES_MAX = 8
"""Into no more parts is `handling_s` divided: to be interrupted costs a copy of what is left."""


class Watch:
    """The shared state of one server's connections, or of one dialled connection."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: Limits, registry: Registry, name: str
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.now_s = SystemClock.monotonic_s
        """The loop's own clock stands still while something is handled."""
        self.traffic = Traffic(registry, name)
        self.failures = Failures(registry)
        self.deadlines = Deadlines(loop, waiters_max=limits.laters_max)
        self.admission = Admission(limits)
        """This server's own, until it is given one that several share."""
        self.proxies: Proxies | None = None
        """Who may say by the PROXY protocol for whom a connection is; None: nobody."""
        self.connections: set[Connection] = set()
        self.going_on = 0
        """How many of them wait for their next turn to go on with what was read."""
        self._timer: asyncio.Handle | None = None
        self._sweep_s = limits.sweep_s()
        self._empty: asyncio.Event = asyncio.Event()
        self._empty.set()

    def admit(self, connection: "Connection") -> bool:
        """Watch over a new connection; give False when there are too many already."""
        self.traffic.opens.value += 1
        if not self.admission.admit(connection):
            return False
        self.connections.add(connection)
        self._empty.clear()
        self.traffic.connections.value += 1
        if self._timer is None:
            self._arm()
        return True

    def release(self, connection: "Connection") -> None:
        """Forget a connection whose socket is gone."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self.admission.release(connection)
        self.traffic.connections.value -= 1
        if not self.connections:
            self._empty.set()
            self._disarm()

    def handling_until_s(self) -> float:
        """Return until when one connection may go on before the others get their turn.

        Those that go on share the time: many that flood must not make a turn long for the rest.
        """
        share = min(1 + self.going_on, SHARES_MAX)
        return self.now_s() + self.limits.handling_s / share

    def held(self, delta_bytes: int) -> None:
        """Note that one connection holds more, or less, than before."""
        self.traffic.held.value += delta_bytes
        self.admission.held(delta_bytes)

    async def wait_empty(self, timeout_s: float) -> None:
        """Return when no connection is left; after `timeout_s` the rest is dropped first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.drop("stop")
            await self._empty.wait()

    def close(self) -> None:
        """Stop all timers."""
        self._disarm()
        self.deadlines.close()

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self._sweep_s, self._sweep)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._sweep_slice(list(self.connections))

    def _sweep_slice(self, left: "list[Connection]") -> None:
        self._timer = None
        now_s = self.loop.time()
        for connection in left[:SWEEP_SLICE]:
            connection.check(now_s)
        del left[:SWEEP_SLICE]
        if left:
            self._timer = self.loop.call_soon(self._sweep_slice, left)
        elif self.connections:
            self._arm()
