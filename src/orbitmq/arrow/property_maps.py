"""The properties of many records: as maps, and single ones of them as columns.

In: the properties of records as stored, one binary array. Out: a map array, or text arrays.

Rules:
1. The outcome is that of `wire.properties.parse_properties`, row by row.
2. Rows that are all alike (alike.py) are read by columns. Of others the entries are found in all
   rows together (entries.py). Where one is not of the plain form, or a value is not UTF-8, all rows
   of the batch are read one by one: right before quick.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from orbitmq.arrow.alike import AlikeRows, find_alike
from orbitmq.arrow.columns import arrow_type
from orbitmq.arrow.entries import Entries, find_entries
from orbitmq.arrow.segments import (
    bytes_of,
    is_ascii,
    parts_in_any_order,
    places_or_none,
    plain_array,
    text_array,
)
from orbitmq.arrow.starts import Positions
from orbitmq.wire.properties import parse_properties

MAP_TYPE = arrow_type("map<string,string>")


class Properties:
    """The properties of one batch, read once for all columns that want them."""

    def __init__(self, stored: Any, *, are_all_wanted: bool) -> None:
        """`stored` is a binary array without nulls; `are_all_wanted` says that maps will be."""
        self._stored = stored
        self._memory, borders = bytes_of(stored)
        self._is_ascii = is_ascii(self._memory)
        self._dicts: list[dict[str, str]] = []
        self._values: Any = None
        self._entries: Entries | None = None
        self._alike = self._found_alike(borders) if self._is_ascii else None
        if self._alike is not None:
            return
        self._entries = find_entries(self._memory, borders)
        if are_all_wanted and self._entries is not None:
            self._values = self._texts(self._entries, slice(None))
        if self._entries is None:
            self._read_one_by_one()

    def _found_alike(self, borders: Positions) -> AlikeRows | None:
        count = len(borders) - 1
        size = int(borders[1]) if count else 0
        is_even = size * count == len(self._memory) and bool((np.diff(borders) == size).all())
        return find_alike(self._memory, size, count) if is_even else None

    def maps(self) -> Any:
        """Return all of them as a map array."""
        alike, entries = self._alike, self._entries
        if alike is not None:
            values = alike.all_values().view(pa.string())
            return pa.MapArray.from_arrays(alike.map_starts(), alike.map_names(), values)
        if entries is None:
            return pa.array([list(each.items()) for each in self._dicts], type=MAP_TYPE)
        starts = plain_array(entries.row_start.astype(np.int32), pa.int32())
        names = entries.names.take(plain_array(entries.name, pa.int32()))
        return pa.MapArray.from_arrays(starts, names, self._values)

    def column(self, name: str) -> Any:
        """Return the values of one property, null where a row has none."""
        if self._alike is not None:
            if name in self._alike.names:
                return self._alike.values(name).view(pa.string())
            return pa.nulls(len(self._stored), pa.string())
        values, rows = self._found(name)
        if self._entries is None:
            return pa.array([each.get(name) for each in self._dicts], type=pa.string())
        count = len(self._stored)
        if len(rows) == count:
            return values
        places = np.full(count, -1, dtype=np.int64)
        places[rows] = np.arange(len(rows))
        return values.take(places_or_none(places))

    def _found(self, name: str) -> tuple[Any, Any]:
        """Return the values of one property and their rows."""
        entries = self._entries
        if entries is None:
            return text_array([]), np.empty(0, dtype=np.int64)
        found = entries.of_name(name)
        rows = found if entries.is_alike else entries.rows(found)
        if self._values is not None:
            return self._values.take(plain_array(found, pa.int64())), rows
        return self._texts(entries, found), rows

    def _texts(self, entries: Entries, which: Any) -> Any:
        """Return values as text; where one is not, everything is read anew."""
        begins, ends = entries.value_start[which], entries.value_end[which]
        values = parts_in_any_order(pa.py_buffer(self._memory), begins, ends)
        if self._is_ascii:
            return values.view(pa.string())
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            self._read_one_by_one()

    def _read_one_by_one(self) -> None:
        self._entries = None
        self._dicts = [parse_properties(each) for each in self._stored.to_pylist()]
