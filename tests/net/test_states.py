"""The states of a connection: each step is in a table or refused, and no play leaves the tables.

Method: first the tables by themselves, every event in every state. Then a real connection on a
transport and a loop that the test moves, under any order of what peers, handlers and the system do.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import RequestFailed
from orbitmq.metrics import Registry
from orbitmq.net import connection
from orbitmq.net.connection import WHOLE_READ_BYTES, Connection, Result
from orbitmq.net.later import Later
from orbitmq.net.limits import Limits
from orbitmq.net.states import (
    READINGS,
    STATES,
    ConnectionEvent,
    ConnectionState,
    ReadEvent,
    ReadState,
    reading_after,
    state_after,
)
from orbitmq.net.turn import Turn
from orbitmq.net.watch import Watch
from orbitmq.wire.command import FLAG_ONEWAY, Command, decode_command, encode_command, reply_to
from orbitmq.wire.frame import FrameDecoder

TCP_ESTABLISHED, TCP_CLOSE_WAIT = 1, 8


@pytest.mark.parametrize("event", ConnectionEvent)
@pytest.mark.parametrize("state", ConnectionState)
def test_each_event_of_a_life_leads_onward_or_is_refused(
    state: ConnectionState, event: ConnectionEvent
) -> None:
    after = STATES[state].get(event)
    if after is None:
        with pytest.raises(BrokenInvariant, match=f"a connection is {state.name}, and"):
            state_after(state, event)
    else:
        assert state_after(state, event) is after
        assert after > state


@pytest.mark.parametrize("event", ReadEvent)
@pytest.mark.parametrize("reading", ReadState)
def test_each_event_of_reading_is_in_the_table_or_refused(
    reading: ReadState, event: ReadEvent
) -> None:
    after = READINGS[reading].get(event)
    if after is None:
        with pytest.raises(BrokenInvariant, match=f"a connection is {reading.name}, and"):
            reading_after(reading, event)
    else:
        assert reading_after(reading, event) is after
        assert reading is not ReadState.STOPPED or after is ReadState.STOPPED


class _Handle:
    def __init__(self, call: Callable[..., object], args: tuple[object, ...], due_s: float) -> None:
        self.run: Callable[[], object] = lambda: call(*args)
        self.due_s = due_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class _Loop:
    """Calls and time that a test moves. What a call raises ends the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[_Handle] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, call: Callable[..., object], *args: object) -> _Handle:
        self._ready.append(_Handle(call, args, self.now_s))
        return self._ready[-1]

    def call_at(self, due_s: float, call: Callable[..., object], *args: object) -> _Handle:
        self._timers.append(_Handle(call, args, due_s))
        return self._timers[-1]

    def call_later(self, delay_s: float, call: Callable[..., object], *args: object) -> _Handle:
        return self.call_at(self.now_s + delay_s, call, *args)

    def poll(self) -> None:
        """Run what is ready, as one turn of a loop does."""
        due = [one for one in self._timers if one.due_s <= self.now_s]
        self._timers = [one for one in self._timers if one.due_s > self.now_s]
        self._ready += due
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.is_cancelled:
                handle.run()

    def settle(self) -> None:
        while self._ready:
            self.poll()


class _Socket:
    def __init__(self) -> None:
        self.tcp_state = TCP_ESTABLISHED

    def setsockopt(self, *_args: object) -> None:
        pass

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return bytes([self.tcp_state])


