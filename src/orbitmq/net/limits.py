"""What a peer may cost us: one number for everything that could grow.

In: settings. Out: a frozen value that servers, peers and connections share.
Rule: the defaults are the product's; tests pass shorter times and smaller sizes.
"""

import msgspec

from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.world.net import BACKLOG

MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one server or of one dialled connection."""

    connections_max: int = 10_000
    """Accepted connections at one time; further ones are closed at once."""

    backlog: int = BACKLOG
    """Connections that the kernel keeps until they are accepted."""

    receive_buffer_bytes: int = 0
    send_buffer_bytes: int = 0
    """Of each connection, in the kernel; 0 leaves it to the kernel."""

    first_frame_s: float = 10.0
    """From the connection to the end of its first whole frame, the TLS handshake included."""

    begun_frame_s: float = 30.0
    """From the first byte of a frame to its last."""

    idle_s: float = 120.0
    """Without a byte in either direction, as in the originals."""

    frame_size_max: int = FRAME_SIZE_MAX

    output_pause_bytes: int = 1 * MIB
    """Unsent output from which on nothing more is read from that peer until it has drained."""

    output_resume_bytes: int | None = None
    """What is left of it when it counts as drained; None: a quarter of the pause's."""

    output_bytes_max: int = 64 * MIB
    """Unsent output of one connection; more of it closes the connection."""

    blocked_s: float = 60.0
    """How long a peer may leave its output undrained."""

    connect_s: float = 3.0
    """How long dialling may take, name and TLS handshake included."""

    linger_s: float = 5.0
    """How long a closed connection may take to drain what was answered before."""

    held_bytes_max: int = 512 * MIB
    """Unfinished frames, unhandled input and unsent output of all connections together."""

    handling_s: float = 0.002
    """How long requests of one connection are handled one after the other; then it is the turn of
    others. One request may take longer."""

    laters_pause: int = 2_048
    """Answers owed to one connection from which on it is read only once per sweep."""

    laters_per_connection_max: int = 4_096
    """Answers owed to one connection; further requests that would wait are refused as busy."""

    laters_max: int = 100_000
    """Answers owed to all connections together."""

    calls_per_connection_max: int = 16_384
    """Requests of ours that one peer has not answered yet."""

    closes_overdue: bool = False
    """Whether a dialled connection is closed on which an answer did not come in time."""

    def output_marks(self) -> tuple[int, int | None]:
        """Return with how much unsent output reading stops, and with how much it goes on."""
        return self.output_pause_bytes, self.output_resume_bytes

    def sweep_s(self) -> float:
        """How often time limits are looked at: late by a fifth at most, and never more than 1 s."""
        shortest = min(
            self.first_frame_s, self.begun_frame_s, self.idle_s, self.blocked_s, self.linger_s
        )
        return max(0.005, min(1.0, shortest / 5))
