"""Queue entries that only memory holds, until a flush has written them.

In: queues that grew, runs that were written, queues that are gone. Out: the runs to write next.

Rules:
1. Entries of one queue are written in order, each once.
2. A queue that was forgotten is not written any more; what a job wrote of it meanwhile counts for
   nothing.
"""

from collections.abc import Iterable

from orbitmq.core import Queue
from orbitmq.core.state import ENTRY_SIZE
from orbitmq.ensure import ensure
from orbitmq.store.jobs import UnwrittenEntries
from orbitmq.store.kept_entries import KeptEntries


class WriteBehind:
    """What is to be written of all queues of a store."""

    def __init__(self, kept_bytes_max: int) -> None:
        self._unwritten: set[Queue] = set()
        self._kept = KeptEntries(kept_bytes_max)
        self.entry_bytes = 0
        """Of entries that only memory holds."""

    def add(self, grown: set[Queue], count: int) -> None:
        """Take in that queues grew, by `count` entries together."""
        self._unwritten |= grown
        self.entry_bytes += count * ENTRY_SIZE

    def runs(self) -> list[UnwrittenEntries]:
        """Return the entries to write."""
        return [_run(queue) for queue in self._unwritten]

    def written(self, runs: Iterable[UnwrittenEntries]) -> None:
        """Take in that runs are in the files."""
        for queue, queue_offset, entries in runs:
            if queue not in self._unwritten:
                continue
            ensure(queue.flushed_offset == queue_offset, "entries are written behind in order")
            end_offset = queue_offset + len(entries) // ENTRY_SIZE
            queue.note_flushed(end_offset)
            self.entry_bytes -= len(entries)
            self._kept.add(queue, end_offset, len(entries))
            if end_offset == queue.readable_offset:
                self._unwritten.discard(queue)
        self._kept.trim()

    def forget(self, queue: Queue) -> None:
        """Take in that a queue is gone."""
        if queue in self._unwritten:
            self._unwritten.discard(queue)
            self.entry_bytes -= (queue.readable_offset - queue.flushed_offset) * ENTRY_SIZE


def _run(queue: Queue) -> UnwrittenEntries:
    first = queue.flushed_offset
    return UnwrittenEntries(queue, first, queue.read_entries(first, queue.readable_offset - first))
