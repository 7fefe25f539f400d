"""Appending a batch in plain, tuned Python: many records of one queue, staged back to back.

In: a queue, where the messages come from, what they share, and their columns: bodies, properties,
flags and tag codes. Out: their log offsets.

Rules:
1. A batch goes into one file: what does not fit the present one moves to the next as a whole.
2. A batch has thousands of messages, so whole columns go from one built-in function to the next,
   and no message takes a step of its own. Field by field it is what `append` does; tests compare.
3. Transactions do not come in batches: every message has its place in the queue.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, count, repeat
from operator import add, and_
from typing import NamedTuple

from orbitmq.core.checksum import crc32
from orbitmq.core.plain_append import roll
from orbitmq.core.state import ENTRY, LogTail, Origin, Queue
from orbitmq.ensure import ensure
from orbitmq.wire.record import BLANK_SIZE
from orbitmq.wire.sysflag import OUTSIDE_QUEUE

_NAME_END = b"\x01"
_ID = b"UNIQ_KEY\x01"
_ID_START = len(_ID)
ID_END = _ID_START + 32
"""Where an id ends that properties begin with."""
_pack_size = struct.Struct(">h").pack
_SHARED_START, _SHARED_END = 36, -4
"""From the sysFlag to the offset of a prepared message: the same in every record of a batch."""


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

    def size_with(self, around: int) -> int:
        """Give the size of all records, each with so much around its body and properties."""
        inner = sum(map(len, self.bodies)) + sum(map(len, self.properties))
        return inner + around * len(self.bodies)


def append_batch(
    tail: LogTail, queue: Queue, origin: Origin, stamp: BatchStamp, messages: BatchColumns
) -> list[int]:
    """Stage the messages of a batch for one queue back to back and give their log offsets."""
    ensure(not stamp.sys_flag & OUTSIDE_QUEUE, "a message of a batch has its place in the queue")
    around = origin.fixed_size + len(queue.topic_field)
    size = messages.size_with(around)
    left = tail.file_size - tail.end_offset % tail.file_size
    if size + BLANK_SIZE > left:
        ensure(size + BLANK_SIZE <= tail.file_size, "a batch fits a log file")
        roll(tail, left)
    bodies, properties, flags, tags_codes = messages
    body_sizes = list(map(len, bodies))
    sizes = list(map(add, map(add, body_sizes, map(len, properties)), repeat(around)))
    log_offsets = list(accumulate(sizes[:-1], initial=tail.end_offset))
    shared = _shared(tail, origin, stamp)
    heads = map(
        _head(len(shared)),
        sizes,
        repeat(queue.magic),
        map(and_, map(crc32, bodies), repeat(0x7FFFFFFF)),
        repeat(queue.queue_id),
        flags,
        count(queue.next_offset),
        log_offsets,
        repeat(shared),
        body_sizes,
    )
    sizes_packed = map(_pack_size, map(len, properties))
    parts = zip(heads, bodies, repeat(queue.topic_field), sizes_packed, properties, strict=False)
    records = b"".join(chain.from_iterable(parts))
    ensure(len(records) == size, "columns of a batch are of the same length")
    tail.staged += records
    tail.end_offset += size
    tail.staged_count += len(bodies)
    tail.grown.add(queue)
    queue.entries += b"".join(map(ENTRY.pack, log_offsets, sizes, tags_codes))
    queue.put_bytes += size
    queue.next_offset += len(bodies)
    keyed = zip(repeat(queue.topic), log_offsets, repeat(tail.store_ms), _keys(properties))
    tail.keyed += [one for one in keyed if one[3]]
    return log_offsets


def leading_ids(texts: Sequence[bytes]) -> list[bytes]:
    """Give the ids that all of the properties strings begin with; nothing if one does not."""
    ids = [text[_ID_START:ID_END] for text in texts]
    joined, begins = b"".join(ids), b"".join([text[:_ID_START] for text in texts])
    is_whole = joined.isalnum() and len(joined) == len(texts) * (ID_END - _ID_START)
    if not is_whole or begins != _ID * len(texts):
        return []
    return ids if {text[ID_END : ID_END + 1] for text in texts} <= {b"", b"\x02"} else []


def _keys(properties: Sequence[bytes]) -> Sequence[bytes]:
    """Give what the key index needs of each message, or nothing; see `LogTail.keyed`."""
    everything = b"".join(properties)
    if everything.count(b"KEY") == len(properties):  # without it there is neither id nor KEYS
        ids = leading_ids(properties)
        if ids:
            return ids
    return [text if _NAME_END in text else b"" for text in properties]


def _shared(tail: LogTail, origin: Origin, stamp: BatchStamp) -> bytes:
    """Give the part of a record's head that all messages of the batch have."""
    head = origin.pack(
        *(0,) * 7,
        stamp.sys_flag | origin.host_bits,
        stamp.born_ms,
        origin.born_host,
        tail.store_ms,
        origin.store_host,
        stamp.reconsume_times,
        0,
        0,
    )
    return head[_SHARED_START:_SHARED_END]


@lru_cache(maxsize=4)
def _head(shared_size: int) -> Callable[..., bytes]:
    """Give what packs a record's head around the shared part; it has one of four sizes."""
    return struct.Struct(f">iIIiiqq{shared_size}si").pack
