"""One connection, accepted or dialled: bytes to commands, commands to bytes.

In: what the socket read; what handlers and callers send. Out: requests for the handler, responses
for callers, one write a turn. Every step between its states is in `states`.

Rules:
1. Frames are handled in their order. A handler answers now, later or never: nothing here waits, and
   no task, future or timer is made for a request.
2. Who does not read is not read from; but whom we dialled may wait for us to take its answers.
3. Who is owed `laters_pause` answers is read once a sweep: slow, but with its heartbeats.
4. A peer may leave while it is not read from: it is owed nothing, and what it sent is handled.
5. Whatever ends a connection has a reason, counted once. After `close` returns, `closed` is true
   and `on_close` was called; what was sent before is still written.
6. A poll reads a bounded piece of each connection, and handles it for `handling_s` at most.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import cast

from orbitmq.ensure import ensure
from orbitmq.errors import (
    ConnectionClosed,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)
from orbitmq.net.calls import Asking, Call, Calls
from orbitmq.net.later import Later
from orbitmq.net.opening import Opening
from orbitmq.net.output import Output, Parts
from orbitmq.net.pace import Pace
from orbitmq.net.states import (
    ConnectionEvent,
    ConnectionState,
    ReadEvent,
    ReadState,
    reading_after,
    state_after,
)
from orbitmq.net.turn import Turn
from orbitmq.net.watch import Watch
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import (
    HEADER_SIZE_MAX,
    Command,
    decode_command,
    encode_command,
    reply_to,
)
from orbitmq.wire.frame import FRAME_SIZE_MAX, PREFIX_SIZE, Frame, FrameDecoder, cut_frame
from orbitmq.world.net import address_of, has_left, tune
from orbitmq.world.tls import ServerTls, TlsPipe

__all__ = ["Connection", "Handler", "Parts", "ReadFrames", "Result", "cut_next"]

logger = logging.getLogger(__name__)

WHOLE_READ_BYTES = 200_000
"""A read of this size filled the loop's buffer (250 KiB): there is more in the socket. uvloop would
read 32 of them before it looks at another connection."""

# A member of an enum costs more to look up than a global, and these are looked at in every read.
_CLOSING, _ABORTED = ConnectionState.CLOSING, ConnectionState.ABORTED
_READING, _HALTED = ReadState.READING, ReadState.HALTED

Result = Command | Parts | Later | None
"""What a handler gives: an answer now, an encoded one now, one later, none ever."""

Handler = Callable[[Command, "Connection"], Result]

ReadFrames = Callable[["Connection", bytes, int], tuple[int, Frame | None]]
"""Handles frames of `data` from a position on by itself and sends their answers.

