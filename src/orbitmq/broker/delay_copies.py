"""Delivering a delayed message the short way: a copy whose properties are what the record holds.

In: a record in memory that is due. Out: its copy, staged in the queue it belongs to; or nothing,
and then `delay_reading.delivered_message` and `puts.put` do it, slowly and for every case.

Rules:
1. Both ways stage the same bytes. The short one is taken only where the long one would change
   nothing of the properties, into a queue that is there, while the store takes messages.
2. What properties say is read once: messages of one kind differ in their id alone. So many kinds
   are remembered, and only short ones; others are read anew each time.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.broker.puts import NewMessage, admitted, again, origin_of
from orbitmq.broker.queue_follower import FollowedRecord
from orbitmq.core import Way, append
from orbitmq.store.store import largest_body
from orbitmq.wire import properties as names
from orbitmq.wire.names import (
    HALF_TOPIC,
    RETRY_TOPIC_LENGTH_MAX,
    SCHEDULE_TOPIC,
    TOPIC_LENGTH_MAX,
    topic_fault,
)
from orbitmq.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

if TYPE_CHECKING:
    from orbitmq.broker.context import Context

KINDS_MAX = 4_096
KIND_SIZE_MAX = 1_024
_ID = f"{names.UNIQ_KEY}{names.NAME_END}".encode()
_ENTRY_END = 0x02
_QUEUE_ID_MAX = 2**31 - 1
_KEPT_BITS = ~(BORN_HOST_V6 | STORE_HOST_V6)


class Place(NamedTuple):
    """Where a message belongs, and the code of its tag."""

    topic: str
    queue_id: int
    tags_code: int


def stage_copy(context: "Context", record: FollowedRecord) -> int | None:
    """Stage the copy of a record and give its log offset; None when it takes the long way."""
    core = context.core
    place = place_of(record.properties, core.cluster_property)
    if place is None:
        return None
    tail, topic = core.tail, core.topics.get(place.topic)
    queue = None if topic is None else topic.queues.get(place.queue_id)
    if queue is None or tail.refusal or len(record.body) > largest_body(tail.file_size):
        return None
    tail.advance_clock(context.clock.wall_ms())
    stamp = (
        record.flag,
        record.sys_flag & _KEPT_BITS,
        record.born_ms,
        record.reconsume_times,
        0,
        place.tags_code,
    )
    origin = origin_of(record.born_host, context.packed_store_host)
    log_offset = append(tail, queue, origin, stamp, record.body, record.properties)
    context.writer.request_write()
    return log_offset


def place_of(properties: bytes, cluster_property: bytes) -> Place | None:
    """Where properties say that the message belongs; None unless they can stay as they are."""
    start = properties.find(_ID)
    end = properties.find(_ENTRY_END, start)
    if start < 0 or end < 0 or (start and properties[start - 1] != _ENTRY_END):
        return None
    if len(properties) - end + start > KIND_SIZE_MAX or not properties[start:end].isascii():
        return None
    return _place_of_kind(properties[:start], properties[end:], cluster_property)


@lru_cache(maxsize=KINDS_MAX)
def _place_of_kind(head: bytes, rest: bytes, cluster_property: bytes) -> Place | None:
    """Return the place by what lies before and behind the id, which changes nothing."""
    text = head + _ID + rest
    copy = admitted(text, Way.AGAIN)
    if copy.own + cluster_property != text:
        return None
    place = delivered_place(copy.values)
    if place is None or place[0] == SCHEDULE_TOPIC or len(place[0]) > TOPIC_LENGTH_MAX:
        return None
    return Place(*place, copy.tags_code)


def delivered_place(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return topic and queue that a message belongs to by its properties; None when they name none.

    Half messages are not delivered, as in the original: only the end of a transaction does that.
    """
    topic = properties.get(names.REAL_TOPIC, "")
    queue_id = properties.get(names.REAL_QID, "")
    is_number = queue_id.isascii() and queue_id.isdigit() and len(queue_id) <= 10
    if not is_number or int(queue_id) > _QUEUE_ID_MAX or topic == HALF_TOPIC:
        return None
    if topic_fault(topic, RETRY_TOPIC_LENGTH_MAX) is not None:
        return None
    return topic, int(queue_id)


def delivered_message(record: FollowedRecord) -> NewMessage | None:
    """Return the message that is delivered for a record that waits; None when it names no place."""
    copy = admitted(record.properties, Way.AGAIN)
    place = delivered_place(copy.values)
    return None if place is None else again(record, *place, copy)
