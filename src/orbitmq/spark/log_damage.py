"""Damage in a log file: where the log goes on behind it, and where the written part of it ends.

In: a file's bytes, and a position at which no record begins. Out: positions.

Rules:
1. The sizes of a bad record tell where the next one is; its inside is searched only if they do not
   (store/bad_record.py). What is found there is whole, its CRC as well.
2. Bytes that are no record are damage if something sound follows in the file. Otherwise the log
   ends there: a broker writes there, or was cut off there.
3. The last record of what is written counts when its CRC is right and its end is not zeros: it may
   be under way.
4. Whoever reads the file from its beginning comes by every record that is whole, its CRC as well.
   So who begins behind one of them finds the same records and the same damage.
"""

from typing import NamedTuple

import numpy as np

from orbitmq.arrow.starts import walk
from orbitmq.core import is_end_of_file, record_at
from orbitmq.store.bad_record import Footing, ViewGround, step_over
from orbitmq.store.scan import next_record
from orbitmq.store.torn import is_cut_off
from orbitmq.wire.record import BLANK_MAGIC, BLANK_SIZE, FIELD, MAGIC_V1, RECORD_SIZE_MAX

WALK_COUNT = 65_536
PAGE_SIZE = 4_096
SEARCH_BYTES = 1 << 20
_PREFIX_SIZE = 8
_BLANK = BLANK_MAGIC.to_bytes(4, "big")
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
"""Both magics begin with it."""
_MAGIC_AT = FIELD["magic"].position


class BadRange(NamedTuple):
    """[begin, end) of the log is no record, and why not."""

    begin: int
    end: int
    why: str


class FileGround(ViewGround):
    """A whole log file, which need not be as long as its neighbours."""

    def __init__(self, view: memoryview, base: int) -> None:
        super().__init__(view, base, len(view))
        self._file_end = base + len(view)
        self._memory = np.frombuffer(view, dtype=np.uint8)
        self._base = base

    def file_end(self, _log_offset: int) -> int:
        """Return the log offset at which the file ends."""
        return self._file_end

    def is_free(self, log_offset: int) -> bool:
        """Whether there are only zeros from here on."""
        return not self._memory[log_offset - self._base :].any()


def behind_damage(
    view: memoryview, position: int, base: int, search_end: int | None = None
) -> int | None:
    """Return where something sound begins behind what is bad at `position`; None: nowhere.

    Nothing is searched for behind `search_end`.
    """
    landing = step_over(FileGround(view, base), base + position)
    at = landing.log_offset - base
    if landing.footing is Footing.SOUND:
        return at
    if landing.footing is Footing.FREE:
        return None
    search_end = len(view) if search_end is None else search_end
    begin = first_not_zero(view, at + 1, search_end)
    if begin >= search_end:
        return None
    begin = max(at + 1, begin - _PREFIX_SIZE)  # sizes, and what comes before magics, begin so
    found = next_record(view[begin : search_end + RECORD_SIZE_MAX], 0, base + begin)
    if found is not None and begin + found <= search_end:
        return begin + found
    return _closing_blank(view, begin, search_end)


def first_not_zero(view: memoryview, begin: int, end: int) -> int:
    """Return where a piece begins that has something in it, or `end`: quicker than any search."""
    memory = np.frombuffer(view, dtype=np.uint8)
    while begin < end and not memory[begin : min(begin + SEARCH_BYTES, end)].max():
        begin += SEARCH_BYTES
    return min(begin, end)


def last_not_zero(view: memoryview, end: int) -> int:
    """Return where the last piece ends that has something in it, or 0."""
    memory = np.frombuffer(view, dtype=np.uint8)
    while end > 0 and not memory[max(0, end - SEARCH_BYTES) : end].max():
        end -= SEARCH_BYTES
    return max(0, end)


def _closing_blank(view: memoryview, begin: int, search_end: int) -> int | None:
    while begin <= min(len(view) - BLANK_SIZE, search_end):
        piece = bytes(view[begin : begin + SEARCH_BYTES + BLANK_SIZE])
        at = piece.find(_BLANK, _MAGIC_AT)
        while at >= 0:
            if is_end_of_file(view, begin + at - _MAGIC_AT):
                return begin + at - _MAGIC_AT
            at = piece.find(_BLANK, at + 1)
        begin += SEARCH_BYTES
    return None


def behind_whole(view: memoryview, position: int, base: int) -> int:
    """Where the last whole record that begins before `position` ends; 0 without one (rule 4).

    That is at or behind `position`, unless there is damage before it.
    """
    look_end = position
    while look_end > 0:
        begin = max(0, look_end - SEARCH_BYTES)
        piece = bytes(view[begin : look_end + _MAGIC_AT + len(_MAGIC_START) - 1])
        at = piece.rfind(_MAGIC_START, _MAGIC_AT)
        while at >= 0:
            start = begin + at - _MAGIC_AT
            if (record := record_at(view, start, base)) is not None:
                return start + record.size
            at = piece.rfind(_MAGIC_START, _MAGIC_AT, at + len(_MAGIC_START) - 1)
        look_end = begin
    return 0


def written_end(view: memoryview, base: int, begin: int = 0, search_end: int | None = None) -> int:
    """Return where the written part of a file ends, at or behind `begin`; its length if closed.

    Nothing is searched for behind `search_end`, where the file is known to hold zeros.
    """
    position, last = begin, None
    while True:
        found = walk(view, position, base=base, count_max=WALK_COUNT)
        position = found.end
        last = int(found.positions[-1]) if len(found.positions) else last
        if found.stop == "end" and position < len(view):
            continue
        if found.stop == "blank" and is_end_of_file(view, position):
            return len(view)
        following = None if found.stop == "end" else behind_damage(view, position, base, search_end)
        if following is None and last is not None and not _is_there(view, last, base):
            # Its size may have led anywhere; sound ones may follow it all the same.
            position, last = last, None
            following = behind_damage(view, position, base, search_end)
        if following is None:
            return position
        position = following


def _is_there(view: memoryview, position: int, base: int) -> bool:
    """Whether the last record of what is written has come to its end (rule 3)."""
    record = record_at(view, position, base)
    if record is None:
        return False
    end = position + record.size
    return not is_cut_off(record, lambda _: not any(view[end : end + PAGE_SIZE]))
