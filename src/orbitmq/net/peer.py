"""A named other side that is dialled when needed, and again after a failure.

In: an address, requests. Out: responses, or an error that says whether the request may have been
done.

Rules:
1. One connection at a time; whoever calls while it is being made waits for the same attempt.
2. Names are resolved anew at each attempt.
3. ConnectFailed: nothing was sent. RequestTimeout and ConnectionClosed: the outcome is unknown. A
   peer never sends a request twice; whether that is safe is its caller's to know.
"""

import asyncio
from collections.abc import Callable

from orbitmq.errors import ConnectFailed, ConnectionClosed, RequestTimeout
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Handler, ReadFrames, cut_next
from orbitmq.net.dispatch import Dispatcher
from orbitmq.net.limits import Limits
from orbitmq.net.turn import Turn
from orbitmq.net.watch import Watch
from orbitmq.wire.command import Command
from orbitmq.world.net import dial, split_address
from orbitmq.world.tls import ClientTls


class Peer:
    """One other side. Requests it sends us over the same connection go to `handle`."""

    def __init__(
        self,
        address: str,
        turn: Turn,
        *,
        handle: Handler | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        registry: Registry | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        registry = registry if registry is not None else Registry()
        self.address = address
        self._turn = turn
        self._handle = handle if handle is not None else Dispatcher({}, registry)
        self._tls = tls
        self._watch = Watch(turn.loop, limits, registry, "peer")
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[Connection] | None = None
        self._is_closed = False
        self.on_connected: Callable[[str], None] | None = None
        """Called with the address whenever a connection has been made."""
        self.read_frames: ReadFrames = cut_next
        """What handles frames of new connections by itself."""

    @property
    def connection(self) -> Connection | None:
        """The connection, if there is one."""
        connection = self._connection
        return None if connection is None or connection.closed else connection

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for an answer."""
        return self._dialling is not None or (
            self.connection is not None and self.connection.calls_waiting > 0
        )

    async def call(self, request: Command, timeout_s: float) -> Command:
        """Send a request and give its response, whatever its code; dials first if needed.

        Raises ConnectFailed, RequestTimeout or ConnectionClosed (rule 3).
        """
        loop = self._turn.loop
        deadline_s = loop.time() + timeout_s
        connection = await self.connect(timeout_s)
        try:
            return await connection.call(request, deadline_s - loop.time())
        except RequestTimeout:
            if self._watch.limits.closes_overdue:
                connection.close("overdue")
            raise

    def close(self) -> None:
        """End the connection and dial no more."""
        self._is_closed = True
        if self._dialling is not None:
            self._dialling.cancel()
        if self._connection is not None:
            self._connection.close("stop")

    @property
    def is_gone(self) -> bool:
        """Whether neither a socket nor an attempt is left of it."""
        return self._dialling is None and not self._watch.connections

    async def wait_closed(self) -> None:
        """Return when the socket is gone (after `close`)."""
        if self._dialling is not None:
            await asyncio.wait([self._dialling])
        await self._watch.wait_empty(self._watch.limits.linger_s)
        self._watch.close()

    async def connect(self, timeout_s: float) -> Connection:
        """Return an open connection, dialled if there is none; raises ConnectFailed."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = await self._wait_dialled(timeout_s)
        if connection.closed:
            raise self._failed(f": it was made and ended at once ({connection.close_reason})")
        return connection

    async def _wait_dialled(self, timeout_s: float) -> Connection:
        if self._is_closed:
            raise self._failed(": this peer is closed")
        if self._dialling is None:
            self._dialling = self._turn.loop.create_task(self._dial())
            self._dialling.add_done_callback(self._dialled)
        dialling = self._dialling
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(dialling)
        except TimeoutError:
            raise self._failed(f" within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            if not dialling.cancelled() or _is_cancelled():
                raise  # our caller was cancelled, whatever became of the attempt
            raise self._failed(": this peer is closed") from None

    async def _dial(self) -> Connection:
        limits = self._watch.limits
        deadline_s = self._turn.loop.time() + limits.connect_s
        connection = await dial(
            self._turn.loop,
            self._make,
            self.address,
            limits.connect_s,
            (limits.receive_buffer_bytes, limits.send_buffer_bytes),
        )
        if self._tls is None:
            return connection
        try:
            async with asyncio.timeout_at(deadline_s):
                await connection.start_tls(self._tls.pipe(split_address(self.address)[0]))
        except TimeoutError:
            connection.drop("tls-timeout")
            raise self._failed(f" by TLS within {limits.connect_s:g} s") from None
        except ConnectionClosed as error:
            raise self._failed(f" by TLS: {error}") from error
        except BaseException:
            connection.drop("stop")
            raise
        return connection

    def _failed(self, how: str) -> ConnectFailed:
        return ConnectFailed(f"no connection to {self.address}{how}", self.address)

    def _make(self) -> Connection:
        return Connection(
            self._watch,
            self._turn,
            self._handle,
            read_frames=self.read_frames,
            is_dialled=True,
        )

    def _dialled(self, dialling: asyncio.Task[Connection]) -> None:
        self._dialling = None
        if dialling.cancelled() or dialling.exception() is not None:
            return
        self._connection = dialling.result()
        if self._is_closed:
            self._connection.close("stop")
        elif self.on_connected is not None:
            self.on_connected(self.address)


def _is_cancelled() -> bool:
    """Whether somebody wants the running task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
