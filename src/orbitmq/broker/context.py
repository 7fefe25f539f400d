"""What every handler may use: the parts of one broker under one name, and nothing that works.

In: the parts, put together by `assembling`. Out: the same parts.

Rule: what a part does is in its own module. `settings` are those in force: a change is a new value,
so read it where it is used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitmq.broker.clients import ClientTable
from orbitmq.broker.cold_reads import ColdReads
from orbitmq.broker.counts import Counts
from orbitmq.broker.delay_offsets import DelayOffsets
from orbitmq.broker.filters import FilterTable
from orbitmq.broker.flushing import Flusher
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.held_reads import HeldReads
from orbitmq.broker.hot_path import HotPath
from orbitmq.broker.keeping import Keeper
from orbitmq.broker.long_poll import LongPolls
from orbitmq.broker.offset_moved import ReportedEvents
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.overload import Overload
from orbitmq.broker.queue_follower import GrownQueues
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.setting_changes import SettingChanges
from orbitmq.broker.stats import BrokerStats
from orbitmq.broker.topics import TopicTable
from orbitmq.broker.turn_writer import TurnWriter
from orbitmq.config import BrokerSettings, change_settings
from orbitmq.core import CoreState
from orbitmq.net.later import Deadlines
from orbitmq.store.store import Store
from orbitmq.wire.host import Host, pack_host
from orbitmq.wire.message_id import encode_offset_id
from orbitmq.world.chance import Chance
from orbitmq.world.clock import Clock
from orbitmq.world.threads import Threads


class Tables(NamedTuple):
    """What a broker keeps."""

    store: Store
    core: CoreState
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    delays: DelayOffsets
    filters: FilterTable


@dataclass(kw_only=True, eq=False)
class Context:
    """The parts of one broker."""

    settings: BrokerSettings
    store: Store
    core: CoreState
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    delays: DelayOffsets
    filters: FilterTable
    clock: Clock
    chance: Chance
    counts: Counts
    stats: BrokerStats
    deadlines: Deadlines
    hot: HotPath
    writer: TurnWriter
    flusher: Flusher
    keeper: Keeper
    overload: Overload
    held_reads: HeldReads
    long_polls: LongPolls
    cold_reads: ColdReads
    on_grown: GrownQueues
    follower_threads: Threads
    clients: ClientTable
    recent_bytes: int
    """Records this near to the log's end count as recent."""
    boot_ms: int
    changes: SettingChanges = field(init=False)
    """Set by the broker, which knows where its files are."""
    on_settings_change: list[Callable[[BrokerSettings], None]] = field(default_factory=list)
    queue_locks: QueueLocks = field(default_factory=QueueLocks)
    reported_events: ReportedEvents = field(default_factory=ReportedEvents)
    store_host: Host = Host("0.0.0.0", 0)  # noqa: S104, RUF009 - no address yet: set_store_host
    packed_store_host: bytes = b""

    def change_settings(self, changes: Mapping[str, str]) -> None:
        """Put changed settings in force; raises SettingError, and then changes nothing."""
        self.settings = change_settings(self.settings, changes)
        for tell in self.on_settings_change:
            tell(self.settings)

    def set_store_host(self, host: Host) -> None:
        """Say what address records and message ids carry; known when the server listens."""
        self.store_host = host
        self.packed_store_host = pack_host(host)
        self.hot.set_store_host(self.packed_store_host)
        self.core.set_store_id(encode_offset_id(host, 0)[:-16].encode())
