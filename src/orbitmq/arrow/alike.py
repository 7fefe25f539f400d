"""Properties of rows that are all alike: the same names, and each value of one length in all rows.

In: properties as stored, all of one length, back to back. Out: their values by columns, or None
when a row is not like the first one.

Rules:
1. So it is with most messages of a topic: ids have one length, and keys and tags mostly do. Then
   nothing need be searched for: the places of the first row are those of all.
2. Rows are alike when they have the first one's bytes wherever it has names and separators, and no
   separators elsewhere.
3. Only the plain form counts: name 0x01 value 0x02 …, the last 0x02 there or not, no name or value
   empty, names in UTF-8. Of a name that is there twice (WAIT is, in messages that were sent
   together) the last value counts, in the first one's place.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orbitmq.arrow.segments import Memory, evenly, plain_array
from orbitmq.wire.properties import ENTRY_END, NAME_END

_NAME_END, _ENTRY_END = NAME_END.encode(), ENTRY_END.encode()
_SEPARATOR_MAX = max(_NAME_END[0], _ENTRY_END[0])
_SHAPES_MAX = 8


class Shape(NamedTuple):
    """What rows have in common: their bytes but for the values, and where values are."""

    frame: bytes
    """A row with zeros for its values."""
    is_frame: bytes
    """0xFF where a row has no value."""
    entry_count: int
    names: tuple[str, ...]
    starts: tuple[int, ...]
    sizes: tuple[int, ...]


class AlikeRows:
    """The values of rows that are alike."""

    def __init__(self, rows: Memory, count: int, shape: Shape) -> None:
        self.names = shape.names
        self._count = count
        self._sizes = shape.sizes
        fields: Any = {
            "names": [str(number) for number in range(len(shape.names))],
            "formats": [f"V{size}" for size in shape.sizes],
            "offsets": list(shape.starts),
            "itemsize": len(shape.frame),
        }
        self._rows: NDArray[Any] = rows.view(np.dtype(fields))

    def values(self, name: str) -> Any:
        """Return the values of one name, which all rows have, as a binary array."""
        at = self.names.index(name)
        values = np.ascontiguousarray(self._rows[str(at)])
        return evenly(values.view(np.uint8), self._sizes[at], self._count)

    def all_values(self) -> Any:
        """Return the values of all names, row by row, as a binary array."""
        packed = np.empty(
            self._count, dtype=[(str(at), f"V{size}") for at, size in enumerate(self._sizes)]
        )
        for at in range(len(self._sizes)):
            packed[str(at)] = self._rows[str(at)]
        offsets = _offsets(self._sizes, self._count)
        buffers = [None, offsets, pa.py_buffer(packed.view(np.uint8))]
        length = len(self._sizes) * self._count
        return pa.Array.from_buffers(pa.binary(), length, buffers, null_count=0)

    def map_starts(self) -> Any:
        """Return the first entry of each row, and one behind the last."""
        return _map_starts(len(self.names), self._count)

    def map_names(self) -> Any:
        """Return the names of all entries, row by row."""
        return _map_names(self.names, self._count)


def find_alike(memory: Memory, size: int, count: int) -> AlikeRows | None:
    """Return rows of `size` bytes each if all are like the first (rule 2)."""
    shape = _shape(memory[:size].tobytes()) if size and count else None
    if shape is None:
        return None
    frames, is_frame = _tiled(shape.frame, count), _tiled(shape.is_frame, count)
    separators = 2 * shape.entry_count - (shape.frame[-1] != _ENTRY_END[0])
    if np.count_nonzero(memory <= _SEPARATOR_MAX) != separators * count:
        return None
    return AlikeRows(memory, count, shape) if ((memory & is_frame) == frames).all() else None


def _shape(row: bytes) -> Shape | None:
    """Return where values are in a row; None for what is not of the plain form (rule 3)."""
    frame, is_frame = bytearray(row), bytearray(b"\xff" * len(row))
    places: dict[bytes, tuple[int, int]] = {}
    entries = row.removesuffix(_ENTRY_END).split(_ENTRY_END)
    begin = 0
    for entry in entries:
        name, _, value = entry.partition(_NAME_END)
        if not name or not value or _NAME_END in value:
            return None
        start, size = begin + len(name) + 1, len(value)
        frame[start : start + size] = is_frame[start : start + size] = bytes(size)
        places[name] = start, size
        begin += len(entry) + 1
    try:
        names = tuple(name.decode() for name in places)
    except UnicodeDecodeError:
        return None
    starts, sizes = zip(*places.values(), strict=True)
    return Shape(bytes(frame), bytes(is_frame), len(entries), names, starts, sizes)


@lru_cache(maxsize=2 * _SHAPES_MAX)
def _tiled(row: bytes, count: int) -> Memory:
    """Return `count` rows of these bytes."""
    return np.tile(np.frombuffer(row, dtype=np.uint8), count)


@lru_cache(maxsize=_SHAPES_MAX)
def _offsets(sizes: tuple[int, ...], count: int) -> Any:
    """Return the offsets of values that lie back to back, `count` rows of them."""
    offsets = np.zeros(len(sizes) * count + 1, dtype=np.int32)
    np.cumsum(np.tile(np.array(sizes, dtype=np.int32), count), out=offsets[1:])
    return pa.py_buffer(offsets)


@lru_cache(maxsize=_SHAPES_MAX)
def _map_starts(name_count: int, count: int) -> Any:
    starts = np.arange(0, name_count * count + 1, name_count, dtype=np.int32)
    return plain_array(starts, pa.int32())


@lru_cache(maxsize=_SHAPES_MAX)
def _map_names(names: tuple[str, ...], count: int) -> Any:
    row = [name.encode() for name in names]
    values = np.tile(np.frombuffer(b"".join(row), dtype=np.uint8), count)
    buffers = [None, _offsets(tuple(map(len, row)), count), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.string(), len(names) * count, buffers, null_count=0)
