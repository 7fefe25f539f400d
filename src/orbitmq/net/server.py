"""A listening port: accepts connections and hands their requests to one handler.

In: host, port, a handler, limits, TLS settings. Out: connections, until it is stopped.

Rules:
1. `start` refuses what cannot work (a port in use, certificates that cannot serve) with a
   SettingError that says what to change.
2. The servers of one process share one count and one limit of connections: see `share`.
3. `stop` takes no new connection and reads nothing more; answers given before are written, then
   every connection is closed. It returns when all sockets are gone.
"""

import asyncio
import logging

from orbitmq.ensure import ensure
from orbitmq.errors import SettingError
from orbitmq.metrics import Registry
from orbitmq.net.admission import Admission
from orbitmq.net.connection import Connection, Handler, ReadFrames, cut_next
from orbitmq.net.limits import Limits
from orbitmq.net.proxy_protocol import Proxies
from orbitmq.net.turn import Turn
from orbitmq.net.watch import Watch
from orbitmq.world.net import listen, listening_port, set_buffers
from orbitmq.world.tls import ServerTls, TlsSettings

logger = logging.getLogger(__name__)


class Server:
    """One port of one process."""

    def __init__(
        self,
        name: str,
        handle: Handler,
        turn: Turn,
        *,
        registry: Registry,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        read_frames: ReadFrames = cut_next,
    ) -> None:
        self.name = name
        self._handle = handle
        self._turn = turn
        self._read_frames = read_frames
        self._tls: ServerTls | None = None
        self._tls_timer: asyncio.TimerHandle | None = None
        self._tls_reloads = registry.counters(
            "orbitmq_net_tls_reloads_total",
            "Changed certificate files that were loaded or refused.",
            "outcome",
            {"server": name},
        )
        self._listener: asyncio.Server | None = None
        self._watch = Watch(turn.loop, limits, registry, name)
        self.connections: set[Connection] = self._watch.connections

    @property
    def admission(self) -> Admission:
        """What counts this server's connections."""
        return self._watch.admission

    def share(self, admission: Admission) -> None:
        """Count connections together with those of other servers; before the start."""
        ensure(self._listener is None, f"server {self.name} shares from its start on")
        self._watch.admission = admission

    async def start(
        self,
        host: str,
        port: int,
        tls: TlsSettings | None = None,
        proxies: Proxies | None = None,
    ) -> int:
        """Listen; return the real port (0 asks for any). Raises SettingError."""
        ensure(self._listener is None, f"server {self.name} is started once")
        self._watch.proxies = proxies
        self._tls = ServerTls(tls) if tls is not None else None
        self._watch.admission.fit_descriptors(self.name)
        limits = self._watch.limits
        self._listener = await listen(
            self._turn.loop, self._accept, host, port, backlog=limits.backlog
        )
        set_buffers(self._listener, limits.receive_buffer_bytes, limits.send_buffer_bytes)
        if self._tls is not None:
            self._refresh_tls_later(self._tls)
            if self._tls.is_made_up:
                logger.warning(
                    "%s offers TLS with a certificate that was made up (tls.test.mode.enable): it"
                    " proves nothing to clients; give your own with tls.server.certPath",
                    self.name,
                )
        return listening_port(self._listener)

    async def stop(self) -> None:
        """Stop as rule 3 says; stopping twice, or before a start, does nothing."""
        if self._tls_timer is not None:
            self._tls_timer.cancel()
            self._tls_timer = None
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.close()
        for connection in list(self.connections):
            connection.close("stop")
        await self._watch.wait_empty(self._watch.limits.linger_s)
        await listener.wait_closed()
        self._watch.close()

    def drop_all(self) -> None:
        """Cut every connection at once, whatever waits to be written; others may come still."""
        for connection in list(self.connections):
            connection.drop("stop")

    def _accept(self) -> Connection:
        return Connection(
            self._watch, self._turn, self._handle, read_frames=self._read_frames, tls=self._tls
        )

    def _refresh_tls_later(self, tls: ServerTls) -> None:
        self._tls_timer = self._turn.loop.call_later(tls.refresh_s, self._refresh_tls, tls)

    def _refresh_tls(self, tls: ServerTls) -> None:
        self._refresh_tls_later(tls)
        try:
            if tls.refresh():
                self._tls_reloads.add("loaded")
                logger.info("%s: changed TLS files are in use for new connections", self.name)
        except SettingError as error:
            self._tls_reloads.add("refused")
            logger.error("%s: changed TLS files are not used: %s", self.name, error)
