"""Damage in a log file: where the log goes on behind it, and where the written part of it ends.

In: a file's bytes, and a position at which no record begins. Out: positions.

Rules:
1. Where the log goes on behind damage is decided in store/record_search.py, as for all readers.
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
from orbitmq.core import Walked, is_end_of_file, record_at
from orbitmq.store.log_source import LogSource
from orbitmq.store.record_search import resumes_at
from orbitmq.store.torn import is_cut_off

WALK_COUNT = 65_536
PAGE_SIZE = 4_096
SEARCH_BYTES = 1 << 20


class BadRange(NamedTuple):
    """[begin, end) of the log is no record, and why not."""

    begin: int
    end: int
    why: str


class FileView(LogSource):
    """A whole log file in memory, which need not be as long as its neighbours."""

    def __init__(self, view: memoryview, base: int, data_end: int | None = None) -> None:
        """`base` is its first log offset; behind `data_end` it is known to hold zeros."""
        self._view = view
        self._base = base
        self._data_end = len(view) if data_end is None else data_end
        self._memory = np.frombuffer(view, dtype=np.uint8)

    def read(self, log_offset: int, size: int) -> memoryview:
        """Return bytes of the file, less where it ends."""
        at = log_offset - self._base
        return self._view[at : at + size]

    def file_end(self, _log_offset: int) -> int:
        """Return the log offset at which the file ends."""
        return self._base + len(self._view)

    def first_nonzero(self, log_offset: int, end: int) -> int | None:
        """Return the offset of the first byte of [log_offset, end) that is not zero."""
        begin, end = log_offset - self._base, min(end - self._base, self._data_end)
        while begin < end:
            piece = self._memory[begin : min(begin + SEARCH_BYTES, end)]
            if piece.max():
                return self._base + begin + int((piece != 0).argmax())
            begin += SEARCH_BYTES
        return None

    def accepts(self, _walked: Walked) -> bool:
        """Whether a whole record counts: each does."""
        return True


def behind_damage(
    view: memoryview, position: int, base: int, data_end: int | None = None
) -> int | None:
    """Return where something sound begins behind what is bad at `position`; None: nowhere.

    Behind `data_end` the file is known to hold zeros.
    """
    following = resumes_at(FileView(view, base, data_end), base + position)
    return None if following is None else following - base


def last_not_zero(view: memoryview, end: int) -> int:
    """Return where the last piece ends that has something in it, or 0."""
    memory = np.frombuffer(view, dtype=np.uint8)
    while end > 0 and not memory[max(0, end - SEARCH_BYTES) : end].max():
        end -= SEARCH_BYTES
    return max(0, end)


def written_end(view: memoryview, base: int, begin: int = 0, data_end: int | None = None) -> int:
    """Return where the written part of a file ends, at or behind `begin`; its length if closed.

    Behind `data_end` the file is known to hold zeros.
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
        following = None if found.stop == "end" else behind_damage(view, position, base, data_end)
        if following is None and last is not None and not _is_there(view, last, base):
            # Its size may have led anywhere; sound ones may follow it all the same.
            position, last = last, None
            following = behind_damage(view, position, base, data_end)
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
