"""What every handler may use: the broker's tables, its store, and the answers of this turn.

In: the parts, put together by `broker.Broker`. Out: the same parts under one name, and the one step
at the end of each turn of the loop: write, answer, wake.

Rules:
1. An answer that depends on the log is staged here and leaves when its records may be seen: after
   the write, with synchronous flush after the sync, or as timed out. The store decides which. One
   to a send that made its topic waits for the topic's file as well.
2. When the write is refused, every staged answer that said "stored" becomes an error that says why;
   nothing of that turn was stored.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from orbitmq.broker.answers import SentWhenTrue, as_failed, as_refused, send_turned
from orbitmq.broker.changes import SettingChanges
from orbitmq.broker.clients import ClientTable
from orbitmq.broker.cold_reads import ColdReads
from orbitmq.broker.delay_offsets import DelayOffsets
from orbitmq.broker.filters import FilterTable
from orbitmq.broker.flushing import Flusher
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.held_reads import HeldReads
from orbitmq.broker.keeping import Keeper
from orbitmq.broker.long_poll import LongPolls
from orbitmq.broker.offset_moved import ToldEvents
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.overload import SLOW_WRITE_S, Overload
from orbitmq.broker.pulls import note_outcome
from orbitmq.broker.queue_follower import GrownQueues
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.stats import BrokerStats
from orbitmq.broker.store_options import (
    file_limits,
    is_pull_plain,
    retention_settings,
    set_core_limits,
)
from orbitmq.broker.telling import RepeatedFailure
from orbitmq.broker.topics import TopicTable
from orbitmq.config import BrokerSettings, change_settings
from orbitmq.core import CoreState, Origin, Queue, handle_one_read
from orbitmq.errors import StoreError
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Parts
from orbitmq.net.later import Arrival, Deadlines
from orbitmq.net.turn import Turn
from orbitmq.store.store import Store
from orbitmq.watermark import Call
from orbitmq.wire.frame import Frame
from orbitmq.wire.host import Host, pack_host
from orbitmq.wire.message_id import encode_offset_id
from orbitmq.world.chance import Chance
from orbitmq.world.clock import Clock
from orbitmq.world.machine import memory_bytes
from orbitmq.world.threads import Threads

log = logging.getLogger(__name__)

FOLLOWER_THREADS = 2
"""Read for all that follow queues: apart from pulls, which may have a thousand reads in line."""


class Tables(NamedTuple):
    """What a broker keeps."""

    store: Store
    core: CoreState
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    delays: DelayOffsets
    filters: FilterTable


class Context:
    """The parts of one broker."""

    changes: SettingChanges
    """Set by the broker, which knows where its files are."""

    def __init__(
        self,
        tables: Tables,
        settings: BrokerSettings,
        turn: Turn,
        registry: Registry,
        *,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self.store = tables.store
        self.core = core = tables.core
        self.topics = tables.topics
        self.groups = tables.groups
        self.offsets = tables.offsets
        self.delays = tables.delays
        self.filters = tables.filters
        self.tables = (self.topics, self.groups, self.offsets, self.delays, self.filters)
        """Those that have a file."""
        self.clock = clock
        self.chance = chance
        self.settings = settings
        """The settings in force. A change is a new value: read it where it is used."""
        self.on_settings_change: list[Callable[[BrokerSettings], None]] = [self._obey]
        self.boot_ms = self._wall_ms = clock.wall_ms()
        self.stats = BrokerStats(
            core,
            self.store,
            settings.broker_cluster_name,
            clock.monotonic_s(),
            has_queues=settings.enable_detail_stat,
        )
        self.region = settings.region_id
        self.recent_bytes = memory_bytes() * settings.access_message_in_memory_max_ratio // 100
        """Records this near to the log's end count as recent."""
        self.store_host = Host("0.0.0.0", 0)  # noqa: S104 - no address yet; see set_store_host
        self.packed_store_host = pack_host(self.store_host)
        self.clients = ClientTable(core)
        self.queue_locks = QueueLocks()
        note_pull = partial(note_outcome, self)
        self.held_reads = HeldReads(clock)
        self.long_polls = LongPolls(core, clock, self.held_reads, note_pull)
        self.told_events = ToldEvents()
        self.on_grown = GrownQueues()
        """Told of the queues that have grown, when that may be seen."""
        self.follower_threads = Threads(FOLLOWER_THREADS, "follow")
        self.on_connection_closed: Callable[[Connection], None] = lambda _connection: None
        self.cold_reads = ColdReads(
            tables.store, file_limits(settings), clock=clock, note=note_pull
        )
        self.flusher = Flusher(tables.store, settings, clock, self._note_seen)
        self._deadlines = Deadlines(turn.loop)
        self.keeper = Keeper(
            (table.file for table in self.tables),
            self.flusher.finish_removals,
            clock,
            self._deadlines,
        )
        self._sync_timeout_s = settings.sync_flush_timeout / 1000
        self._turn = turn
        self._staged: list[tuple[Connection, Parts, bool]] = []
        self._origins: dict[Connection, Origin] = {}
        self._told_refusal = RepeatedFailure(log, clock)
        self._add_metrics(registry)
        self.overload = Overload(tables.store, turn, clock, lambda: self.settings, registry)
        self.overload.on_late = self._obey_late
        turn.before_write(self.end_turn)

    def _add_metrics(self, registry: Registry) -> None:
        self._write_sizes = registry.histogram(
            "orbitmq_store_write_bytes", "Sizes of the log's writes, one per turn of the loop."
        )
        self._stored = registry.counter(
            "orbitmq_store_messages_total", "Messages written to the log and given a queue offset."
        )
        self._refused = registry.counter(
            "orbitmq_store_refused_writes_total", "Turns whose log write the disk refused."
        )
        self._timed_out = registry.counter(
            "orbitmq_store_sync_timeouts_total",
            "Answers that said `not synced in time` because the disk was too slow.",
        )
        hot = "orbitmq_broker_hot_requests_total"
        help_text = "Sends and pulls that the hot core answered by itself."
        self._hot_sends = registry.counter(hot, help_text, {"kind": "send"})
        self._hot_pulls = registry.counter(hot, help_text, {"kind": "pull"})
        registry.gauge(
            "orbitmq_broker_held_pulls",
            "Pulls that wait for a message.",
            lambda: len(self.held_reads),
        )
        registry.gauge(
            "orbitmq_broker_delayed_messages",
            "Delayed messages that wait to be delivered.",
            self.delays.waiting_count,
        )
        registry.gauge(
            "orbitmq_broker_sql_filters",
            "Filters by expression that groups have on topics.",
            lambda: len(self.filters),
        )

    @property
    def refused_write_count(self) -> int:
        """How often the disk refused a turn's write."""
        return self._refused.value

    def change_settings(self, changes: Mapping[str, str]) -> None:
        """Put changed settings in force; raises SettingError, and then changes nothing."""
        self.settings = change_settings(self.settings, changes)
        for tell in self.on_settings_change:
            tell(self.settings)

    def _obey(self, settings: BrokerSettings) -> None:
        """Hand on what others keep by themselves."""
        set_core_limits(self.core, settings)
        self.topics.obey(settings)
        self.groups.is_auto_made = settings.auto_create_subscription_group
        self.cold_reads.limits = file_limits(settings)
        self.flusher.change_settings(settings)
        self.store.cleaner.retention.change(retention_settings(settings))
        self._sync_timeout_s = settings.sync_flush_timeout / 1000

    def _obey_late(self) -> None:
        """Have the hot core leave pulls alone that have waited too long."""
        is_late = bool(self.overload.late_pull)
        self.core.is_pull_plain = not is_late and is_pull_plain(self.settings)

    def set_store_host(self, host: Host) -> None:
        """Say what address records and message ids carry; known when the server listens."""
        self.store_host = host
        self.packed_store_host = pack_host(host)
        self.core.set_store_id(encode_offset_id(host, 0)[:-16].encode())

    def origin(self, connection: Connection) -> Origin:
        """Return how records of this connection's messages begin."""
        origin = self._origins.get(connection)
        if origin is None:
            origin = self._origins[connection] = Origin(
                _born_host(connection), self.packed_store_host
            )
            connection.on_close.append(self._connection_closed)
        return origin

    def read_frames(
        self, connection: Connection, data: bytes, start: int
    ) -> tuple[int, Frame | None]:
        """Let the hot core handle what it can of one read (net's ReadFrames)."""
        core, overload, turn = self.core, self.overload, self._turn
        origin = self._origins.get(connection) or self.origin(connection)
        now_s = overload.now_s()  # one clock a read; the wall's is as old as the last look
        if now_s >= overload.look_s:
            overload.note_read(now_s)
            self._wall_ms = self.clock.wall_ms()
        while True:
            if core.tail.refusal or overload.is_late:
                start = overload.refuse(connection, data, start)
            result = handle_one_read(core, data, start, origin, self._wall_ms)
            used, answers, _, _, unknown, sends, pulls = result
            connection.traffic.frames.value += sends + pulls
            if sends:  # pulls beside others' sends show what is readable: they do not wait
                self._hot_sends.value += sends
                self._staged.append((connection, answers, True))
                if not turn.is_requested:
                    turn.request()
            elif answers:
                connection.send_parts(answers)
            if pulls:
                self._hot_pulls.value += pulls
            # Else the core stopped at its own limit, and there is more for it.
            is_all = used == len(data) or unknown is not None or used == start
            if is_all or connection.is_blocked():
                return used, unknown
            start = used

    def stage_answers(
        self, connection: Connection, answers: Parts, topic: str, *, waits_for_sync: bool = True
    ) -> None:
        """Keep answers until the log is written at the end of this turn, and synced if it must.

        Those to the first messages of a topic wait until it is saved, too.
        """
        if not answers or topic not in self.topics.unsaved:
            self._staged.append((connection, answers, waits_for_sync))
            self._turn.request()
            return

        def written(refused: StoreError | None) -> None:
            if refused is not None:
                send_turned(connection, answers, partial(as_refused, cause=str(refused)))
                return
            log_end = self.core.tail.written_offset if waits_for_sync else 0
            self.when_saved(topic, partial(self._answer, connection, answers, log_end))

        self.after_write(written)

    def when_saved(self, topic: str, done: Callable[[], None]) -> None:
        """Have `done` called when the topic is in its file: at once, or after the next save."""
        mark = self.topics.unsaved.get(topic)
        if mark is None:
            done()
        else:
            self.keeper.after_save(self.topics.file, mark, done)

    def request_write(self) -> None:
        """Have what is staged written at the end of this turn, though nobody waits for it."""
        self._turn.request()

    def after_write(self, done: Callable[[StoreError | None], None]) -> None:
        """Have `done` called once this turn's records are written, or with the error if not.

        It is called before anything of the turn goes out. It may stage for the next turn, and must
        not raise.
        """
        self.core.tail.written.wait(self.core.tail.end_offset, Call(done))
        self._turn.request()

    def end_turn(self) -> None:
        """Write what is staged, let its answers go, wake the pulls that wait for it."""
        tail = self.core.tail
        if not self._staged and not tail.staged and not tail.written.waiter_count:
            return
        staged, self._staged = self._staged, []
        start = tail.written_offset
        try:
            grown = self.store.write_staged()
        except StoreError as error:
            self._told_refusal.tell(str(error))
            self._refused.value += 1
            self._tell_written(error)
            refuse = partial(as_refused, cause=str(error))
            for connection, answers, _ in staged:
                send_turned(connection, answers, refuse)
            self.store.wake()  # it may have been halted
            self._request_rest()
            return
        except Exception as error:  # what nobody foresaw: none may wait, none be told "stored"
            self._tell_written(StoreError(f"the log was not written: {error!r}"))
            for connection, _, _ in staged:
                connection.drop("internal-error")
            raise
        if self.store.stats.last_put_s > SLOW_WRITE_S:
            self.overload.note_slow_write(self.store.stats.last_put_s)
        self._write_sizes.observe(tail.written_offset - start)
        self._tell_written(None)
        for connection, answers, waits_for_sync in staged:
            self._answer(connection, answers, tail.written_offset if waits_for_sync else 0)
        self.flusher.note_written()
        self._note_seen(grown)
        self._request_rest()

    def _tell_written(self, error: StoreError | None) -> None:
        """Tell those who wait for this turn's write what became of it."""
        try:
            if error is None:
                self.core.tail.written.wake()
            else:
                self.core.tail.written.refuse(error)
        except Exception:  # a bug of ours; the others were told all the same
            log.exception("what was to follow a write failed")

    def _note_seen(self, grown: set[Queue]) -> None:
        """Let the answers go that are true now, then wake held reads and tell all who follow."""
        self.store.wake()
        self._stored.value = self.store.message_count
        self.held_reads.wake(grown)
        self.on_grown.tell(grown)

    def _request_rest(self) -> None:
        """Have another turn when what was called at the end of this one staged more."""
        if self.core.tail.staged or self.core.tail.written.waiter_count:
            self._turn.loop.call_soon(self._turn.request)

    def _answer(self, connection: Connection, answers: Parts, log_end: int) -> None:
        """Send answers when the log may be seen up to `log_end`, which is written."""
        visible = self.core.tail.visible
        if visible.number >= log_end:
            connection.send_parts(answers)
        elif visible.failure is not None:
            send_turned(connection, answers, partial(as_failed, cause=str(visible.failure)))
        else:
            waiting = SentWhenTrue(connection, answers, self._timed_out)
            self._deadlines.wait_for(visible, log_end, waiting, self._sync_timeout_s)

    def note_mark_moved(self) -> None:
        """Let be seen what may be, when a mark that the store requires has risen or failed."""
        self._note_seen(self.store.publish())

    async def readable(self) -> None:
        """Return when what is written now can be read; raises when it never will be."""
        tail = self.core.tail
        if tail.visible_offset < tail.written_offset and tail.visible.failure is None:
            seen = Arrival()
            tail.visible.wait(tail.written_offset, seen)
            await seen.future

    async def close(self) -> None:
        """End what runs beside the loop."""
        await self.flusher.stop()
        self.cold_reads.close()
        self.follower_threads.close()
        self._deadlines.close()

    def _connection_closed(self, connection: Connection) -> None:
        self._origins.pop(connection, None)
        self.on_connection_closed(connection)


def _born_host(connection: Connection) -> bytes:
    ip, port = connection.peer_address
    return pack_host(Host(ip or "0.0.0.0", port))  # noqa: S104 - the peer is gone already
