"""One connection as a stream of bytes: TLS, back-pressure, one write a turn, limits, a counted end.

In: what the socket read; bytes to send. Out: opened bytes for `_take`, and one write at the end of
a turn. `Connection` makes frames and commands of it.

Rules:
1. A peer that does not read is not read from: above `output_pause_bytes` of unsent output nothing
   more is taken, and what was read already is kept until the output has drained. Whom we dialled
   is read all the same: it may wait for us to take its answers before it reads our requests.
2. A peer that leaves while it is not read from is noticed all the same: what is owed to it is given
   up at once; what it sent before is still handled, then the connection ends.
3. Whatever ends a connection has a reason, counted once. After `close` returns, `closed` is true
   and `on_close` was called; what was sent before is still written.
4. The first byte tells TLS, plain and a proxy's preamble apart; see world.tls, proxy_protocol.
5. One poll reads a bounded piece of each connection: the loop's other work gets its turn.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from orbitmq.errors import ConnectionClosed, RemoteProtocolError
from orbitmq.net.pace import Pace
from orbitmq.net.proxy_protocol import FIRST_BYTES, Proxies, read_preamble
from orbitmq.net.turn import Turn
from orbitmq.net.watch import Watch
from orbitmq.wire.frame import COPY_BELOW_BYTES
from orbitmq.world.net import address_of, tune
from orbitmq.world.tls import HANDSHAKE_BYTE, ServerTls, TlsMode, TlsPipe

if TYPE_CHECKING:
    from orbitmq.net.connection import Connection

logger = logging.getLogger(__name__)

Parts = list[bytes | memoryview]
"""An encoded frame, in pieces."""

WHOLE_READ_BYTES = 200_000
"""A read of this size filled the loop's buffer (250 KiB): there is more in the socket. uvloop would
read 32 of them before it looks at another connection."""


class Stream(asyncio.Protocol):
    """The bytes of one connection, accepted or dialled."""

    __slots__ = (
        "_backlog",
        "_closed_s",
        "_drained",
        "_is_dialled",
        "_is_dropped",
        "_is_finished",
        "_is_first_read",
        "_is_going_on",
        "_is_halted",
        "_is_lost",
        "_is_resting",
        "_is_touched",
        "_is_undrained",
        "_out",
        "_out_bytes",
        "_pace",
        "_preamble",
        "_proxies",
        "_server_tls",
        "_tls",
        "_tls_ready",
        "_transport",
        "_turn",
        "_watch",
        "born_s",
        "close_reason",
        "closed",
        "held_bytes",
        "limits",
        "local_address",
        "on_close",
        "peer",
        "peer_address",
        "traffic",
    )

    _transport: asyncio.Transport
    _pace: Pace

    def __init__(
        self, watch: Watch, turn: Turn, *, tls: ServerTls | None, is_dialled: bool
    ) -> None:
        self.peer = self.close_reason = ""
        self.peer_address = self.local_address = ("", 0)
        self.born_s = self._closed_s = 0.0
        self.closed = False
        self.on_close: list[Callable[[Connection], None]] = []
        self.held_bytes = 0
        self.limits = watch.limits
        self.traffic = watch.traffic
        self._watch = watch
        self._turn = turn
        self._server_tls = tls
        self._tls: TlsPipe | None = None
        self._tls_ready: asyncio.Future[None] | None = None
        self._is_dialled = is_dialled
        self._is_first_read = not is_dialled
        self._proxies = watch.proxies
        self._preamble = self._backlog = b""
        self._is_lost = self._is_finished = self._is_dropped = self._is_touched = False
        self._is_halted = self._is_going_on = self._is_resting = self._is_undrained = False
        self._out: Parts = []
        self._out_bytes = 0
        self._drained: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.peer}{' closed: ' + self.close_reason if self.closed else ''}>"

    # --- what Connection adds ---

    @abstractmethod
    def _as_connection(self) -> "Connection":
        """Return itself."""

    @abstractmethod
    def _take(self, data: bytes) -> bool:
        """Handle opened input; what must wait is given to `_halt`.

        Gives whether the beginning of a frame is held until the rest of it comes.
        """

    @abstractmethod
    def _begun_bytes(self) -> int:
        """Return how many bytes of an unfinished frame are held."""

    @abstractmethod
    def _let_through(self) -> None:
        """Go on for one read although something else than output holds it up."""

    @abstractmethod
    def _look_for_end(self) -> None:
        """Notice a peer that left while nothing is read from it."""

    @abstractmethod
    def _give_up(self) -> None:
        """Tell everyone who waits that nothing more will come."""

    # --- output ---

    def send(self, data: bytes | memoryview) -> None:
        """Queue output for the end of the turn; after `close` it goes nowhere."""
        if self.closed:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._is_touched:
            self._is_touched = True
            self._turn.touch(self)

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """Queue encoded frames that come in pieces.

        In the turn of its end a connection still takes them: what was asked before is answered.
        """
        if self._is_finished:
            return
        self._out += parts
        # Of clients that send one by one, each is answered by one piece.
        self._out_bytes += len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if not self._is_touched and parts:
            self._is_touched = True
            self._turn.touch(self)

    def write_turn(self) -> None:
        """Return all queued output to the socket at once (called by the Turn)."""
        self._is_touched = False
        if self._is_lost:
            return
        if self._out_bytes and (self._tls is None or self._tls.is_ready):
            self._write_out()
        if self.closed:
            self._is_finished = True
            if self._tls is not None:
                self._transport.write(self._tls.farewell())
            self._transport.close()
        elif self._is_halted:
            self._go_on_soon()

    def _write_out(self) -> None:
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        transport = self._transport
        unsent = transport.get_write_buffer_size() if self._is_undrained else 0
        if unsent + size > self.limits.output_bytes_max:
            self.drop("slow-reader")
            return
        self._pace.moves += 1
        self.traffic.sent.value += size
        if self._tls is not None:
            transport.write(self._tls.seal(out))
        elif len(out) == 1:
            transport.write(out[0])
        elif size < len(out) * COPY_BELOW_BYTES:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
            self._notice_unsent()
        if self.held_bytes or transport.get_write_buffer_size():  # else all of it is gone already
            self.measure()

    def _notice_unsent(self) -> None:
        """Have the transport look at its limits: asyncio's `writelines` forgot to in some versions.

        That is CVE-2024-12254, in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1.
        """
        high, low = self.limits.output_marks()
        if not self._is_undrained and self._transport.get_write_buffer_size() > high:
            self._transport.set_write_buffer_limits(high, low)

    def _tell_drained(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    # --- input ---

    def data_received(self, data: bytes) -> None:
        """Handle one read (called by the transport)."""
        if self.closed:
            return
        self._pace.moves += 1
        size, is_begun = len(data), False
        self.traffic.received.value += size
        if self._is_first_read:
            data = self._begin(data)
        if self._tls is not None:
            data = self._open_sealed(self._tls, data)
        if self._is_halted:
            self._backlog += data
        elif data:
            is_begun = self._take(data)
        if self._tls is not None and self._tls.is_ended:
            self.close("peer")
        if is_begun or self.held_bytes or self._backlog or self._preamble:
            self.measure()
        if size >= WHOLE_READ_BYTES and not self._is_resting and not self._is_halted:
            self._rest()

    def _rest(self) -> None:
        """Read no more of this connection in this poll."""
        if not self.closed:
            self._is_resting = True
            self._transport.pause_reading()
            self._turn.loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        if not self._is_halted and not self.closed:
            self._transport.resume_reading()

    def _begin(self, data: bytes) -> bytes:
        """Look at what a connection begins with; return what is left of it to handle."""
        proxies = self._proxies
        if proxies is not None and (self._preamble or data[0] in FIRST_BYTES):
            data = self._take_preamble(proxies, data)
            if not data:
                return b""
        self._is_first_read = False
        refusal = self._choose_tls(data[0])
        if refusal is not None:
            self.close(refusal)
            return b""
        return data

    def _take_preamble(self, proxies: Proxies, data: bytes) -> bytes:
        """Take the addresses from a proxy's word, once; return what follows it."""
        data, self._preamble = self._preamble + data, b""
        try:
            proxies.check(self.peer_address[0])
            preamble = read_preamble(data)
        except RemoteProtocolError as error:
            self._refuse(error)
            return b""
        if preamble is None:
            self._preamble = data
            return b""
        self._proxies = None
        if preamble.source is not None and preamble.destination is not None:
            logger.debug("%s speaks for %s:%d", self.peer, *preamble.source)
            self.peer_address, self.local_address = preamble.source, preamble.destination
            self.peer = f"{self.peer_address[0]}:{self.peer_address[1]}"
        return data[preamble.size :]

    def eof_received(self) -> bool:
        """End in order: the peer will send nothing more (called by the transport)."""
        self.close("peer")
        return True  # the transport stays until the answers of this turn are written

    # --- back-pressure ---

    @abstractmethod
    def is_blocked(self) -> bool:
        """Whether no further input is to be handled for now."""

    def pause_writing(self) -> None:
        """Stop reading: the peer does not read (called by the transport)."""
        self._is_undrained = True
        if not self._is_halted and not self._is_dialled:
            self._halt(b"")

    def resume_writing(self) -> None:
        """Go on: the peer has read (called by the transport)."""
        self._is_undrained = False
        self._pace.drains += 1
        self._tell_drained()
        if self._is_halted:
            self._go_on_soon()

    def _halt(self, unhandled: bytes) -> None:
        """Keep what is not handled, and read no more; nothing is kept after the end."""
        if self.closed:
            return
        self._is_halted = True
        self._backlog += unhandled
        self.traffic.pauses.value += 1
        self._transport.pause_reading()

    def _go_on_soon(self) -> None:
        """Handle what was kept, in a later call: a transport may be in the middle of a write."""
        if not self._is_going_on and not self.is_blocked():
            self._is_going_on = True
            self._watch.going_on += 1
            self._turn.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._look_for_end()
        self._is_going_on = False
        self._watch.going_on -= 1
        if self.is_blocked():
            return
        self._is_halted = False
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self._take(backlog)
        if not self._is_halted and not self._is_resting and not self.closed:
            self._transport.resume_reading()
        self.measure()

    # --- limits ---

    def measure(self) -> None:
        """Bring `held_bytes` up to date."""
        held = self._begun_bytes() + len(self._backlog) + len(self._preamble) + self._out_bytes
        if not self._is_lost and not self._is_dropped:
            held += self._transport.get_write_buffer_size()
        if held != self.held_bytes:
            delta, self.held_bytes = held - self.held_bytes, held
            self._watch.held(delta)

    def check(self, now_s: float) -> None:
        """End the connection if it is over one of its time limits (called by the Watch)."""
        if self.closed:
            if not self._is_lost and now_s - self._closed_s > self.limits.linger_s:
                self._transport.abort()
            return
        if self.held_bytes:  # what grows is measured when it grows; only draining goes unnoticed
            self.measure()
        is_inside_record = self._tls is not None and self._tls.is_inside_record
        reason = self._pace.overdue(
            now_s,
            self.limits,
            has_begun_frame=self._begun_bytes() > 0 or is_inside_record,
            is_undrained=self._is_undrained,
        )
        if reason is not None and self._is_undrained:
            self.drop(reason)
        elif reason is not None:
            self.close(reason)
        elif self._is_halted:
            self._look_for_end()
            self._let_through()

    # --- TLS ---

    def _choose_tls(self, first_byte: int) -> str | None:
        """Speak TLS if the peer does; return why that, or plain, is refused."""
        tls = self._server_tls
        if first_byte == HANDSHAKE_BYTE:
            self._tls = tls.pipe() if tls is not None else None
            return "tls-unavailable" if self._tls is None else None
        if tls is not None and tls.mode is TlsMode.ENFORCING:
            return "tls-required"
        return None

    async def start_tls(self, pipe: TlsPipe) -> None:
        """Shake hands as the client; raises ConnectionClosed when that fails."""
        self._tls = pipe
        self._tls_ready = self._turn.loop.create_future()
        pipe.feed(b"")
        self._transport.write(pipe.outgoing())
        await self._tls_ready

    def _open_sealed(self, pipe: TlsPipe, sealed: bytes) -> bytes:
        was_ready = pipe.is_ready
        opened = b""
        try:
            opened = pipe.feed(sealed)
        except RemoteProtocolError as error:
            self._refuse(error)
        outgoing = pipe.outgoing()
        if outgoing:
            self._transport.write(outgoing)
        if pipe.is_ready and not was_ready:
            self._tls_done()
        return opened

    def _tls_done(self) -> None:
        if self._tls_ready is not None and not self._tls_ready.done():
            self._tls_ready.set_result(None)
        if self._out and not self._is_touched:
            self._is_touched = True
            self._turn.touch(self)

    # --- beginning and end ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (called by the loop)."""
        # uvloop has transports of its own; what we use of them is the same.
        self._transport = cast("asyncio.Transport", transport)
        self.born_s = self._turn.loop.time()
        self._pace = Pace(self.born_s, first_frame_is_due=not self._is_dialled)
        self.peer_address = address_of(transport, "peername")
        self.local_address = address_of(transport, "sockname")
        self.peer = f"{self.peer_address[0]}:{self.peer_address[1]}"
        tune(transport)
        self._transport.set_write_buffer_limits(*self.limits.output_marks())
        if not self._watch.admit(self._as_connection()):
            self.drop("connections-limit")

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up: the socket is gone (called by the transport)."""
        self._is_lost = self._is_finished = True
        if not self.closed:
            self._end(_lost_reason(exc))
        self._out, self._out_bytes = [], 0
        self.measure()
        self._watch.release(self._as_connection())

    def close(self, reason: str) -> None:
        """End the connection in order: what was sent before is still written."""
        if self.closed:
            return
        self._end(reason)
        if self._is_lost:
            return
        self._transport.pause_reading()
        if not self._is_touched:
            self._is_touched = True
            self._turn.touch(self)

    def drop(self, reason: str) -> None:
        """End the connection at once, without writing anything more."""
        if not self.closed:
            self._end(reason)
        if not self._is_lost:
            self._transport.abort()
            self._is_dropped = self._is_finished = True
            self._out, self._out_bytes = [], 0
            self.measure()

    def _refuse(self, error: RemoteProtocolError) -> None:
        self.traffic.protocol_errors.add(error.reason)
        logger.debug("%s broke the protocol: %s", self.peer, error)
        self.close(error.reason)

    def _end(self, reason: str) -> None:
        self.closed = True
        self.close_reason = reason
        self._closed_s = self._turn.loop.time()
        self.traffic.closes.add(reason)
        self._backlog = self._preamble = b""
        self._give_up()
        self._tell_drained()
        if self._tls_ready is not None and not self._tls_ready.done():
            self._tls_ready.set_exception(self._closed_error())
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            try:
                callback(self._as_connection())
            except Exception:  # the others must learn of the end as well
                logger.exception("on_close of %s failed", self.peer)

    def _closed_error(self) -> ConnectionClosed:
        return ConnectionClosed(self.peer, self.close_reason)


def _lost_reason(error: Exception | None) -> str:
    if error is None:
        return "peer"
    return "unreachable" if isinstance(error, TimeoutError) else "reset"
