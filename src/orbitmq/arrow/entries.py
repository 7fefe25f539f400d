"""Where the entries of many property strings lie: found for all rows of a batch together.

In: properties as stored, back to back in one memory. Out: names and values of all entries by their
places, or None when a row is not of the plain form.

Rules:
1. Plain form: name 0x01 value 0x02 …, the last 0x02 there or not, no name or value empty, no 0x01
   in a value, names in UTF-8. Of a name that a row has twice (WAIT, in messages that were sent
   together) the last value counts, in the first one's place: values need not ascend then.
2. Most batches have the same names in the same order in every row. These are compared as a whole;
   only where they differ is each name looked up.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orbitmq.arrow.segments import Memory, items_at, numbers_of, parts, text_array
from orbitmq.arrow.starts import Positions
from orbitmq.wire.properties import ENTRY_END, NAME_END

_NAME_END, _ENTRY_END = ord(NAME_END), ord(ENTRY_END)
_SEPARATOR_MAX = max(_NAME_END, _ENTRY_END)
_BITS_MAX = 62
"""So many names are told apart by the bits of one number."""


class Entries(NamedTuple):
    """All entries of all rows, in order."""

    row_start: Positions
    """The first entry of each row, and one behind the last."""
    value_start: Positions
    value_end: Positions
    name: NDArray[Any]
    """Numbers in `names`."""
    names: Any
    """Each name once, as Arrow text."""
    is_alike: bool
    """Whether every row has all names in the same order."""

    def of_name(self, name: str) -> Positions:
        """Return the entries of one name."""
        names = self.names.to_pylist()
        if name not in names:
            return np.empty(0, dtype=np.int64)
        number = names.index(name)
        if self.is_alike:
            return np.arange(number, len(self.value_end), len(self.names))
        return np.flatnonzero(self.name == number)

    def rows(self, which: Positions) -> Positions:
        """Return the rows of entries."""
        return np.searchsorted(self.row_start, which, side="right") - 1


class _Separators(NamedTuple):
    """Where names end, where 0x02 is, where rows begin and end, and which rows lack the last."""

    name_end: Positions
    entry_end: Positions
    row_begin: Positions
    row_end: Positions
    is_open: NDArray[np.bool_]


def find_entries(memory: Memory, borders: Positions) -> Entries | None:
    """Return the entries of the rows that lie between `borders`."""
    separators = _separators(memory, borders)
    alike = _alike_entries(memory, separators)
    return alike if alike is not None else _other_entries(memory, separators, borders)


def _separators(memory: Memory, borders: Positions) -> _Separators:
    first = int(borders[0])
    used = memory[first : borders[-1]]
    begin, end = borders[:-1], borders[1:]
    is_open = end > begin
    is_open[is_open] = used[end[is_open] - 1 - first] != _ENTRY_END
    found = np.flatnonzero(used <= _SEPARATOR_MAX)
    kind = used[found]
    found += first
    name_end, entry_end = found[kind == _NAME_END], found[kind == _ENTRY_END]
    return _Separators(name_end, entry_end, begin, end, is_open)


def _alike_entries(memory: Memory, found: _Separators) -> Entries | None:
    """Return the entries if every row has the same names in the same order."""
    rows = len(found.row_begin)
    count, rest = divmod(len(found.name_end), max(rows, 1))
    is_open = bool(found.is_open.all())
    if not count or rest or len(found.entry_end) != rows * (count - is_open):
        return None
    ends = np.empty((rows, count), dtype=np.int64)
    ends[:, : count - is_open] = found.entry_end.reshape(rows, count - is_open)
    if is_open:
        ends[:, -1] = found.row_end
    starts = np.empty_like(ends)
    starts[:, 0] = found.row_begin
    np.add(ends[:, :-1], 1, out=starts[:, 1:])
    name_ends = found.name_end.reshape(rows, count)
    sizes = name_ends - starts
    value_starts = name_ends + 1
    if sizes[0].min() < 1 or not (sizes == sizes[0]).all() or not (value_starts < ends).all():
        return None
    if not is_open and not (ends[:, -1] + 1 == found.row_end).all():
        return None
    columns = _common_names(memory, starts, sizes[0].tolist())
    names = None if columns is None else _texts(list(columns))
    if columns is None or names is None:
        return None
    if len(columns) < count:
        last = list(columns.values())
        value_starts, ends, count = value_starts[:, last], ends[:, last], len(last)
    row_start = np.arange(0, rows * count + 1, count)
    number = np.tile(np.arange(count, dtype=np.int32), rows)
    return Entries(row_start, value_starts.ravel(), ends.ravel(), number, names, is_alike=True)


def _common_names(memory: Memory, starts: Positions, sizes: list[int]) -> dict[bytes, int] | None:
    """Return the names of the first row, each with its last column, if all rows have them."""
    names: dict[bytes, int] = {}
    for column, size in enumerate(sizes):
        found = items_at(memory, starts[:, column], size).view(np.uint8).reshape(-1, size)
        if not (found == found[0]).all():
            return None
        names[found[0].tobytes()] = column
    return names


def _texts(names: list[bytes]) -> Any:
    try:
        return text_array([name.decode() for name in names])
    except UnicodeDecodeError:
        return None


def _other_entries(memory: Memory, found: _Separators, borders: Positions) -> Entries | None:
    """Return the entries of rows that differ."""
    entry_end, entry_next = _all_ends(found)
    if len(found.name_end) != len(entry_end):
        return None
    start = np.empty_like(entry_end)
    start[1:] = entry_next[:-1]
    start[:1] = borders[0]
    if not ((found.name_end > start) & (found.name_end + 1 < entry_end)).all():
        return None
    row_start = np.searchsorted(entry_end, borders, side="right")
    row_start[0] = 0
    row = np.repeat(np.arange(len(borders) - 1), np.diff(row_start))
    try:
        names = parts(pa.py_buffer(memory), start, found.name_end).cast(pa.string())
    except pa.ArrowInvalid:
        return None
    encoded = names.dictionary_encode()
    number = numbers_of(encoded.indices, np.int32)
    value_start = found.name_end + 1
    if _has_twice(number, row, len(encoded.dictionary)):
        first, last = _first_and_last(row * len(encoded.dictionary) + number)
        row_start = np.searchsorted(row[first], np.arange(len(borders)))
        value_start, entry_end, number = value_start[last], entry_end[last], number[first]
    names = encoded.dictionary
    return Entries(row_start, value_start, entry_end, number, names, is_alike=False)


def _first_and_last(keys: NDArray[Any]) -> tuple[Positions, Positions]:
    """Return where each key is first and where it is last, in the order of the first."""
    _, first = np.unique(keys, return_index=True)
    _, from_behind = np.unique(keys[::-1], return_index=True)
    order = np.argsort(first)
    return first[order], (len(keys) - 1 - from_behind)[order]


def _all_ends(found: _Separators) -> tuple[Positions, Positions]:
    """Return where entries end, and where the next begins: a row's end ends its last entry, too."""
    real, open_ends = found.entry_end, found.row_end[found.is_open]
    if not len(open_ends):
        return real, real + 1
    # An open row ends where the next begins: a separator there is the next row's, so it comes last.
    places = np.searchsorted(real, open_ends, side="left")
    return np.insert(real, places, open_ends), np.insert(real + 1, places, open_ends)


def _has_twice(names: NDArray[Any], rows: Positions, name_count: int) -> bool:
    """Whether a row has a name twice."""
    if not len(names):
        return False
    if name_count > _BITS_MAX:
        keys = rows * name_count + names
        return len(np.unique(keys)) != len(keys)
    bits = np.left_shift(1, names, dtype=np.int64)
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    return bool((np.add.reduceat(bits, first) != np.bitwise_or.reduceat(bits, first)).any())
