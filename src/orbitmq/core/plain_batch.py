"""Appending a batch in plain, tuned Python: many records of one queue, staged back to back.

In: a queue, where the messages come from, what they share, and their columns: bodies, properties,
flags and tag codes. Out: their log offsets.

Rules:
1. A batch goes into one file: what does not fit the present one moves to the next as a whole.
2. A batch has thousands of messages, so whole columns go from one built-in function to the next,
   and no message takes a step of its own. Field by field it is what `append` does; tests compare.
   What all properties end with is given once and never joined to each of them.
3. Transactions do not come in batches: every message has its place in the queue.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat
from operator import add, and_, contains
from typing import NamedTuple

from orbitmq.core.checksum import crc32
from orbitmq.core.packing import WORD_SIZE, packed_rows
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
_KEY, _KEYS = b"KEY", b"KEYS\x01"
_SIZE, _CRC, _FLAG, _QUEUE_OFFSET, _LOG_OFFSET = 0, 2, 4, 5, 7
"""Where a record's head has these, in words; the body's size is its last one."""
_BLANK_ENTRY = bytes(ENTRY.size)


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
        """Give the size of all records, each with so much around its body and properties."""
        inner = sum(map(len, self.bodies)) + sum(map(len, self.properties))
        return inner + (around + len(self.ending)) * len(self.bodies)


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
    bodies, properties, _, tags_codes, ending = messages
    property_sizes = list(map(len, properties))
    rest_sizes = map(add, property_sizes, repeat(around + len(ending)))
    sizes = list(map(add, map(len, bodies), rest_sizes))
    log_offsets = list(accumulate(sizes[:-1], initial=tail.end_offset))
    heads = _heads(queue, _blank_head(tail, queue, origin, stamp), messages, (sizes, log_offsets))
    middles = {
        each: queue.topic_field + (each + len(ending)).to_bytes(2, "big")
        for each in set(property_sizes)
    }
    between = map(middles.__getitem__, property_sizes)
    parts = zip(heads, bodies, between, properties, repeat(ending), strict=False)
    records = bytearray().join(chain.from_iterable(parts))
    ensure(len(records) == size, "columns of a batch are of the same length")
    if tail.staged:
        tail.staged += records
    else:  # most of a turn is one large batch, or there are no large ones
        tail.staged = records
    tail.end_offset += size
    tail.staged_count += len(bodies)
    tail.grown.add(queue)
    numbers = {0: log_offsets, 3: tags_codes}
    queue.entries += packed_rows(_BLANK_ENTRY, len(sizes), {2: sizes}, numbers)
    queue.put_bytes += size
    queue.next_offset += len(bodies)
    keys = _keys(properties, ending)
    keyed = zip(repeat(queue.topic), log_offsets, repeat(tail.store_ms), keys)
    tail.keyed += [one for one in keyed if one[3]] if b"" in keys else keyed
    return log_offsets


def leading_ids(texts: Sequence[bytes]) -> list[bytes]:
    """Give the ids that all of the properties strings begin with; nothing if one does not."""
    ids = [text[_ID_START:ID_END] for text in texts]
    joined, begins = b"".join(ids), b"".join([text[:_ID_START] for text in texts])
    is_whole = joined.isalnum() and len(joined) == len(texts) * (ID_END - _ID_START)
    if not is_whole or begins != _ID * len(texts):
        return []
    return ids if {text[ID_END : ID_END + 1] for text in texts} <= {b"", b"\x02"} else []


def _keys(properties: Sequence[bytes], ending: bytes) -> Sequence[bytes]:
    """Give what the key index needs of each message, or nothing; see `LogTail.keyed`."""
    if _KEY in ending or ending[:1] not in (b"", b"\x02"):
        properties, ending = [text + ending for text in properties], b""
    everything = b"".join(properties)
    # Without KEY there is neither id nor KEYS.
    if _KEYS not in everything and everything.count(_KEY) == len(properties):
        ids = leading_ids(properties)
        if ids:
            return ids
    if all(map(contains, properties, repeat(_NAME_END))):
        return properties
    return [text if _NAME_END in text else b"" for text in properties]


def _heads(
    queue: Queue, blank: bytes, messages: BatchColumns, places: tuple[list[int], list[int]]
) -> Iterator[bytes]:
    """Give the heads of the records, which have these sizes and log offsets."""
    sizes, log_offsets = places
    bodies, flags = messages.bodies, messages.flags
    narrow = {
        _SIZE: sizes,
        _CRC: map(and_, map(crc32, bodies), repeat(0x7FFFFFFF)),
        len(blank) // WORD_SIZE - 1: map(len, bodies),
    }
    if any(flags):
        narrow[_FLAG] = flags
    end = queue.next_offset + len(bodies)
    wide = {_QUEUE_OFFSET: range(queue.next_offset, end), _LOG_OFFSET: log_offsets}
    heads = packed_rows(blank, len(bodies), narrow, wide)
    return chain.from_iterable(struct.iter_unpack(f"{len(blank)}s", heads))


def _blank_head(tail: LogTail, queue: Queue, origin: Origin, stamp: BatchStamp) -> bytes:
    """Give the head of a record with what all messages of the batch have, and else zeros."""
    return origin.pack(
        0,
        queue.magic,
        0,
        queue.queue_id,
        *(0,) * 3,
        stamp.sys_flag | origin.host_bits,
        stamp.born_ms,
        origin.born_host,
        tail.store_ms,
        origin.store_host,
        stamp.reconsume_times,
        0,
        0,
    )
