"""The broker's topics: their settings, and the core's view of each.

In: topic settings and requests for topics that do not exist yet. Out: topics the hot path knows,
the table that is registered with name servers, and `topics.json`.

Rules:
1. A topic's data is never given up because its settings are missing: topics found in the store but
   not in the file come back with as many queues as the store has. The system's own topics are put
   first: a template that came back from the store would be none any more.
2. Every change counts up the data version and calls `on_change`, so that name servers learn of it.
3. A missing topic is made from a template topic that has the inherit bit, as the original does. No
   topic is made from TBW102 while autoCreateTopicEnable is off, whatever the file says of it.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from orbitmq.broker.system_topics import system_topics
from orbitmq.broker.table import TableFile
from orbitmq.config import BrokerSettings
from orbitmq.core import CoreState, Queue, Topic
from orbitmq.store.store import Store
from orbitmq.wire.bodies_namesrv import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicConfigTable,
)
from orbitmq.wire.names import TEMPLATE_TOPIC, is_closed_to_clients, is_retry_topic
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

READ_WRITE = PERM_READ | PERM_WRITE

TOPIC_COUNT_MAX = 30_000
"""Topics of one broker; above it none is made by itself. All of them must fit one register frame,
at up to 450 bytes each."""


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

    def find(self, topic: str) -> TopicConfig | None:
        """Give a topic's settings."""
        return self._configs.get(topic)

    def put(self, config: TopicConfig) -> None:
        """Add a topic or change its settings."""
        if self._configs.get(config.topic_name) == config:
            return
        self._adopt(config)
        self._version = DataVersion(
            counter=self._version.counter + 1,
            timestamp_ms=self._clock.wall_ms(),
            state_version=self._version.state_version,
        )
        self.file.mark()
        self.on_change()

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
        topic = self._core.topics[name] = Topic(
            name,
            config.read_queue_count,
            is_plain=not (is_retry_topic(name) or is_closed_to_clients(name)),
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
