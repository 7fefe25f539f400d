"""Typed headers of the requests about consumers: who is online, how far they are, move them.

In and out: see `fields`; named as in `headers_client`. Tools send these to a broker; 220, 221, 307
and 309 go on from the broker to a client.
"""

import msgspec

from orbitmq.wire.fields import Header, Int32, Int64

ALL_QUEUES = -1
NO_OFFSET = -1
TO_THE_END = -1
"""The time that stands for "behind the last message"."""

# --- who is there ---


class GetConsumerConnections(Header, frozen=True, kw_only=True):
    """203 GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class GetProducerConnections(Header, frozen=True, kw_only=True):
    """204 GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class QueryGroupsOfTopic(Header, frozen=True, kw_only=True):
    """300 QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class QueryTopicsOfGroup(Header, frozen=True, kw_only=True):
    """343 QUERY_TOPICS_BY_CONSUMER, of 5.x."""

    consumer_group: str = msgspec.field(name="group")


class QuerySubscription(Header, frozen=True, kw_only=True):
    """345 QUERY_SUBSCRIPTION_BY_CONSUMER, of 5.x."""

    consumer_group: str = msgspec.field(name="group")
    topic: str | None = None


# --- how far they are ---


class GetConsumeStats(Header, frozen=True, kw_only=True):
    """208 GET_CONSUME_STATS; without a topic all topics with offsets, 5.x may name several."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetBrokerConsumeStats(Header, frozen=True, kw_only=True):
    """317 GET_BROKER_CONSUME_STATS."""

    is_order: bool


class QueryConsumeTimeSpan(Header, frozen=True, kw_only=True):
    """303 QUERY_CONSUME_TIME_SPAN."""

    topic: str
    consumer_group: str = msgspec.field(name="group")


class QueryCorrectionOffset(Header, frozen=True, kw_only=True):
    """308 QUERY_CORRECTION_OFFSET; `filter_groups` are group names with commas between them."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


class CloneGroupOffset(Header, frozen=True, kw_only=True):
    """314 CLONE_GROUP_OFFSET; without a topic all of the source's."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


# --- moving and asking them ---


class ResetOffset(Header, frozen=True, kw_only=True):
    """222 INVOKE_BROKER_TO_RESET_OFFSET; queue and offset come from 5.x only."""

    topic: str
    consumer_group: str = msgspec.field(name="group")
    timestamp_ms: Int64 = msgspec.field(name="timestamp")
    is_force: bool
    queue_id: Int32 = ALL_QUEUES
    queue_offset: Int64 = msgspec.field(name="offset", default=NO_OFFSET)


class ResetClientOffset(Header, frozen=True, kw_only=True):
    """220 RESET_CONSUMER_CLIENT_OFFSET, one-way from broker to client."""

    topic: str
    consumer_group: str = msgspec.field(name="group")
    timestamp_ms: Int64 = msgspec.field(name="timestamp")
    is_force: bool


class GetConsumerStatus(Header, frozen=True, kw_only=True):
    """223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS; `client_id` limits it to one client.

    Without `client_id` it is 221 GET_CONSUMER_STATUS_FROM_CLIENT, from broker to client.
    """

    topic: str
    consumer_group: str = msgspec.field(name="group")
    client_id: str | None = msgspec.field(name="clientAddr", default=None)


class GetConsumerRunningInfo(Header, frozen=True, kw_only=True):
    """307 GET_CONSUMER_RUNNING_INFO, to a broker and from there to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectly(Header, frozen=True, kw_only=True):
    """309 CONSUME_MESSAGE_DIRECTLY, to a broker and from there, with the record, to the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str
    broker_name: str | None = None
    topic: str | None = None
