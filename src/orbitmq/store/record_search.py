"""Where the log goes on behind bytes that are no record: the one rule, for everybody who reads it.

In: a source of the log's bytes, and the place of the first bytes that are no record. Out: where the
next record begins, or the blank record that closes the file; or that the log ends here.

Rules:
1. A body may hold anything, also bytes that are a whole record for just this place. So the inside
   of a bad record is searched only when its own sizes lead nowhere.
2. A record tells its size twice: in its first field, and by the sizes of its parts. One of the two
   survives any single damage. They lead to a whole record or to the closing blank; or to another
   bad record, known by its own offset, from which it goes on in the same way.
3. When both lead to where nothing was ever written, the bad record was the last of its file. One
   alone may do so by chance, and sound records follow.
4. A search finds the first whole record in the file; if there is none, the closing blank. In later
   files it finds records only: a blank does not say where it lies.
5. Time is linear in the bytes looked at, whatever they hold: a body may be full of magics, of whole
   headers, of headers whose records all end at the same place. Memory is bounded by SEARCH_SIZE.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from zlib import crc32

from orbitmq.core import Walked, record_at
from orbitmq.store.log_source import LogSource
from orbitmq.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    FIELD,
    HEAD_SIZE_MAX,
    MAGIC_V1,
    PREFIX,
    PROPERTIES_SIZE_CODE,
    RECORD_SIZE_MAX,
    RECORD_SIZE_MIN,
    TOPIC_SIZE_CODES,
    body_place,
)

SLICE_SIZE = 1 << 20
SEARCH_SIZE = 2 * RECORD_SIZE_MAX
"""How much is searched together: twice what one record can take."""
LONG_BODY_SIZE = 65_536
"""Longer bodies are summed by parts when a record is looked for: see _Sums."""

_PROPERTIES_SIZE = struct.Struct(">" + PROPERTIES_SIZE_CODE)
_TOPIC_SIZES = {magic: struct.Struct(">" + code) for magic, code in TOPIC_SIZE_CODES.items()}
_ENDS_SIZE = _TOPIC_SIZES[MAGIC_V1].size + _PROPERTIES_SIZE.size
"""What the least record has behind its fixed fields."""
_MAGIC_AT = FIELD["magic"].position
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
"""Both magics begin with it."""
_BLANK_MAGIC = BLANK_MAGIC.to_bytes(4, "big")
_ONES = 0xFFFF_FFFF

Accept = Callable[[Walked], bool]


def resumes_at(log: LogSource, log_offset: int, later: Iterable[int] = ()) -> int | None:
    """Return where the log goes on behind bytes at `log_offset` that are no record; None: nowhere.

    `later` are the log offsets at which the files behind this one begin, in order.
    """
    following = _resumes_in_file(log, log_offset)
    if following is not None:
        return following
    found = (_search(log, start, is_blank_enough=False) for start in later)
    return next((at for at in found if at is not None), None)


def _resumes_in_file(log: LogSource, log_offset: int) -> int | None:
    while True:
        places = [log_offset + size for size in _claimed_sizes(log, log_offset)]
        for place in places:
            if log.is_sound(place):
                return place
        further = next((place for place in places if _is_own(log, place)), None)
        if further is None:
            break
        log_offset = further
    is_record = _is_own(log, log_offset) or _has_magic(log, log_offset)
    if is_record and places and all(map(log.is_free, places)):
        return None  # rule 3
    return _search(log, log_offset + 1, is_blank_enough=True)


# --- What the sizes of a bad record tell ---


def _claimed_sizes(log: LogSource, log_offset: int) -> list[int]:
    """Return the sizes that a bad record claims to have and that are possible."""
    left = log.file_end(log_offset) - log_offset
    head = log.read(log_offset, PREFIX.size)
    if len(head) < PREFIX.size:
        return []
    sizes = dict.fromkeys((_size_of_parts(log, log_offset, left), FIELD["total_size"].of(head)))
    return [size for size in sizes if RECORD_SIZE_MIN <= size <= left - BLANK_SIZE]


def _size_of_parts(log: LogSource, log_offset: int, left: int) -> int:
    """Return what the parts of a record amount to, or 0 when they lead out of the file."""
    head = log.read(log_offset, HEAD_SIZE_MAX)
    if len(head) < RECORD_SIZE_MIN:
        return 0
    topic_size = _TOPIC_SIZES.get(FIELD["magic"].of(head), _TOPIC_SIZES[MAGIC_V1])
    _, size = body_place(bytes(head).ljust(HEAD_SIZE_MAX, b"\0"))
    for code in (topic_size, _PROPERTIES_SIZE):
        if not RECORD_SIZE_MIN - _ENDS_SIZE <= size <= left - code.size:
            return 0
        data = bytes(log.read(log_offset + size, code.size)).ljust(code.size, b"\0")
        size += code.size + int(code.unpack(data)[0])
    return size


def _is_own(log: LogSource, log_offset: int) -> bool:
    """Whether a record was written here by what it says of its place, whatever became of it."""
    head = bytes(log.read(log_offset, RECORD_SIZE_MIN)).ljust(RECORD_SIZE_MIN, b"\0")
    return FIELD["log_offset"].of(head) == log_offset


def _has_magic(log: LogSource, log_offset: int) -> bool:
    head = bytes(log.read(log_offset, PREFIX.size)).ljust(PREFIX.size, b"\0")
    return FIELD["magic"].of(head) in TOPIC_SIZE_CODES


# --- Searching ---


def _search(log: LogSource, log_offset: int, *, is_blank_enough: bool) -> int | None:
    """Return the first whole record from here on in this file, else the blank that closes it."""
    file_end, blank = log.file_end(log_offset), None
    while log_offset < file_end:
        nonzero = log.first_nonzero(log_offset, file_end)
        if nonzero is None:
            break
        log_offset = max(log_offset, nonzero - 3)  # a size begins with up to three zeros
        data = memoryview(log.read(log_offset, SEARCH_SIZE))
        position = next_record(data, 0, log_offset, log.accepts)
        if position is not None:
            return log_offset + position
        if is_blank_enough and blank is None:
            blank = _closing_blank(data, log_offset, file_end)
        if log_offset + len(data) >= file_end:
            break
        log_offset += len(data) - RECORD_SIZE_MAX
    return blank


def _closing_blank(view: memoryview, log_offset: int, file_end: int) -> int | None:
    """Return where the blank record begins that fills the file; `log_offset` is that of view[0]."""
    for start in _places_of(_BLANK_MAGIC, view, 0):
        if FIELD["total_size"].of(view, start) == file_end - log_offset - start:
            return log_offset + start
    return None


def next_record(
    view: memoryview, position: int, log_offset: int, accepts: Accept | None = None
) -> int | None:
    """Return the position of the first whole record from `position` on, or None.

    `log_offset` is that of view[0]. What is not accepted is passed over.
    """
    sums = _Sums(view)
    for start in _places_of(_MAGIC_START, view, position):
        if _may_be_record(view, start, log_offset) and _has_right_sum(view, start, sums):
            walked = record_at(view, start, log_offset)
            if walked is not None and (accepts is None or accepts(walked)):
                return start
    return None


def last_record_end(view: memoryview, position: int, log_offset: int) -> int:
    """Return where the last whole record that begins before `position` ends; 0 without one.

    `log_offset` is that of view[0].
    """
    look_end = position
    while look_end > 0:
        begin = max(0, look_end - SLICE_SIZE)
        piece = bytes(view[begin : look_end + _MAGIC_AT + len(_MAGIC_START) - 1])
        at = piece.rfind(_MAGIC_START, _MAGIC_AT)
        while at >= 0:
            start = begin + at - _MAGIC_AT
            if (walked := record_at(view, start, log_offset)) is not None:
                return start + walked.size
            at = piece.rfind(_MAGIC_START, _MAGIC_AT, at + len(_MAGIC_START) - 1)
        look_end = begin
    return 0


def _places_of(magic: bytes, view: memoryview, position: int) -> Iterator[int]:
    """Return where something can begin by its magic, from slices that overlap by one."""
    first = position + _MAGIC_AT
    while first + len(magic) <= len(view):
        data = bytes(view[first : first + SLICE_SIZE + len(magic) - 1])
        at = data.find(magic)
        while 0 <= at < SLICE_SIZE:
            yield first + at - _MAGIC_AT
            at = data.find(magic, at + 1)
        first += SLICE_SIZE


def _may_be_record(view: memoryview, start: int, log_offset: int) -> bool:
    """Whether magic, size and own log offset are those of a record here."""
    left = len(view) - start
    if left < RECORD_SIZE_MIN:
        return False
    size, magic = PREFIX.unpack_from(view, start)
    if magic not in TOPIC_SIZE_CODES or not RECORD_SIZE_MIN <= size <= left:
        return False
    return FIELD["log_offset"].of(view, start) == log_offset + start


def _has_right_sum(view: memoryview, start: int, sums: "_Sums") -> bool:
    """Check the CRC of a long body without reading it all; `record_at` does it of a short one."""
    if len(view) - start < HEAD_SIZE_MAX:
        return True
    body_start, body_end = body_place(view, start)
    if not body_start <= body_end <= len(view):
        return False
    if body_end - body_start <= LONG_BODY_SIZE:
        return True
    return sums.of(body_start, body_end) & 0x7FFF_FFFF == FIELD["crc"].of(view, start)


class _Sums:
    """CRCs of any part of a piece of memory, each in the time that LONG_BODY_SIZE bytes take.

    CRC(A + B) is CRC(A), moved on by as many zeros as B has bytes, xor CRC(B). So from the sums of
    the beginnings of the memory, one kept every LONG_BODY_SIZE bytes, follows that of any part.
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._sums = [0]

    def of(self, start: int, end: int) -> int:
        """Return the CRC of [start, end)."""
        return self._up_to(end) ^ _behind_zeros(self._up_to(start), end - start)

    def _up_to(self, end: int) -> int:
        number, sums = end // LONG_BODY_SIZE, self._sums
        while len(sums) <= number:
            start = (len(sums) - 1) * LONG_BODY_SIZE
            sums.append(crc32(self._view[start : start + LONG_BODY_SIZE], sums[-1]))
        return crc32(self._view[number * LONG_BODY_SIZE : end], sums[number])


def _behind_zeros(value: int, count: int) -> int:
    """Return what a CRC register becomes by `count` zero bytes."""
    for bit in range(count.bit_length()):
        if count >> bit & 1:
            value = _mapped(_zeros_map(bit), value)
    return value


@cache
def _zeros_map(bit: int) -> list[int]:
    """Return what 2 ** bit zero bytes make of each single bit of the register: it is linear."""
    if bit == 0:
        return [crc32(b"\0", (1 << place) ^ _ONES) ^ _ONES for place in range(32)]
    half = _zeros_map(bit - 1)
    return [_mapped(half, image) for image in half]


def _mapped(images: list[int], value: int) -> int:
    result = 0
    while value:
        lowest = value & -value
        result ^= images[lowest.bit_length() - 1]
        value ^= lowest
    return result
