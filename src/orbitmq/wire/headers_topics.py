"""Typed headers of the requests by which topics and groups are managed at a broker.

In: the text fields of a Command. Out: a typed header (see `fields`), or the other way round.
Rule: classes are named after what a request asks for, as in `headers_client`.
"""

import msgspec

from orbitmq.wire.fields import Header, Int32, Int64


class CreateTopic(Header, frozen=True, kw_only=True):
    """17 UPDATE_AND_CREATE_TOPIC. `attributes` is 5.x's: `+key=value,-key`.

    What the original requires by its word only, and then does without, has a default here.
    """

    topic: str
    default_topic: str | None = None
    read_queue_count: Int32 = msgspec.field(name="readQueueNums")
    write_queue_count: Int32 = msgspec.field(name="writeQueueNums")
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None


class DeleteTopic(Header, frozen=True, kw_only=True):
    """215 DELETE_TOPIC_IN_BROKER."""

    topic: str


class GetTopicConfig(Header, frozen=True, kw_only=True):
    """351 GET_TOPIC_CONFIG."""

    topic: str


class GetTopicStats(Header, frozen=True, kw_only=True):
    """202 GET_TOPIC_STATS_INFO."""

    topic: str


class QueryConsumeQueue(Header, frozen=True, kw_only=True):
    """321 QUERY_CONSUME_QUEUE: entries of one queue, and how a group's filter judges them."""

    topic: str
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class DeleteGroup(Header, frozen=True, kw_only=True):
    """207 DELETE_SUBSCRIPTIONGROUP; 4.x says `removeOffset`, 5.x `cleanOffset`."""

    group_name: str
    remove_offset: bool = False
    clean_offset: bool = False


class GetGroupConfig(Header, frozen=True, kw_only=True):
    """352 GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class GroupForbidden(Header, frozen=True, kw_only=True):
    """353 UPDATE_AND_GET_GROUP_FORBIDDEN; without `readable` it only asks."""

    group: str
    topic: str
    readable: bool | None = None
