"""Appending a batch in plain, tuned Python: many records of one queue, staged back to back.

In: a queue, where the messages come from, what they share, and their columns: bodies, properties,
flags and tag codes. Out: their log offsets.

Rules:
1. A batch goes into one file: what does not fit the present one moves to the next as a whole.
2. A batch has thousands of messages, so whole columns go from one built-in function to the next,
   and no message takes a step of its own. Field by field it is what `append` does; tests compare.
   What all properties end with is given once and never joined to each of them, and a number that
   all messages have is written once, before rows are made of it.
3. Transactions do not come in batches: every message has its place in the queue.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
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
_PLACE, _LENGTH, _CODE = 0, 2, 3
"""The same of a queue entry."""


class BatchStamp(NamedTuple):
    """The numbers that all messages of a batch have from their sender."""

    sys_flag: int
    born_ms: int
    reconsume_times: int


class BatchColumns:
    """The messages of a batch: one of each column is a message. None of them is empty."""

    __slots__ = (
        "bodies",
        "body_sizes",
        "ending",
        "flags",
        "properties",
        "property_sizes",
        "tags_codes",
    )

    def __init__(
        self,
        bodies: Sequence[bytes],
        properties: Sequence[bytes],
        flags: Sequence[int],
        tags_codes: Sequence[int],
        ending: bytes = b"",
    ) -> None:
        """`ending` is what the properties of each of them end with, besides."""
        self.bodies = bodies
        self.properties = properties
        self.flags = flags
        self.tags_codes = tags_codes
        self.ending = ending
        self.body_sizes = list(map(len, bodies))
        self.property_sizes = list(map(len, properties))
        """Without the ending."""

    def size_with(self, around: int) -> int:
        """Return the size of all records, each with so much around its body and properties."""
        inner = sum(self.body_sizes) + sum(self.property_sizes)
        return inner + (around + len(self.ending)) * len(self.bodies)

    def sizes_with(self, around: int) -> list[int]:
        """Return the size of each record."""
        bodies, properties = self.body_sizes, self.property_sizes
        around += len(self.ending)
        if _is_one(bodies) and _is_one(properties):
            return [bodies[0] + properties[0] + around] * len(bodies)
        return list(map(add, bodies, map(add, properties, repeat(around))))


def append_batch(
    tail: LogTail, queue: Queue, origin: Origin, stamp: BatchStamp, messages: BatchColumns
) -> list[int]:
    """Stage the messages of a batch for one queue back to back and give their log offsets."""
    ensure(not stamp.sys_flag & OUTSIDE_QUEUE, "a message of a batch has its place in the queue")
    sizes = messages.sizes_with(origin.fixed_size + len(queue.topic_field))
    size = sum(sizes)
    left = tail.file_size - tail.end_offset % tail.file_size
    if size + BLANK_SIZE > left:
        ensure(size + BLANK_SIZE <= tail.file_size, "a batch fits a log file")
        roll(tail, left)
    log_offsets = list(accumulate(sizes[:-1], initial=tail.end_offset))
    heads = _heads(queue, _blank_head(tail, queue, origin, stamp), messages, (sizes, log_offsets))
    records = _records(queue, heads, messages)
    ensure(len(records) == size, "columns of a batch are of the same length")
    if tail.staged:
        tail.staged += records
    else:  # most of a turn is one large batch, or there are no large ones
        tail.staged = records
    tail.end_offset += size
    tail.staged_count += len(sizes)
    tail.grown.add(queue)
    queue.entries += _entries(log_offsets, sizes, messages.tags_codes)
    queue.put_bytes += size
    queue.next_offset += len(sizes)
    keys = _keys(messages)
    keyed = zip(repeat(queue.topic), log_offsets, repeat(tail.store_ms), keys)
    tail.keyed += [one for one in keyed if one[3]] if b"" in keys else keyed
    return log_offsets


def _is_one(numbers: Sequence[int]) -> bool:
    return numbers.count(numbers[0]) == len(numbers)


def _records(queue: Queue, heads: Iterator[bytes], messages: BatchColumns) -> bytearray:
    """Return the records, back to back."""
    sizes, ending = messages.property_sizes, messages.ending
    middles = {
        each: queue.topic_field + (each + len(ending)).to_bytes(2, "big") for each in set(sizes)
    }
    between = map(middles.__getitem__, sizes) if len(middles) > 1 else repeat(middles[sizes[0]])
    parts = zip(heads, messages.bodies, between, messages.properties, repeat(ending), strict=False)
    return bytearray().join(chain.from_iterable(parts))


def _entries(log_offsets: list[int], sizes: list[int], tags_codes: Sequence[int]) -> bytes:
    """Return the queue entries of records; what all of them have stands there from the start."""
    blank = ENTRY.pack(0, sizes[0], tags_codes[0])
    narrow: dict[int, Sequence[int]] = {}
    wide: dict[int, Sequence[int]] = {_PLACE: log_offsets}
    if not _is_one(sizes):
        narrow[_LENGTH] = sizes
    if not _is_one(tags_codes):
        wide[_CODE] = tags_codes
    return packed_rows(blank, len(sizes), narrow, wide)


def leading_ids(texts: Sequence[bytes]) -> list[bytes]:
    """Return the ids that all of the properties strings begin with; nothing if one does not."""
    ids = [text[_ID_START:ID_END] for text in texts]
    joined, begins = b"".join(ids), b"".join([text[:_ID_START] for text in texts])
    is_whole = joined.isalnum() and len(joined) == len(texts) * (ID_END - _ID_START)
    if not is_whole or begins != _ID * len(texts):
        return []
    return ids if {text[ID_END : ID_END + 1] for text in texts} <= {b"", b"\x02"} else []


def _keys(messages: BatchColumns) -> Sequence[bytes]:
    """Return what the key index needs of each message, or nothing; see `LogTail.keyed`."""
    properties, ending = messages.properties, messages.ending
    if _KEY in ending or ending[:1] not in (b"", b"\x02"):
        properties = [text + ending for text in properties]
    everything = b"".join(properties)
    # Without KEY there is neither id nor KEYS.
    if _KEYS not in everything and everything.count(_KEY) == len(properties):
        ids = leading_ids(properties)
        if ids:
            return ids
    at, size = properties[0].find(_NAME_END), len(properties[0])
    is_alike = at >= 0 and _is_one(messages.property_sizes)
    if is_alike and everything[at::size] == _NAME_END * len(properties):
        return properties
    if all(map(contains, properties, repeat(_NAME_END))):
        return properties
    return [text if _NAME_END in text else b"" for text in properties]


def _heads(
    queue: Queue, blank: bytes, messages: BatchColumns, places: tuple[list[int], list[int]]
) -> Iterator[bytes]:
    """Return the heads of the records, which have these sizes and log offsets."""
    sizes, log_offsets = places
    bodies, flags = messages.bodies, messages.flags
    narrow: dict[int, Iterable[int]] = {
        _CRC: map(and_, map(crc32, bodies), repeat(0x7FFFFFFF)),
    }
    same = {_SIZE: sizes, len(blank) // WORD_SIZE - 1: messages.body_sizes, _FLAG: flags}
    for place, numbers in same.items():
        if _is_one(numbers):
            blank = _with_number(blank, place, numbers[0])
        else:
            narrow[place] = numbers
    end = queue.next_offset + len(bodies)
    wide = {_QUEUE_OFFSET: range(queue.next_offset, end), _LOG_OFFSET: log_offsets}
    heads = packed_rows(blank, len(bodies), narrow, wide)
    return chain.from_iterable(struct.iter_unpack(f"{len(blank)}s", heads))


def _with_number(row: bytes, place: int, number: int) -> bytes:
    """Return a row with a number at the place of one of its words."""
    start = place * WORD_SIZE
    return row[:start] + number.to_bytes(WORD_SIZE, "big", signed=True) + row[start + WORD_SIZE :]


def _blank_head(tail: LogTail, queue: Queue, origin: Origin, stamp: BatchStamp) -> bytes:
    """Return the head of a record with what all messages of the batch have, and else zeros."""
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
