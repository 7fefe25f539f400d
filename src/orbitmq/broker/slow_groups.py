"""Groups that are too far behind are stopped, where disableConsumeIfConsumerReadSlowly says so.

In: the committed offsets of groups that have members. Out: groups that may not consume any more, in
the table of groups, and a line in the log for each.

Rules:
1. As in the original it is off unless set, and looks every three minutes. A stopped group stays so
   until somebody lets it consume again (mqadmin updateSubGroup -s true).
2. How far a group is behind is the part of the log from its oldest unread message to the end; the
   queue entries that say so may be in files, and are read in a thread, group by group.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec

from orbitmq.broker.context import Context
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.store.reading import QueueView, snapshot

log = logging.getLogger(__name__)

SLOW_LOOK_S = 180.0

InThread = Callable[[Callable[[], None]], Awaitable[None]]


class SlowGroups:
    """Looks after groups that read slowly."""

    def __init__(self, context: Context, in_thread: InThread) -> None:
        self._context = context
        self._in_thread = in_thread

    async def look(self) -> None:
        """Stop the groups that are too far behind, if that is wanted."""
        context = self._context
        if not context.settings.disable_consume_if_consumer_read_slowly:
            return
        for group in list(context.clients.consumer_groups()):
            behind_bytes = await self._behind_bytes(group)
            if behind_bytes > context.settings.consumer_fallbehind_threshold:
                self._stop(group, behind_bytes)

    async def _behind_bytes(self, group: str) -> int:
        waiting = self._waiting(group)
        end_offset = self._context.core.tail.visible_offset
        reader = self._context.store.reader
        oldest = [end_offset]

        def read() -> None:
            for view, queue_offset in waiting:
                entry = reader.entries(view, max(queue_offset, view.min_offset), 1)
                if len(entry) == ENTRY_SIZE:
                    oldest.append(ENTRY.unpack(entry)[0])

        if waiting:
            await self._in_thread(read)
        return end_offset - min(oldest)

    def _waiting(self, group: str) -> list[tuple[QueueView, int]]:
        """Return the queues in which the group has unread messages, and where they begin."""
        context = self._context
        found = []
        for topic_name in context.offsets.topics_of(group):
            topic = context.core.topics.get(topic_name)
            for queue_id, queue_offset in context.offsets.find_all(group, topic_name).items():
                queue = topic.queues.get(queue_id) if topic is not None else None
                if queue is not None and queue_offset < queue.readable_offset:
                    found.append((snapshot(queue, queue_offset, 1), queue_offset))
        return found

    def _stop(self, group: str, behind_bytes: int) -> None:
        config = self._context.groups.get(group)
        if config is None or not config.consume_enable:
            return
        self._context.groups.put(msgspec.structs.replace(config, consume_enable=False))
        log.warning(
            "group %s is %d MiB behind, limit %d (consumerFallbehindThreshold); it may not consume "
            "until mqadmin updateSubGroup -s true",
            group,
            behind_bytes >> 20,
            self._context.settings.consumer_fallbehind_threshold >> 20,
        )
