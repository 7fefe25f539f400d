"""What a pull consumer can be told, and which values make sense.

In: keyword arguments of PullConsumer. Out: one frozen, checked value.

Rules:
1. `PullConsumerOptions` names the keyword arguments for editors and type checkers;
   `PullConsumerSettings` has the same names with defaults and sentences.
2. A value outside of its range is a SettingError that names it.
3. A broadcasting consumer without an instance name takes the original's, DEFAULT: its offsets are
   in a file that is named after it, and would be lost with a new name at each start.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from orbitmq.client.consumer_settings import (
    DEFAULT_INSTANCE,
    MIB,
    QueueListener,
    Range,
    check_group_of,
    check_ranges,
)
from orbitmq.client.offset_stores import OffsetStore
from orbitmq.client.settings import ClientOptions, ClientSettings, settings_from
from orbitmq.client.strategies import AllocateStrategy, Averagely
from orbitmq.client.subscriptions import Selector
from orbitmq.wire.bodies_client import ConsumeFromWhere, MessageModel


class PullConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of PullConsumer; PullConsumerSettings says what they mean."""

    subscriptions: Mapping[str, Selector | str] | None
    message_model: MessageModel
    from_where: ConsumeFromWhere
    from_time_s: float | None
    strategy: AllocateStrategy
    offset_store: OffsetStore | None
    queue_listener: QueueListener | None
    auto_commit: bool
    commit_interval_s: float
    poll_timeout_s: float
    pull_batch_size: int
    pull_wait_s: float
    messages_max: int
    queue_messages_max: int
    queue_bytes_max: int
    queue_span_max: int
    max_reconsume_times: int
    unit_mode: bool
    rebalance_interval_s: float
    start_wait_s: float


class PullConsumerSettings(ClientSettings, frozen=True, kw_only=True):
    """How a pull consumer consumes."""

    group: str = ""
    """The consumer group: its members share the queues of their topics, and its offsets are kept
    under this name."""

    subscriptions: Mapping[str, Selector | str] | None = None
    """What to consume, as a map from topic to selector; `subscribe` adds to it."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: each message goes to one member of the group. BROADCASTING: each member gets all
    messages and keeps its offsets in a file."""

    from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group begins in a queue in which it has no offset yet. A queue that still has its
    first message, and recently got it, begins there whatever is asked, as with the original."""

    from_time_s: float | None = None
    """For CONSUME_FROM_TIMESTAMP: seconds since 1970. None: half an hour before the start."""

    strategy: AllocateStrategy = Averagely()
    """How the group's members share queues; the same for all of them."""

    offset_store: OffsetStore | None = None
    """Where offsets are kept. None: at the brokers, or in a file for broadcasting."""

    queue_listener: QueueListener | None = None
    """Called when this member has gained or lost queues by `subscribe`."""

    auto_commit: bool = True
    """Store offsets by itself: of what was handed out before the last poll. False: only `commit`
    does."""

    commit_interval_s: float = 5.0
    """How often offsets are stored by itself."""

    poll_timeout_s: float = 5.0
    """How long `poll` waits for messages if it is not told."""

    pull_batch_size: int = 10
    """How many messages are asked for at a time, and how many a poll gives at most."""

    pull_wait_s: float = 20.0
    """How long a broker holds a pull for which there is nothing."""

    messages_max: int = 10_000
    """With more messages of all queues in memory none is pulled."""

    queue_messages_max: int = 1000
    """With more messages of a queue in memory it is not pulled."""

    queue_bytes_max: int = 100 * MIB
    """With more bytes of a queue in memory it is not pulled."""

    queue_span_max: int = 2000
    """With a wider span between the first and the last offset in memory a queue is not pulled."""

    max_reconsume_times: int = 16
    """A message that is sent back more often becomes a dead letter."""

    unit_mode: bool = False
    """Marks the group as one of the original's units."""

    rebalance_interval_s: float = 20.0
    """How often to look who has which queue, even if nobody says that it changed."""

    start_wait_s: float = 30.0
    """How long a start waits for name servers that are not there yet; 0: not at all."""

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model is MessageModel.BROADCASTING


_RANGES = {
    "commit_interval_s": Range(0.05, 3600),
    "poll_timeout_s": Range(0, 3600),
    "pull_batch_size": Range(1, 1024),
    "pull_wait_s": Range(0.1, 3600),
    "messages_max": Range(1, 6_553_500),
    "queue_messages_max": Range(1, 65_535),
    "queue_bytes_max": Range(1, 1024 * MIB),
    "queue_span_max": Range(1, 65_535),
    "max_reconsume_times": Range(0, 2**31 - 1),
    "rebalance_interval_s": Range(0.1, 3600),
    "start_wait_s": Range(0, 86_400),
}


def pull_settings(namesrv: str | None, group: str, options: dict[str, Any]) -> PullConsumerSettings:
    """Return checked settings; raises SettingError for what cannot be used."""
    settings = settings_from(PullConsumerSettings, options, namesrv=namesrv or "", group=group)
    check_group_of("PullConsumer", group, settings.namespace)
    check_ranges(settings, _RANGES)
    if settings.is_broadcasting and not settings.instance_name:
        return msgspec.structs.replace(settings, instance_name=DEFAULT_INSTANCE)
    return settings
