"""A broker: puts the parts together, starts them in order and stops them in reverse.

In: settings, a data folder, the loop's turn. Out: a broker that serves clients and is registered.

Start: store (reads its log), tables, server; then the routines that write behind, sync, save,
expire and register. Stop: no new requests, tables saved, goodbye to the name servers, store closed.

Rules:
1. A routine outlives its failures. A table that could not be saved is tried again.
2. Each step of a stop is taken, also when one before it failed; the first failure is raised last.
3. What runs in a thread is waited for before a stop writes or closes the same files.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from orbitmq.broker.address_server import LOOK_UP_S, AddressServer
from orbitmq.broker.assembling import assemble, close_parts
from orbitmq.broker.bit_maps import bit_maps, bloom_of
from orbitmq.broker.context import Tables
from orbitmq.broker.delay_offsets import DelayOffsets
from orbitmq.broker.delays import Delays
from orbitmq.broker.filters import FilterTable
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.handlers.clients import notify_changed
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.overload import LOOK_S
from orbitmq.broker.registration import Identity, Registration
from orbitmq.broker.requests import REFUSED, SERVED
from orbitmq.broker.setting_changes import CHANGES_FILE, SettingChanges
from orbitmq.broker.shown_metrics import add_metrics
from orbitmq.broker.slow_groups import SLOW_LOOK_S, SlowGroups
from orbitmq.broker.stats_windows import SAMPLE_S
from orbitmq.broker.store_opening import StoreOpening, this_machine
from orbitmq.broker.store_options import set_core_limits, store_options
from orbitmq.broker.topics import TopicTable
from orbitmq.config.broker import BrokerSettings
from orbitmq.core import CHOSEN, CoreState
from orbitmq.errors import MQError, SettingError
from orbitmq.metrics import Registry
from orbitmq.net.admission import Admission
from orbitmq.net.connection import Connection
from orbitmq.net.dispatch import Dispatcher
from orbitmq.net.peer import Peer
from orbitmq.net.requests import handlers_of
from orbitmq.net.server import Server
from orbitmq.net.serving import dial_limits_from, dial_tls_from, limits_from, proxies_from, tls_from
from orbitmq.net.turn import Turn
from orbitmq.store.opening import Outside
from orbitmq.store.refusals import RefusalKind
from orbitmq.store.store import Store
from orbitmq.wire.advertised import read_advertised
from orbitmq.wire.host import Host
from orbitmq.world.chance import SystemChance
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files
from orbitmq.world.machine import keep_freed_memory
from orbitmq.world.net import reachable_address

log = logging.getLogger(__name__)

EXPIRY_SCAN_S = 10.0
TABLE_SAVE_S = 0.5
CLEAN_LOOK_S = 1.0
GOODBYE_S = 2.0
"""So long a stop waits for name servers that do not answer: they notice by themselves."""
MASTER_ID = 0
VIP_PORTS_BELOW = 2
"""Java's clients, told so, send to the port 2 below the one of the route."""

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
        outside: Outside | None = None,
        store: Store | None = None,
    ) -> None:
        """`store` is the folder's, when somebody has opened it already.

        `outside` is where files and time come from, instead of this machine.
        """
        _refuse_slave(settings.broker_id)
        self._settings = settings
        self._turn = turn
        self._registry = registry
        self._routines: list[asyncio.Task[None]] = []
        self._in_threads: set[asyncio.Task[None]] = set()
        self._registration: Registration | None = None
        outside = outside or this_machine()
        files, clock = outside.files, outside.clock
        self._files = files
        self.address, self._seen_refused = "", 0
        self._cleaned_s = clock.monotonic_s()
        options = store_options(settings)
        self._store = store or StoreOpening(settings, folder, outside).run()
        core = CoreState(self._store.tail, settings.broker_cluster_name, settings.region_id)
        core.is_sync_flush = self._store.is_sync_flush
        set_core_limits(core, settings)
        config = folder / "config"
        files.make_folder(config)
        topics = TopicTable(files, config, core, self._store, clock, settings)
        tables = Tables(
            store=self._store,
            core=core,
            topics=topics,
            groups=GroupTable(files, config, core, clock, settings, topics.light),
            offsets=OffsetTable(files, config, core, has_light=settings.enable_lmq),
            delays=DelayOffsets(files, config, self._store, options.delays_ms),
            filters=_filter_table(self._store, files, config, clock, settings),
        )
        tables.offsets.set_back(self._store)
        self._store.bit_maps = bit_maps(tables.filters, settings)
        self._context = assemble(
            tables, settings, turn, registry, clock=clock, chance=SystemChance()
        )
        add_metrics(registry, self._context)
        self._delays = Delays(self._context, registry)
        self._context.hot.on_connection_closed = self._connection_closed
        self.keep_changes_in(config / CHANGES_FILE)
        dispatcher = Dispatcher(handlers_of(SERVED, self._context), registry, REFUSED)
        self._server, self._vip_server = (
            Server(
                name,
                dispatcher,
                turn,
                read_frames=self._context.hot.read_frames,
                registry=registry,
                limits=limits_from(settings),
            )
            for name in ("broker", "broker-vip")
        )
        self.share_admission(self._server.admission)

    def share_admission(self, admission: Admission) -> None:
        """Count connections together with those of other servers; before the start."""
        self._server.share(admission)
        self._vip_server.share(admission)

    def keep_changes_in(self, path: Path) -> None:
        """Say which file gets settings that are changed over the network; before the start."""
        context = self._context
        context.changes = SettingChanges(
            lambda: context.settings,
            context.change_settings,
            self._files,
            path,
            clock=context.clock,
            registry=self._registry,
        )

    async def start(self) -> None:
        """Listen, begin to keep house, register with the name servers that answer within 2 s.

        The others are told as soon as they do: `registered` waits for the first.
        """
        keep_freed_memory()
        log.info("%s", CHOSEN.reason)
        settings = self._settings
        port = await self._server.start(
            settings.bind_address,
            settings.listen_port,
            tls_from(settings),
            proxies_from(settings),
        )
        await self._start_vip(port)
        configured = settings.broker_ip1.strip()
        host = Host(reachable_address(configured or settings.bind_address), port)
        slaves_ip = settings.broker_ip2.strip() or configured or host.ip
        slaves_port = settings.ha_listen_port or port + 1
        self._context.settings = msgspec.structs.replace(  # shown with what was found out
            self._context.settings,
            listen_port=port,
            broker_ip1=configured or host.ip,
            broker_ip2=slaves_ip,
            ha_listen_port=slaves_port,
        )
        # A name is told as it is: clients elsewhere may resolve it to another address.
        self.address = str(Host(configured or host.ip, port))
        self._context.set_store_host(host)
        self._registration = registration = Registration(
            Identity(
                cluster=settings.broker_cluster_name,
                name=settings.broker_name,
                broker_id=settings.broker_id,
                address=self.address,
                ha_address=str(Host(slaves_ip, slaves_port)),
                advertised=str(read_advertised(settings.advertised_addresses, port) or ""),
            ),
            self._context.topics.snapshot,
            self._name_servers(),
            lambda: self._context.settings,
            self._context.topics.set_order_topics,
        )
        self._context.topics.on_change = registration.note_change
        self._context.keeper.tell_name_servers = registration.told
        self._announced_permission = settings.broker_permission
        self._context.on_settings_change.append(self._tell_permission)
        address_server = AddressServer(
            settings, registration, self._name_server, self._context.clock
        )
        await self._save_delays()
        await address_server.look_up()
        self._begin_routines(registration, address_server)
        await registration.told()

    async def registered(self) -> None:
        """Return when clients can find this broker: a name server knows it, or there is none."""
        settings = self._settings
        has_names = settings.namesrv_addr or settings.fetch_namesrv_addr_by_address_server
        if self._registration is not None and has_names:
            await self._registration.known()

    def _tell_permission(self, settings: BrokerSettings) -> None:
        """Have a changed permission told with a version of its own: see Registration, rule 4."""
        if settings.broker_permission != self._announced_permission:
            self._announced_permission = settings.broker_permission
            self._context.topics.note_change()

    async def _save_delays(self) -> None:
        """Have the file say up to where the log is covered by it, before anything is delivered."""
        try:
            await self._context.keeper.save(self._context.delays.file)
        except (MQError, OSError) as error:
            log.error("%s; until it is saved, delayed messages may come twice after a crash", error)

    async def _start_vip(self, port: int) -> None:
        """Serve on the port 2 below, too: clients with VIP channels on send there."""
        settings, vip_port = self._settings, port - VIP_PORTS_BELOW
        try:
            if vip_port > 0:
                await self._vip_server.start(
                    settings.bind_address, vip_port, tls_from(settings), proxies_from(settings)
                )
        except SettingError as error:
            # Who let the system choose the port could not have chosen better.
            level = logging.WARNING if settings.listen_port else logging.INFO
            log.log(level, "no second port for clients with VIP channels on: %s", error)

    def _name_servers(self) -> list[Peer]:
        addresses = map(str.strip, self._settings.namesrv_addr.split(";"))
        return [self._name_server(address) for address in addresses if address]

    def _name_server(self, address: str) -> Peer:
        tls, limits = dial_tls_from(self._settings), dial_limits_from(self._settings)
        return Peer(address, self._turn, tls=tls, limits=limits)

    @property
    def delayed_count(self) -> int:
        """How many delayed messages wait to be delivered; retries are among them."""
        return self._context.delays.waiting_count()

    async def deliver_due(self) -> None:
        """Take note of a clock that was moved: return when what is due by it can be read."""
        await self._delays.caught_up()
        await self._context.writer.readable()

    async def stop(self) -> None:
        """Stop serving, say goodbye, save everything, close; also after a failed start.

        Raises the first failure, after every step has been taken.
        """
        await _take_all(
            self._stop_servers,
            self._context.changes.finish,
            self._delays.stop,
            self._end_routines,
            self._mark_offsets,
            self._save_tables,
            self._say_goodbye,
            self._close_parts,
            self._sync_delays,
            self._close_store,
        )

    async def abandon(self) -> None:
        """End as a killed process does, for tests: nothing more is said, saved or flushed.

        What was written to the log is there at the next start.
        """
        self._server.drop_all()
        self._vip_server.drop_all()
        await _take_all(
            self._stop_servers,
            self._context.changes.finish,
            self._delays.stop,
            self._end_routines,
            self._leave_name_servers,
            self._close_parts,
            self._abandon_store,
        )

    async def _leave_name_servers(self) -> None:
        if self._registration is not None:
            self._registration.close()

    async def _abandon_store(self) -> None:
        self._store.close(is_flushed=False)

    async def _stop_servers(self) -> None:
        await asyncio.gather(self._server.stop(), self._vip_server.stop())

    async def _end_routines(self) -> None:
        for routine in self._routines:
            routine.cancel()
        await asyncio.gather(*self._routines, return_exceptions=True)
        await asyncio.gather(*self._in_threads, return_exceptions=True)
        await self._context.keeper.settle()

    async def _say_goodbye(self) -> None:
        if self._registration is not None:
            await self._registration.unregister(GOODBYE_S)

    async def _close_parts(self) -> None:
        await close_parts(self._context)

    async def _close_store(self) -> None:
        self._store.close()

    def _begin_routines(self, registration: Registration, address_server: AddressServer) -> None:
        settings = self._settings
        self._context.flusher.start()
        self._delays.start()
        routines: list[tuple[float, Step]] = [
            (settings.flush_consumer_offset_interval / 1000, self._mark_offsets),
            (settings.flush_delay_offset_interval / 1000, self._mark_delays),
            (TABLE_SAVE_S, self._save_tables),
            (EXPIRY_SCAN_S, self._expire_clients),
            (SLOW_LOOK_S, SlowGroups(self._context, self._in_thread).look),
            (SAMPLE_S, self._sample_stats),
            (LOOK_S, self._context.overload.look),
            (LOOK_UP_S, address_server.look_up),
        ]
        self._routines = [
            asyncio.create_task(_every(period_s, action)) for period_s, action in routines
        ]
        self._routines.append(asyncio.create_task(_every(0.0, registration.keep_registered)))
        self._routines.append(asyncio.create_task(_every(0.0, self._clean_soon)))

    async def _in_thread(self, action: Callable[[], None]) -> None:
        """Run in a thread; a cancelled caller leaves it to `_end_routines` to wait for it."""
        work = asyncio.create_task(asyncio.to_thread(action))
        self._in_threads.add(work)
        work.add_done_callback(self._in_threads.discard)
        await asyncio.shield(work)

    async def _clean_soon(self) -> None:
        """Wait for the next look, by the settings in force then."""
        interval_s = self._context.settings.clean_resource_interval / 1000
        await asyncio.sleep(min(CLEAN_LOOK_S, interval_s))
        await self._clean_if_due()

    async def _clean_if_due(self) -> None:
        """Look for old files now and then, and every second while the disk is too full.

        After a refused write, too: senders are then told the disk's figures.
        """
        now_s, refused = self._context.clock.monotonic_s(), self._store.stats.put_failures
        is_full = self._store.refusal_kind is RefusalKind.DISK or refused != self._seen_refused
        self._seen_refused = refused
        interval_s = self._context.settings.clean_resource_interval / 1000
        if is_full or now_s - self._cleaned_s >= interval_s:
            self._cleaned_s = now_s
            await self._clean()

    async def _clean(self) -> None:
        cleaner = self._store.cleaner
        settings = self._context.settings
        pause_s = settings.delete_commit_log_files_interval / 1000
        job = cleaner.begin(is_paced=pause_s > 0)
        await self._in_thread(job.run)
        while not job.is_over:
            cleaner.note_removed(job)
            await asyncio.sleep(pause_s)
            await self._in_thread(job.run)
        decision = cleaner.finish(job)
        if job.removed:
            level = logging.WARNING if decision.is_forced else logging.INFO
            log.log(level, "removed %d old log files: %s", len(job.removed), decision.reason)
        while (trim := cleaner.begin_trim()) is not None:
            await self._in_thread(trim.run)
            cleaner.finish_trim(trim)
        pause_s = settings.delete_consume_queue_files_interval / 1000
        while (remove := cleaner.begin_remove(is_paced=pause_s > 0)) is not None:
            await self._in_thread(remove.run)
            cleaner.finish_remove(remove)
            await asyncio.sleep(pause_s)

    async def _mark_delays(self) -> None:
        self._context.delays.mark_if_changed()

    async def _sync_delays(self) -> None:
        """Let the file say all that was delivered: an original that takes over knows no more."""
        if not self._store.is_halted:
            self._store.flush_all()
            self._context.delays.mark_if_changed()
            await self._context.keeper.save(self._context.delays.file)

    async def _mark_offsets(self) -> None:
        for _ in self._context.offsets.looking():
            await asyncio.sleep(0)

    async def _save_tables(self) -> None:
        await self._context.keeper.save_behind_removals()

    async def _sample_stats(self) -> None:
        context = self._context
        clock, now_ms = context.clock, context.clock.wall_ms()
        context.stats.note_day(clock.file_stamp(now_ms) // 1_000_000_000)
        is_forgetful = context.settings.auto_delete_unused_stats
        for _ in context.stats.sampling(clock.monotonic_s(), now_ms, is_forgetful=is_forgetful):
            await asyncio.sleep(0)

    async def _expire_clients(self) -> None:
        context = self._context
        context.filters.expire()
        for changed in context.clients.expiring(context.clock.monotonic_s()):
            notify_changed(context, changed)
            await asyncio.sleep(0)

    def _connection_closed(self, connection: Connection) -> None:
        notify_changed(self._context, self._context.clients.connection_closed(connection))


def _refuse_slave(broker_id: int) -> None:
    if broker_id != MASTER_ID:
        raise SettingError(
            f"brokerId={broker_id} cannot be used: it is a slave's, and replication does not exist"
            " yet; 0 is the master"
        )


def _filter_table(
    store: Store, files: Files, folder: Path, clock: Clock, settings: BrokerSettings
) -> FilterTable:
    return FilterTable(
        files,
        folder,
        clock,
        bloom=bloom_of(settings),
        dead_ms_max=settings.filter_data_clean_time_span,
        stored_ms=lambda: store.tail.store_ms,
    )


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
