"""What the key index gets of a record: one row for each key, filed into slots and entries.

In: a record's topic, place, time and properties. Out: rows of bytes; and, from rows, entries of an
index file and its slots.

Rules:
1. Which keys a record has says `record_keys`. A row has the key's hash (Java's over `topic#key`,
   made absolute), the log offset and the store time in ms.
2. An entry is there before its slot names it: other threads may look meanwhile.
"""

import struct
from typing import NamedTuple

from orbitmq.core.record_keys import keys_in
from orbitmq.wire.java import index_hash

ROW = struct.Struct("=iqq")
"""Hash, log offset, store time in ms: for this process only, so in its own byte order."""
INDEX_ENTRY = struct.Struct(">iqii")
"""Hash, log offset, seconds since the file's begin, entry before it in its slot."""
AGE_S_MAX = 0x7FFFFFFF


def rows_of(topic: str, log_offset: int, store_ms: int, properties: bytes) -> tuple[bytes, int]:
    """Return the rows of a record, and how many keys are left out: it has too many."""
    filed, left_out = keys_in(properties)
    rows = [ROW.pack(index_hash(f"{topic}#{key}"), log_offset, store_ms) for key in filed]
    return b"".join(rows), len(left_out)


class Filing(NamedTuple):
    """The part of an index file that rows go to."""

    slots: memoryview
    """All slots, as unsigned numbers of four bytes."""
    dirty: bytearray
    """One byte for each page of the slots: 1 when it has changed."""
    entries: bytearray
    slot_count: int
    first_slot: int
    """Where the slots begin: the header takes the room of some."""
    page_slots: int


def file_rows(filing: Filing, rows: bytes | memoryview, number: int, begin_ms: int) -> int:
    """File rows as the entries from `number` on; return how many slots they are the first of."""
    slots, dirty, entries, slot_count, first_slot, page_slots = filing
    new_count = 0
    for key_hash, log_offset, store_ms in ROW.iter_unpack(rows):
        place = first_slot + key_hash % slot_count
        previous = slots[place]
        age_s = min(max(0, store_ms - begin_ms) // 1000, AGE_S_MAX)
        entries += INDEX_ENTRY.pack(key_hash, log_offset, age_s, previous)
        slots[place] = number
        dirty[place // page_slots] = 1
        new_count += not previous
        number += 1
    return new_count
