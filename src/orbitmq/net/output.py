"""What one connection has to send: collected in a turn, written at once at its end.

In: encoded frames in pieces, added by the connection, and word of the transport that its buffer is
full or empty again. Out: one write a turn.

Rules:
1. Above `output_pause_bytes` the transport calls the peer undrained: it leaves too much unread.
2. Output that would make the unread more than `output_bytes_max` is not written: that peer is too
   slow, and its connection ends. A request of our own is refused at half of that already.
"""

import asyncio
from collections.abc import Callable

from orbitmq.errors import LimitExceeded
from orbitmq.net.limits import Limits
from orbitmq.wire.frame import COPY_BELOW_BYTES
from orbitmq.world.tls import TlsPipe

Parts = list[bytes | memoryview]
"""An encoded frame, in pieces."""


class Output:
    """The unsent output of one connection."""

    __slots__ = ("_drained", "_limits", "_loop", "is_undrained", "parts", "size")

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self._limits = limits
        self._loop = loop
        self._drained: asyncio.Future[None] | None = None
        self.parts: Parts = []
        """What waits for the end of the turn."""
        self.size = 0
        """Its bytes: whoever adds parts adds them here, too."""
        self.is_undrained = False
        """Whether the peer leaves too much of what was written unread."""

    def clear(self) -> None:
        """Forget what is queued."""
        self.parts, self.size = [], 0

    def write(self, transport: asyncio.Transport, tls: TlsPipe | None) -> bool:
        """Give all that is queued to the transport at once; False: the peer is too slow for it."""
        parts, size = self.parts, self.size
        self.parts, self.size = [], 0
        unsent = transport.get_write_buffer_size() if self.is_undrained else 0
        if unsent + size > self._limits.output_bytes_max:
            return False
        if len(parts) == 1 and tls is None:
            transport.write(parts[0])
        elif tls is not None:
            transport.write(tls.seal(parts))
        elif size < len(parts) * COPY_BELOW_BYTES:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)
            self._notice_unsent(transport)
        return True

    def _notice_unsent(self, transport: asyncio.Transport) -> None:
        """Have the transport look at its limits: asyncio's `writelines` forgot to in some versions.

        That is CVE-2024-12254, in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1.
        """
        high, low = self._limits.output_marks()
        if not self.is_undrained and transport.get_write_buffer_size() > high:
            transport.set_write_buffer_limits(high, low)

    def refuse_flood(self, transport: asyncio.Transport, peer: str) -> None:
        """Raise LimitExceeded if the peer's unread output would soon end the connection."""
        unsent = self.size + transport.get_write_buffer_size()
        limit = self._limits.output_bytes_max // 2
        if unsent > limit:
            raise LimitExceeded(
                f"{unsent} bytes wait for {peer} to read them, limit {limit} (half of "
                "output_bytes_max); send less at once",
                limit,
                "output_bytes_max",
            )

    def drained(self) -> None:
        """Wake everyone who waits: the peer has read, or is gone."""
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    async def wait_drained(self) -> None:
        """Return at the next call of `drained`."""
        await asyncio.shield(self._next_drained())

    def when_drained(self, action: Callable[[], None]) -> None:
        """Do something soon after the next call of `drained`."""
        self._next_drained().add_done_callback(lambda _: action())

    def _next_drained(self) -> "asyncio.Future[None]":
        if self._drained is None:
            self._drained = self._loop.create_future()
        return self._drained
