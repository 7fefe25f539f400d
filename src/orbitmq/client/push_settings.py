"""What a push consumer can be told, and which values make sense.

In: keyword arguments of PushConsumer. Out: one frozen, checked value.

Rules:
1. `PushConsumerOptions` names the keyword arguments for editors and type checkers;
   `PushConsumerSettings` has the same names with defaults and sentences.
2. The ranges are the original's; a value outside of one is a SettingError that names it.
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

RECONSUME_TIMES_MAX = 16
"""How often a concurrent consumer gets a message again, unless it says otherwise."""
ORDERLY_RECONSUME_TIMES_MAX = 2**31 - 1


class PushConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of PushConsumer; PushConsumerSettings says what they mean."""

    subscriptions: Mapping[str, Selector | str] | None
    message_model: MessageModel
    is_orderly: bool
    from_where: ConsumeFromWhere
    from_time_s: float | None
    strategy: AllocateStrategy
    offset_store: OffsetStore | None
    queue_listener: QueueListener | None
    consume_threads: int
    consume_batch_size: int
    consume_timeout_s: float
    max_reconsume_times: int | None
    suspend_queue_s: float
    pull_batch_size: int
    pull_interval_s: float
    queue_messages_max: int
    queue_bytes_max: int
    queue_span_max: int
    topic_messages_max: int | None
    topic_bytes_max: int | None
    sends_expression: bool
    unit_mode: bool
    commit_interval_s: float
    rebalance_interval_s: float
    start_wait_s: float
    close_timeout_s: float


class PushConsumerSettings(ClientSettings, frozen=True, kw_only=True):
    """How a push consumer consumes."""

    group: str = ""
    """The consumer group: its members share the queues of their topics."""

    subscriptions: Mapping[str, Selector | str] | None = None
    """What to consume, as a map from topic to selector; `subscribe` adds to it."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: each message goes to one member of the group. BROADCASTING: each member gets all
    messages, keeps its offsets in a file, and nothing is ever retried."""

    is_orderly: bool = False
    """Messages of one queue are consumed one after the other, in order; a failure stops the queue
    until it is mended. The queues of one member still run side by side."""

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
    """Called when this member has gained or lost queues."""

    consume_threads: int = 20
    """How many handlers run at a time: threads for plain functions, tasks for async ones."""

    consume_batch_size: int = 1
    """With more than 1 the handler gets a list of up to so many messages of one queue."""

    consume_timeout_s: float = 900.0
    """A message whose handler takes longer is sent back, so that it does not hold up the queue."""

    max_reconsume_times: int | None = None
    """After so many retries a message becomes a dead letter. None: 16, or never if orderly."""

    suspend_queue_s: float = 1.0
    """How long an orderly consumer waits before it tries a failed message again."""

    pull_batch_size: int = 32
    """How many messages are asked for at a time."""

    pull_interval_s: float = 0.0
    """A pause between pulls of a queue."""

    queue_messages_max: int = 1000
    """With more messages of a queue in hand it is not pulled."""

    queue_bytes_max: int = 100 * MIB
    """With more bytes of a queue in hand it is not pulled."""

    queue_span_max: int = 2000
    """With a wider span between the first and the last offset in hand a queue is not pulled. Not
    for orderly consumers."""

    topic_messages_max: int | None = None
    """Divided by the number of queues this member has, it replaces `queue_messages_max`."""

    topic_bytes_max: int | None = None
    """Divided by the number of queues this member has, it replaces `queue_bytes_max`."""

    sends_expression: bool = False
    """Send the selector with every pull, instead of relying on the last heartbeat."""

    unit_mode: bool = False
    """Marks the group as one of the original's units."""

    commit_interval_s: float = 5.0
    """How often offsets are stored; they also travel with pulls."""

    rebalance_interval_s: float = 20.0
    """How often to look who has which queue, even if nobody says that it changed."""

    start_wait_s: float = 30.0
    """How long a start waits for name servers that are not there yet; 0: not at all."""

    close_timeout_s: float = 10.0
    """How long a close waits for handlers that are at work."""

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model is MessageModel.BROADCASTING

    @property
    def reconsume_times_max(self) -> int:
        """How often a message comes again before it is a dead letter."""
        if self.max_reconsume_times is not None:
            return self.max_reconsume_times
        return ORDERLY_RECONSUME_TIMES_MAX if self.is_orderly else RECONSUME_TIMES_MAX


_RANGES = {
    "consume_threads": Range(1, 1000),
    "consume_batch_size": Range(1, 1024),
    "consume_timeout_s": Range(0.1, 86_400),
    "max_reconsume_times": Range(0, 2**31 - 1),
    "suspend_queue_s": Range(0.01, 30),
    "pull_batch_size": Range(1, 1024),
    "pull_interval_s": Range(0, 65.535),
    "queue_messages_max": Range(1, 65_535),
    "queue_bytes_max": Range(1, 1024 * MIB),
    "queue_span_max": Range(1, 65_535),
    "topic_messages_max": Range(1, 6_553_500),
    "topic_bytes_max": Range(1, 102_400 * MIB),
    "commit_interval_s": Range(0.05, 3600),
    "rebalance_interval_s": Range(0.1, 3600),
    "start_wait_s": Range(0, 86_400),
    "close_timeout_s": Range(0, 86_400),
}


def push_settings(namesrv: str | None, group: str, options: dict[str, Any]) -> PushConsumerSettings:
    """Return checked settings; raises SettingError for what cannot be used."""
    settings = settings_from(PushConsumerSettings, options, namesrv=namesrv or "", group=group)
    check_group_of("PushConsumer", group, settings.namespace)
    check_ranges(settings, _RANGES)
    if settings.is_broadcasting and not settings.instance_name:
        return msgspec.structs.replace(settings, instance_name=DEFAULT_INSTANCE)
    return settings
