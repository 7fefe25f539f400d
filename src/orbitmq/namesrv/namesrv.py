"""A name server: puts its parts together, listens, and watches over silent brokers.

In: settings, a data folder, and the process's turn and metrics. Out: a listening port, until it is
stopped.

Rules:
1. The data folder belongs to one name server at a time (a lock file says so). It holds the KV file
   and the settings changed over the network; routes are in memory only and come back with the
   brokers' next registration.
2. Name servers know nothing of each other.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from orbitmq.config import NamesrvSettings
from orbitmq.metrics import Registry
from orbitmq.namesrv.changed_settings import CHANGES_FILE, ChangedSettings, read_changes
from orbitmq.namesrv.kv import load_kv
from orbitmq.namesrv.requests import REFUSED, SERVED
from orbitmq.namesrv.route_limits import limits_of
from orbitmq.namesrv.routes import RouteTable
from orbitmq.namesrv.state import Savers, State
from orbitmq.net.admission import Admission
from orbitmq.net.dispatch import Dispatcher, Failures
from orbitmq.net.requests import handlers_of
from orbitmq.net.saving import Saver
from orbitmq.net.server import Server
from orbitmq.net.serving import limits_from, proxies_from, tls_from
from orbitmq.net.turn import Turn
from orbitmq.world.clock import Clock, SystemClock
from orbitmq.world.files import Files, FolderLock, SystemFiles

logger = logging.getLogger("orbitmq.namesrv")

KV_FILE = "kvConfig.json"
LOCK_FILE = "lock"

KV_REPORT_FIRST_S = 60.0
KV_REPORT_S = 600.0
"""As the original, which prints its key-value settings then; we say how many there are."""


class NameServer:
    """One name server of a process."""

    def __init__(
        self,
        settings: NamesrvSettings,
        folder: Path,
        *,
        turn: Turn,
        registry: Registry,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._turn = turn
        self._registry = registry
        self._files = files or SystemFiles()
        self._clock = clock or SystemClock()
        self._folder = folder
        kv_path = settings.kv_config_path or str(folder / KV_FILE)
        shown = {**settings.kept, "configStorePath": str(folder / CHANGES_FILE)}
        self.settings = msgspec.structs.replace(settings, kv_config_path=kv_path, kept=shown)
        self._state: State | None = None
        self._server: Server | None = None
        self._lock: FolderLock | None = None
        self._timers: list[Timer] = []
        self.admission = Admission(limits_from(settings))
        """Counts our connections; others of the process may share it."""

    async def start(self, host: str | None = None, port: int | None = None) -> int:
        """Load the files and listen; return the real port. Raises SettingError or StoreError."""
        self._files.make_folder(self._folder)
        self._lock = self._files.lock(self._folder / LOCK_FILE)
        try:
            return await self._start(host, port)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, host: str | None, port: int | None) -> int:
        settings = self.settings
        self._state = state = self._load()
        self._server = Server(
            "namesrv",
            Dispatcher(handlers_of(SERVED, state), self._registry, REFUSED),
            self._turn,
            registry=self._registry,
            limits=limits_from(settings),
        )
        self._server.share(self.admission)
        bound_host = settings.bind_address if host is None else host
        bound_port = await self._server.start(
            bound_host,
            settings.listen_port if port is None else port,
            tls_from(settings),
            proxies_from(settings),
        )
        self.settings = state.settings.now = msgspec.structs.replace(  # what is shown is what is
            settings, bind_address=bound_host, listen_port=bound_port
        )
        loop = self._turn.loop
        scan_s = settings.scan_not_active_broker_interval / 1_000
        self._timers = [
            Timer(loop, state.expire, first_s=scan_s / 2, period_s=scan_s),
            Timer(loop, self._report_kv, first_s=KV_REPORT_FIRST_S, period_s=KV_REPORT_S),
        ]
        return bound_port

    def _load(self) -> State:
        kv_path = Path(self.settings.kv_config_path)
        changes_path = self._folder / CHANGES_FILE
        kv, complaint = load_kv(self._files, kv_path)
        if complaint is not None:
            logger.error("%s", complaint)
        failures = Failures(self._registry)
        return State(
            ChangedSettings(self.settings, read_changes(self._files, changes_path)),
            kv,
            RouteTable(limits_of(self.settings)),
            savers=Savers(
                Saver(self._files, kv_path, failures), Saver(self._files, changes_path, failures)
            ),
            clock=self._clock,
            registry=self._registry,
        )

    async def stop(self) -> None:
        """Answer what is under way, close all connections, return the folder back."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._state is not None:
            await self._state.savers.finish()  # their requests are answered before the port closes
        if self._server is not None:
            await self._server.stop()
        if self._state is not None:
            await self._state.savers.finish()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _report_kv(self) -> None:
        if self._state is not None and (text := self._state.kv.summary()):
            logger.info("%s", text)


class Timer:
    """Calls something again and again; one failing call does not end it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[], None],
        *,
        first_s: float,
        period_s: float,
    ) -> None:
        self._loop = loop
        self._call = call
        self._period_s = period_s
        self._handle = loop.call_later(first_s, self._run)

    def cancel(self) -> None:
        """Call no more."""
        self._handle.cancel()

    def _run(self) -> None:
        self._handle = self._loop.call_later(self._period_s, self._run)
        try:
            self._call()
        except Exception:
            logger.exception("periodic work of the name server failed; it goes on")
