"""A broker's delay levels without its network, on files in memory, with a clock moved by hand.

In: files, possibly those that a crash left. Out: delayed messages put and delivered, and what is in
the queues. Everything else is the broker's own.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.context import Context
from orbitmq.broker.delays import Delays
from orbitmq.broker.puts import NewMessage, Placed, admitted, delayed, put
from orbitmq.broker.store_options import store_options
from orbitmq.config import BrokerSettings
from orbitmq.core import Way
from orbitmq.metrics import Registry
from orbitmq.net.turn import Turn
from orbitmq.store.opening import Outside
from orbitmq.store.reading import ColdLimits, gather_cold, snapshot
from orbitmq.store.store import Store
from orbitmq.wire.host import Host, pack_host
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record, scan_records
from orbitmq.world.files import Files
from tests.store.driven import HandClock
from tests.store.opened import BOOT, open_store, sync

ROOT = Path("/store")
SETTINGS = BrokerSettings(
    listen_port=0,
    mapped_file_size_commit_log=131_072,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=10,
    max_index_num=20,
    message_delay_level="1s 5s 10s",
    flush_delay_offset_interval=600_000,
)
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LIMIT_S = 10.0
BORN_HOST = pack_host(Host("10.0.0.9", 1234))


def own_of(properties: str) -> bytes:
    """Return properties as a message that the broker stores has them."""
    return admitted(properties.encode(), Way.AGAIN).own


class Site:
    """A broker that only delivers."""

    def __init__(self, broker: Broker, clock: HandClock, registry: Registry) -> None:
        self.broker = broker
        self.clock = clock
        self.registry = registry
        self.context: Context = broker._context
        self.delays: Delays = broker._delays

    @property
    def store(self) -> Store:
        """The broker's store."""
        return self.context.store

    def send(self, name: str, level: int, **changes: str | int) -> Placed:
        """Put a message that is delayed, under a name of its own."""
        message = NewMessage(
            topic=str(changes.get("topic", "T")),
            queue_id=int(changes.get("queue_id", 0)),
            body=name.encode(),
            own=own_of(str(changes.get("properties", f"UNIQ_KEY\x01{name}\x02TAGS\x01TagA"))),
            flag=3,
            born_ms=7,
            born_host=BORN_HOST,
            tags_code=0,
        )
        return put(self.context, delayed(self.context, message, level))

    def send_plain(self, name: str) -> None:
        """Put a message that is not delayed."""
        put(
            self.context,
            NewMessage(
                topic="P",
                queue_id=0,
                body=name.encode(),
                own=own_of(f"UNIQ_KEY\x01{name}"),
                born_ms=7,
                born_host=BORN_HOST,
                tags_code=0,
            ),
        )

    def forward(self, record: Record, add: str = "") -> None:
        """Put a message again as it came, as the sender of a batch may."""
        put(
            self.context,
            NewMessage(
                topic=record.topic,
                queue_id=record.queue_id,
                body=record.body,
                own=own_of(record.properties.decode() + add),
                born_ms=8,
                born_host=BORN_HOST,
                tags_code=0,
            ),
        )

    async def turn(self) -> None:
        """Let the loop do what it has to do now."""
        for _ in range(6):
            await asyncio.sleep(0)

    async def at(self, later_ms: int) -> None:
        """Move the clock and let the delays look."""
        self.clock.now_ms += later_ms
        self.delays.look_soon()
        await self.turn()

    async def until_waiting(self, count: int) -> None:
        """Wait until no more than so many messages wait."""
        async with asyncio.timeout(LIMIT_S):
            while not self.is_ready or self.context.delays.waiting_count() > count:
                self.delays.look_soon()
                await asyncio.sleep(0.001)

    @property
    def is_ready(self) -> bool:
        """Whether it has found out what was delivered before it started."""
        recovery = self.delays._recovery
        return recovery is not None and recovery.done()

    def records(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        """What a queue holds."""
        queue = self.store.find_queue(topic, queue_id)
        if queue is None:
            return []
        records: list[Record] = []
        offset = queue.min_offset
        while offset < queue.readable_offset:
            view = snapshot(queue, offset)
            limits = ColdLimits(1_000, 1 << 20)
            found = gather_cold(self.store.reader, view, offset, 1_000, limits=limits)
            for part in found.parts:
                records += scan_records(part)
            offset = max(found.next_offset, offset + 1)
        return records

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """The bodies of what a queue holds."""
        return [record.body for record in self.records(topic, queue_id)]

    def scheduled(self) -> Counter[tuple[bytes, str]]:
        """The messages that the schedule topic can still give: body and level."""
        return Counter(
            (record.body, parse_properties(record.properties)["DELAY"])
            for queue_id in range(3)
            for record in self.records(SCHEDULE_TOPIC, queue_id)
        )

    def delivered(self) -> Counter[tuple[bytes, str]]:
        """The messages that were delivered to T: body and level."""
        return Counter(
            (record.body, parse_properties(record.properties)["DELAY"]) for record in self.records()
        )

    def sync(self) -> None:
        """Bring the log to the disk."""
        sync(self.store)

    async def save(self) -> None:
        """Save delayOffset.json, as every flushDelayOffsetInterval."""
        await self.broker._mark_delays()
        await self.broker._save_tables()

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        (line,) = (
            line for line in self.registry.render().splitlines() if line.startswith(name + " ")
        )
        return float(line.rpartition(" ")[2])


@asynccontextmanager
async def site(
    files: Files,
    clock: HandClock,
    settings: BrokerSettings = SETTINGS,
    *,
    boot_id: bytes = BOOT,
    is_started: bool = True,
) -> AsyncIterator[Site]:
    """A broker on a folder; the block's end stops it as a clean stop does."""
    turn = Turn(asyncio.get_running_loop())
    options = store_options(settings)
    store = open_store(ROOT, files, options, clock=clock, boot_id=boot_id)
    registry = Registry()
    broker = Broker(settings, ROOT, turn, registry, outside=Outside(files, clock), store=store)
    made = Site(broker, clock, registry)
    try:
        if is_started:
            await broker._save_delays()
            made.delays.start()
        yield made
    finally:
        await broker.stop()
