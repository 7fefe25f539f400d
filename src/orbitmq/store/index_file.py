"""One file of the key index: header, slots, entries; its newest part in memory, the rest on disk.

In: rows (key hash, log offset, store time) in log order. Out: log offsets along a slot's chain, and
parts to be written.

Rules:
1. The loop owns a file's state. `chain` may run in any thread beside it: an entry is in memory
   before its slot names it, and leaves memory only after it was written.
2. A file that is filled ("awake") holds its slots in memory (index_slots.py). One that is full and
   written is "at rest": nothing is kept.
3. A part is frozen on the loop and written by a thread: entries, then, once these are synced,
   slots and header. So a slot on the disk never names an entry that is not there. A new file first
   gets the header of one without entries that goes on where the file before ends, as in the
   original: finding it after a kill, the original would else index again what older files have.
4. The first entry's age is 0. The original counts it from the end of the file before, and so dates
   it wrongly after a pause.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import ROW
from orbitmq.store.index_shape import ENTRY, HEADER, HEADER_SIZE, SLOT_SIZE, Header, Shape
from orbitmq.store.index_slots import SlotPages, Slots, write_runs
from orbitmq.world.files import BigFile, Files

_BLOCK_ENTRIES = 800
"""A chain is read in blocks of 16 KB: the entries of a key that is used often lie close."""

EMPTY = Header(0, 0, 0, 0, 0, 1)
"""The header of a file without entries; the first entry has number 1."""


class IndexEntry(NamedTuple):
    """One key of one message; `age_s` is counted from the header's `begin_ms`."""

    key_hash: int
    log_offset: int
    age_s: int
    previous: int


class FilePart(NamedTuple):
    """What one job writes of one file."""

    path: Path
    shape: Shape
    entries_position: int
    entries: bytearray
    runs: list[SlotPages]
    header: Header
    first_header: Header | None
    """Of a new file."""

    def write_entries(self, file: BigFile) -> None:
        """Write the entries."""
        if self.first_header is not None:
            file.write_at(0, HEADER.pack(*self.first_header))
        if self.entries:
            file.write_at(self.entries_position, self.entries)

    def write_slots(self, file: BigFile) -> None:
        """Write slots and header; the entries they name are on the disk already."""
        write_runs(file, self.shape, self.runs)
        file.write_at(0, HEADER.pack(*self.header))


class IndexFile:
    """A file of the index and what memory holds of it."""

    def __init__(self, files: Files, path: Path, shape: Shape, header: Header) -> None:
        self._files = files
        self.path = path
        self.shape = shape
        self.header = header
        self._first_header = header
        self._parts: tuple[tuple[int, bytearray], ...] = ()
        """Entries that may not be on the disk yet, newest first: first number and bytes."""
        self._slots: Slots | None = None

    @property
    def is_full(self) -> bool:
        """Whether a further entry needs a further file."""
        return self.header.next_number >= self.shape.entry_count

    @property
    def unwritten_size(self) -> int:
        """How many bytes of entries only memory is known to hold."""
        return sum(len(entries) for _, entries in self._parts)

    def wake(self, slots: Slots | None = None) -> None:
        """Make ready for rows; `slots` are those that the disk has, None for a new file."""
        self._slots = slots if slots is not None else Slots(self.shape)
        self._parts = ((self.header.next_number, bytearray()),)

    def rest(self) -> None:
        """Drop what memory holds; only when all of it was written."""
        self._slots = None
        self._parts = ()

    def insert(self, rows: memoryview) -> int:
        """Take as many rows as there is room for and return their number."""
        slots, header = self._slots, self.header
        number = header.next_number
        count = min(len(rows) // ROW.size, max(0, self.shape.entry_count - number))
        if not count or slots is None:
            return 0
        _, log_offset, store_ms = ROW.unpack_from(rows)
        _, end_offset, end_ms = ROW.unpack_from(rows, ROW.size * (count - 1))
        if number <= 1:
            header = header._replace(begin_ms=store_ms, begin_offset=log_offset)
        entries = self._parts[0][1]
        used = slots.file(rows[: count * ROW.size], entries, number, header.begin_ms)  # rule 1
        self.header = Header(
            header.begin_ms,
            end_ms,
            header.begin_offset,
            end_offset,
            header.used_slots + used,
            number + count,
        )
        return count

    def freeze(self) -> FilePart | None:
        """Return what is not on its way to the disk yet; nothing of it changes any more."""
        slots = self._slots
        if slots is None or not self._parts[0][1]:
            return None
        first, entries = self._parts[0]
        runs = slots.freeze()
        self._parts = ((self.header.next_number, bytearray()), (first, entries))
        position = self.shape.entry_position(first)
        first_header = self._first_header if first == 1 else None
        return FilePart(self.path, self.shape, position, entries, runs, self.header, first_header)

    def finish(self) -> None:
        """Drop what was frozen: it was written."""
        self._parts = self._parts[:1]

    def take_back(self, part: FilePart) -> None:
        """Make what was frozen unwritten again: its job failed."""
        if self._slots is not None:
            self._slots.take_back(part.runs)
        (_, newer), (first, older) = self._parts
        self._parts = ((first, older + newer),)

    def chain(self, slot: int) -> Iterator[IndexEntry]:
        """Return the entries of a slot, newest first."""
        number = self._slot_value(slot)
        block, block_first = b"", 0
        while number > 0:
            entry = self._entry_in_memory(number)
            if entry is None:
                if not block or number < block_first:
                    block_first = number - number % _BLOCK_ENTRIES
                    block = self._block(block_first)
                position = ENTRY.size * (number - block_first)
                if position + ENTRY.size > len(block):
                    return
                entry = IndexEntry._make(ENTRY.unpack_from(block, position))
            yield entry
            # Links lead to older entries only; anything else is damage, and could go round.
            number = entry.previous if entry.previous < number else 0

    def entry(self, number: int) -> IndexEntry | None:
        """Return one entry as the disk has it; None where the file ends before it."""
        data = self._files.read_at(self.path, self.shape.entry_position(number), ENTRY.size)
        if data is None or len(data) < ENTRY.size:
            return None
        return IndexEntry._make(ENTRY.unpack(data))

    def _slot_value(self, slot: int) -> int:
        slots = self._slots
        if slots is not None:
            return slots.value(slot)
        data = self._files.read_at(self.path, HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE)
        value = int.from_bytes(data or b"", signed=True)
        return value if 0 < value < self.header.next_number else 0

    def _entry_in_memory(self, number: int) -> IndexEntry | None:
        # The parts are asked for anew for each entry: the loop may exchange them in between.
        for first, entries in self._parts:
            if number >= first:
                return IndexEntry._make(ENTRY.unpack_from(entries, ENTRY.size * (number - first)))
        return None

    def _block(self, first: int) -> bytes:
        position = self.shape.entry_position(first)
        size = min(ENTRY.size * _BLOCK_ENTRIES, self.shape.file_size - position)
        return self._files.read_at(self.path, position, size) or b""
