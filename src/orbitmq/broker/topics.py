"""The broker's topics: their settings, and the core's view of each.

In: topic settings and requests for topics that do not exist yet. Out: topics the hot path knows,
the table that is registered with name servers, and `topics.json`.

Rules:
1. A topic's data is never given up because its settings are missing: topics found in the store but
   not in the file come back with as many queues as the store has. The system's own topics are put
   first: a template that came back from the store would be none any more.
2. Every change counts up the data version and calls `on_change`, so that name servers learn of it.
3. A removed topic loses its queues, everywhere in one step. Made again it begins with offset 0.
4. All topics together must fit one register frame: above TOPIC_COUNT_MAX, or rows.SIZE_MAX bytes as
   registered, no new one is made, whoever asks for it. The log says so.
5. The hot path takes no sends to a topic that is not in the file yet: their answers wait for that
   (`unsaved`), so after a kill every topic that has acknowledged messages is there as it was.
6. A missing topic is made from a template topic that has the inherit bit, as the original does. No
   topic is made from TBW102 while autoCreateTopicEnable is off, whatever the file says of it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from orbitmq.broker.encoded_rows import SIZE_MAX, EncodedRows, TableLimits
from orbitmq.broker.light_queues import LightQueues, light_topic
from orbitmq.broker.repeated_failures import RepeatedFailure
from orbitmq.broker.system_topics import system_topics
from orbitmq.broker.table import TableFile
from orbitmq.config import BrokerSettings
from orbitmq.core import CoreState, Queue, Topic
from orbitmq.errors import RequestFailed
from orbitmq.store.store import Store
from orbitmq.wire.bodies_namesrv import (
    PERM_INHERIT,
    PERM_READ,
    PERM_READ_WRITE,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicConfigTable,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.light_queues import is_light
from orbitmq.wire.names import TEMPLATE_TOPIC, is_closed_to_clients, is_retry_topic
from orbitmq.wire.ready_tables import TopicRows, write_topic_table
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

log = logging.getLogger(__name__)

TOPIC_COUNT_MAX = 30_000
"""Topics of one broker; above it no new one is made."""

QUEUE_COUNT_MAX = 1_024
"""Read or write queues of one topic, as many as the original gives any of its own. A topic of an
original's table may have more, and keeps them."""


def send_queue_count(config: TopicConfig) -> int:
    """Return how many queues of a topic take messages: none without write queues, as originally."""
    if config.write_queue_count <= 0:
        return 0
    return max(config.read_queue_count, config.write_queue_count)


