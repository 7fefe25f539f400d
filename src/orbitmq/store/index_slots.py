"""The slots of an index file that is being filled: the newest entry of each.

In: slots as the disk has them, or none; then rows. Out: entries, and pages to be written.

Rules:
1. All slots of a file are in memory, 4 bytes each, in the machine's byte order. A slot that was
   never used takes none: the system gives a page when it is first written to.
2. A place is a slot's, counted from the start of its file in units of four bytes: the header takes
   the room of ten slots in the first page, and the last page may end with entries.
3. The loop owns the slots. Any thread may read one beside it. What is frozen is a copy, which stays
   as it is until the next one; the memory for it is kept: new memory costs more than copying.
4. Filing itself is the core's: `core.plain_rows`, or its compiled twin.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import Filing, file_rows
from orbitmq.store.index_shape import HEADER_SIZE, SLOT_SIZE, Shape
from orbitmq.world.files import BigFile, Files
from orbitmq.world.memory import zeros

PAGE_SIZE = 4_096
_PAGE_SLOTS = PAGE_SIZE // SLOT_SIZE
_HEADER_SLOTS = HEADER_SIZE // SLOT_SIZE
_ZEROS = bytes(PAGE_SIZE)
_RUN_PAGES_MAX = 256
_MANY = 0.75
"""When so many of the pages have changed all are written, in long pieces."""
_RUN_SIZE = _RUN_PAGES_MAX * PAGE_SIZE


class SlotPages(NamedTuple):
    """Pages that follow each other: the number of the first, and a copy of their slots."""

    first: int
    pages: memoryview


class Slots:
    """All slots of one file.

    They are unsigned here: what is below 0 in a file is far too big.
    """

    def __init__(self, shape: Shape) -> None:
        """Make those of a new file."""
        self._shape = shape
        self._size = -(-shape.entry_position(0) // PAGE_SIZE) * PAGE_SIZE
        self._memory = zeros(self._size)
        self._numbers = self._memory.cast("I")
        self._copy: memoryview | None = None
        self._read_pages: list[int] = []
        self._dirty = bytearray(self._size // PAGE_SIZE)
        """For each page whether it has changed since the last `freeze`."""

    # --- Filling ---

    def value(self, slot: int) -> int:
        """Return the newest entry of a slot; 0: it has none."""
        return self._numbers[slot + _HEADER_SLOTS]

    def file(self, rows: memoryview, entries: bytearray, number: int, begin_ms: int) -> int:
        """Take rows as the entries from `number` on; return how many slots had none before."""
        filing = Filing(
            self._numbers,
            self._dirty,
            entries,
            self._shape.slot_count,
            _HEADER_SLOTS,
            _PAGE_SLOTS,
        )
        return file_rows(filing, rows, number, begin_ms)

    # --- Writing ---

    def freeze(self) -> list[SlotPages]:
        """Return the pages that have changed since the last time, as they are now, in order."""
        copy = self._copy = zeros(self._size) if self._copy is None else self._copy
        dirty, self._dirty = self._dirty, bytearray(len(self._dirty))
        if sum(dirty) > _MANY * len(dirty):
            dirty = bytearray(b"\1" * len(dirty))
        changed = [number for number, is_dirty in enumerate(dirty) if is_dirty]
        runs = []
        for first, end in _runs(changed):
            begin, stop = first * PAGE_SIZE, end * PAGE_SIZE
            copy[begin:stop] = self._memory[begin:stop]
            runs.append(SlotPages(first, copy[begin:stop]))
        return runs

    def take_back(self, runs: Iterable[SlotPages]) -> None:
        """Make pages that were frozen and not written changed again."""
        for first, pages in runs:
            count = len(pages) // PAGE_SIZE
            self._dirty[first : first + count] = b"\1" * count

    # --- Coming back ---

    @classmethod
    def read(cls, files: Files, path: Path, shape: Shape) -> "Slots":
        """Return a file's slots; they may name entries that are not there."""
        slots = cls(shape)
        size = shape.entry_position(0)
        for position in range(0, size, _RUN_SIZE):
            data = files.read_at(path, position, min(_RUN_SIZE, size - position)) or b""
            slots._take(position, data if position else bytes(HEADER_SIZE) + data[HEADER_SIZE:])
        return slots

    def _take(self, position: int, data: bytes) -> None:
        for start in range(0, len(data), PAGE_SIZE):
            raw = data[start : start + PAGE_SIZE].ljust(PAGE_SIZE, b"\0")
            if raw != _ZEROS:
                begin = position + start
                self._memory[begin : begin + PAGE_SIZE] = _turned(raw)
                self._read_pages.append(begin // PAGE_SIZE)

    def _page(self, number: int) -> "array[int]":
        return array("I", bytes(self._memory[number * PAGE_SIZE : (number + 1) * PAGE_SIZE]))

    def used_count(self) -> int:
        """Count the slots that had an entry when they were read, and have one."""
        return sum(_PAGE_SLOTS - self._page(number).count(0) for number in self._read_pages)

    def beyond(self, number: int) -> Iterator[tuple[int, int]]:
        """Slots that were read and whose entry is `number` or a later one, with that entry."""
        for page in self._read_pages:
            values = self._page(page)
            if max(values) >= number:
                first = page * _PAGE_SLOTS - _HEADER_SLOTS
                found = enumerate(values, first)
                yield from ((slot, value) for slot, value in found if value >= number)

    def turn_back(self, slot: int, number: int) -> None:
        """Set a slot to an entry that it had before; 0: none."""
        place = slot + _HEADER_SLOTS
        self._numbers[place] = number
        self._dirty[place // _PAGE_SLOTS] = 1


def write_runs(file: BigFile, shape: Shape, runs: Iterable[SlotPages]) -> None:
    """Write pages of slots."""
    for first, pages in runs:
        position = first * PAGE_SIZE
        # The first page begins with the header and the last may end with entries: not ours here.
        skipped = max(0, HEADER_SIZE - position)
        data = _turned(pages)[skipped : shape.entry_position(0) - position]
        file.write_at(position + skipped, data)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return numbers in order as ranges without gaps, each of at most `_RUN_PAGES_MAX`."""
    start = 0
    for at in range(1, len(numbers) + 1):
        is_over = at == len(numbers) or numbers[at] != numbers[at - 1] + 1
        if is_over or at - start == _RUN_PAGES_MAX:
            yield numbers[start], numbers[at - 1] + 1
            start = at


def _turned(pages: bytes | memoryview) -> memoryview:
    """Turn slots from the file's byte order to the machine's, or back."""
    numbers = array("I", bytes(pages))
    if sys.byteorder == "little":
        numbers.byteswap()
    return memoryview(numbers).cast("B")
