"""Appending a batch: many records of one queue, staged back to back.

In: a queue, where the messages come from, what they share, and the messages by columns. Out: their
log offsets.

Rules:
1. A batch goes into one file: what does not fit the present one moves to the next as a whole.
2. Transactions do not come in batches: every message has its place in the queue.
"""

from collections.abc import Sequence
from typing import NamedTuple

from orbitmq.core.plain_append import append, roll
from orbitmq.core.state import LogTail, Origin, Queue
from orbitmq.ensure import ensure
from orbitmq.wire.record import BLANK_SIZE
from orbitmq.wire.sysflag import OUTSIDE_QUEUE

BATCH_COUNT_MAX = 16_384
"""Messages of one batch: they are stored in one piece, and the loop does nothing else meanwhile.
How long that takes, docs/performance.md says; broker/test_long_frames.py has the limit."""


class BatchStamp(NamedTuple):
    """The numbers that all messages of a batch have from their sender."""

    sys_flag: int
    born_ms: int
    reconsume_times: int


class BatchColumns(NamedTuple):
    """The messages of a batch: one of each column is a message. None of them is empty."""

    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    flags: Sequence[int]
    tags_codes: Sequence[int]
    ending: bytes = b""
    """What the properties of each of them end with, besides."""

    def size_with(self, around: int) -> int:
        """Return the size of all records, each with so much around its body and properties."""
        inner = sum(map(len, self.bodies)) + sum(map(len, self.properties))
        return inner + (around + len(self.ending)) * len(self.bodies)


def append_batch(
    tail: LogTail, queue: Queue, origin: Origin, stamp: BatchStamp, messages: BatchColumns
) -> list[int]:
    """Stage the messages of a batch for one queue back to back and return their log offsets."""
    ensure(not stamp.sys_flag & OUTSIDE_QUEUE, "a message of a batch has its place in the queue")
    size = messages.size_with(origin.fixed_size + len(queue.topic_field))
    left = tail.file_size - tail.end_offset % tail.file_size
    if size + BLANK_SIZE > left:
        ensure(size + BLANK_SIZE <= tail.file_size, "a batch fits a log file")
        roll(tail, left)
    sys_flag, born_ms, times = stamp
    columns = zip(*messages[:4], strict=True)
    return [
        append(
            tail,
            queue,
            origin,
            (flag, sys_flag, born_ms, times, 0, code),
            body,
            properties + messages.ending,
        )
        for body, properties, flag, code in columns
    ]
