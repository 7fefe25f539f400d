"""JSON bodies that travel between clients and brokers.

In: a body's bytes (`fastjson.read_json` with one of these types; `read_heartbeat` for a heartbeat)
or values (`fastjson.write_json`). Out: the other one.

Rules:
1. A heartbeat is read as every known client writes it: enums by name or by ordinal, versions as
   number or text, sets absent or null, `expressionType` absent.
2. `code_set` and `tags_set` are what the client says. Do not filter by them: C++ 1.x sends none or
   wrong ones; `sub_string` is the truth.
"""

from enum import Enum
from typing import TypeVar

import msgspec

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.fastjson import read_request
from orbitmq.wire.fields import Int32, Int64

TAG = "TAG"
SQL92 = "SQL92"


class _Body(msgspec.Struct, rename="camel", frozen=True):
    """The base of the bodies in this module."""


class MessageQueue(_Body, frozen=True, order=True):
    """One queue of a topic at a broker; ordered as every client sorts them."""

    topic: str
    broker_name: str
    queue_id: Int32


def read_queue_key(key: str) -> MessageQueue:
    """Return the queue that was the key of a map; `fastjson` leaves it as the text of an object."""
    return read_request(key.encode(), MessageQueue)


class ConsumerList(_Body, frozen=True, kw_only=True):
    """The answer to 38: the client ids of a group."""

    consumer_id_list: list[str] = []


# --- heartbeat ---


class ConsumeType(Enum):
    """Who moves the messages; in the order of the original's ordinals."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(Enum):
    """Whether each member gets every message; in the order of the original's ordinals."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(Enum):
    """Where a group without offsets begins; in the order of the original's ordinals."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(_Body, frozen=True, kw_only=True):
    """One topic a group subscribes to, and by which expression."""

    topic: str
    sub_string: str = "*"
    sub_version: Int64 = 0
    expression_type: str = TAG
    tags_set: list[str] = []
    code_set: list[Int64] = []
    class_filter_mode: bool = False


class ConsumerData(_Body, frozen=True, kw_only=True):
    """One consumer group of a client."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(_Body, frozen=True, kw_only=True):
    """One producer group of a client."""

    group_name: str


class Heartbeat(_Body, frozen=True, kw_only=True):
    """The body of 34. 5.x adds a fingerprint, and leaves the subscriptions out while it holds."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] = []
    producer_data_set: list[ProducerData] = []
    heartbeat_fingerprint: Int32 | None = None
    without_sub: bool | None = None


class _ConsumerIn(_Body, frozen=True, kw_only=True):
    group_name: str
    consume_type: str | Int32 = ConsumeType.CONSUME_PASSIVELY.name
    message_model: str | Int32 = MessageModel.CLUSTERING.name
    consume_from_where: str | Int32 = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET.name
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class _HeartbeatIn(_Body, frozen=True, kw_only=True):
    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[_ConsumerIn] = []
    producer_data_set: list[ProducerData] = []
    heartbeat_fingerprint: Int32 | None = None
    without_sub: bool | None = None
    is_without_sub: bool | None = None


def read_heartbeat(body: bytes) -> Heartbeat:
    """Read the body of 34; raises RemoteProtocolError when it is not one."""
    data = read_request(body, _HeartbeatIn)
    without_sub = data.is_without_sub if data.without_sub is None else data.without_sub
    return Heartbeat(
        client_id=data.client_id,
        consumer_data_set=[_consumer(consumer) for consumer in data.consumer_data_set],
        producer_data_set=data.producer_data_set,
        heartbeat_fingerprint=data.heartbeat_fingerprint,
        without_sub=without_sub,
    )


def _consumer(data: _ConsumerIn) -> ConsumerData:
    return ConsumerData(
        group_name=data.group_name,
        consume_type=_member(ConsumeType, data.consume_type),
        message_model=_member(MessageModel, data.message_model),
        consume_from_where=_member(ConsumeFromWhere, data.consume_from_where),
        subscription_data_set=data.subscription_data_set,
        unit_mode=data.unit_mode,
    )


_E = TypeVar("_E", bound=Enum)


def _member(kind: type[_E], given: str | int) -> _E:
    """Find an enum's member by its name or by its ordinal."""
    if isinstance(given, int):
        if 0 <= given < len(kind):
            return list(kind)[given]
    elif given in kind.__members__:
        return kind[given]
    raise RemoteProtocolError("body-json", f"{kind.__name__} {str(given)[:80]} is not known")