class _Transport:
    """A transport that keeps the rules of asyncio's: what it must not be asked is an error."""

    def __init__(self) -> None:
        self.socket = _Socket()
        self.is_reading = True
        self.end = ""
        self.unsent = 0
        self.written = b""

    def get_extra_info(self, name: str) -> object:
        return self.socket if name == "socket" else ("10.0.0.1", 4321)

    def set_write_buffer_limits(self, high: int, low: int | None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.end
        self.is_reading = True

    def write(self, data: bytes | memoryview) -> None:
        assert not self.end
        self.written += data

    def writelines(self, parts: list[bytes | memoryview]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        assert not self.end
        self.end = "close"

    def abort(self) -> None:
        assert self.end != "abort"
        self.end = "abort"
        self.unsent = 0


NOW, LATER, NEVER, CLOSING, RAISING = 10, 11, 15, 34, 35
"""What the handler does is the request's code."""

LIMITS = Limits(
    laters_pause=3,
    laters_per_connection_max=5,
    output_pause_bytes=2_000,
    output_bytes_max=20_000,
    blocked_s=3.0,
    idle_s=20.0,
    handling_s=0.001,
)
BIG = encode_command(Command(NEVER, flag=FLAG_ONEWAY, body=bytes(WHOLE_READ_BYTES)))
codes = st.sampled_from((NOW, NOW, LATER, LATER, NEVER, RAISING, CLOSING))


class Playing(RuleBasedStateMachine):
    """One accepted connection; peers, handlers, timers and the system act in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = _Loop()
        self.transport = _Transport()
        self.turn = Turn(cast("Any", self.loop))
        self.watch = Watch(cast("Any", self.loop), LIMITS, Registry(), "test")
        self.laters: list[Later] = []
        self.ends: list[Connection] = []
        self.opaque = 0
        self.late_s = 0.0
        self.watch.now_s = self._now_s
        self.connection = Connection(self.watch, self.turn, self._handle)
        self.connection.on_close.append(self.ends.append)
        self.connection.connection_made(cast("asyncio.Transport", self.transport))
        self.state, self.is_lost = self.connection.state, False
        self.lasts = 0

    @initialize(lasts=st.integers(0, 30))
    def last(self, lasts: int) -> None:
        """Let nothing end the connection for some steps."""
        self.lasts = lasts

    def _may_end(self) -> bool:
        return self.lasts <= 0

    def _now_s(self) -> float:
        self.late_s += 0.0004  # the third request of a turn is over its time
        return self.late_s

    def _handle(self, request: Command, connection: Connection) -> Result:
        if request.code == NOW:
            return reply_to(request, body=bytes(300))
        if request.code == LATER:
            self.laters.append(Later(5.0, lambda: reply_to(request, remark="late")))
            return self.laters[-1]
        if request.code == CLOSING and self._may_end():
            connection.close("asked")
        if request.code == RAISING:
            raise RequestFailed(1, "as asked")
        return None

    def _read(self, data: bytes) -> None:
        if data and self.transport.is_reading and not self.transport.end and not self.is_lost:
            self.connection.data_received(data)

    # --- what the peer does ---

    @rule(asked=st.lists(codes, min_size=1, max_size=9), cut=st.integers(0, 40))
    def ask(self, asked: list[int], cut: int) -> None:
        data = b""
        for code in asked:
            self.opaque += 1
            data += encode_command(Command(code, self.opaque))
        self._read(data[:cut])
        self._read(data[cut:])

    @rule(count=st.integers(1, 3))
    def ask_at_length(self, count: int) -> None:
        for _ in range(count):
            self._read(BIG)

    @precondition(_may_end)
    @rule()
    def break_the_protocol(self) -> None:
        self._read(b"\xff" * 9)

    @precondition(lambda self: ReadState.HALTED <= self.connection.reading < ReadState.STOPPED)
    @rule()
    def leave_unnoticed(self) -> None:
        self.transport.socket.tcp_state = TCP_CLOSE_WAIT

    @precondition(_may_end)
    @rule()
    def leave(self) -> None:
        if self.transport.is_reading and not self.transport.end:
            self.connection.eof_received()

    @precondition(lambda self: not self.connection._output.is_undrained)
    @rule()
    def read_no_more(self) -> None:
        if not self.is_lost and not self.transport.end:
            self.transport.unsent = 5_000
            self.connection.pause_writing()

    @precondition(lambda self: self.connection._output.is_undrained)
    @rule()
    def read_all(self) -> None:
        if not self.is_lost and self.transport.end != "abort":
            self.transport.unsent = 0
            self.connection.resume_writing()

    # --- what we and the system do ---

    @rule()
    def poll(self) -> None:
        self.loop.poll()

    @rule(seconds=st.sampled_from((0.06, 1.1, 6.0)))
    def pass_time(self, seconds: float) -> None:
        self.loop.now_s += seconds
        self.loop.poll()

    @precondition(lambda self: self.laters)
    @rule(which=st.integers(0, 9), size=st.sampled_from((10, 3_000)))
    def answer(self, which: int, size: int) -> None:
        later = self.laters.pop(which % len(self.laters))
        later.answer([encode_command(Command(NOW, flag=1, body=bytes(size)))])

    @rule(size=st.sampled_from((100, 3_000, 30_000)))
    def tell(self, size: int) -> None:
        self.connection.send_command(Command(NOW, flag=FLAG_ONEWAY, body=bytes(size)))

    @precondition(_may_end)
    @rule()
    def close(self) -> None:
        self.connection.close("stop")

    @precondition(_may_end)
    @rule()
    def drop(self) -> None:
        self.connection.drop("stop")

    @precondition(_may_end)
    @rule(error=st.sampled_from((None, ConnectionResetError(), TimeoutError())))
    def lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost, self.transport.end = True, "abort"
            self.transport.unsent = 0
            self.connection.connection_lost(error)

    # --- what holds at any time ---

    @invariant()
    def time_goes_on(self) -> None:
        self.lasts -= 1

    @invariant()
    def life_goes_on_and_ends_once(self) -> None:
        connection = self.connection
        assert connection.state >= self.state
        self.state = connection.state
        assert connection.closed is (connection.state >= ConnectionState.CLOSING)
        assert bool(connection.close_reason) is connection.closed
        assert self.ends == [connection] * connection.closed
        assert self.watch.traffic.closes.total() == connection.closed
        assert connection.close_reason != "internal-error"
        assert self.is_lost is (connection.state is ConnectionState.LOST)
        assert not connection.closed or not connection._laters

    @invariant()
    def the_socket_is_read_as_the_state_says(self) -> None:
        connection = self.connection
        assert (connection.reading is ReadState.STOPPED) is connection.closed
        if not connection.closed:
            assert self.transport.is_reading is (connection.reading is ReadState.READING)
            assert self.watch.going_on == (connection.reading is ReadState.RESUMING)
        assert not connection._backlog or connection.reading >= ReadState.HALTED

    def agree(self) -> None:
        self.life_goes_on_and_ends_once()
        self.the_socket_is_read_as_the_state_says()

    def teardown(self) -> None:
        """Whatever was played: in the end nothing is left, and nobody was answered twice."""
        self.loop.settle()
        if not self.connection.closed:
            assert self.connection.is_blocked() or self.connection.reading is ReadState.READING
        self.lose(None)
        self.loop.settle()
        traffic = self.watch.traffic
        left = (traffic.held.value, traffic.laters.value, traffic.connections.value)
        assert left == (0, 0, 0)
        assert self.watch.going_on == 0
        answers = map(decode_command, FrameDecoder().feed(self.transport.written))
        opaques = [one.opaque for one in answers if one.is_response and one.opaque]
        assert len(set(opaques)) == len(opaques)


def test_no_play_leaves_the_tables() -> None:
    play_settings = settings(max_examples=150, stateful_step_count=30)
    run_state_machine_as_test(Playing, settings=play_settings)


Step = Callable[[Playing], None]


def _ask(play: Playing) -> None:
    play.ask([NOW], 0)


def _send_much(play: Playing) -> None:
    play.ask_at_length(1)


def _leave_unread(play: Playing) -> None:
    play.ask([LATER] * 4, 0)
    play.leave_unnoticed()
    play.pass_time(1.1)


def _lose(play: Playing) -> None:
    play.lose(None)


POLL: Step = Playing.poll
PAUSE: Step = Playing.read_no_more
RESUME: Step = Playing.read_all
BEGINNINGS: dict[str, list[Step]] = {
    "accepted": [],
    "open": [_ask],
    "its peer left": [_leave_unread],
    "resting": [_send_much],
    "read again": [_send_much, POLL],
    "halted": [_ask, PAUSE],
    "halted at rest": [_send_much, PAUSE, POLL],
    "resuming": [_send_much, PAUSE, RESUME],
    "resumed": [_send_much, PAUSE, RESUME, POLL],
    "held up again": [_ask, PAUSE, RESUME, PAUSE, POLL],
    "closing": [Playing.close],
    "draining": [Playing.close, POLL],
}


def test_each_step_of_the_tables_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[object, object]] = set()

    def state_noted(state: ConnectionState, event: ConnectionEvent) -> ConnectionState:
        taken.add((state, event))
        return state_after(state, event)

    def reading_noted(reading: ReadState, event: ReadEvent) -> ReadState:
        taken.add((reading, event))
        return reading_after(reading, event)

    monkeypatch.setattr(connection, "state_after", state_noted)
    monkeypatch.setattr(connection, "reading_after", reading_noted)
    for beginning in BEGINNINGS.values():
        for end in (Playing.close, Playing.drop, _lose):
            play = Playing()
            for step in (*beginning, end, POLL, Playing.agree, Playing.teardown):
                step(play)
    of_states = {(before, event) for before, row in STATES.items() for event in row}
    of_reading = {(before, event) for before, row in READINGS.items() for event in row}
    assert of_states | of_reading == taken
