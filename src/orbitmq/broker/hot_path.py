"""The hot path: what one read brought goes through the core first, all requests of a kind at once.

In: the bytes of one read. Out: staged records and answers; the first frame that the core leaves to
the table of requests.

Rule: the core refuses nothing. What is refused as busy is so before it, by `overload`.
"""

from collections.abc import Callable

from orbitmq.broker.overload import Overload
from orbitmq.broker.turn_writer import TurnWriter
from orbitmq.core import CoreState, Origin, handle_one_read
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection
from orbitmq.wire.frame import Frame
from orbitmq.wire.host import Host, pack_host
from orbitmq.world.clock import Clock


class HotPath:
    """What one broker's connections bring first."""

    def __init__(
        self,
        core: CoreState,
        writer: TurnWriter,
        overload: Overload,
        clock: Clock,
        registry: Registry,
    ) -> None:
        self._core = core
        self._writer = writer
        self._overload = overload
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._packed_store_host = b""
        self._origins: dict[Connection, Origin] = {}
        self.on_connection_closed: Callable[[Connection], None] = lambda _connection: None
        name = "orbitmq_broker_hot_requests_total"
        help_text = "Sends and pulls that the hot core answered by itself."
        self._sends = registry.counter(name, help_text, {"kind": "send"})
        self._pulls = registry.counter(name, help_text, {"kind": "pull"})

    def set_store_host(self, packed: bytes) -> None:
        """Say what address records carry; before the first connection."""
        self._packed_store_host = packed

    def origin(self, connection: Connection) -> Origin:
        """Return how records of this connection's messages begin."""
        origin = self._origins.get(connection)
        if origin is None:
            origin = self._origins[connection] = Origin(
                _born_host(connection), self._packed_store_host
            )
            connection.on_close.append(self._connection_closed)
        return origin

    def read_frames(
        self, connection: Connection, data: bytes, start: int
    ) -> tuple[int, Frame | None]:
        """Let the core handle what it can of one read (net's ReadFrames)."""
        core, overload = self._core, self._overload
        origin = self._origins.get(connection) or self.origin(connection)
        now_s = overload.now_s()  # one clock a read; the wall's is as old as the last look
        if now_s >= overload.look_s:
            overload.note_read(now_s)
            self._wall_ms = self._clock.wall_ms()
        while True:
            if core.tail.refusal or overload.is_late:
                start = overload.refuse(connection, data, start)
            result = handle_one_read(core, data, start, origin, self._wall_ms)
            used, answers, _, _, unknown, sends, pulls = result
            connection.traffic.frames.value += sends + pulls
            if sends:  # pulls beside others' sends show what is readable: they do not wait
                self._sends.value += sends
                self._writer.stage_hot(connection, answers)
            elif answers:
                connection.send_parts(answers)
            if pulls:
                self._pulls.value += pulls
            # Else the core stopped at its own limit, and there is more for it.
            is_all = used == len(data) or unknown is not None or used == start
            if is_all or connection.is_blocked():
                return used, unknown
            start = used

    def _connection_closed(self, connection: Connection) -> None:
        self._origins.pop(connection, None)
        self.on_connection_closed(connection)


def _born_host(connection: Connection) -> bytes:
    ip, port = connection.peer_address
    return pack_host(Host(ip or "0.0.0.0", port))  # noqa: S104 - the peer is gone already
