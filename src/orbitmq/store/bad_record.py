"""Stepping over a bad record without looking into it.

In: the place of bytes that are no record. Out: where the log goes on, as far as sizes tell.

Rules:
1. A body may hold anything, also bytes that are a whole record for just this place. So the inside
   of a bad record is looked at only when its own sizes lead nowhere.
2. A record tells its size twice: in its first field, and by the sizes of its parts. One of the two
   survives any single damage. They lead to a whole record or to the blank that closes the file; or
   to another bad one, known by its own offset, from which it goes on in the same way.
3. When both lead to where nothing was ever written, the bad record was the last of its file. One
   alone may do so by chance, and sound records follow.
"""

import struct
from enum import Enum, auto
from typing import NamedTuple, Protocol

from orbitmq.core import record_at
from orbitmq.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    FIELD,
    MAGIC_V1,
    PREFIX,
    PROPERTIES_SIZE_CODE,
    RECORD_SIZE_MIN,
    TOPIC_SIZE_CODES,
    layout_of,
)

_INT = struct.Struct(">i")
_PROPERTIES_SIZE = struct.Struct(">" + PROPERTIES_SIZE_CODE)
_TOPIC_SIZES = {magic: struct.Struct(">" + code) for magic, code in TOPIC_SIZE_CODES.items()}
_ENDS_SIZE = _TOPIC_SIZES[MAGIC_V1].size + _PROPERTIES_SIZE.size
"""What the least record has behind its fixed fields."""


class Ground(Protocol):
    """The log, as far as one needs to know it to step over a bad record."""

    def read(self, log_offset: int, size: int) -> bytes:
        """Return bytes of one file, zeros or less where there are none."""
        ...

    def file_end(self, log_offset: int) -> int:
        """Return the log offset at which the file of this one ends."""
        ...

    def is_sound(self, log_offset: int) -> bool:
        """Whether a whole record begins here, or the blank that closes the file."""
        ...

    def is_free(self, log_offset: int) -> bool:
        """Whether there are only zeros from here to the end of the file."""
        ...


class ViewGround:
    """A part of one log file in memory; what lies behind it counts as not there."""

    def __init__(self, view: memoryview, log_offset: int, file_size: int) -> None:
        """`log_offset` is that of the part's first byte."""
        self._view = view
        self._log_offset = log_offset
        self._file_size = file_size

    def read(self, log_offset: int, size: int) -> bytes:
        """Return bytes of the part."""
        at = log_offset - self._log_offset
        return bytes(self._view[at : at + size])

    def file_end(self, log_offset: int) -> int:
        """Return the log offset at which the file ends."""
        return (log_offset // self._file_size + 1) * self._file_size

    def is_sound(self, log_offset: int) -> bool:
        """Whether a whole record begins here, or the blank that closes the file."""
        at = log_offset - self._log_offset
        if record_at(self._view, at, self._log_offset) is not None:
            return True
        blank = PREFIX.pack(self.file_end(log_offset) - log_offset, BLANK_MAGIC)
        return self._view[at : at + BLANK_SIZE] == blank

    def is_free(self, log_offset: int) -> bool:
        """Whether there are only zeros from here on."""
        return not any(self._view[log_offset - self._log_offset :])


class Footing(Enum):
    """What lies where one has come to."""

    SOUND = auto()
    FREE = auto()
    """A bad record, and behind it nothing."""
    LOST = auto()
    """A bad record that does not say where the next one is."""


class Landing(NamedTuple):
    """Where one has come to."""

    log_offset: int
    footing: Footing


def step_over(ground: Ground, log_offset: int) -> Landing:
    """Go from a bad record to the next thing in its file that is sound, if sizes lead there."""
    while True:
        places = [log_offset + size for size in _claimed_sizes(ground, log_offset)]
        for place in places:
            if ground.is_sound(place):
                return Landing(place, Footing.SOUND)
        further = next((place for place in places if _is_own(ground, place)), None)
        if further is None:
            is_record = _is_own(ground, log_offset) or _has_magic(ground, log_offset)
            is_last = is_record and bool(places) and all(map(ground.is_free, places))
            return Landing(log_offset, Footing.FREE if is_last else Footing.LOST)
        log_offset = further


def _claimed_sizes(ground: Ground, log_offset: int) -> list[int]:
    """Return the sizes that a bad record claims to have and that are possible."""
    left = ground.file_end(log_offset) - log_offset
    head = ground.read(log_offset, PREFIX.size)
    if len(head) < PREFIX.size:
        return []
    sizes = dict.fromkeys((_size_of_parts(ground, log_offset, left), PREFIX.unpack(head)[0]))
    return [size for size in sizes if RECORD_SIZE_MIN <= size <= left - BLANK_SIZE]


def _size_of_parts(ground: Ground, log_offset: int, left: int) -> int:
    """Return what the parts of a record amount to, or 0 when they lead out of the file."""
    head = ground.read(log_offset, RECORD_SIZE_MIN)
    if len(head) < RECORD_SIZE_MIN:
        return 0
    magic = PREFIX.unpack_from(head)[1]
    topic_size = _TOPIC_SIZES.get(magic, _TOPIC_SIZES[MAGIC_V1])
    size = layout_of(FIELD["sys_flag"].of(head)).head.size
    size += _int_at(ground, log_offset + size - _INT.size, _INT)
    for code in (topic_size, _PROPERTIES_SIZE):
        if not RECORD_SIZE_MIN - _ENDS_SIZE <= size <= left - code.size:
            return 0
        size += code.size + _int_at(ground, log_offset + size, code)
    return size


def _int_at(ground: Ground, log_offset: int, code: struct.Struct) -> int:
    data = ground.read(log_offset, code.size).ljust(code.size, b"\0")
    return int(code.unpack(data)[0])


def _is_own(ground: Ground, log_offset: int) -> bool:
    """Whether a record was written here by what it says of its place, whatever became of it."""
    head = ground.read(log_offset, RECORD_SIZE_MIN).ljust(RECORD_SIZE_MIN, b"\0")
    return FIELD["log_offset"].of(head) == log_offset


def _has_magic(ground: Ground, log_offset: int) -> bool:
    head = ground.read(log_offset, PREFIX.size).ljust(PREFIX.size, b"\0")
    return PREFIX.unpack(head)[1] in TOPIC_SIZE_CODES
