"""Arrow columns as bytes of the protocol: messages of batch sends, and property strings.

In: columns of bodies, properties and numbers. Out: one binary array with an element per row, whose
values lie back to back: any run of rows is one piece of memory (`bytes_between`).

Rules:
1. Bytes are those that `wire.batch` and `wire.record` make of the same rows, one by one; what these
   refuse is refused here with the row's number.
2. Bodies are taken as they are: whoever wants them compressed compresses them before, and says so
   in the sysFlag.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orbitmq.arrow.segments import bytes_of, text_scalar
from orbitmq.ensure import ensure
from orbitmq.errors import LocalProtocolError
from orbitmq.wire.batch import MESSAGE_SIZE_MIN
from orbitmq.wire.properties import ENTRY_END, NAME_END, PROPERTIES_SIZE_MAX

_MESSAGE_HEAD = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")]
)
PROPERTIES_SIZE = np.dtype(">i2")
_NAME_END = text_scalar(NAME_END)
_ENTRY_END = text_scalar(ENTRY_END)
_NOTHING = text_scalar("")
_EMPTY = _NOTHING.cast(pa.binary())
_SEPARATORS = f"[{NAME_END}{ENTRY_END}]"


def encode_messages(bodies: Any, properties: Any, flags: Any = None) -> Any:
    """Return each row as a message of a batch send: binary arrays without nulls, numbers for flags.

    The body of a batch of rows i to j is `bytes_between(encoded, i, j)`.
    """
    body_sizes, property_sizes = sizes_of(bodies), sizes_of(properties)
    check_property_sizes(property_sizes)
    head = np.zeros(len(bodies), dtype=_MESSAGE_HEAD)
    head["size"] = MESSAGE_SIZE_MIN + body_sizes + property_sizes
    head["body_size"] = body_sizes
    if flags is not None:
        head["flag"] = np.asarray(flags)
    return joined(as_binary(head), bodies, property_size_bytes(property_sizes), properties)


def bytes_between(encoded: Any, begin: int, end: int) -> memoryview:
    """Return rows [begin, end) of an encoded array as the one piece of memory that they are."""
    _, borders = bytes_of(encoded)
    return memoryview(encoded.buffers()[2]).cast("B")[borders[begin] : borders[end]]


def property_strings(columns: Mapping[str, Any], maps: Any = None) -> Any:
    """The property string of each row: text columns by property name, null for none, and maps.

    Entries stand in the order of `columns`, those of the map behind them. A name in `columns` is
    nowhere else: entries of the map with such a name are left out.
    """
    entries = [_entries_of(name, values) for name, values in columns.items()]
    if maps is not None:
        entries.append(_map_entries(maps, list(columns)))
    if not entries:
        raise LocalProtocolError("property strings need a column or maps")
    closed = pc.binary_join_element_wise(*entries, _NOTHING)
    texts = pc.utf8_rtrim(closed, characters=ENTRY_END)
    check_property_sizes(sizes_of(texts))
    return texts.cast(pa.binary())


def _entries_of(name: str, values: Any) -> Any:
    """Return `name 0x01 value 0x02`, nothing where there is no value."""
    if not name or NAME_END in name or ENTRY_END in name:
        raise LocalProtocolError(f"a property cannot be called {name[:80]!r}")
    _check_values(values, f"property {name!r}")
    return pc.binary_join_element_wise(
        text_scalar(name + NAME_END), values, _ENTRY_END, _NOTHING
    ).fill_null("")


def _map_entries(maps: Any, taken: list[str]) -> Any:
    """Return the entries of each map as one text, each with its end."""
    borders = np.asarray(maps.offsets)
    sizes = np.where(np.asarray(maps.is_valid()), np.diff(borders), 0)
    ensure(int(sizes.sum()) == borders[-1] - borders[0], "a map that is null has no entries")
    rows = np.repeat(np.arange(len(maps)), sizes)
    names = maps.keys.slice(borders[0], borders[-1] - borders[0])
    values = maps.items.slice(borders[0], borders[-1] - borders[0])
    kept = pc.and_(pc.invert(pc.is_in(names, pa.array(taken, pa.string()))), values.is_valid())
    names, values = names.filter(kept), values.filter(kept)
    rows = rows[kept.to_numpy(zero_copy_only=False)]
    _check_names(names)
    _check_values(values, "a property")
    named = pc.binary_join_element_wise(names, values, _NAME_END)
    entries = pc.binary_join_element_wise(named, _ENTRY_END, _NOTHING)
    starts = np.searchsorted(rows, np.arange(len(maps) + 1)).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(starts), entries), _NOTHING)


def _check_names(names: Any) -> None:
    wrong = pc.or_(pc.equal(names, ""), pc.match_substring_regex(names, _SEPARATORS))
    if pc.any(wrong).as_py():
        name = names.filter(wrong)[0].as_py()
        raise LocalProtocolError(f"a property cannot be called {name[:80]!r}")


def _check_values(values: Any, what: str) -> None:
    wrong = pc.or_(pc.equal(values, ""), pc.match_substring(values, ENTRY_END))
    if pc.any(wrong).as_py():
        row = pc.index(wrong, value=True).as_py()
        raise LocalProtocolError(
            f"{what} in row {row} has the value {values[row].as_py()[:80]!r}; "
            "a value is not empty and does not hold 0x02: null leaves a property out"
        )


# --- Pieces that records share ---


def sizes_of(array: Any) -> NDArray[np.int64]:
    """Return how many bytes each element of a binary or text array has."""
    return np.diff(bytes_of(array)[1])


def check_property_sizes(sizes: NDArray[np.int64]) -> None:
    """Raise LocalProtocolError for properties that no record holds."""
    if len(sizes) and sizes.max() > PROPERTIES_SIZE_MAX:
        row = int(sizes.argmax())
        raise LocalProtocolError(
            f"properties of {sizes[row]} bytes in row {row}, limit {PROPERTIES_SIZE_MAX};"
            " move what is large into the body"
        )


def property_size_bytes(sizes: NDArray[np.int64]) -> Any:
    """Return the sizes of properties as records hold them."""
    return as_binary(sizes.astype(PROPERTIES_SIZE))


def as_binary(items: NDArray[Any]) -> Any:
    """Return items of one size as a binary array of their bytes."""
    size = items.dtype.itemsize
    borders = np.arange(0, size * len(items) + 1, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(np.ascontiguousarray(items))]
    return pa.Array.from_buffers(pa.binary(), len(items), buffers)


def joined(*pieces: Any) -> Any:
    """Return the pieces of each row as one."""
    return pc.binary_join_element_wise(*pieces, _EMPTY)
