"""A broker: puts the parts together, starts them in order and stops them in reverse.

In: settings, a data folder, the loop's turn. Out: a broker that serves clients and is registered.

Start: store (reads its log), tables, server, registration; then the routines that write behind,
sync, save, expire and register again. Stop: no new requests, goodbye to the name servers, tables
saved, store closed.

Rules:
1. A routine outlives its failures. A table that could not be saved is tried again.
2. Each step of a stop is taken, also when one before it failed; the first failure is raised last.
3. What runs in a thread is waited for before a stop writes or closes the same files.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from orbitmq.broker.context import Context, Tables
from orbitmq.broker.delay_offsets import DelayOffsets
from orbitmq.broker.dispatch import handlers_of
from orbitmq.broker.filters import FilterTable
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.handlers.clients import notify_changed
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.registration import Identity, Registration
from orbitmq.broker.store_metrics import add_store_metrics
from orbitmq.broker.store_opening import StoreOpening
from orbitmq.broker.store_options import store_options
from orbitmq.broker.table import TableFile
from orbitmq.broker.topics import TopicTable
from orbitmq.config.broker import BrokerSettings
from orbitmq.core import CoreState
from orbitmq.errors import MQError
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection
from orbitmq.net.dispatch import Dispatcher
from orbitmq.net.peer import Peer
from orbitmq.net.server import Server
from orbitmq.net.serving import dial_tls_from, limits_from, tls_from
from orbitmq.net.turn import Turn
from orbitmq.store.refusals import RefusalKind
from orbitmq.store.store import Store, largest_body
from orbitmq.wire.host import Host
from orbitmq.world.chance import SystemChance
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import Files, SystemFiles
from orbitmq.world.net import reachable_address

log = logging.getLogger(__name__)

EXPIRY_SCAN_S = 10.0
TABLE_SAVE_S = 0.5
CLEAN_LOOK_S = 1.0

Step = Callable[[], Awaitable[None]]


class Broker:
    """One broker process's worth of parts. `address` is known once it has started."""

    def __init__(
        self,
        settings: BrokerSettings,
        folder: Path,
        turn: Turn,
        registry: Registry,
        *,
        files: Files | None = None,
        store: Store | None = None,
    ) -> None:
        """`store` is the folder's, when somebody has opened it already."""
        self._settings = settings
        self._turn = turn
        self._registry = registry
        self._routines: list[asyncio.Task[None]] = []
        self._in_threads: set[asyncio.Task[None]] = set()
        self._registration: Registration | None = None
        self._clean_interval_s = settings.clean_resource_interval / 1000
        self.address = ""
        files, clock = files or SystemFiles(), SystemClock()
        self._cleaned_s = clock.monotonic_s()
        options = store_options(settings)
        self._store = store or StoreOpening(settings, folder, files).run()
        core = CoreState(self._store.tail, settings.broker_cluster_name, settings.region_id)
        core.is_sync_flush = settings.flush_disk_type == "SYNC_FLUSH"
        core.body_size_max = min(
            settings.max_message_size, largest_body(self._store.tail.file_size)
        )
        core.pull_count_max = settings.max_transfer_count_on_message_in_memory
        core.pull_bytes_max = settings.max_transfer_bytes_on_message_in_memory
        config = folder / "config"
        files.make_folder(config)
        groups = GroupTable(
            files, config, core, clock, is_auto_made=settings.auto_create_subscription_group
        )
        tables = Tables(
            store=self._store,
            core=core,
            topics=TopicTable(files, config, core, self._store, clock, settings),
            groups=groups,
            offsets=OffsetTable(files, config, core),
            delays=DelayOffsets(files, config, self._store, len(options.delays_ms)),
            filters=FilterTable(files, config, clock),
        )
        tables.offsets.set_back(self._store)
        self._context = Context(
            tables, settings, turn, registry, clock=clock, chance=SystemChance()
        )
        add_store_metrics(registry, self._store, self._context.cold_reads)
        self._context.on_connection_closed = self._connection_closed
        self._server = Server(
            "broker",
            Dispatcher(handlers_of(self._context), registry),
            turn,
            read_frames=self._context.read_frames,
            registry=registry,
            limits=limits_from(settings),
        )

    async def start(self) -> None:
        """Listen, register, and begin to keep house; returns when clients can find us."""
        settings = self._settings
        port = await self._server.start(
            settings.bind_address, settings.listen_port, tls_from(settings)
        )
        host = Host(reachable_address(settings.broker_ip1 or settings.bind_address), port)
        self.address = str(host)
        self._context.set_store_host(host)
        self._registration = registration = Registration(
            Identity(
                cluster=settings.broker_cluster_name,
                name=settings.broker_name,
                broker_id=settings.broker_id,
                address=self.address,
                ha_address=str(Host(host.ip, port + 1)),
            ),
            self._context.topics.snapshot,
            self._name_servers(),
        )
        self._context.topics.on_change = registration.note_change
        await registration.register()
        self._begin_routines(registration)

    def _name_servers(self) -> list[Peer]:
        settings = self._settings
        addresses = map(str.strip, settings.namesrv_addr.split(";"))
        tls = dial_tls_from(settings)
        return [Peer(address, self._turn, tls=tls) for address in addresses if address]

    async def stop(self) -> None:
        """Stop serving, say goodbye, save everything, close; also after a failed start.

        Raises the first failure, after every step has been taken.
        """
        await _take_all(
            self._server.stop,
            self._end_routines,
            self._say_goodbye,
            self._mark_offsets,
            self._save_tables,
            self._context.close,
            self._close_store,
        )

    async def _end_routines(self) -> None:
        for routine in self._routines:
            routine.cancel()
        await asyncio.gather(*self._routines, return_exceptions=True)
        await asyncio.gather(*self._in_threads, return_exceptions=True)

    async def _say_goodbye(self) -> None:
        if self._registration is not None:
            await self._registration.unregister()

    async def _close_store(self) -> None:
        self._store.close()

    def _begin_routines(self, registration: Registration) -> None:
        settings = self._settings
        self._context.flusher.start()
        routines: list[tuple[float, Step]] = [
            (min(CLEAN_LOOK_S, self._clean_interval_s), self._clean_if_due),
            (settings.flush_consumer_offset_interval / 1000, self._mark_offsets),
            (TABLE_SAVE_S, self._save_tables),
            (EXPIRY_SCAN_S, self._expire_clients),
        ]
        self._routines = [
            asyncio.create_task(_every(period_s, action)) for period_s, action in routines
        ]
        period_s = settings.register_name_server_period / 1000
        self._routines.append(
            asyncio.create_task(_every(0.0, lambda: registration.keep_registered(period_s)))
        )

    async def _in_thread(self, action: Callable[[], None]) -> None:
        """Run in a thread; a cancelled caller leaves it to `_end_routines` to wait for it."""
        work = asyncio.create_task(asyncio.to_thread(action))
        self._in_threads.add(work)
        work.add_done_callback(self._in_threads.discard)
        await asyncio.shield(work)

    async def _clean_if_due(self) -> None:
        """Look for old files now and then, and every second while the disk is too full."""
        now_s = self._context.clock.monotonic_s()
        is_full = self._store.refusal_kind is RefusalKind.DISK
        if is_full or now_s - self._cleaned_s >= self._clean_interval_s:
            self._cleaned_s = now_s
            await self._clean()

    async def _clean(self) -> None:
        cleaner = self._store.cleaner
        job = cleaner.begin()
        await self._in_thread(job.run)
        decision = cleaner.finish(job)
        if job.removed:
            log.info("removed %d old log files: %s", len(job.removed), decision.reason)
        while (trim := cleaner.begin_trim()) is not None:
            await self._in_thread(trim.run)
            cleaner.finish_trim(trim)

    async def _mark_offsets(self) -> None:
        self._context.offsets.mark_if_changed()

    async def _save_tables(self) -> None:
        context = self._context
        await _take_all(*(functools.partial(self._save, table.file) for table in context.tables))

    async def _save(self, file: TableFile) -> None:
        save = file.take()
        if save is not None:
            await self._in_thread(save)

    async def _expire_clients(self) -> None:
        context = self._context
        notify_changed(context, context.clients.expire(context.clock.monotonic_s()))

    def _connection_closed(self, connection: Connection) -> None:
        notify_changed(self._context, self._context.clients.connection_closed(connection))


async def _every(period_s: float, action: Step) -> None:
    """Do something again and again; a failure is reported and does not end it."""
    while True:
        await asyncio.sleep(period_s)
        try:
            await action()
        except (MQError, OSError) as error:
            log.error("%s", error)
        except Exception:  # a bug of ours: the routine is needed all the more
            log.exception("a routine of the broker failed; it goes on")


async def _take_all(*steps: Step) -> None:
    """Take each step, also when one before it failed; raises the first failure at the end."""
    first: Exception | None = None
    for step in steps:
        try:
            await step()
        except Exception as error:
            if first is None:
                first = error
            else:
                log.error("%s", error)
    if first is not None:
        raise first
