"""Parts of memory as Arrow's binary arrays, with one copy.

In: memory, and where parts of it begin and end. Out: an array of those parts. Beside it: small
arrays made of NumPy's, and NumPy's of arrays, without what rule 5 tells of.

Rules:
1. Parts ascend and do not overlap. Each is copied once, whichever way is taken.
2. Parts of one length, as of most messages of a topic, are copied as items of that size. Long ones
   of several lengths are views over the untouched memory, which Arrow copies out at once. For the
   others the borders of parts and gaps are the offsets of one array, and every other element of it
   is copied out.
3. Memory may be as long as a log file: positions have 64 bits up to the copy.
4. What is not UTF-8 becomes U+FFFD, as everywhere in messages.
5. Arrays are made of buffers: `pa.array`, `pa.scalar`, `pa.repeat`, `index` and `to_numpy` import
   pandas where it is installed, half a second of CPU in each of Spark's workers.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orbitmq.arrow.starts import Positions

Memory = NDArray[np.uint8]

SPAN_MAX = 2**31 - 1
"""How far apart the parts of one array of views may lie."""

_VIEW = np.dtype([("size", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE_MAX = 12
"""Shorter parts would have to lie in the view itself."""


def parts(memory: Any, begins: Positions, ends: Positions) -> Any:
    """Return the parts [begin, end) of an Arrow buffer as a binary array of its own memory."""
    if not len(begins):
        return evenly(np.empty(0, dtype=np.uint8), 0, 0)
    sizes = ends - begins
    least, most = int(sizes.min()), int(sizes.max())
    if least == most > 0:
        items = items_at(np.frombuffer(memory, dtype=np.uint8), begins, most)
        return evenly(items.view(np.uint8), most, len(begins))
    if least > _INLINE_MAX and ends[-1] - begins[0] <= SPAN_MAX:
        return _viewed(memory, begins, sizes)
    return _taken(memory, begins, ends)


def parts_in_any_order(memory: Any, begins: Positions, ends: Positions) -> Any:
    """Return parts that need not ascend, as `parts` does."""
    if (begins[1:] > begins[:-1]).all():
        return parts(memory, begins, ends)
    order = np.argsort(begins, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return parts(memory, begins[order], ends[order]).take(plain_array(place, pa.int64()))


def items_at(memory: Memory, begins: Positions, size: int) -> NDArray[Any]:
    """Return copies of the `size` bytes at each place, as opaque items."""
    items: NDArray[Any] = np.ndarray(
        (len(memory) - size + 1,), dtype=f"V{size}", buffer=memory, strides=(1,)
    )
    return items[begins]


def evenly(values: Memory, size: int, count: int) -> Any:
    """Return memory as a binary array of `count` elements of one size."""
    offsets = np.arange(0, size * count + 1, size or 1, dtype=np.int32)[: count + 1]
    if not size:
        offsets = np.zeros(count + 1, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=0)


def repeated(text: str, count: int) -> Any:
    """Return a text array that has one text `count` times."""
    data = text.encode()
    values = np.tile(np.frombuffer(data, dtype=np.uint8), count)
    return evenly(values, len(data), count).view(pa.string())


def text_array(words: Sequence[str]) -> Any:
    """Return a text array of a few words."""
    data = [word.encode() for word in words]
    offsets = np.array([0, *accumulate(map(len, data))], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.string(), len(data), buffers, null_count=0)


def text_scalar(text: str) -> Any:
    """Return one text, as functions of Arrow take it beside arrays."""
    return repeated(text, 1)[0]


def plain_array(values: NDArray[Any], kind: Any) -> Any:
    """Return native numbers as an array of a type of their size."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def places_or_none(places: Positions) -> Any:
    """Return places to take from an array; one below 0 is a null."""
    is_there = np.packbits(places >= 0, bitorder="little")
    buffers = [pa.py_buffer(is_there), pa.py_buffer(places)]
    return pa.Array.from_buffers(pa.int64(), len(places), buffers)


def numbers_of(array: Any, kind: type[np.generic]) -> NDArray[Any]:
    """Return the numbers of an array without nulls; `kind` is their type."""
    begin = array.offset
    numbers: NDArray[Any] = np.frombuffer(array.buffers()[1], dtype=kind)
    return numbers[begin : begin + len(array)]


def mask_of(array: Any) -> NDArray[np.bool_]:
    """Return a boolean array without nulls as a mask."""
    begin = array.offset
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], dtype=np.uint8), bitorder="little")
    return bits[begin : begin + len(array)].view(np.bool_)


def _viewed(memory: Any, begins: Positions, sizes: Positions) -> Any:
    first = int(begins[0])
    views = np.zeros(len(begins), dtype=_VIEW)
    views["size"] = sizes
    views["offset"] = begins - first
    buffers = [None, pa.py_buffer(views), memory.slice(first)]
    viewed = pa.Array.from_buffers(pa.binary_view(), len(begins), buffers, null_count=0)
    return viewed.cast(pa.binary())


def _taken(memory: Any, begins: Positions, ends: Positions) -> Any:
    count = len(begins)
    offsets = np.empty(2 * count, dtype=np.int64)
    offsets[0::2] = begins
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), memory]
    segments = pa.Array.from_buffers(pa.large_binary(), 2 * count - 1, buffers)
    every_other = np.arange(0, 2 * count, 2, dtype=np.int64)
    places = plain_array(every_other, pa.int64())
    return pc.take(segments, places, boundscheck=False).cast(pa.binary())


def as_text(array: Any) -> Any:
    """Return a binary array as text."""
    if is_ascii(bytes_of(array)[0]):
        return array.view(pa.string())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if each is None else text_of(each) for each in array.to_pylist()]
        return pa.array(texts, type=pa.string())


def text_of(data: bytes) -> str:
    """Return bytes as text; what is not UTF-8 becomes U+FFFD."""
    return data.decode(errors="replace")


def bytes_of(array: Any) -> tuple[Memory, Positions]:
    """Return the memory of a binary or text array without nulls, and its offsets in it."""
    _, offsets, values = array.buffers()
    borders = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    memory = np.frombuffer(values, dtype=np.uint8) if values else np.empty(0, dtype=np.uint8)
    return memory, borders.astype(np.int64)


def is_ascii(memory: Memory) -> bool:
    """Whether there is no byte above 0x7F: then every part of it is UTF-8."""
    return not len(memory) or bool(memory.max() < 0x80)
