"""The states of a connection, and every step from one to another.

In: a state and what happened. Out: the next state; BrokenInvariant for what cannot happen there.

Rules:
1. A connection has two states: how far its life has come (`ConnectionState`), and whether its
   socket is read (`ReadState`). Nothing else may change either of them than these tables.
2. Both are ordered, so that a range of states is one comparison: from `CLOSING` on a connection is
   closed, from `ABORTED` on nothing is written, from `HALTED` on input is kept instead of handled.
3. A life only goes forward. What is not in a table is a bug of ours and raises.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum

from orbitmq.ensure import BrokenInvariant


class ConnectionState(IntEnum):
    """How far the life of a connection has come."""

    OPENING = 0
    """Accepted; the first bytes have yet to say whether they are TLS, plain or a proxy's."""
    OPEN = 1
    """Requests and answers go both ways. A dialled connection begins here."""
    PEER_LEFT = 2
    """The peer ended its side while it was not read: what it sent is handled, nothing is owed."""
    CLOSING = 3
    """Closed; the answers of this turn are still taken."""
    DRAINING = 4
    """Closed; the transport sends what it has, and ends."""
    ABORTED = 5
    """Closed at once; nothing more is written."""
    LOST = 6
    """The socket is gone."""


class ConnectionEvent(Enum):
    """What moves a connection from one state to another."""

    BEGUN = "the first bytes were understood"
    PEER_LEFT = "the peer was found to have ended its side"
    CLOSE = "close() was called"
    WRITTEN = "the last answers were given to the transport"
    ABORT = "drop() was called"
    LOST = "the transport reported the end of the socket"


class ReadState(IntEnum):
    """Whether the socket of a connection is read."""

    READING = 0
    """It is read, and what comes is handled."""
    RESTING = 1
    """A read filled the loop's buffer: the socket is not read again in this poll."""
    HALTED = 2
    """Something must happen first (see `Connection.is_blocked`); what was read is kept."""
    RESUMING = 3
    """That has happened: what was kept is handled in a later call of the loop."""
    STOPPED = 4
    """The connection is closed."""


class ReadEvent(Enum):
    """What changes whether a socket is read."""

    FILLED = "a read filled the loop's buffer"
    POLLED = "the loop has looked at the other connections"
    HALT = "nothing more can be handled for now"
    RESUME = "more can be handled"
    GO_ON = "what was kept is handled now"
    BLOCKED = "when it was to go on, something held it up again"
    STOP = "the connection was closed"


_ENDS = {
    ConnectionEvent.CLOSE: ConnectionState.CLOSING,
    ConnectionEvent.ABORT: ConnectionState.ABORTED,
    ConnectionEvent.LOST: ConnectionState.LOST,
}

STATES: Mapping[ConnectionState, Mapping[ConnectionEvent, ConnectionState]] = {
    ConnectionState.OPENING: {ConnectionEvent.BEGUN: ConnectionState.OPEN, **_ENDS},
    ConnectionState.OPEN: {ConnectionEvent.PEER_LEFT: ConnectionState.PEER_LEFT, **_ENDS},
    ConnectionState.PEER_LEFT: _ENDS,
    ConnectionState.CLOSING: {
        ConnectionEvent.WRITTEN: ConnectionState.DRAINING,
        ConnectionEvent.ABORT: ConnectionState.ABORTED,
        ConnectionEvent.LOST: ConnectionState.LOST,
    },
    ConnectionState.DRAINING: {
        ConnectionEvent.ABORT: ConnectionState.ABORTED,
        ConnectionEvent.LOST: ConnectionState.LOST,
    },
    ConnectionState.ABORTED: {ConnectionEvent.LOST: ConnectionState.LOST},
    ConnectionState.LOST: {},
}
"""Where each event leads from each state."""

READINGS: Mapping[ReadState, Mapping[ReadEvent, ReadState]] = {
    ReadState.READING: {
        ReadEvent.FILLED: ReadState.RESTING,
        ReadEvent.HALT: ReadState.HALTED,
        ReadEvent.STOP: ReadState.STOPPED,
    },
    ReadState.RESTING: {
        ReadEvent.POLLED: ReadState.READING,
        ReadEvent.HALT: ReadState.HALTED,
        ReadEvent.STOP: ReadState.STOPPED,
    },
    ReadState.HALTED: {
        ReadEvent.POLLED: ReadState.HALTED,
        ReadEvent.RESUME: ReadState.RESUMING,
        ReadEvent.STOP: ReadState.STOPPED,
    },
    ReadState.RESUMING: {
        ReadEvent.POLLED: ReadState.RESUMING,
        ReadEvent.GO_ON: ReadState.READING,
        ReadEvent.BLOCKED: ReadState.HALTED,
        ReadEvent.STOP: ReadState.STOPPED,
    },
    ReadState.STOPPED: {
        ReadEvent.POLLED: ReadState.STOPPED,
        ReadEvent.BLOCKED: ReadState.STOPPED,
    },
}
"""Where each event leads. Calls of the loop that were asked for before find what came between."""


def state_after(state: ConnectionState, event: ConnectionEvent) -> ConnectionState:
    """Return the state that an event leads to; raises BrokenInvariant if it cannot happen there."""
    after = STATES[state].get(event)
    if after is None:
        raise BrokenInvariant(f"a connection is {state.name}, and {event.value}")
    return after


def reading_after(reading: ReadState, event: ReadEvent) -> ReadState:
    """Return whether a socket is read from now on; raises BrokenInvariant likewise."""
    after = READINGS[reading].get(event)
    if after is None:
        raise BrokenInvariant(f"a connection is {reading.name}, and {event.value}")
    return after