class TopicTable:
    """All topics of one broker."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        core: CoreState,
        store: Store,
        clock: Clock,
        settings: BrokerSettings,
    ) -> None:
        self._core = core
        self._store = store
        self._clock = clock
        self._is_auto_made = settings.auto_create_topic_enable
        self._is_writable = bool(settings.broker_permission & PERM_WRITE)
        self._rows: EncodedRows[TopicConfig] = EncodedRows()
        self.light = LightQueues(store, settings)
        self._ordered: set[str] = set()
        self.unsaved: dict[str, int] = {}
        """Topics that are not in the file yet, each with the change that made it."""
        self._full_failures = RepeatedFailure(log, clock)
        self._version = DataVersion(timestamp_ms=clock.wall_ms())
        self.on_change: Callable[[], None] = lambda: None
        self.file = TableFile(files, folder / "topics.json", self.contents)
        self.file.on_saved = self._note_saved
        saved = self.file.load(TopicConfigTable)
        if saved is not None:
            self._version = saved.data_version
            for config in saved.topic_config_table.values():
                self._adopt(config)
        self._add_missing(system_topics(settings))
        if self._rows.size > SIZE_MAX:
            log.error(
                "the topics of this broker have %d bytes, limit %d: name servers may not take them;"
                " delete some (deleteTopic)",
                self._rows.size,
                SIZE_MAX,
            )

    def obey(self, settings: BrokerSettings) -> None:
        """Follow changed settings of the broker."""
        self._is_auto_made = settings.auto_create_topic_enable
        self._is_writable = bool(settings.broker_permission & PERM_WRITE)
        self.light.count_max = settings.max_lmq_consume_queue_num
        for name in list(self._ordered):
            self._adopt(self._rows.values[name])

    def find(self, topic: str) -> TopicConfig | None:
        """Return a topic's settings; those of light queues are always the same."""
        config = self._rows.values.get(topic)
        return light_topic(topic) if config is None and self.light.has(topic) else config

    def put(self, config: TopicConfig) -> None:
        """Add a topic or change its settings; what light queues have stays, as originally."""
        if self.light.has(config.topic_name):
            return
        known = self._rows.values.get(config.topic_name)
        if known == config:
            return
        mark = self._count_up()
        if known is None:
            self.unsaved[config.topic_name] = mark
        self._adopt(config)
        self.on_change()

    def _note_saved(self) -> None:
        """Let the hot path have the topics that are in the file now."""
        saved = [topic for topic, mark in self.unsaved.items() if mark <= self.file.saved.number]
        for topic in saved:
            del self.unsaved[topic]
            self._adopt(self._rows.values[topic])

    def note_change(self) -> None:
        """Count up the version and have the table saved and told."""
        self._count_up()
        self.on_change()

    def _count_up(self) -> int:
        self._version = DataVersion(
            counter=self._version.counter + 1,
            timestamp_ms=self._clock.wall_ms(),
            state_version=self._version.state_version,
        )
        return self.file.mark()

    def ensure(
        self, topic: str, queue_count: int, perm: int = PERM_READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return a topic's settings; made with these when it is not there (retry, dead letters).

        Raises RequestFailed when there are too many topics.
        """
        config = self._rows.values.get(topic)
        if config is None:
            config = TopicConfig(
                topic_name=topic,
                read_queue_count=queue_count,
                write_queue_count=queue_count,
                perm=perm,
                topic_sys_flag=sys_flag,
            )
            self.check_room([config])
            self.put(config)
        return config

    def check_room(self, configs: Iterable[TopicConfig]) -> None:
        """Raise RequestFailed, and say so in the log, when there is no room for these topics."""
        limits = TableLimits(
            "topics",
            TOPIC_COUNT_MAX,
            SIZE_MAX,
            "delete some (deleteTopic), or make the topic at another broker",
        )
        fault = self._rows.room_fault({config.topic_name: config for config in configs}, limits)
        if fault is not None:
            self._full_failures.report(fault)
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)

    def remove(self, topics: Collection[str]) -> None:
        """Take topics out, with their queues; what is not there is passed over.

        The store's files of them go with its next removal.
        """
        counts = self._store.queue_counts()
        rows = self._rows.values
        self._store.remove_topics([name for name in topics if name in counts or name in rows])
        removed = [self._rows.remove(topic) for topic in topics]
        for topic in topics:
            self._ordered.discard(topic)
            self.unsaved.pop(topic, None)
            self._core.topics.pop(topic, None)
        self.light.forget(topics)
        if any(removed):
            self.note_change()

    def set_order_topics(self, ordered: Mapping[str, str]) -> None:
        """Let the topics that a name server calls ordered be so, and no others.

        Name servers learn of it in their next rounds; those must not come the sooner for what one
        of them said.
        """
        configs = self._rows.values
        changed = self._ordered ^ {name for name in ordered if name in configs}
        for name in changed:
            self._adopt(msgspec.structs.replace(configs[name], order=name in ordered))
        if changed:
            self._count_up()

    def make_from_template(self, topic: str, template: str, queue_count: int) -> TopicConfig | None:
        """Make a topic as its template allows; None when the template does not.

        Raises RequestFailed when there is no room for it.
        """
        if template == TEMPLATE_TOPIC and not self._is_auto_made:
            return None
        source = self._rows.values.get(template)
        if source is None or not source.perm & PERM_INHERIT or queue_count <= 0:
            return None
        count = min(queue_count, source.write_queue_count)
        config = TopicConfig(
            topic_name=topic,
            read_queue_count=count,
            write_queue_count=count,
            perm=source.perm & ~PERM_INHERIT,
        )
        self.check_room([config])
        self.put(config)
        return config

    def queue(self, config: TopicConfig, queue_id: int) -> Queue:
        """Return a queue of the topic, known to the hot path from now on."""
        topic = self._core.topics.get(config.topic_name)
        if topic is None:
            return self.light.to_write([config.topic_name])[0]
        queue = topic.queues.get(queue_id)
        if queue is None:
            queue = topic.queues[queue_id] = self._store.queue(config.topic_name, queue_id)
        return queue

    def queue_to_read(self, config: TopicConfig, queue_id: int) -> Queue:
        """Return a queue of the topic for a pull: none makes a light queue."""
        if config.topic_name not in self._core.topics:
            return self.light.to_read(config.topic_name)
        return self.queue(config, queue_id)

    def snapshot(self) -> TopicRows:
        """Return the whole table as it is registered and saved."""
        return TopicRows(self._version, dict(self._rows.values), self._rows.written())

    def contents(self) -> Callable[[], bytes]:
        """Return what makes the table as it is now into a body; that may run in a thread."""
        topics = self.snapshot()
        return lambda: write_topic_table(topics)

    def _adopt(self, config: TopicConfig) -> None:
        name = config.topic_name
        topic = self._core.topics.get(name)
        queues = topic.queues if topic is not None else {}
        is_refused = config.order and not self._is_writable  # the handler says so
        is_slow = is_refused or name in self.unsaved or is_retry_topic(name)
        topic = self._core.topics[name] = Topic(
            name,
            config.read_queue_count,
            is_plain=not (is_slow or is_closed_to_clients(name)),
            is_readable=bool(config.perm & PERM_READ),
            send_queue_count=send_queue_count(config),
        )
        topic.queues = queues
        self._rows.put(name, config)
        (self._ordered.add if config.order else self._ordered.discard)(name)

    def _add_missing(self, of_system: list[TopicConfig]) -> None:
        """Put the topics that the file lacks, with at least the queues that the store has."""
        counts = self._store.queue_counts()
        missing = {config.topic_name: config for config in of_system}
        for topic in counts:
            if is_light(topic):
                continue
            unknown = TopicConfig(
                topic_name=topic, read_queue_count=0, write_queue_count=0, perm=PERM_READ_WRITE
            )
            missing.setdefault(topic, unknown)
        for topic in [name for name in missing if name not in self._rows.values]:
            config, count = missing[topic], counts.get(topic, 0)
            self.put(
                msgspec.structs.replace(
                    config,
                    read_queue_count=max(config.read_queue_count, count),
                    write_queue_count=max(config.write_queue_count, count),
                )
            )
