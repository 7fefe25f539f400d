"""Extra units of queue entries, the original's consumequeue_ext: their form, and reading them.

In: the code of a queue entry that is the address of a unit. Out: the unit: the tags code, when the
record was stored, and the bits of the filters that it passed.

Unit: size i16 (whole) | tags code i64 | store time i64 | size of the bit map i16 | bit map.

Rules:
1. Files may have any size; a unit lies in the file with the greatest name not above its place. The
   last 4 bytes of a file hold no unit, and a size of -1 says that the next unit is in the next one.
2. What cannot be read is None: the entry then passes the filter, and the client filters again.
3. Along a queue addresses grow; entries without a unit may lie between.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Container
from pathlib import Path
from typing import NamedTuple

from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import StoreError
from orbitmq.store.layout import file_name, is_file_name
from orbitmq.world.files import Files

ADDRESS_MAX = -(2**31) - 1
"""Tags codes are hashes of 32 bits or times; what is smaller than any of them is an address."""

KEPT_SIZE = 4
"""Of a file's end, which no unit takes."""

END_MARK = struct.pack(">h", -1)

_ADDRESS_BASE = -(2**63)
_UNIT = struct.Struct(">hqqh")
_BLOCK_SIZE = 4_096
_WALK_SIZE = 1 << 20
_LOOK_COUNT = 4_096

ReadEntries = Callable[[int, int], bytes]
"""Gives up to so many entries of one queue from a queue offset on."""


class Unit(NamedTuple):
    """What is kept of one record beside its queue entry."""

    tags_code: int
    store_ms: int
    bit_map: bytes
    """Empty: nobody looked which filters it passes."""


UnitFilter = Callable[[Unit], bool]
"""Says of a unit whether its record may pass."""


def is_address(code: int) -> bool:
    """Whether the code of a queue entry is the address of a unit."""
    return code <= ADDRESS_MAX


def address_of(offset: int) -> int:
    """Return the address of the unit that lies at a place of the queue's files."""
    return offset + _ADDRESS_BASE


def offset_of(address: int) -> int:
    """Return the place of the unit that an address leads to."""
    return address - _ADDRESS_BASE


def encode_unit(tags_code: int, store_ms: int, bit_map: bytes) -> bytes:
    """Return a unit's bytes; a bit map is much shorter than the 32,747 bytes that fit."""
    bits_size = len(bit_map)
    return _UNIT.pack(_UNIT.size + bits_size, tags_code, store_ms, bits_size) + bit_map


class ExtraUnits:
    """The units of one queue; for one thread and one look, since the files may be removed."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._starts: list[int] | None = None
        self._block = b""
        self._block_place = (-1, 0)

    def tags_code(self, code: int) -> int | None:
        """Return the tags code that an entry's code stands for; None for an address to nowhere."""
        if not is_address(code):
            return code
        unit = self.unit(code)
        return None if unit is None else unit.tags_code

    def may_pass(
        self, code: int, codes: Container[int] | None, may_accept: UnitFilter | None
    ) -> bool:
        """Whether the record of an entry with this code may pass, by its tags code and its bits.

        None lets everything through, and so does a unit that cannot be read.
        """
        if not is_address(code):
            return codes is None or code in codes
        if codes is None and may_accept is None:
            return True
        unit = self.unit(code)
        if unit is None:
            return True
        is_taken = codes is None or unit.tags_code in codes
        return is_taken and (may_accept is None or may_accept(unit))

    def fits(self, address: int, tags_code: int, *, trusts_bits: bool) -> bool:
        """Whether an entry whose tags code is this may keep its address."""
        unit = self.unit(address)
        if unit is None or unit.tags_code != tags_code:
            return False
        return trusts_bits or not unit.bit_map

    def unit(self, address: int) -> Unit | None:
        """Return the unit at an address, or None when there is no such unit."""
        try:
            return self._unit(offset_of(address))
        except StoreError:
            return None

    def expired(self, offset: int) -> list[Path]:
        """Return the files all of whose units lie before a place; never the last file."""
        starts = self._places()
        count = bisect_right(starts[1:], offset)
        return [self._folder / file_name(start) for start in starts[:count]]

    def _places(self) -> list[int]:
        if self._starts is None:
            self._starts = unit_files(self._files, self._folder)
        return self._starts

    def _unit(self, offset: int) -> Unit | None:
        starts = self._places()
        index = bisect_right(starts, offset) - 1
        if index < 0:
            return None
        start = starts[index]
        head = self._bytes_at(start, offset - start, _UNIT.size)
        if len(head) < _UNIT.size:
            return None
        size, tags_code, store_ms, bits_size = _UNIT.unpack(head)
        if bits_size < 0 or size != _UNIT.size + bits_size:
            return None
        bits = self._bytes_at(start, offset - start, size)[_UNIT.size :]
        return Unit(tags_code, store_ms, bits) if len(bits) == bits_size else None

    def _bytes_at(self, start: int, position: int, size: int) -> bytes:
        """Return bytes of one file; neighbours come from the same block."""
        block_start, block_position = self._block_place
        skip = position - block_position
        is_inside = skip >= 0 and skip + size <= len(self._block)
        if start != block_start or not is_inside:
            path = self._folder / file_name(start)
            self._block = self._files.read_at(path, position, max(size, _BLOCK_SIZE)) or b""
            self._block_place = (start, position)
            skip = 0
        return self._block[skip : skip + size]


def unit_files(files: Files, folder: Path) -> list[int]:
    """Return the places at which the files of a queue's units begin."""
    return [int(name) for name in files.names(folder) if is_file_name(name)]


def end_of_units(files: Files, path: Path) -> int | None:
    """Return where the units of a file end in zeros; None where they do not, or are damaged."""
    position = 0
    while data := files.read_at(path, position, _WALK_SIZE):
        at = 0
        while at + _UNIT.size <= len(data):
            size, _, _, bits_size = _UNIT.unpack_from(data, at)
            if not size:
                return position + at
            if bits_size < 0 or size != _UNIT.size + bits_size:
                return None
            if at + size > len(data):
                break
            at += size
        if not at:
            return None
        position += at
    return None


def last_address(read: ReadEntries, first_offset: int, end_offset: int) -> int | None:
    """Return the last address in the codes of a queue's entries between two queue offsets."""
    while end_offset > first_offset:
        start = max(first_offset, end_offset - _LOOK_COUNT)
        found: int | None = None
        at = start
        while at < end_offset and (entries := read(at, end_offset - at)):  # short at a file's end
            for _, _, code in ENTRY.iter_unpack(entries):
                found = code if is_address(code) else found
            at += len(entries) // ENTRY_SIZE
        if found is not None:
            return found
        end_offset = start
    return None
