"""The event that says that a consumer asked for an offset its queue does not have.

In: who asked for what, and where it was sent instead. Out: a message in OFFSET_MOVED_EVENT, which
people and tools read like any other; its tag and key are the group.

Rules:
1. The event is told, never enforced: a store that takes nothing does not stop the pull's answer.
2. A client that asks again and again tells nothing new: the same event is stored once in REPEAT_S.
   The originals store one for every such pull.
"""

from typing import TYPE_CHECKING

import msgspec

from orbitmq.broker.puts import NewMessage, put
from orbitmq.core import tag_code_in
from orbitmq.errors import LocalProtocolError, RequestFailed
from orbitmq.wire import properties as names
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.host import pack_host
from orbitmq.wire.names import OFFSET_MOVED_TOPIC
from orbitmq.wire.properties import format_properties

if TYPE_CHECKING:
    from orbitmq.broker.context import Context

REPEAT_S = 1.0
REPORTED_MAX = 4_096


class OffsetMovedEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of the event."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: int
    offset_new: int


class ReportedEvents:
    """Which events were told a moment ago."""

    def __init__(self) -> None:
        self._reported_s: dict[OffsetMovedEvent, float] = {}

    def is_new(self, event: OffsetMovedEvent, now_s: float) -> bool:
        """Whether it was not told just now; from here on it was."""
        reported_s = self._reported_s.get(event)
        if reported_s is not None and now_s - reported_s < REPEAT_S:
            return False
        if len(self._reported_s) >= REPORTED_MAX:
            self._reported_s.clear()
        self._reported_s[event] = now_s
        return True


def note_offset_moved(
    context: "Context", group: str, queue: MessageQueue, offset_request: int, offset_new: int
) -> None:
    """Store the event; without effect when the store takes nothing or it was told just now."""
    event = OffsetMovedEvent(
        consumer_group=group,
        message_queue=queue,
        offset_request=offset_request,
        offset_new=offset_new,
    )
    if not context.reported_events.is_new(event, context.clock.monotonic_s()):
        return
    try:
        put(context, _message(context, event))
    except (RequestFailed, LocalProtocolError):
        return  # rule 1; the store tells everybody why it takes nothing


def _message(context: "Context", event: OffsetMovedEvent) -> NewMessage:
    group = event.consumer_group
    entries = {names.KEYS: group, names.DELAY: "0", names.TAGS: group}
    own = format_properties(entries, is_closed=True).encode()
    return NewMessage(
        topic=OFFSET_MOVED_TOPIC,
        queue_id=0,
        body=write_json(event, standard=True),
        own=own,
        born_ms=context.clock.wall_ms(),
        born_host=pack_host(context.store_host),
        tags_code=tag_code_in(own),
    )
