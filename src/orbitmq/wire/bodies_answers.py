"""Bodies with queues as keys, as clients and tools read them.

In: the bytes of an answer whose maps have MessageQueues as keys. Out: maps by MessageQueue.
Rule: whoever writes such bodies uses the types of bodies_consume and bodies_topics; these have the
same names on the wire, with keys as `fastjson` leaves them.
"""

from typing import TypeVar

import msgspec

from orbitmq.wire.bodies_client import MessageQueue, SubscriptionData, read_queue_key
from orbitmq.wire.bodies_consume import QueueProgress, ResetOffsetList
from orbitmq.wire.bodies_topics import TopicOffset
from orbitmq.wire.fastjson import read_json

T = TypeVar("T")


class _OffsetTable(msgspec.Struct, rename="camel", frozen=True):
    """The body of 220 and the answer to 222."""

    offset_table: dict[str, int] = {}


def by_queue(table: dict[str, T]) -> dict[MessageQueue, T]:
    """Return a map whose keys are texts of queues as a map by queue."""
    return {read_queue_key(key): value for key, value in table.items()}


def read_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Read offsets by queue: a map, or the list that C++ clients are sent (220)."""
    if b'"offsetTable":[' in body[:64]:
        rows = read_json(body, ResetOffsetList).offset_table
        return {MessageQueue(row.topic, row.broker_name, row.queue_id): row.offset for row in rows}
    return by_queue(read_json(body, _OffsetTable).offset_table)


class _TopicStats(msgspec.Struct, rename="camel", frozen=True):
    offset_table: dict[str, TopicOffset] = {}


class _ConsumeStats(msgspec.Struct, rename="camel", frozen=True):
    offset_table: dict[str, QueueProgress] = {}
    consume_tps: float = 0.0


class _BrokerConsumeStats(msgspec.Struct, rename="camel", frozen=True):
    consume_stats_list: list[dict[str, list[_ConsumeStats]]] = []


class _ConsumerStatus(msgspec.Struct, rename="camel", frozen=True):
    consumer_table: dict[str, dict[str, int]] = {}


Progress = tuple[dict[MessageQueue, QueueProgress], float]
"""How far a group is, by queue, and how many messages a second it consumes."""


def read_topic_stats(body: bytes) -> dict[MessageQueue, TopicOffset]:
    """Read the answer to 202."""
    return by_queue(read_json(body, _TopicStats).offset_table)


def read_consume_stats(body: bytes) -> Progress:
    """Read the answer to 208."""
    return _progress(read_json(body, _ConsumeStats))


def read_broker_consume_stats(body: bytes) -> dict[str, list[Progress]]:
    """Read the answer to 317: by group, one for each topic."""
    return {
        group: [_progress(one) for one in stats]
        for table in read_json(body, _BrokerConsumeStats).consume_stats_list
        for group, stats in table.items()
    }


def read_consumer_status(body: bytes) -> dict[str, dict[MessageQueue, int]]:
    """Read the answer to 223: where each client is."""
    table = read_json(body, _ConsumerStatus).consumer_table
    return {client_id: by_queue(offsets) for client_id, offsets in table.items()}


def _progress(stats: _ConsumeStats) -> Progress:
    return by_queue(stats.offset_table), stats.consume_tps


# --- what a consumer says of itself ---


class MemberQueueBody(msgspec.Struct, rename="camel", frozen=True):
    """One queue in the answer to 307."""

    commit_offset: int = 0
    cached_count: int = msgspec.field(name="cachedMsgCount", default=0)
    cached_mib: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    locked: bool = False
    dropped: bool = msgspec.field(name="droped", default=False)  # the original's spelling
    pulled_ms: int = msgspec.field(name="lastPullTimestamp", default=0)
    consumed_ms: int = msgspec.field(name="lastConsumeTimestamp", default=0)


class MemberTopicBody(msgspec.Struct, frozen=True):
    """One topic in the answer to 307."""

    pull_ms: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_ms: float = msgspec.field(name="consumeRT", default=0.0)
    ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    failed_count: int = msgspec.field(name="consumeFailedMsgs", default=0)


class RunningInfoBody(msgspec.Struct, rename="camel", frozen=True):
    """The answer to 307; keys of `mq_table` as `fastjson` leaves them: see `by_queue`."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[str, MemberQueueBody] = {}
    status_table: dict[str, MemberTopicBody] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


class DirectResultBody(msgspec.Struct, rename="camel", frozen=True):
    """The answer to 309."""

    consume_result: str = ""
    remark: str | None = None
    order: bool = False
    auto_commit: bool = True
    spent_ms: int = msgspec.field(name="spentTimeMills", default=0)
