"""JSON bodies about consumers: locks, connections, progress, resets.

In: values for `fastjson.write_json`; bodies of requests for `fastjson.read_json`. Out: the other
one. Maps whose keys are MessageQueues are written as the original writes them (`standard=False`);
only Java reads these.
"""

import msgspec

from orbitmq.wire.bodies_client import MessageQueue, SubscriptionData


class _Body(msgspec.Struct, rename="camel", frozen=True):
    """The base of the bodies in this module."""


# --- locks ---


class LockBatch(_Body, frozen=True, kw_only=True):
    """The body of 41 and 42; 5.x brokers also obey `only_this_broker`, which changes nothing here.

    Clients leave it out.
    """

    client_id: str
    consumer_group: str
    queues: list[MessageQueue] = msgspec.field(name="mqSet", default=[])


class LockedQueues(_Body, frozen=True, kw_only=True):
    """The answer to 41: the queues that the client now holds."""

    queues: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default=[])


# --- connections ---


class ClientConnection(_Body, frozen=True, kw_only=True):
    """One client of a group."""

    client_id: str
    client_addr: str
    language: str
    version: int


class ConsumerConnections(_Body, frozen=True, kw_only=True):
    """The answer to 203."""

    connection_set: list[ClientConnection]
    subscription_table: dict[str, SubscriptionData]
    consume_type: str
    message_model: str
    consume_from_where: str


class ProducerConnections(_Body, frozen=True, kw_only=True):
    """The answer to 204."""

    connection_set: list[ClientConnection]


class ProducerClient(_Body, frozen=True, kw_only=True):
    """One producer in the answer to 328; `remote_ip` is an address with a slash before it."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: int
    seen_ms: int = msgspec.field(name="lastUpdateTimestamp")


class ProducerTable(_Body, frozen=True, kw_only=True):
    """The answer to 328: all producers, by group."""

    data: dict[str, list[ProducerClient]]


class GroupList(_Body, frozen=True, kw_only=True):
    """The answer to 300."""

    group_list: list[str]


class GroupSubscription(_Body, frozen=True, kw_only=True):
    """The answer to 345."""

    group: str
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


# --- progress ---


class QueueProgress(_Body, frozen=True, kw_only=True):
    """How far a group is in one queue; `pull_offset` is for tools of 5.x."""

    broker_offset: int
    consumer_offset: int
    consumed_ms: int = msgspec.field(name="lastTimestamp", default=0)
    pull_offset: int | None = None


class ConsumeStats(_Body, frozen=True, kw_only=True):
    """The answer to 208, and a part of the one to 317."""

    offset_table: dict[MessageQueue, QueueProgress]
    consume_tps: float = 0.0


class BrokerConsumeStats(_Body, frozen=True, kw_only=True):
    """The answer to 317: one map per group, with one entry per topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]]
    broker_addr: str
    total_diff: int
    total_inflight_diff: int | None = None


class QueueTimeSpan(_Body, frozen=True, kw_only=True):
    """From when to when a queue has messages, and to which of them a group has come."""

    message_queue: MessageQueue
    min_ms: int = msgspec.field(name="minTimeStamp")
    min_text: str = msgspec.field(name="minTimeStampStr")
    max_ms: int = msgspec.field(name="maxTimeStamp")
    max_text: str = msgspec.field(name="maxTimeStampStr")
    consumed_ms: int = msgspec.field(name="consumeTimeStamp")
    consumed_text: str = msgspec.field(name="consumeTimeStampStr")
    delay_ms: int = msgspec.field(name="delayTime")


class TimeSpans(_Body, frozen=True, kw_only=True):
    """The answer to 303."""

    consume_time_span_set: list[QueueTimeSpan]


class CorrectionOffsets(_Body, frozen=True, kw_only=True):
    """The answer to 308."""

    correction_offsets: dict[int, int]


# --- resets ---


class ResetOffsets(_Body, frozen=True, kw_only=True):
    """The answer to 222, and the body of 220."""

    offset_table: dict[MessageQueue, int]


class ResetQueue(_Body, frozen=True, kw_only=True):
    """One queue of a reset in the form for C++."""

    broker_name: str
    offset: int
    queue_id: int
    topic: str


class ResetOffsetList(_Body, frozen=True, kw_only=True):
    """The body of 220 when a C++ tool asked for the reset: C++ cannot read objects as keys."""

    offset_table: list[ResetQueue]


class ClientOffsets(_Body, frozen=True, kw_only=True):
    """The answer to 221: where a client is. `fastjson` leaves the queues as texts of objects."""

    message_queue_table: dict[str, int] = {}


class ConsumerStatus(_Body, frozen=True, kw_only=True):
    """The answer to 223: where each client is."""

    consumer_table: dict[str, dict[MessageQueue, int]]
    message_queue_table: dict[MessageQueue, int] = {}
