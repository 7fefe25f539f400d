"""One connection, accepted or dialled: frames to commands, commands to frames.

In: the bytes of a Stream; what handlers and callers want to send. Out: requests for the handler,
responses for callers.

Rules:
1. Frames are handled in their order. A handler answers now, later or never; nothing here waits,
   and no task, future or timer is made for a request from the peer.
2. A connection that is owed `laters_pause` answers is read only once per sweep, so that it slows
   down without losing its heartbeats; past `laters_per_connection_max` it is refused as busy.
3. When it ends, owed answers are cancelled and callers get a ConnectionClosed. Of a peer that has
   left, what it sent before is handled, and no answer is owed for it.
4. `ask` sends a request of our own without a task, a future or a timer; `call` is for coroutines.
5. After `handling_s` with requests of one connection the others get their turn; it goes on in the
   next. Those that go on share that time. What a ReadFrames handles by itself is bounded by the
   read.
"""

import asyncio
import logging
from collections.abc import Callable

from orbitmq.ensure import ensure
from orbitmq.errors import (
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)
from orbitmq.net.calls import Asking, Call, Calls
from orbitmq.net.later import Later
from orbitmq.net.stream import Parts, Stream
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
from orbitmq.world.net import has_left
from orbitmq.world.tls import ServerTls

__all__ = ["Connection", "Handler", "Parts", "ReadFrames", "Result", "cut_next"]

logger = logging.getLogger(__name__)

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


class Connection(Stream):
    """One connection, in either direction."""

    __slots__ = (
        "_decoder",
        "_handle",
        "_header_size_max",
        "_is_let_through",
        "_laters",
        "_read_frames",
        "calls",
        "is_leaving",
    )

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
        super().__init__(watch, turn, tls=tls, is_dialled=is_dialled)
        self._handle = handle
        self._read_frames = read_frames
        # Whom we dialled answers us: the ids of a large batch make a header that none may send us.
        self._header_size_max = FRAME_SIZE_MAX if is_dialled else HEADER_SIZE_MAX
        self._decoder = FrameDecoder(watch.limits.frame_size_max, self._header_size_max)
        self._laters: set[Later] = set()
        self._is_let_through = False
        self.is_leaving = False
        """Whether the peer has left: nobody waits for answers to what is still handled."""
        self.calls = Calls(watch.limits.calls_per_connection_max, turn.loop)

    @property
    def calls_waiting(self) -> int:
        """How many of our requests the peer has not answered yet."""
        return len(self.calls.waiting)

    def send_command(self, command: Command) -> None:
        """Queue a response or a one-way request; raises LocalProtocolError if it cannot be sent."""
        self.send(encode_command(command))

    def ask(self, asking: Asking) -> None:
        """Send a request; `asking` learns of its answer, or that there is none.

        Raises LimitExceeded, with nothing sent, when too many requests wait already or the peer
        reads too slowly. The connection must not be closed.
        """
        ensure(not self.closed, "whoever asks has looked whether the connection is open")
        if self._is_undrained or self._out_bytes > self.limits.output_pause_bytes:
            self._refuse_flood()
        opaque = self.calls.open(asking)
        try:
            self.send_parts(asking.frame(opaque))
        except BaseException:
            self.calls.forget(opaque)
            raise

    def _refuse_flood(self) -> None:
        """Send no more to a peer whose unread output would soon end the connection."""
        unsent = self._out_bytes + self._transport.get_write_buffer_size()
        limit = self.limits.output_bytes_max // 2
        if unsent > limit:
            raise LimitExceeded(
                f"{unsent} bytes wait for {self.peer} to read them, limit {limit} (half of "
                "output_bytes_max); send less at once",
                limit,
                "output_bytes_max",
            )

    async def call(self, request: Command, timeout_s: float) -> Command:
        """Send a request to the other side and give its response, whatever its code.

        Raises RequestTimeout or ConnectionClosed: in both cases it may have been done.
        Raises LimitExceeded, with nothing sent, when too many requests wait already.
        """
        ensure(not request.is_oneway, "a one-way request has no answer to wait for")
        loop = self._turn.loop
        deadline_s = loop.time() + timeout_s
        if self._is_undrained:
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

    @property
    def is_undrained(self) -> bool:
        """Whether the peer has left too much of what it was sent unread."""
        return self._is_undrained and not self.closed

    async def wait_drained(self) -> None:
        """Return when the peer has read enough of what it was sent, or is gone."""
        while self.is_undrained:
            await asyncio.shield(self._draining())

    def when_drained(self, action: Callable[[], None]) -> None:
        """Do something soon after an undrained peer has read enough, or is gone."""
        self._draining().add_done_callback(lambda _: action())

    def _draining(self) -> "asyncio.Future[None]":
        if self._drained is None:
            self._drained = self._turn.loop.create_future()
        return self._drained

    # --- what was read ---

    def _take(self, data: bytes) -> bool:
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
            may_block = self._out_bytes or self._laters or self._is_undrained or self.closed
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

    # --- answers that come later ---

    def _adopt(self, later: Later, request: Command) -> None:
        if self.is_leaving:
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
        if self._is_halted and len(self._laters) <= self.limits.laters_pause // 2:
            self._go_on_soon()

    def later_failed(self, request: Command, error: Exception) -> Command:
        """Return the answer to a request whose Later failed (called by the Later)."""
        return self._watch.failures.reply(request, error)

    # --- what Stream asks ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (called by the loop)."""
        super().connection_made(transport)
        self.calls.peer = self.peer

    def is_blocked(self) -> bool:
        """Whether no further frame is to be handled for now."""
        is_flooded = self._is_undrained or self._out_bytes > self.limits.output_pause_bytes
        return (
            (is_flooded and not self._is_dialled)
            or self.closed
            or (len(self._laters) >= self.limits.laters_pause and not self._is_let_through)
        )

    def _let_through(self) -> None:
        if not self._is_undrained:
            self._is_let_through = True
            self._go_on_soon()

    def _as_connection(self) -> "Connection":
        return self

    def _begun_bytes(self) -> int:
        return self._decoder.held_bytes

    def _look_for_end(self) -> None:
        if not self.is_leaving and has_left(self._transport):
            self.is_leaving = True
            self._cancel_owed()

    def _cancel_owed(self) -> None:
        for later in list(self._laters):
            later.cancel()

    def _give_up(self) -> None:
        self._decoder = FrameDecoder(self.limits.frame_size_max)
        self._cancel_owed()
        self.calls.fail(self._closed_error)
