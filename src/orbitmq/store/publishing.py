"""What may be seen: records become readable in log order, when all required marks have passed them.

In: for each write, where it ended and what it brought. Out: queues that grew, as `visible` rises.

Rules:
1. What may be seen is the least of the required marks: written always, durable with synchronous
   flush. Whoever requires another one adds it to `required`, and nothing else.
2. This is the only place that moves `visible` and the queues' `readable_offset`.
"""

from collections import deque
from typing import NamedTuple

from orbitmq.core import LogTail, Queue
from orbitmq.watermark import Watermark


class Written(NamedTuple):
    """What one write of the log brought."""

    end_offset: int
    grown: list[tuple[Queue, int]]
    """Each queue with its next offset behind this write."""
    rows: bytes
    """What the key index gets: see `core.plain_rows`."""
    message_count: int
    copy_count: int = 0
    """Entries in light queues: their messages count in their own."""
    left_out: int = 0
    """Keys that are not filed: their messages have too many."""


class Publisher:
    """Keeps what is written but may not be seen yet."""

    def __init__(self, tail: LogTail, queues: dict[tuple[str, int], Queue]) -> None:
        self._tail = tail
        self._waiting: deque[Written] = deque()
        self.required: list[Watermark] = [tail.written]
        self.queue_count = sum(queue.readable_offset > 0 for queue in queues.values())
        """Queues that hold, or once held, a message."""
        self.entry_total = sum(queue.readable_offset for queue in queues.values())
        """The sum of the queues' readable offsets."""
        self.message_count = 0
        """Messages published since the store was opened."""

    def written_offset(self, queue: Queue) -> int:
        """Return the queue's next offset behind everything that is written."""
        waiting = (pair[1] for one in self._waiting for pair in one.grown if pair[0] is queue)
        return max(waiting, default=queue.readable_offset)

    def forget(self, queue: Queue) -> None:
        """Let a queue that is gone count no more, nor grow by what waits."""
        self.queue_count -= queue.readable_offset > 0
        self.entry_total -= queue.readable_offset
        for one in self._waiting:
            one.grown[:] = [pair for pair in one.grown if pair[0] is not queue]

    def add(self, written: Written) -> None:
        """Keep what a write brought."""
        self._waiting.append(written)

    def publish(self) -> tuple[set[Queue], list[Written]]:
        """Let be seen what may be; return the queues that grew, and what was published."""
        grown: set[Queue] = set()
        published: list[Written] = []
        waiting, visible = self._waiting, self._tail.visible
        if not waiting:
            return grown, published
        end_offset = waiting[-1].end_offset
        for mark in self.required:
            if mark.number < end_offset:
                end_offset = mark.number
        while waiting and waiting[0].end_offset <= end_offset:
            written = waiting.popleft()
            published.append(written)
            visible.advance(written.end_offset)
            entry_count = 0
            for queue, next_offset in written.grown:
                self.queue_count += not queue.readable_offset
                entry_count += queue.publish(next_offset)
                grown.add(queue)
            self.entry_total += entry_count
            self.message_count += entry_count - written.copy_count
        return grown, published
