"""The broker's topics: their settings, and the core's view of each.

In: topic settings and requests for topics that do not exist yet. Out: topics the hot path knows,
the table that is registered with name servers, and `topics.json`.

Rules:
1. A topic's data is never given up because its settings are missing: topics found in the store but
   not in the file come back with as many queues as the store has. The system's own topics are put
   first: a template that came back from the store would be none any more.
2. Every change counts up the data version and calls `on_change`, so that name servers learn of it.
3. A topic that is removed loses its queues, here, in the hot path and in the store, in one step.
   Made again it begins with offset 0.
4. A missing topic is made from a template topic that has the inherit bit, as the original does. No
   topic is made from TBW102 while autoCreateTopicEnable is off, whatever the file says of it.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from orbitmq.broker.system_topics import system_topics
from orbitmq.broker.table import TableFile
from orbitmq.config import BrokerSettings
from orbitmq.core import CoreState, Queue, Topic
from orbitmq.errors import RequestFailed
from orbitmq.store.store import Store
from orbitmq.wire.bodies_namesrv import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicConfigTable,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.names import TEMPLATE_TOPIC, is_closed_to_clients, is_retry_topic
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

READ_WRITE = PERM_READ | PERM_WRITE

TOPIC_COUNT_MAX = 30_000
"""Topics of one broker; above it no new one is made. All of them must fit one register frame, at up
to 450 bytes each; compressed (compressedRegister) they need less, but a name server reads no more
than that either."""

QUEUE_COUNT_MAX = 1_024
"""Read or write queues of one topic, as many as the original gives any of its own. A topic of an
original's table may have more, and keeps them."""


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
        self._configs: dict[str, TopicConfig] = {}
        self._version = DataVersion(timestamp_ms=clock.wall_ms())
        self.on_change: Callable[[], None] = lambda: None
        self.file = TableFile(files, folder / "topics.json", self.snapshot)
        saved = self.file.load(TopicConfigTable)
        if saved is not None:
            self._version = saved.data_version
            for config in saved.topic_config_table.values():
                self._adopt(config)
        self._add_missing(system_topics(settings))

    def obey(self, settings: BrokerSettings) -> None:
        """Follow changed settings of the broker."""
        self._is_auto_made = settings.auto_create_topic_enable
        self._is_writable = bool(settings.broker_permission & PERM_WRITE)
        for config in [config for config in self._configs.values() if config.order]:
            self._adopt(config)

    def find(self, topic: str) -> TopicConfig | None:
        """Give a topic's settings."""
        return self._configs.get(topic)

    def put(self, config: TopicConfig) -> None:
        """Add a topic or change its settings."""
        if self._configs.get(config.topic_name) == config:
            return
        self._adopt(config)
        self.note_change()

    def note_change(self) -> None:
        """Count up the version and have the table saved and told."""
        self._version = DataVersion(
            counter=self._version.counter + 1,
            timestamp_ms=self._clock.wall_ms(),
            state_version=self._version.state_version,
        )
        self.file.mark()
        self.on_change()

    def ensure(
        self, topic: str, queue_count: int, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Give a topic's settings; made with these when it is not there (retry, dead letters).

        Raises RequestFailed when there are too many topics.
        """
        config = self._configs.get(topic)
        if config is None:
            self.check_room(1)
            config = TopicConfig(
                topic_name=topic,
                read_queue_count=queue_count,
                write_queue_count=queue_count,
                perm=perm,
                topic_sys_flag=sys_flag,
            )
            self.put(config)
        return config

    def check_room(self, new_count: int) -> None:
        """Raise RequestFailed when so many new topics are too many."""
        if len(self._configs) + new_count > TOPIC_COUNT_MAX:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"this broker has {len(self._configs)} topics, limit {TOPIC_COUNT_MAX}; delete some"
                " (deleteTopic), or make the topic at another broker",
            )

    def remove(self, topics: Collection[str]) -> None:
        """Take topics out, with their queues; what is not there is passed over.

        The store's files of them go with its next removal.
        """
        self._store.remove_topics(topics)
        count = len(self._configs)
        for topic in topics:
            self._configs.pop(topic, None)
            self._core.topics.pop(topic, None)
        if len(self._configs) < count:
            self.note_change()

    def set_order_topics(self, ordered: Mapping[str, str]) -> None:
        """Let the topics that a name server calls ordered be so, and no others."""
        changed = [
            config for name, config in self._configs.items() if config.order != (name in ordered)
        ]
        for config in changed:
            self._adopt(msgspec.structs.replace(config, order=not config.order))
        if changed:
            self.note_change()

    def make_from_template(self, topic: str, template: str, queue_count: int) -> TopicConfig | None:
        """Make a topic as its template allows; None when the template does not."""
        if template == TEMPLATE_TOPIC and not self._is_auto_made:
            return None
        source = self._configs.get(template)
        if source is None or not source.perm & PERM_INHERIT or queue_count <= 0:
            return None
        if len(self._configs) >= TOPIC_COUNT_MAX:
            return None
        count = min(queue_count, source.write_queue_count)
        config = TopicConfig(
            topic_name=topic,
            read_queue_count=count,
            write_queue_count=count,
            perm=source.perm & ~PERM_INHERIT,
        )
        self.put(config)
        return config

    def queue(self, config: TopicConfig, queue_id: int) -> Queue:
        """Give a queue of the topic, known to the hot path from now on."""
        topic = self._core.topics[config.topic_name]
        queue = topic.queues.get(queue_id)
        if queue is None:
            queue = topic.queues[queue_id] = self._store.queue(config.topic_name, queue_id)
        return queue

    def snapshot(self) -> TopicConfigTable:
        """Give the whole table as it is registered and saved."""
        return TopicConfigTable(data_version=self._version, topic_config_table=dict(self._configs))

    def _adopt(self, config: TopicConfig) -> None:
        name = config.topic_name
        topic = self._core.topics.get(name)
        queues = topic.queues if topic is not None else {}
        is_refused = config.order and not self._is_writable  # the handler says so
        topic = self._core.topics[name] = Topic(
            name,
            config.read_queue_count,
            is_plain=not (is_retry_topic(name) or is_closed_to_clients(name) or is_refused),
            is_readable=bool(config.perm & PERM_READ),
        )
        topic.queues = queues
        self._configs[name] = config

    def _add_missing(self, of_system: list[TopicConfig]) -> None:
        """Put the topics that the file lacks, with at least the queues that the store has."""
        counts = self._store.queue_counts()
        missing = {config.topic_name: config for config in of_system}
        for topic in counts:
            unknown = TopicConfig(
                topic_name=topic, read_queue_count=0, write_queue_count=0, perm=READ_WRITE
            )
            missing.setdefault(topic, unknown)
        for topic in [name for name in missing if name not in self._configs]:
            config, count = missing[topic], counts.get(topic, 0)
            self.put(
                msgspec.structs.replace(
                    config,
                    read_queue_count=max(config.read_queue_count, count),
                    write_queue_count=max(config.write_queue_count, count),
                )
            )
