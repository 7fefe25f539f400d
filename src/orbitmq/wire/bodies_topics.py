"""JSON bodies of the requests by which topics and groups are managed at a broker.

In: a body's bytes (`fastjson.read_json`) or values (`fastjson.write_json`). Out: the other one.
Rule: wire names and their order are the originals'; what is None is left out.
"""

import msgspec

from orbitmq.wire.bodies_client import MessageQueue, SubscriptionData
from orbitmq.wire.bodies_namesrv import SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.fields import Int32, Int64


class _Body(msgspec.Struct, rename="camel", frozen=True):
    """The base of the bodies in this module."""


class TopicConfigList(_Body, frozen=True, kw_only=True):
    """The body of 18."""

    topic_config_list: list[TopicConfig] = []


class GroupConfigList(_Body, frozen=True, kw_only=True):
    """The body of 225."""

    group_config_list: list[SubscriptionGroupConfig] = []


class TopicOffset(_Body, frozen=True, kw_only=True):
    """Where a queue begins and ends, and when its last message was stored; 0 without one."""

    last_update_ms: Int64 = msgspec.field(name="lastUpdateTimestamp", default=0)
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class TopicStats(_Body, frozen=True, kw_only=True):
    """The answer to 202: each write queue of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class QueueEntry(_Body, frozen=True, kw_only=True):
    """One entry of a queue; `eval` says whether it passes the group's filter."""

    log_offset: Int64 = msgspec.field(name="physicOffset")
    size: Int32 = msgspec.field(name="physicSize")
    tags_code: Int64
    is_passed: bool = msgspec.field(name="eval", default=False)


class QueueEntries(_Body, frozen=True, kw_only=True):
    """The answer to 321."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[QueueEntry] = []
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


class GroupForbiddenBody(_Body, frozen=True, kw_only=True):
    """The answer to 353."""

    group: str
    topic: str
    readable: bool
