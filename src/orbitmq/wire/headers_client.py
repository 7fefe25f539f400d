"""Typed headers of the requests between clients and a broker, and of their answers.

In and out: see `fields`. A request's class is named after what it asks for, an answer's class after
its request with `Answer` behind it; answers without fields have no class. Wire names appear nowhere
else: a position in the commit log is a `log_offset`, one in a queue a `queue_offset`, whatever the
wire calls it.

The send requests exist in two spellings, long names (10, 324) and letters (310, 320, 325);
`read_send` and `write_send` know both, everybody else sees SendMessage.
"""

import msgspec

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.fields import Header, Int32, Int64, read_header, write_header

# --- send ---


class SendMessage(Header, frozen=True, kw_only=True):
    """10 SEND_MESSAGE; with other names 310 SEND_MESSAGE_V2 and 320 SEND_BATCH_MESSAGE.

    `queue_id` -1 lets the broker choose. `broker_name` is what newer clients add.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_count: Int32 = msgspec.field(name="defaultTopicQueueNums")
    queue_id: Int32
    sys_flag: Int32
    born_ms: Int64 = msgspec.field(name="bornTimestamp")
    flag: Int32
    properties: str = ""
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = msgspec.field(name="bname", default=None)


_LONG_NAMES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
_LETTERS = dict(zip("abcdefghijklmn", SendMessage.__struct_encode_fields__, strict=True))
_LETTER_OF = {name: letter for letter, name in _LETTERS.items()}


def read_send(code: int, fields: dict[str, str]) -> SendMessage:
    """Return the header of a send; raises RemoteProtocolError that names the wrong field."""
    if code in _LONG_NAMES:
        return read_header(SendMessage, fields)
    long_names = {name: fields[letter] for letter, name in _LETTERS.items() if letter in fields}
    return read_header(SendMessage, long_names)


def write_send(code: int, header: SendMessage) -> dict[str, str]:
    """Return the fields of a send in the spelling of its code."""
    fields = write_header(header)
    if code in _LONG_NAMES:
        return fields
    return {_LETTER_OF[name]: value for name, value in fields.items()}


class SendMessageAnswer(Header, frozen=True, kw_only=True):
    """The answer to 10, 310 and 320; a batch has its message ids joined by commas."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    region_id: str | None = msgspec.field(name="MSG_REGION", default=None)
    trace_on: bool | None = msgspec.field(name="TRACE_ON", default=None)
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


# --- pull ---


class PullMessage(Header, frozen=True, kw_only=True):
    """11 PULL_MESSAGE and 361 LITE_PULL_MESSAGE; see the PULL_ bits for `sys_flag`."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_ms: Int64 = msgspec.field(name="suspendTimeoutMillis")
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    # The original's spelling.
    proxy_forward_client_id: str | None = msgspec.field(name="proxyFrowardClientId", default=None)
    # Ours; an original passes over it.
    is_bulk: bool | None = msgspec.field(name="bulk", default=None)


PULL_COMMITS = 1
"""`commit_offset` is valid and is to be stored."""
PULL_SUSPENDS = 2
"""The broker may hold the request until there is something."""
PULL_HAS_SUBSCRIPTION = 4
"""The request's own expression counts, not the heartbeat's."""
PULL_CLASS_FILTER = 8
PULL_LITE = 16


class PullMessageAnswer(Header, frozen=True, kw_only=True):
    """The answer to 11 and 361; the body holds records."""

    suggested_broker_id: Int64 = msgspec.field(name="suggestWhichBrokerId")
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


# --- offsets ---


class QueryConsumerOffset(Header, frozen=True, kw_only=True):
    """14 QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetAnswer(Header, frozen=True, kw_only=True):
    """The answer to 14."""

    queue_offset: Int64 = msgspec.field(name="offset")


class UpdateConsumerOffset(Header, frozen=True, kw_only=True):
    """15 UPDATE_CONSUMER_OFFSET; Go and Node send -1 for queues without progress."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffset(Header, frozen=True, kw_only=True):
    """29 SEARCH_OFFSET_BY_TIMESTAMP; `boundary_type` (LOWER, UPPER) comes from 5.x clients."""

    topic: str
    queue_id: Int32
    timestamp_ms: Int64 = msgspec.field(name="timestamp")
    boundary_type: str | None = None


class SearchOffsetAnswer(Header, frozen=True, kw_only=True):
    """The answer to 29."""

    queue_offset: Int64 = msgspec.field(name="offset")


class GetMaxOffset(Header, frozen=True, kw_only=True):
    """30 GET_MAX_OFFSET."""

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMaxOffsetAnswer(Header, frozen=True, kw_only=True):
    """The answer to 30: the offset that the next message will get."""

    queue_offset: Int64 = msgspec.field(name="offset")


class GetMinOffset(Header, frozen=True, kw_only=True):
    """31 GET_MIN_OFFSET."""

    topic: str
    queue_id: Int32


class GetMinOffsetAnswer(Header, frozen=True, kw_only=True):
    """The answer to 31."""

    queue_offset: Int64 = msgspec.field(name="offset")


class GetEarliestStoreTime(Header, frozen=True, kw_only=True):
    """32 GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32


class GetEarliestStoreTimeAnswer(Header, frozen=True, kw_only=True):
    """The answer to 32; -1 for an empty queue."""

    timestamp_ms: Int64 = msgspec.field(name="timestamp")


# --- looking for messages ---


class QueryMessage(Header, frozen=True, kw_only=True):
    """12 QUERY_MESSAGE; the answer's body holds records back to back."""

    topic: str
    key: str
    count_max: Int32 = msgspec.field(name="maxNum")
    begin_ms: Int64 = msgspec.field(name="beginTimestamp")
    end_ms: Int64 = msgspec.field(name="endTimestamp")


class QueryMessageAnswer(Header, frozen=True, kw_only=True):
    """The answer to 12: how far the index has come."""

    index_end_ms: Int64 = msgspec.field(name="indexLastUpdateTimestamp")
    index_end_offset: Int64 = msgspec.field(name="indexLastUpdatePhyoffset")


class ViewMessage(Header, frozen=True, kw_only=True):
    """33 VIEW_MESSAGE_BY_ID; the answer's body is one record."""

    log_offset: Int64 = msgspec.field(name="offset")


# --- clients and groups ---


class HeartbeatAnswer(Header, frozen=True, kw_only=True):
    """The answer to 34 for clients of 5.x, whose names are not in camel case."""

    is_support_v2: bool = msgspec.field(name="IS_SUPPORT_HEART_BEAT_V2")
    is_sub_change: bool = msgspec.field(name="IS_SUB_CHANGE")


class UnregisterClient(Header, frozen=True, kw_only=True):
    """35 UNREGISTER_CLIENT; C++ sends the group that is not meant as an empty text."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class SendMessageBack(Header, frozen=True, kw_only=True):
    """36 CONSUMER_SEND_MSG_BACK."""

    log_offset: Int64 = msgspec.field(name="offset")
    consumer_group: str = msgspec.field(name="group")
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    reason: str | None = msgspec.field(name="dlqReason", default=None)
    """Why the consumer does not want it. Only OrbitMQ has this field; originals pass over it."""


class GetConsumerList(Header, frozen=True, kw_only=True):
    """38 GET_CONSUMER_LIST_BY_GROUP; the answer's body is a ConsumerList."""

    consumer_group: str


class NotifyConsumerIdsChanged(Header, frozen=True, kw_only=True):
    """40 NOTIFY_CONSUMER_IDS_CHANGED, one-way from broker to client."""

    consumer_group: str