It gives (position, frame): all before `position` is handled; `frame` is the first one it does not
know (it ends at `position`), or None when no whole frame is left or `connection.is_blocked()`. It
never handles a frame behind the unknown one. It adds what it handled to `connection.traffic`.
"""


def cut_next(connection: "Connection", data: bytes, position: int) -> tuple[int, Frame | None]:
    """Handle nothing: give every frame (the default ReadFrames)."""
    frame = cut_frame(data, position, connection.limits.frame_size_max)
    if frame is None:
        return position, None
    return position + PREFIX_SIZE + len(frame.header) + len(frame.body), frame


class Connection(asyncio.Protocol):
    """One connection, in either direction."""

    __slots__ = (
        "_backlog",
        "_closed_s",
        "_decoder",
        "_handle",
        "_header_size_max",
        "_is_dialled",
        "_is_let_through",
        "_is_touched",
        "_laters",
        "_opening",
        "_output",
        "_pace",
        "_read_frames",
        "_tls",
        "_tls_ready",
        "_transport",
        "_turn",
        "_watch",
        "born_s",
        "calls",
        "close_reason",
        "closed",
        "held_bytes",
        "limits",
        "local_address",
        "on_close",
        "peer",
        "peer_address",
        "reading",
        "state",
        "traffic",
    )

    _transport: asyncio.Transport
    _pace: Pace

    def __init__(
        self,
        watch: Watch,
        turn: Turn,
        handle: Handler,
        *,
        read_frames: ReadFrames = cut_next,
        tls: ServerTls | None = None,
        is_dialled: bool = False,
    ) -> None:
        self.state = ConnectionState.OPEN if is_dialled else ConnectionState.OPENING
        self.reading = ReadState.READING
        self.closed = False
        """Whether the state is CLOSING or a later one."""
        self.peer = self.close_reason = ""
        self.peer_address = self.local_address = ("", 0)
        self.born_s = self._closed_s = 0.0
        self.on_close: list[Callable[[Connection], None]] = []
        self.held_bytes = 0
        self.limits = watch.limits
        self.traffic = watch.traffic
        self.calls = Calls(watch.limits.calls_per_connection_max, turn.loop)
        self._watch = watch
        self._turn = turn
        self._handle = handle
        self._read_frames = read_frames
        self._is_dialled = is_dialled
        self._opening = None if is_dialled else Opening(watch.proxies, tls)
        self._tls: TlsPipe | None = None
        self._tls_ready: asyncio.Future[None] | None = None
        # Whom we dialled answers us: the ids of a large batch make a header that none may send us.
        self._header_size_max = FRAME_SIZE_MAX if is_dialled else HEADER_SIZE_MAX
        self._decoder = FrameDecoder(watch.limits.frame_size_max, self._header_size_max)
        self._backlog = b""
        self._laters: set[Later] = set()
        self._is_let_through = False  # one read is handled although too many answers are owed
        self._output = Output(watch.limits, turn.loop)
        self._is_touched = False  # the turn will write this connection's output

    def __repr__(self) -> str:
        return f"<Connection {self.peer}{' closed: ' + self.close_reason if self.closed else ''}>"

    @property
    def has_peer_left(self) -> bool:
        """Whether nobody waits for answers any more to what is still handled."""
        return self.state >= ConnectionState.PEER_LEFT

    # --- beginning ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (called by the loop)."""
        # uvloop has transports of its own; what we use of them is the same.
        self._transport = cast("asyncio.Transport", transport)
        self.born_s = self._turn.loop.time()
        self._pace = Pace(self.born_s, first_frame_is_due=not self._is_dialled)
        self.peer_address = address_of(transport, "peername")
        self.local_address = address_of(transport, "sockname")
        self._name_peer()
        tune(transport)
        self._transport.set_write_buffer_limits(*self.limits.output_marks())
        if not self._watch.admit(self):
            self.drop("connections-limit")

    def _name_peer(self) -> None:
        self.peer = self.calls.peer = f"{self.peer_address[0]}:{self.peer_address[1]}"

    def _begin(self, opening: Opening, data: bytes) -> bytes:
        """Look at what an accepted connection begins with; return what is left of it to handle."""
        try:
            begun = opening.feed(data, self.peer_address[0])
        except RemoteProtocolError as error:
            self._refuse(error)
            return b""
        preamble = begun.preamble
        if (
            preamble is not None
            and preamble.source is not None
            and preamble.destination is not None
        ):
            logger.debug("%s speaks for %s:%d", self.peer, *preamble.source)
            self.peer_address, self.local_address = preamble.source, preamble.destination
            self._name_peer()
        if begun.refusal is not None:
            self.close(begun.refusal)
            return b""
        if begun.left:
            self.state = state_after(self.state, ConnectionEvent.BEGUN)
            self._opening = None
            self._tls = begun.tls
        return begun.left

    # --- TLS ---

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
        if self._output.size:
            self._touch()

    # --- input ---

    def data_received(self, data: bytes) -> None:
        """Handle one read (called by the transport)."""
        if self.closed:
            return
        self._pace.moves += 1
        size, is_begun = len(data), False
        self.traffic.received.value += size
        if self._opening is not None:
            data = self._begin(self._opening, data)
        if self._tls is not None:
            data = self._open_sealed(self._tls, data)
        if self.reading >= _HALTED:
            self._backlog += data
        elif data:
            is_begun = self._take(data)
        if self._tls is not None and self._tls.is_ended:
            self.close("peer")
        if is_begun or self.held_bytes or self._backlog or self._opening is not None:
            self.measure()
        if size >= WHOLE_READ_BYTES and self.reading is _READING:
            self._rest()

    def _take(self, data: bytes) -> bool:
        """Handle opened input; return whether the beginning of a frame is held."""
        if self._decoder.held_bytes:
            data = self._decoder.take(data)
        position, is_over_time = 0, False
        try:
            deadline_s = 0.0
            while True:
                position, frame = self._read_frames(self, data, position)
                if frame is None:
                    break
                self.traffic.frames.value += 1
                self._handle_frame(frame)
                deadline_s = deadline_s or self._watch.handling_until_s()
                is_over_time = self._watch.now_s() > deadline_s
                if is_over_time or self.is_blocked():
                    break
            if position:  # else a read that was let through goes on with the rest of its frame
                self._pace.frames += 1
                self._is_let_through = False
            # Most reads leave nothing that could block: a call less for each of them.
            output = self._output
            is_flooded = output.is_undrained or output.size > self.limits.output_pause_bytes
            may_block = is_flooded or self._laters or self.closed
            if may_block and self.is_blocked():
                self._halt(data[position:])
            elif is_over_time and position < len(data):
                self._halt(data[position:])
                self._go_on_soon()
            elif position < len(data):
                self._decoder.hold(data, position)
        except RemoteProtocolError as error:
            self._refuse(error)
        except Exception:  # a bug of ours: where the next frame begins is not known any more
            logger.exception("handling input of %s failed", self.peer)
            self.close("internal-error")
        return self._decoder.held_bytes > 0

    def _handle_frame(self, frame: Frame) -> None:
        command = decode_command(frame, self._header_size_max)
        if command.is_response:
            if not self.calls.settle(command):
                self.traffic.unasked.value += 1
            return
        self.traffic.requests.add(self.traffic.request_label(command.code))
        try:
            result = self._handle(command, self)
        except Exception as error:  # only of a handler that is not a Dispatcher
            result = self._watch.failures.reply(command, error)
        if isinstance(result, Later):
            self._adopt(result, command)
        elif result is not None:
            self._reply(command, result)

    def eof_received(self) -> bool:
        """End in order: the peer will send nothing more (called by the transport)."""
        self.close("peer")
        return True  # the transport stays until the answers of this turn are written

    # --- whether it is read ---

    def is_blocked(self) -> bool:
        """Whether no further input is to be handled for now."""
        output = self._output
        is_flooded = output.is_undrained or output.size > self.limits.output_pause_bytes
        return (
            (is_flooded and not self._is_dialled)
            or self.closed
            or (len(self._laters) >= self.limits.laters_pause and not self._is_let_through)
        )

    def _rest(self) -> None:
        """Read no more of this connection in this poll."""
        self.reading = reading_after(self.reading, ReadEvent.FILLED)
        self._transport.pause_reading()
        self._turn.loop.call_soon(self._polled)

    def _polled(self) -> None:
        self.reading = reading_after(self.reading, ReadEvent.POLLED)
        if self.reading is _READING:
            self._transport.resume_reading()

    def _halt(self, unhandled: bytes) -> None:
        """Keep what is not handled, and read no more; nothing is kept after the end."""
        if self.closed:
            return
        self.reading = reading_after(self.reading, ReadEvent.HALT)
        self._backlog += unhandled
        self.traffic.pauses.value += 1
        self._transport.pause_reading()

    def _go_on_soon(self) -> None:
        """Handle what was kept, in a later call: a transport may be in the middle of a write."""
        if self.reading is _HALTED and not self.is_blocked():
            self.reading = reading_after(self.reading, ReadEvent.RESUME)
            self._watch.going_on += 1
            self._turn.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._look_for_end()
        self._watch.going_on -= 1
        if self.is_blocked():
            self.reading = reading_after(self.reading, ReadEvent.BLOCKED)
            return
        self.reading = reading_after(self.reading, ReadEvent.GO_ON)
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self._take(backlog)
        if self.reading is _READING:
            self._transport.resume_reading()
        self.measure()

    def _look_for_end(self) -> None:
        """Notice a peer that left while nothing is read from it."""
        if self.state is ConnectionState.OPEN and has_left(self._transport):
            self.state = state_after(self.state, ConnectionEvent.PEER_LEFT)
            self._cancel_owed()

    # --- output ---

    def send(self, data: bytes | memoryview) -> None:
        """Queue output for the end of the turn; after `close` it goes nowhere."""
        if not self.closed:
            self.send_parts((data,))

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """Queue encoded frames that come in pieces.

        In the turn of its end a connection still takes them: what was asked before is answered.
        """
        if self.state > _CLOSING:
            return
        output = self._output
        output.parts += parts
        # Of clients that send one by one, each is answered by one piece.
        output.size += len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if not self._is_touched and parts:
            self._is_touched = True
            self._turn.touch(self)

    def send_command(self, command: Command) -> None:
        """Queue a response or a one-way request; raises LocalProtocolError if it cannot be sent."""
        self.send(encode_command(command))

    def _touch(self) -> None:
        if not self._is_touched:
            self._is_touched = True
            self._turn.touch(self)

    def write_turn(self) -> None:
        """Write all queued output to the socket at once (called by the Turn)."""
        self._is_touched = False
        if self.state >= _ABORTED:
            return
        size = self._output.size
        if size and (self._tls is None or self._tls.is_ready):
            if not self._output.write(self._transport, self._tls):
                self.drop("slow-reader")
                return
            self._pace.moves += 1
            self.traffic.sent.value += size
            if self.held_bytes or self._transport.get_write_buffer_size():  # else all of it is gone
                self.measure()
        if self.state is _CLOSING:
            self.state = state_after(self.state, ConnectionEvent.WRITTEN)
            if self._tls is not None:
                self._transport.write(self._tls.farewell())
            self._transport.close()
        elif self.reading is _HALTED:
            self._go_on_soon()

    def pause_writing(self) -> None:
        """Stop reading: the peer does not read (called by the transport)."""
        self._output.is_undrained = True
        if self.reading < _HALTED and not self._is_dialled:
            self._halt(b"")

    def resume_writing(self) -> None:
        """Go on: the peer has read (called by the transport)."""
        self._output.is_undrained = False
        self._pace.drains += 1
        self._output.drained()
        self._go_on_soon()

    @property
    def is_undrained(self) -> bool:
        """Whether the peer has left too much of what it was sent unread."""
        return self._output.is_undrained and not self.closed

    async def wait_drained(self) -> None:
        """Return when the peer has read enough of what it was sent, or is gone."""
        while self.is_undrained:
            await self._output.wait_drained()

    def when_drained(self, action: Callable[[], None]) -> None:
        """Do something soon after an undrained peer has read enough, or is gone."""
        self._output.when_drained(action)

    # --- answers ---

    def _reply(self, request: Command, reply: Command | Parts) -> None:
        if request.is_oneway:
            return
        if isinstance(reply, list):
            self.send_parts(reply)
            return
        try:
            frame = encode_command(reply)
        except LocalProtocolError as error:
            reply = self._watch.failures.reply(request, error)
            frame = encode_command(reply)
        if reply.code != ResponseCode.SUCCESS:
            self.traffic.failures.add(reply.code)
        self.send(frame)

    def _adopt(self, later: Later, request: Command) -> None:
        if self.has_peer_left:
            later.cancel()
        refusal = None if later.done else self._refusal()
        if refusal is not None:
            later.cancel()
            text = f"[OVERLOAD]system busy, {refusal}"
            self._reply(request, reply_to(request, ResponseCode.SYSTEM_BUSY, text))
            return
        early = later.adopt(self, request)
        if not later.done:
            self._laters.add(later)
            self._watch.traffic.laters.value += 1
            self._watch.deadlines.add(later, later.timeout_s)
        elif early is not None:
            self._reply(request, early)

    def _refusal(self) -> str | None:
        limits = self.limits
        if len(self._laters) >= limits.laters_per_connection_max:
            return (
                f"{limits.laters_per_connection_max} requests of this connection are waiting for "
                "their answers (laters_per_connection_max)"
            )
        if self._watch.deadlines.waiter_count >= limits.laters_max:
            return f"{limits.laters_max} requests are waiting for their answers (laters_max)"
        return None

    def later_done(self, later: Later, request: Command, reply: Command | Parts | None) -> None:
        """Send a Later's answer, if it has one, and forget it (called by the Later)."""
        self._laters.discard(later)
        self._watch.traffic.laters.value -= 1
        if reply is not None:
            self._reply(request, reply)
        if self.reading is _HALTED and len(self._laters) <= self.limits.laters_pause // 2:
            self._go_on_soon()

    def later_failed(self, request: Command, error: Exception) -> Command:
        """Return the answer to a request whose Later failed (called by the Later)."""
        return self._watch.failures.reply(request, error)

    def _cancel_owed(self) -> None:
        for later in list(self._laters):
            later.cancel()

    # --- requests of our own ---

    @property
    def calls_waiting(self) -> int:
        """How many of our requests the peer has not answered yet."""
        return len(self.calls.waiting)

    def ask(self, asking: Asking) -> None:
        """Send a request; `asking` learns of its answer, or that there is none.

        Raises LimitExceeded, with nothing sent, when too many requests wait already or the peer
        reads too slowly. The connection must not be closed.
        """
        ensure(not self.closed, "whoever asks has looked whether the connection is open")
        output = self._output
        if output.is_undrained or output.size > self.limits.output_pause_bytes:
            output.refuse_flood(self._transport, self.peer)
        opaque = self.calls.open(asking)
        try:
            self.send_parts(asking.frame(opaque))
        except BaseException:
            self.calls.forget(opaque)
            raise

    async def call(self, request: Command, timeout_s: float) -> Command:
        """Send a request to the other side and give its response, whatever its code.

        Raises RequestTimeout or ConnectionClosed: in both cases it may have been done.
        Raises LimitExceeded, with nothing sent, when too many requests wait already.
        """
        ensure(not request.is_oneway, "a one-way request has no answer to wait for")
        loop = self._turn.loop
        deadline_s = loop.time() + timeout_s
        if self.is_undrained:
            await self._wait_room(request, timeout_s)
        if self.closed:
            raise self._closed_error()
        call = Call(request, timeout_s, deadline_s, loop.create_future())
        self.ask(call)
        try:
            return await call.answer
        finally:
            self.calls.forget(call.opaque)

    async def _wait_room(self, request: Command, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_drained()
        except TimeoutError:
            raise RequestTimeout(request.code, self.peer, timeout_s) from None

    # --- limits ---

    def measure(self) -> None:
        """Bring `held_bytes` up to date."""
        held = self._decoder.held_bytes + len(self._backlog) + self._output.size
        if self._opening is not None:
            held += self._opening.held_bytes
        if self.state < _ABORTED:
            held += self._transport.get_write_buffer_size()
        if held != self.held_bytes:
            delta, self.held_bytes = held - self.held_bytes, held
            self._watch.held(delta)

    def check(self, now_s: float) -> None:
        """End the connection if it is over one of its time limits (called by the Watch)."""
        if self.closed:
            if now_s - self._closed_s > self.limits.linger_s:
                self.drop(self.close_reason)
            return
        if self.held_bytes:  # what grows is measured when it grows; only draining goes unnoticed
            self.measure()
        is_undrained = self._output.is_undrained
        is_inside_record = self._tls is not None and self._tls.is_inside_record
        reason = self._pace.overdue(
            now_s,
            self.limits,
            has_begun_frame=self._decoder.held_bytes > 0 or is_inside_record,
            is_undrained=is_undrained,
        )
        if reason is not None and is_undrained:
            self.drop(reason)
        elif reason is not None:
            self.close(reason)
        elif self.reading >= _HALTED:
            self._look_for_end()
            if not is_undrained:
                self._is_let_through = True
                self._go_on_soon()

    # --- the end ---

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up: the socket is gone (called by the transport)."""
        self._end(ConnectionEvent.LOST, _lost_reason(exc))
        self._output.clear()
        self.measure()
        self._watch.release(self)

    def close(self, reason: str) -> None:
        """End the connection in order: what was sent before is still written."""
        if self.closed:
            return
        self._end(ConnectionEvent.CLOSE, reason)
        if self.state is _CLOSING:  # who was told of the end may have dropped it
            self._transport.pause_reading()
            self._touch()

    def drop(self, reason: str) -> None:
        """End the connection at once, without writing anything more."""
        if self.state >= _ABORTED:
            return
        self._end(ConnectionEvent.ABORT, reason)
        self._transport.abort()
        self._output.clear()
        self.measure()

    def _refuse(self, error: RemoteProtocolError) -> None:
        self.traffic.protocol_errors.add(error.reason)
        logger.debug("%s broke the protocol: %s", self.peer, error)
        self.close(error.reason)

    def _end(self, event: ConnectionEvent, reason: str) -> None:
        """Move towards the end; the first step there is counted and told to everyone who waits."""
        self.state = state_after(self.state, event)
        if self.closed:
            return
        self.closed = True
        self.close_reason = reason
        self._closed_s = self._turn.loop.time()
        self.reading = reading_after(self.reading, ReadEvent.STOP)
        self.traffic.closes.add(reason)
        self._opening, self._backlog = None, b""
        self._decoder = FrameDecoder(self.limits.frame_size_max)
        self._cancel_owed()
        self.calls.fail(self._closed_error)
        self._output.drained()
        if self._tls_ready is not None and not self._tls_ready.done():
            self._tls_ready.set_exception(self._closed_error())
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # the others must learn of the end as well
                logger.exception("on_close of %s failed", self.peer)

    def _closed_error(self) -> ConnectionClosed:
        return ConnectionClosed(self.peer, self.close_reason)


def _lost_reason(error: Exception | None) -> str:
    if error is None:
        return "peer"
    return "unreachable" if isinstance(error, TimeoutError) else "reset"
