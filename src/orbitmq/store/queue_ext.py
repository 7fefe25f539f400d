"""Extra units of queue entries: the original's consumequeue_ext, for reading only.

In: the tags code of a queue entry that is the address of a unit. Out: the tags code in that unit.

Unit: size i16 (whole) | tags code i64 | store time i64 | size of the bit map i16 | bit map.

Rules:
1. Ours writes none: queue entries hold the tags code itself.
2. Files may have any size; a unit lies in the file with the greatest name not above its place.
3. What cannot be read is None: the entry then passes the filter, and the client filters again.
"""

import struct
from bisect import bisect_right
from pathlib import Path

from orbitmq.errors import StoreError
from orbitmq.store.layout import file_name, is_file_name
from orbitmq.world.files import Files

ADDRESS_MAX = -(2**31) - 1
"""Tags codes are hashes of 32 bits or times; what is smaller than any of them is an address."""

_ADDRESS_BASE = -(2**63)
_UNIT = struct.Struct(">hqqh")
_BLOCK_SIZE = 4_096


class ExtraUnits:
    """The units of one queue; for one thread and one look, since the files may be removed."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._starts: list[int] | None = None
        self._block = b""
        self._block_place = (-1, 0)

    def tags_code(self, address: int) -> int | None:
        """Give the tags code of the unit at an address, or None when there is no such unit."""
        try:
            unit = self._unit(address - _ADDRESS_BASE)
        except StoreError:
            return None
        if len(unit) < _UNIT.size:
            return None
        size, tags_code, _, bits_size = _UNIT.unpack(unit)
        return int(tags_code) if bits_size >= 0 and size == _UNIT.size + bits_size else None

    def _unit(self, offset: int) -> bytes:
        if self._starts is None:
            names = self._files.names(self._folder)
            self._starts = sorted(int(name) for name in names if is_file_name(name))
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return b""
        start = self._starts[index]
        return self._bytes_at(start, offset - start)

    def _bytes_at(self, start: int, position: int) -> bytes:
        """Give the fixed part of a unit; neighbours come from the same block."""
        block_start, block_position = self._block_place
        skip = position - block_position
        is_inside = skip >= 0 and skip + _UNIT.size <= len(self._block)
        if start != block_start or not is_inside:
            path = self._folder / file_name(start)
            self._block = self._files.read_at(path, position, _BLOCK_SIZE) or b""
            self._block_place = (start, position)
            skip = 0
        return self._block[skip : skip + _UNIT.size]
