"""Parts of memory as Arrow's binary arrays, with one copy.

In: memory, and where parts of it begin and end. Out: an array of those parts.

Rules:
1. Parts ascend and do not overlap: the borders of parts and gaps are the offsets of one array over
   the untouched memory, and every other element of it is copied out.
2. Offsets have 64 bits up to that copy, so memory may be as long as a log file.
3. What is not UTF-8 becomes U+FFFD, as everywhere in messages.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orbitmq.arrow.starts import Positions

Memory = NDArray[np.uint8]


def parts(memory: Any, begins: Positions, ends: Positions) -> Any:
    """Give the parts [begin, end) of an Arrow buffer as a binary array of its own memory."""
    count = len(begins)
    if count == 0:
        return pa.array([], type=pa.binary())
    offsets = np.empty(2 * count, dtype=np.int64)
    offsets[0::2] = begins
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), memory]
    segments = pa.Array.from_buffers(pa.large_binary(), 2 * count - 1, buffers)
    every_other = np.arange(0, 2 * count, 2, dtype=np.int64)
    return pc.take(segments, pa.array(every_other), boundscheck=False).cast(pa.binary())


def as_text(array: Any) -> Any:
    """Give a binary array as text."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if each is None else text_of(each) for each in array.to_pylist()]
        return pa.array(texts, type=pa.string())


def text_of(data: bytes) -> str:
    """Give bytes as text; what is not UTF-8 becomes U+FFFD."""
    return data.decode(errors="replace")


def bytes_of(array: Any) -> tuple[Memory, Positions]:
    """Give the memory of a binary or text array without nulls, and its offsets in it."""
    _, offsets, values = array.buffers()
    borders = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    memory = np.frombuffer(values, dtype=np.uint8) if values else np.empty(0, dtype=np.uint8)
    return memory, borders.astype(np.int64)


def is_ascii(memory: Memory) -> bool:
    """Whether there is no byte above 0x7F: then every part of it is UTF-8."""
    return not len(memory) or bool(memory.max() < 0x80)
