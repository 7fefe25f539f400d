"""What a push consumer tells of itself when a tool asks through a broker (307, 309).

In: the consumer's parts. Out: bodies with the original's names, which its tools read.
Rule: maps with queues as keys are written as the original writes them; only Java reads these.
"""

import msgspec

from orbitmq.client.figures import ConsumeStatus, Figures
from orbitmq.client.instance import Instance
from orbitmq.client.process_queue import MIB, ProcessQueue
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.client.rebalancing import Rebalancing
from orbitmq.client.subscriptions import Subscription
from orbitmq.wire.bodies_client import MessageQueue, SubscriptionData
from orbitmq.wire.fastjson import write_json

CLIENT_VERSION = "V4_9_7"
"""What our requests say as a number, as tools print it."""

RESULT_SUCCESS = "CR_SUCCESS"
RESULT_LATER = "CR_LATER"
RESULT_THROWN = "CR_THROW_EXCEPTION"


class _Body(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base of the bodies in this module."""


class QueueInfo(_Body, frozen=True, kw_only=True):
    """One queue that the consumer has; times in wall ms."""

    commit_offset: int
    cached_msg_min_offset: int
    cached_msg_max_offset: int
    cached_msg_count: int
    cached_msg_size_mib: int = msgspec.field(name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool
    try_unlock_times: int = 0
    last_lock_timestamp: int
    droped: bool
    last_pull_timestamp: int
    last_consume_timestamp: int


class RunningInfo(_Body, frozen=True, kw_only=True):
    """The answer to 307."""

    properties: dict[str, str]
    subscription_set: list[SubscriptionData]
    mq_table: dict[MessageQueue, QueueInfo]
    status_table: dict[str, ConsumeStatus]


class DirectResult(_Body, frozen=True, kw_only=True):
    """The answer to 309."""

    order: bool
    auto_commit: bool = True
    consume_result: str
    remark: str | None = None
    spent_time_mills: int


class Told:
    """What one consumer tells of itself."""

    def __init__(
        self,
        instance: Instance,
        settings: PushConsumerSettings,
        rebalancing: Rebalancing,
        figures: Figures,
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._rebalancing = rebalancing
        self._figures = figures
        self._started_ms = instance.clock.wall_ms()

    def running_info(self, subscriptions: dict[str, Subscription]) -> bytes:
        """Return the body that answers 307."""
        info = RunningInfo(
            properties=self._properties(),
            subscription_set=[each.data() for each in subscriptions.values()],
            mq_table={
                queue: self._queue_info(each) for queue, each in self._rebalancing.table.items()
            },
            status_table={topic: self._figures.status(topic) for topic in subscriptions},
        )
        return write_json(info, standard=False)

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        return {
            "PROP_NAMESERVER_ADDR": ";".join(self._instance.name_servers.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_THREADPOOL_CORE_SIZE": str(settings.consume_threads),
            "PROP_CONSUMEORDERLY": str(settings.is_orderly).lower(),
            "consumerGroup": settings.group,
            "messageModel": settings.message_model.name,
            "consumeFromWhere": settings.from_where.name,
            "consumeMessageBatchMaxSize": str(settings.consume_batch_size),
            "pullBatchSize": str(settings.pull_batch_size),
            "pullThresholdForQueue": str(settings.queue_messages_max),
            "consumeConcurrentlyMaxSpan": str(settings.queue_span_max),
            "maxReconsumeTimes": str(settings.reconsume_times_max),
        }

    def _queue_info(self, process_queue: ProcessQueue) -> QueueInfo:
        first, last = process_queue.offsets
        progress = process_queue.progress
        return QueueInfo(
            commit_offset=-1 if progress is None else progress,
            cached_msg_min_offset=first,
            cached_msg_max_offset=last,
            cached_msg_count=process_queue.count,
            cached_msg_size_mib=process_queue.size_bytes // MIB,
            locked=process_queue.locked_until_s is not None,
            last_lock_timestamp=self._wall_ms(process_queue.locked_s),
            droped=process_queue.is_dropped,
            last_pull_timestamp=self._wall_ms(process_queue.pulled_s),
            last_consume_timestamp=self._wall_ms(process_queue.consumed_s),
        )

    def _wall_ms(self, monotonic_s: float) -> int:
        """Return the wall time of a moment; 0 for never."""
        clock = self._instance.clock
        if not monotonic_s:
            return 0
        return clock.wall_ms() - round((clock.monotonic_s() - monotonic_s) * 1000)
