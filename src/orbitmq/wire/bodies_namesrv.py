"""JSON bodies that travel between brokers, name servers and those who ask for routes.

In: a body's bytes (`fastjson.read_json` with one of these types) or values (`fastjson.write_json`).
Out: the other one. The register body has its own pair of functions, as it has a second form.

Rules:
1. Wire names and their order are the originals'; what only 5.x writes is None until it is set, so
   that a 4.9 body written again stays one.
2. Names with `nums` on the wire are counts here.
3. Decompression is bounded: what does not fit a frame in plain form is refused.
"""

import struct
import zlib
from typing import Any

import msgspec

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.fields import Int32, Int64
from orbitmq.wire.frame import FRAME_SIZE_MAX

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE

UNIT_FLAG = 1
"""In a topic's system flag: it belongs to a unit."""
UNIT_SUBSCRIPTION_FLAG = 2
"""In a topic's system flag: groups of a unit consume it."""

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""The key-value namespace that a register answer carries."""


class _Body(msgspec.Struct, rename="camel", frozen=True):
    """The base of the bodies in this module."""


# --- topics ---


class DataVersion(_Body, frozen=True, kw_only=True):
    """Which state of a table this is; 5.x adds `state_version`."""

    counter: Int64 = 0
    timestamp_ms: Int64 = msgspec.field(name="timestamp", default=0)
    state_version: Int64 | None = None

    def is_same(self, other: "DataVersion | None") -> bool:
        """Whether both name the same state; 4.9's missing state version is 5.x's 0."""
        return other is not None and (
            (self.counter, self.timestamp_ms, self.state_version or 0)
            == (other.counter, other.timestamp_ms, other.state_version or 0)
        )


class TopicConfig(_Body, frozen=True, kw_only=True):
    """One topic as a broker keeps and registers it."""

    topic_name: str
    read_queue_count: Int32 = msgspec.field(name="readQueueNums", default=16)
    write_queue_count: Int32 = msgspec.field(name="writeQueueNums", default=16)
    perm: Int32 = PERM_READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class TopicConfigTable(_Body, frozen=True, kw_only=True):
    """All topics of a broker: part of a register body, and the answer to 21."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = {}
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_info_map: dict[str, Any] | None = None
    topic_queue_mapping_detail_map: dict[str, Any] | None = None


class RegisterBrokerBody(_Body, frozen=True, kw_only=True):
    """The body of 103; `read_register_body` and `write_register_body` know both forms of it."""

    topics: TopicConfigTable = msgspec.field(
        name="topicConfigSerializeWrapper", default_factory=TopicConfigTable
    )
    filter_server_list: list[str] | None = None


# --- routes ---


class QueueData(_Body, frozen=True, kw_only=True):
    """The queues of one topic at one broker."""

    broker_name: str
    read_queue_count: Int32 = msgspec.field(name="readQueueNums")
    write_queue_count: Int32 = msgspec.field(name="writeQueueNums")
    perm: Int32
    topic_sys_flag: Int32 = 0


class BrokerData(_Body, frozen=True, kw_only=True):
    """The members of one broker name: broker id to address; 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}
    enable_acting_master: bool | None = None
    zone_name: str | None = None


class TopicRoute(_Body, frozen=True, kw_only=True):
    """Where a topic's queues are (TopicRouteData); the answer to 105."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    topic_queue_mapping_by_broker: dict[str, Any] | None = None


class ClusterInfo(_Body, frozen=True, kw_only=True):
    """All brokers and which cluster they belong to; the answer to 106."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(_Body, frozen=True, kw_only=True):
    """The members of one broker name, as 5.x brokers ask for them."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}


class BrokerMemberGroupBody(_Body, frozen=True, kw_only=True):
    """The answer to 901."""

    broker_member_group: BrokerMemberGroup


class TopicList(_Body, frozen=True, kw_only=True):
    """The answer to 206, 224, 304, 305 and 311 to 313; 304 adds one broker's address."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class KVTable(_Body, frozen=True, kw_only=True):
    """A table of text: the answer to 219, 28 and, for ordered topics, 103."""

    table: dict[str, str] = {}


# --- subscription groups ---


class SubscriptionGroupConfig(_Body, frozen=True, kw_only=True):
    """One consumer group as a broker keeps it; what 5.x adds is None until it is set."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_count: Int32 = msgspec.field(name="retryQueueNums", default=1)
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None
    consume_timeout_minute: Int32 | None = None
    group_sys_flag: Int32 | None = None
    group_retry_policy: dict[str, Any] | None = None
    subscription_data_set: list[dict[str, Any]] | None = None
    attributes: dict[str, str] | None = None


class SubscriptionGroupTable(_Body, frozen=True, kw_only=True):
    """All consumer groups of a broker; the answer to 201."""

    data_version: DataVersion = DataVersion()
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, Int32]] | None = None


