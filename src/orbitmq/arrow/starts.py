"""Where records begin: along their sizes.

In: bytes that hold stored records, of a log file or of pull answers. Out: positions in them.

Rules:
1. A walk follows sizes and stops at the first thing that is no record; it says what that is. It
   looks at sizes, magics and (with `base`) at what a record says of its own place, nothing else.
2. A record that begins before `end` belongs to the walk, also when it reaches behind `end`.
"""

import struct
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orbitmq.wire.record import BLANK_MAGIC, FIELD, MAGIC_V1, MAGIC_V2, PREFIX, RECORD_SIZE_MIN

Bytes = bytes | bytearray | memoryview
Positions = NDArray[np.int64]
Stop = Literal["end", "blank", "zero", "damage", "cut"]
"""end: the asked end was reached. blank: the log goes on in its next file. zero: nothing was
written here yet. cut: the record is longer than the data. damage: anything else."""

COUNT_MAX = 1 << 62
"""As many as there are."""

RUN_MIN = 64
RUN_GROWTH = 4
STEPS_MAX = 1_024
"""Records of one size often follow each other: so many are looked at together, then more. Where
their sizes differ more and more are followed one by one before that is tried again."""

_MAGIC_AT = FIELD["magic"].position
_OWN_AT = FIELD["log_offset"].position
_OWN = struct.Struct(f">iI{_OWN_AT - PREFIX.size}xq")  # size, magic, own log offset


class Starts(NamedTuple):
    """Where records begin, where the walk stopped, and why there."""

    positions: Positions
    end: int
    stop: Stop


def walk(
    data: Bytes,
    begin: int = 0,
    end: int | None = None,
    *,
    base: int | None = None,
    count_max: int = COUNT_MAX,
) -> Starts:
    """Return the records that begin in [begin, end) of `data`, back to back, `count_max` at most.

    `base` is the log offset of data[0]: then a record counts only if it says that it lies there.
    """
    end = len(data) if end is None else end
    positions, following = _chain(data, begin, end, count_max)
    count = good_count(data, positions, base)
    if count < len(positions):
        following = int(positions[count])
    is_over = following >= end or count >= count_max
    stop: Stop = "end" if is_over else stop_at(data, following)
    return Starts(positions[:count], following, stop)


def _chain(data: Bytes, begin: int, end: int, count_max: int) -> tuple[Positions, int]:
    """Follow the sizes; return the positions that they lead to, and where the last one leads."""
    memory = np.frombuffer(data, dtype=np.uint8)
    least = len(memory) - RECORD_SIZE_MIN
    last = min(end - 1, least)
    if begin > last:
        return np.empty(0, dtype=np.int64), begin
    # Every byte begins a number here: reading one is quicker than unpacking it.
    sizes: NDArray[Any] = np.ndarray((least + 1,), dtype=">i4", buffer=memory, strides=(1,))
    left = min(count_max, (last - begin) // RECORD_SIZE_MIN + 1)
    pieces: list[Positions] = []
    position, run, steps = begin, RUN_MIN, RUN_MIN
    while position <= last and left > 0:
        size = sizes.item(position)
        if size < RECORD_SIZE_MIN:
            break
        found = _run(sizes, position, size, min(run, left, (last - position) // size + 1))
        run, steps_next = run * RUN_GROWTH, RUN_MIN
        if len(found) < RUN_MIN:
            found, size = _steps(sizes, position, last, min(left, steps))
            run, steps_next = RUN_MIN, min(steps * RUN_GROWTH, STEPS_MAX)
        steps = steps_next
        pieces.append(found)
        position = int(found[-1]) + size
        left -= len(found)
    positions = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)
    if position > len(memory):
        return positions[:-1], int(positions[-1])
    return positions, position


def _run(sizes: NDArray[Any], position: int, size: int, count: int) -> Positions:
    """Return the records of one size that follow each other, `count` at most."""
    is_same = sizes[position : position + (count - 1) * size + 1 : size] == size
    if not is_same.all():
        count = int(is_same.argmin())
    return np.arange(position, position + count * size, size, dtype=np.int64)


def _steps(sizes: NDArray[Any], position: int, last: int, count: int) -> tuple[Positions, int]:
    """Follow `count` sizes one by one; give where they lead, and the last one."""
    found: list[int] = []
    size_at, add = sizes.item, found.append
    taken = 0
    for _ in range(count):
        size = size_at(position)
        if size < RECORD_SIZE_MIN:
            break
        add(position)
        taken = size
        position += size
        if position > last:
            break
    return np.array(found, dtype=np.int64), taken


def good_count(data: Bytes, positions: Positions, base: int | None) -> int:
    """How many of the first positions have a magic and, with `base`, say that they are own."""
    if not len(positions):
        return 0
    memory = np.frombuffer(data, dtype=np.uint8)
    magics = _numbers_at(memory, positions + _MAGIC_AT, ">u4")
    is_good = (magics == MAGIC_V1) | (magics == MAGIC_V2)
    if base is not None:
        is_good &= _numbers_at(memory, positions + _OWN_AT, ">i8") == positions + base
    return len(positions) if is_good.all() else int(np.argmin(is_good))


def _numbers_at(memory: NDArray[np.uint8], places: Positions, kind: str) -> NDArray[Any]:
    size = np.dtype(kind).itemsize
    shape = (len(memory) - size + 1,)
    numbers: NDArray[Any] = np.ndarray(shape, dtype=kind, buffer=memory, strides=(1,))
    return numbers[places]


def stop_at(data: Bytes, position: int) -> Stop:
    """Say what lies where no whole record begins."""
    left = len(data) - position
    if left < PREFIX.size:
        return "zero" if not any(data[position:]) else "cut"
    size, magic = PREFIX.unpack_from(data, position)
    if magic == BLANK_MAGIC:
        return "blank"
    if size == 0 and magic == 0:
        return "zero"
    is_record = size >= RECORD_SIZE_MIN and magic in (MAGIC_V1, MAGIC_V2)
    return "cut" if is_record and size > left else "damage"


def is_own(data: Bytes, position: int, base: int) -> bool:
    """Whether a record begins here by its magic, its least size and what it says of its place."""
    if len(data) - position < RECORD_SIZE_MIN:
        return False
    size, magic, own = _OWN.unpack_from(data, position)
    is_record = magic in (MAGIC_V1, MAGIC_V2) and size >= RECORD_SIZE_MIN
    return is_record and bool(own == base + position)
