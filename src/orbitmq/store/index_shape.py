"""What an index file is made of, for those who read it without the store's settings.

In: paths of index files. Out: how many slots and entries they have room for.
Layout: header | slots of 4 bytes | entries of 20 bytes, the first of which is never used.

Rules:
1. A file's size alone does not say where the slots end. The given shape counts when a file has its
   size; otherwise the last entry is looked for: it repeats the header's end offset and the seconds
   from begin to end, and says with the number of entries where the first one must be: that repeats
   the begin offset at 0 seconds with no link, and the chain of its slot ends in it.
2. A file is searched from its end, holes left out, in pieces; a few false finds are expected.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import INDEX_ENTRY
from orbitmq.store.log_walk import PIECE_SIZE, usual_size
from orbitmq.world.files import Files

HEADER = struct.Struct(">qqqqii")
HEADER_SIZE = HEADER.size
ENTRY = INDEX_ENTRY

SLOT_SIZE = 4
_OFFSET_AT = 4
FINDS_MAX = 1_000
"""After so many false finds the shape of a file counts as unknown."""

CHAIN_MAX = 10_000
_NAME_DIGITS = 17


class Header(NamedTuple):
    """The first bytes of an index file; entries are counted from 1."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    used_slots: int
    next_number: int


class Shape(NamedTuple):
    """How many slots a file has, and entries including the one never used."""

    slot_count: int
    entry_count: int

    @property
    def file_size(self) -> int:
        """How long such a file is."""
        return self.entry_position(self.entry_count)

    def entry_position(self, number: int) -> int:
        """Return where an entry begins."""
        return HEADER_SIZE + SLOT_SIZE * self.slot_count + ENTRY.size * number


def is_index_name(name: str) -> bool:
    """Whether an index file can be called so."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


def find_shape(files: Files, paths: list[Path], given: Shape) -> Shape:
    """Return the shape of a folder's index files: `given`, or what the files themselves say."""
    sizes = [files.size(path) or 0 for path in paths]
    size = usual_size(sizes)
    if size == 0 or given.file_size in sizes:
        return given
    for path, own_size in reversed(list(zip(paths, sizes, strict=True))):
        shape = _Search(files, path, size).shape() if own_size == size else None
        if shape is not None:
            return shape
    return given


class _Search:
    """Looks for the shape of one file of a size."""

    def __init__(self, files: Files, path: Path, size: int) -> None:
        self._files = files
        self._path = path
        self._size = size
        self._header = Header(*HEADER.unpack(self._read(0, HEADER_SIZE)))

    def _read(self, position: int, size: int) -> bytes:
        return (self._files.read_at(self._path, position, size) or b"").ljust(size, b"\0")

    def shape(self) -> Shape | None:
        """Return the shape, None when nothing tells it."""
        header = self._header
        if header.next_number < 2 or not 0 <= header.begin_offset <= header.end_offset:
            return None
        seconds = min(max((header.end_ms - header.begin_ms) // 1000, 0), 2**31 - 1)
        last = header.end_offset.to_bytes(8, "big") + seconds.to_bytes(4, "big")
        finds = self._finds(last) if any(last) else self._last_bytes()
        for position in islice(finds, FINDS_MAX):
            first_position = position - _OFFSET_AT - ENTRY.size * (header.next_number - 2)
            shape = self._shape_with_entry(first_position)
            if shape is not None:
                return shape
        return None

    def _finds(self, wanted: bytes) -> Iterator[int]:
        """Return where some bytes are, the last place first."""
        for begin, end in reversed(self._files.data_ranges(self._path, HEADER_SIZE)):
            low = end
            while low > begin:
                high, low = low, max(begin, low - PIECE_SIZE)
                data = self._read(low, high - low + len(wanted) - 1)
                at = data.rfind(wanted)
                while at >= 0:
                    yield low + at
                    at = data.rfind(wanted, 0, at + len(wanted) - 1)

    def _last_bytes(self) -> Iterator[int]:
        """Where the log offset of the last entry may be, by the last byte that is not zero."""
        for begin, end in reversed(self._files.data_ranges(self._path, HEADER_SIZE)):
            for low in range(end - PIECE_SIZE, begin - PIECE_SIZE, -PIECE_SIZE):
                start = max(begin, low)
                size = len(self._read(start, low + PIECE_SIZE - start).rstrip(b"\0"))
                if size:
                    last = start + size - 1
                    yield from range(last - ENTRY.size + 1 + _OFFSET_AT, last + _OFFSET_AT + 1)
                    return

    def _shape_with_entry(self, position: int) -> Shape | None:
        """Return the shape in which entry 1 lies at a position, if everything agrees with it."""
        slots_size = position - ENTRY.size - HEADER_SIZE
        entries_size = self._size - HEADER_SIZE - slots_size
        if slots_size <= 0 or slots_size % SLOT_SIZE or entries_size % ENTRY.size:
            return None
        shape = Shape(slots_size // SLOT_SIZE, entries_size // ENTRY.size)
        unused = self._read(shape.entry_position(0), ENTRY.size)
        if any(unused) or self._header.next_number > shape.entry_count:
            return None
        key_hash, *rest = ENTRY.unpack(self._read(position, ENTRY.size))
        is_first = rest == [self._header.begin_offset, 0, 0]
        return shape if is_first and self._ends_chain(shape, key_hash) else None

    def _ends_chain(self, shape: Shape, first_hash: int) -> bool:
        """Whether the chain of entry 1's slot leads to it, as its last."""
        slot = first_hash % shape.slot_count
        data = self._read(HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE)
        number = int.from_bytes(data, "big", signed=True)
        for _ in range(CHAIN_MAX):
            if not 1 < number < shape.entry_count:
                break
            data = self._read(shape.entry_position(number), ENTRY.size)
            key_hash, _, _, previous = ENTRY.unpack(data)
            if key_hash % shape.slot_count != slot or previous >= number:
                return False
            number = previous
        return number == 1