# --- the register body and its compressed form ---

_SIZE = struct.Struct(">i")


def body_crc32(body: bytes) -> int:
    """Return what `RegisterBroker.body_crc32` must be for this body, as sent."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def read_register_body(body: bytes, *, compressed: bool) -> RegisterBrokerBody:
    """Read the body of 103; an empty one is a register without topics."""
    if not body:
        return RegisterBrokerBody()
    if not compressed:
        return read_json(body, RegisterBrokerBody)
    try:
        return _read_parts(_inflate(body))
    except struct.error:
        raise _refusal("it ends inside a length") from None


def write_register_body(body: RegisterBrokerBody, *, compressed: bool) -> bytes:
    """Return the body of 103. The compressed form carries neither `order` nor `topic_sys_flag`."""
    if not compressed:
        return write_json(body, standard=False)
    topics = body.topics
    parts = [_sized(write_json(topics.data_version, standard=False))]
    parts.append(_SIZE.pack(len(topics.topic_config_table)))
    parts.extend(_sized(_topic_text(topic)) for topic in topics.topic_config_table.values())
    parts.append(_sized(write_json(body.filter_server_list, standard=False)))
    mappings = topics.topic_queue_mapping_info_map
    if mappings is not None:
        parts.append(_SIZE.pack(len(mappings)))
        parts.extend(_sized(write_json(mapping, standard=False)) for mapping in mappings.values())
    return zlib.compress(b"".join(parts), 9)


def _refusal(detail: str) -> RemoteProtocolError:
    return RemoteProtocolError("body-register", detail)


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, FRAME_SIZE_MAX)
    except zlib.error as error:
        raise _refusal(f"not a zlib stream: {error}") from None
    if not inflater.eof:
        raise _refusal(f"cut off, or more than {FRAME_SIZE_MAX} bytes when decompressed")
    return data


def _read_parts(data: bytes) -> RegisterBrokerBody:
    version, position = _part_at(data, 0)
    data_version = read_json(version, DataVersion)
    topics: dict[str, TopicConfig] = {}
    count, position = _count_at(data, position)
    for _ in range(count):
        text, position = _part_at(data, position)
        topic = _read_topic(text)
        topics[topic.topic_name] = topic
    filter_servers, position = _part_at(data, position)
    table = TopicConfigTable(
        data_version=data_version,
        topic_config_table=topics,
        topic_queue_mapping_info_map=_read_mappings(data, position),
    )
    return RegisterBrokerBody(topics=table, filter_server_list=_read_texts(filter_servers))


def _read_mappings(data: bytes, position: int) -> dict[str, Any] | None:
    """Read the mappings of static topics, which 5.x writes at the end, keyed by topic."""
    if position == len(data):
        return None
    mappings: dict[str, Any] = {}
    count, position = _count_at(data, position)
    for _ in range(count):
        text, position = _part_at(data, position)
        mapping = read_json(text, dict[str, Any])
        mappings[str(mapping.get("topic"))] = mapping
    return mappings


def _read_texts(data: bytes) -> list[str] | None:
    return read_json(data, list[str]) if data not in (b"", b"null") else None


def _count_at(data: bytes, position: int) -> tuple[int, int]:
    (count,) = _SIZE.unpack_from(data, position)
    if count < 0:
        raise _refusal(f"a count of {count} at {position}")
    return count, position + _SIZE.size


def _part_at(data: bytes, position: int) -> tuple[bytes, int]:
    (size,) = _SIZE.unpack_from(data, position)
    start = position + _SIZE.size
    if size < 0 or start + size > len(data):
        raise _refusal(f"a part of {size} bytes at {position} of {len(data)}")
    return data[start : start + size], start + size


def _read_topic(text: bytes) -> TopicConfig:
    """Read `name readQueues writeQueues perm filterType [attributes]`."""
    try:
        words = text.decode().split(" ", 5)
    except UnicodeDecodeError:
        raise _refusal("a topic's text is not UTF-8") from None
    if len(words) < 5:
        raise _refusal(f"a topic of {len(words)} words, at least 5 expected")
    names = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    try:
        topic = msgspec.convert(dict(zip(names, words, strict=False)), TopicConfig, strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(f"topic {words[0][:80]}: {error}") from None
    if len(words) == 5:
        return topic
    attributes = read_json(words[5].encode(), dict[str, str])
    return msgspec.structs.replace(topic, attributes=attributes)


def _topic_text(topic: TopicConfig) -> bytes:
    words = (
        topic.topic_name,
        str(topic.read_queue_count),
        str(topic.write_queue_count),
        str(topic.perm),
        topic.topic_filter_type,
    )
    text = " ".join(words).encode()
    if topic.attributes is None:
        return text
    return text + b" " + write_json(topic.attributes, standard=True)


def _sized(part: bytes) -> bytes:
    return _SIZE.pack(len(part)) + part
