"""One file of the key index: header, slots, entries; its newest part in memory, the rest on disk.

In: rows (key hash, log offset, store time) in log order. Out: log offsets along a slot's chain, and
parts to be written.

Rules:
1. The loop owns a file's state. `chain` may run in any thread beside it: an entry is in memory
   before its slot names it, and leaves memory only after it was written.
2. A file that is filled ("awake") holds its slots in memory, 4 bytes each, page by page; a page
   that was never used is not there. One that is full and written is "at rest": nothing is kept.
3. A part is frozen on the loop and written by a thread: entries, then, once these are synced,
   slots and header. So a slot on the disk never names an entry that is not there. A new file first
   gets the header of one without entries that goes on where the file before ends, as in the
   original: finding it after a kill, the original would else index again what older files have.
4. The first entry's age is 0. The original counts it from the end of the file before, and so dates
   it wrongly after a pause.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from orbitmq.core.packing import packed_rows
from orbitmq.store.index_keys import Rows
from orbitmq.store.index_shape import ENTRY, HEADER, HEADER_SIZE, SLOT_SIZE, Header, Shape
from orbitmq.world.files import BigFile, Files

_AGE_S_MAX = 0x7FFFFFFF
_NO_ENTRY = bytes(ENTRY.size)
_HASH, _OFFSET, _AGE, _PREVIOUS = 0, 1, 3, 4
"""Where an entry has these, in words."""

PAGE_SIZE = 4_096
_PAGE_SLOTS = PAGE_SIZE // SLOT_SIZE
_PAGE_BITS = _PAGE_SLOTS.bit_length() - 1
_PAGE_MASK = _PAGE_SLOTS - 1
_HEADER_SLOTS = HEADER_SIZE // SLOT_SIZE
"""Pages are those of the file: the header takes the room of ten slots in the first one."""
_ZEROS = bytes(PAGE_SIZE)
_RUN_PAGES_MAX = 256
_BLOCK_ENTRIES = 800
"""A chain is read in blocks of 16 KB: the entries of a key that is used often lie close."""

Page: TypeAlias = "array[int]"
"""Slots in the machine's byte order, unsigned: what is below 0 in a file is far too big here. In
quotes: Python 3.11 cannot subscript an array."""

EMPTY = Header(0, 0, 0, 0, 0, 1)
"""The header of a file without entries; the first entry has number 1."""


class Entry(NamedTuple):
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
    pages: list[tuple[int, Page]]
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
        write_pages(file, self.shape, self.pages)
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
        self._pages: list[Page | None] | None = None
        self._dirty: set[int] = set()

    @property
    def is_full(self) -> bool:
        """Whether a further entry needs a further file."""
        return self.header.next_number >= self.shape.entry_count

    @property
    def unwritten_size(self) -> int:
        """How many bytes of entries only memory is known to hold."""
        return sum(len(entries) for _, entries in self._parts)

    def wake(self, pages: list[Page | None] | None = None) -> None:
        """Make ready for rows; `pages` are the slots as the disk has them, None for a new file."""
        self._pages = pages if pages is not None else [None] * page_count(self.shape)
        self._parts = ((self.header.next_number, bytearray()),)

    def rest(self) -> None:
        """Drop what memory holds; only when all of it was written."""
        self._pages = None
        self._parts = ()

    def insert(self, rows: Rows) -> int:
        """Take as many rows as there is room for and give their number."""
        pages, header = self._pages, self.header
        number = header.next_number
        count = min(rows.row_count, max(0, self.shape.entry_count - number))
        if not count or pages is None:
            return 0
        hashes, offsets, times = rows if count == rows.row_count else rows.between(0, count)
        if number <= 1:
            header = header._replace(begin_ms=times[0], begin_offset=offsets[0])
        slot_count = self.shape.slot_count
        slots = [key_hash % slot_count + _HEADER_SLOTS for key_hash in hashes]
        previous, newest = _linked(pages, slots, number)
        columns = {_HASH: hashes, _AGE: _ages(times, header.begin_ms), _PREVIOUS: previous}
        self._parts[0][1].extend(packed_rows(_NO_ENTRY, count, columns, {_OFFSET: offsets}))
        self._set_slots(pages, newest)  # rule 1
        self.header = Header(
            header.begin_ms,
            times[-1],
            header.begin_offset,
            offsets[-1],
            header.used_slots + previous.count(0),
            number + count,
        )
        return count

    def _set_slots(self, pages: list[Page | None], newest: dict[int, int]) -> None:
        dirty = self._dirty
        for place, number in newest.items():
            page_number = place >> _PAGE_BITS
            page = pages[page_number]
            if page is None or page_number not in dirty:
                # A job may be writing the page as it was: this is ours from here on.
                page = array("I", _ZEROS) if page is None else page[:]
                pages[page_number] = page
                dirty.add(page_number)
            page[place & _PAGE_MASK] = number

    def freeze(self) -> FilePart | None:
        """Give what is not on its way to the disk yet; nothing of it changes any more."""
        pages = self._pages
        if pages is None or not self._parts[0][1]:
            return None
        first, entries = self._parts[0]
        dirty = [(number, page) for number in sorted(self._dirty) if (page := pages[number])]
        self._dirty = set()
        self._parts = ((self.header.next_number, bytearray()), (first, entries))
        position = self.shape.entry_position(first)
        first_header = self._first_header if first == 1 else None
        return FilePart(self.path, self.shape, position, entries, dirty, self.header, first_header)

    def finish(self) -> None:
        """Drop what was frozen: it was written."""
        self._parts = self._parts[:1]

    def take_back(self, part: FilePart) -> None:
        """Make what was frozen unwritten again: its job failed."""
        self._dirty.update(number for number, _ in part.pages)
        (_, newer), (first, older) = self._parts
        self._parts = ((first, older + newer),)

    def chain(self, slot: int) -> Iterator[Entry]:
        """Give the entries of a slot, newest first."""
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
                entry = Entry._make(ENTRY.unpack_from(block, position))
            yield entry
            # Links lead to older entries only; anything else is damage, and could go round.
            number = entry.previous if entry.previous < number else 0

    def entry(self, number: int) -> Entry | None:
        """Give one entry as the disk has it; None where the file ends before it."""
        data = self._files.read_at(self.path, self.shape.entry_position(number), ENTRY.size)
        if data is None or len(data) < ENTRY.size:
            return None
        return Entry._make(ENTRY.unpack(data))

    def _slot_value(self, slot: int) -> int:
        pages = self._pages
        if pages is not None:
            place = slot + _HEADER_SLOTS
            page = pages[place >> _PAGE_BITS]
            return 0 if page is None else page[place & _PAGE_MASK]
        data = self._files.read_at(self.path, HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE)
        value = int.from_bytes(data or b"", signed=True)
        return value if 0 < value < self.header.next_number else 0

    def _entry_in_memory(self, number: int) -> Entry | None:
        # The parts are asked for anew for each entry: the loop may exchange them in between.
        for first, entries in self._parts:
            if number >= first:
                return Entry._make(ENTRY.unpack_from(entries, ENTRY.size * (number - first)))
        return None

    def _block(self, first: int) -> bytes:
        position = self.shape.entry_position(first)
        size = min(ENTRY.size * _BLOCK_ENTRIES, self.shape.file_size - position)
        return self._files.read_at(self.path, position, size) or b""


def _linked(
    pages: list[Page | None], slots: list[int], number: int
) -> tuple[list[int], dict[int, int]]:
    """Give for each slot, in turn, the entry before the next one, and the last one of each slot."""
    previous, newest = list[int](), dict[int, int]()
    for place in slots:
        before = newest.get(place)
        if before is None:
            page = pages[place >> _PAGE_BITS]
            before = 0 if page is None else page[place & _PAGE_MASK]
        previous.append(before)
        newest[place] = number
        number += 1
    return previous, newest


def _ages(times: Sequence[int], begin_ms: int) -> array[int]:
    """Give the ages of entries; those of a batch have one time."""
    first = times[0]
    if times.count(first) == len(times):
        return array("i", (_age_s(first - begin_ms),)) * len(times)
    age_at = {store_ms: _age_s(store_ms - begin_ms) for store_ms in set(times)}
    return array("i", map(age_at.__getitem__, times))


def _age_s(age_ms: int) -> int:
    return min(max(0, age_ms) // 1000, _AGE_S_MAX)


# ---- slots on the disk ---------------------------------------------------------------------------


def read_pages(files: Files, path: Path, shape: Shape) -> list[Page | None]:
    """Give a file's slots; pages of zeros are not there."""
    pages: list[Page | None] = []
    for first in range(0, page_count(shape), _RUN_PAGES_MAX):
        position = first * PAGE_SIZE
        size = min(_RUN_PAGES_MAX * PAGE_SIZE, shape.entry_position(0) - position)
        data = files.read_at(path, position, size) or b""
        if first == 0:
            data = bytes(HEADER_SIZE) + data[HEADER_SIZE:]
        for start in range(0, size, PAGE_SIZE):
            raw = data[start : start + PAGE_SIZE].ljust(PAGE_SIZE, b"\0")
            pages.append(None if raw == _ZEROS else _turned(array("I", raw)))
    return pages


def write_pages(file: BigFile, shape: Shape, pages: Sequence[tuple[int, Page]]) -> None:
    """Write pages of slots, given in ascending order; neighbours go out together."""
    start = 0
    while start < len(pages):
        end = start + 1
        while (
            end < len(pages)
            and end - start < _RUN_PAGES_MAX
            and pages[end][0] == pages[end - 1][0] + 1
        ):
            end += 1
        position = pages[start][0] * PAGE_SIZE
        data = b"".join(_turned(page[:]).tobytes() for _, page in pages[start:end])
        # The first page begins with the header and the last may end with entries: not ours here.
        skipped = max(0, HEADER_SIZE - position)
        file.write_at(position + skipped, data[skipped : shape.entry_position(0) - position])
        start = end


def page_count(shape: Shape) -> int:
    """Give how many pages hold slots."""
    return -(-shape.entry_position(0) // PAGE_SIZE)


def slot_at(page_number: int, place: int) -> int:
    """Give the slot at a place of a page."""
    return page_number * _PAGE_SLOTS + place - _HEADER_SLOTS


def _turned(page: Page) -> Page:
    """Turn a page, in place, between the file's byte order and the machine's."""
    if sys.byteorder == "little":
        page.byteswap()
    return page
