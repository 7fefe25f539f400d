"""The newest queue entries stay in memory when they are written: who follows needs no file.

In: runs of entries that a flush has written. Out: queues that hold the newest of them, all queues
together no more than a limit.

Rules:
1. What was written first leaves first, whatever its queue: what stays is what is recent.
2. What is not written yet never leaves.
3. A queue's `base_offset` says what it holds. What lies before is read from its files, in a thread.
"""

from collections import deque

from orbitmq.core import Queue

KEPT_BYTES_MAX = 32 * 1_048_576
"""More than a million and a half entries, less where queues get one at a time."""

RUN_BYTES = 120
"""What remembering a run takes beside its entries."""


class KeptEntries:
    """Entries of all queues that are in files and in memory."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._runs: deque[tuple[Queue, int, int]] = deque()
        """Queue, the queue offset behind a run, bytes; the oldest first."""

    def add(self, queue: Queue, end_offset: int, size: int) -> None:
        """Keep `size` bytes of entries before `end_offset`, which were written just now."""
        self._runs.append((queue, end_offset, size))
        self._bytes += size + RUN_BYTES

    def trim(self) -> None:
        """Let go of the oldest above the limit."""
        while self._bytes > self._bytes_max:
            queue, end_offset, size = self._runs.popleft()
            self._bytes -= size + RUN_BYTES
            queue.drop_before(end_offset)
