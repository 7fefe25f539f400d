"""Appending in plain Python: one record staged at the end of the log.

In: a queue, where the message comes from, its numbers, body and properties. Out: its log offset.

Rules:
1. Nothing is written here: the record, its queue entry and what the key index needs are staged,
   and the store writes once a turn.
2. A record never spans files: what does not fit is preceded by a blank record that fills the file.
3. Everything that appends, hot or not, comes through `append`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from orbitmq.core.checksum import crc32
from orbitmq.core.plain_rows import rows_of
from orbitmq.core.record_keys import may_have_keys
from orbitmq.core.state import ENTRY, LogTail, Origin, Queue
from orbitmq.ensure import ensure
from orbitmq.wire.record import BLANK_SIZE, encode_blank
from orbitmq.wire.sysflag import OUTSIDE_QUEUE


class Stamp(NamedTuple):
    """The numbers of a record that its sender chooses."""

    flag: int
    sys_flag: int
    born_ms: int
    reconsume_times: int
    prepared_offset: int
    tags_code: int


def append(
    tail: LogTail,
    queue: Queue,
    origin: Origin,
    stamp: tuple[int, int, int, int, int, int],
    body: bytes,
    properties: bytes,
) -> int:
    """Stage one record at the end of the log and give its log offset; `stamp` is a Stamp.

    Afterwards the queue's next offset counts it; it becomes readable when the store has written it.
    """
    flag, sys_flag, born_ms, reconsume_times, prepared_offset, tags_code = stamp
    topic_field = queue.topic_field
    size = origin.fixed_size + len(body) + len(topic_field) + len(properties)
    log_offset = tail.end_offset
    left = tail.file_size - log_offset % tail.file_size
    if size + BLANK_SIZE > left:
        ensure(size + BLANK_SIZE <= tail.file_size, "a record fits a log file")
        roll(tail, left)
        log_offset += left
    queue_offset = 0 if sys_flag & OUTSIDE_QUEUE else queue.next_offset
    head = origin.pack(
        size,
        queue.magic,
        crc32(body) & 0x7FFFFFFF,
        queue.queue_id,
        flag,
        queue_offset,
        log_offset,
        sys_flag | origin.host_bits,
        born_ms,
        origin.born_host,
        tail.store_ms,
        origin.store_host,
        reconsume_times,
        prepared_offset,
        len(body),
    )
    staged = tail.staged  # growing it costs less than a list of pieces to be joined later
    staged += head
    staged += body
    staged += topic_field
    staged += len(properties).to_bytes(2, "big")
    staged += properties
    tail.end_offset = log_offset + size
    tail.staged_count += 1
    if not sys_flag & OUTSIDE_QUEUE:
        tail.grown.add(queue)
        queue.entries += ENTRY.pack(log_offset, size, tags_code)
        queue.put_bytes += size
        queue.next_offset = queue_offset + 1
    if may_have_keys(sys_flag, properties):
        rows, left_out = rows_of(queue.topic, log_offset, tail.store_ms, properties)
        tail.rows += rows
        tail.left_out += left_out
    return log_offset


def append_copies(tail: LogTail, queues: Sequence[Queue], log_offset: int, code: int) -> None:
    """Enter the record that was staged last into further queues, which its properties name."""
    size = tail.end_offset - log_offset
    entry = ENTRY.pack(log_offset, size, code)
    for queue in queues:
        tail.grown.add(queue)
        queue.entries += entry
        queue.put_bytes += size
        queue.next_offset += 1
    tail.copy_count += len(queues)


def roll(tail: LogTail, left: int) -> None:
    """Stage a blank record that fills the file: size, magic, zeros."""
    tail.staged += encode_blank(left).ljust(left, b"\0")
    tail.end_offset += left
