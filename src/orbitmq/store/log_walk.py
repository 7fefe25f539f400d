"""The log read from its files in bounded pieces, without a store: for check and dump.

In: the log's folders, live or not. Out: its records in order, with damage between them named.

Rules:
1. Only positioned reads by path: no lock, no map, nothing changed, memory bounded by PIECE_SIZE or
   one record, whatever the files are like.
2. A record counts when magic, sizes, own log offset, UTF-8 of the topic and CRC are right.
3. Bytes that are no record are damage when a record follows, in this file or a later one, or this
   file's closing blank. Otherwise the log ends there, and `tail_start` says where the first byte
   lies that is not zero, if any. As in recovery, the sizes of a bad record tell where it ends, and
   its inside is searched only if they do not (bad_record.py).
4. A file that holds nothing but a blank record is what recovery puts in the place of a lost one.
5. A file that vanishes while it is read was removed by a live broker: the log begins behind it.
"""

from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from orbitmq.errors import CorruptRecord
from orbitmq.store.bad_record import Footing, step_over
from orbitmq.store.log_folders import LogFolders
from orbitmq.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    FIELD,
    MAGIC_V1,
    MAGIC_V2,
    PREFIX,
    RECORD_SIZE_MAX,
    RECORD_SIZE_MIN,
    Record,
    decode_record,
)
from orbitmq.world.files import Files

PIECE_SIZE = 1 << 20

_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, BLANK_MAGIC))
_MAGIC_AT = FIELD["magic"].position
_ZEROS = bytes(PIECE_SIZE)


class Seen(NamedTuple):
    """A record and the bytes it takes."""

    record: Record
    size: int


class Damage(NamedTuple):
    """[start, end) of the log is no record, and something valid begins at `end`."""

    start: int
    end: int
    text: str


def usual_size(sizes: list[int]) -> int:
    """Return the size most files have, of equally frequent ones the larger; 0 without files."""
    counted = Counter(size for size in sizes if size)
    return max(counted, key=lambda size: (counted[size], size), default=0)


def first_nonzero(files: Files, path: Path, position: int, end: int) -> int | None:
    """Return the first byte of [position, end) of a file that is not zero, or None."""
    while position < end:
        data = files.read_at(path, position, min(PIECE_SIZE, end - position))
        if not data:
            return None
        if data != _ZEROS[: len(data)]:
            return position + len(data) - len(data.lstrip(b"\0"))
        position += len(data)
    return None


class Window:
    """A file read in pieces, the newest kept."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self.start = 0
        self.data = b""

    def cover(self, position: int, size: int) -> bool:
        """Have [position, position + size) in `data`, less at the file's end; False: no file."""
        if self.start <= position and position + size <= self.start + len(self.data):
            return True
        data = self._files.read_at(self._path, position, max(size, PIECE_SIZE))
        self.start, self.data = position, data or b""
        return data is not None

    def forget(self) -> None:
        """Read anew what is asked for next."""
        self.data = b""

    def head(self, position: int) -> tuple[int, int]:
        """Return size and magic of what begins at a position; zeros behind the end."""
        self.cover(position, BLANK_SIZE)
        at = position - self.start
        size, magic = PREFIX.unpack(self.data[at : at + PREFIX.size].ljust(PREFIX.size, b"\0"))
        return size, magic


class LogWalk:
    """One pass over the log's files. `first_offset` and `end_offset` hold when it is over."""

    def __init__(self, files: Files, folders: LogFolders) -> None:
        self._files = files
        self.folders = folders
        self.found = folders.find()
        self.sizes = {path: files.size(path) or 0 for path in self.found.files}
        self.file_size = usual_size(list(self.sizes.values()))
        starts = [int(path.name) for path in self.found.files]
        self._starts = [start for start in starts if self.file_size and start % self.file_size == 0]
        self.first_offset = self._starts[0] if self._starts else 0
        self.end_offset = self.first_offset
        self.tail_start: int | None = None
        self.tail_text = ""

    @property
    def starts(self) -> list[int]:
        """The first offsets of the files that belong to the log."""
        return list(self._starts)

    def path(self, log_offset: int) -> Path:
        """Return the file that holds a log offset."""
        return self.folders.path(log_offset - log_offset % self.file_size)

    def walk(self, from_offset: int = 0) -> Iterator[Seen | Damage]:
        """Return records and damage in order, from the file on that holds `from_offset`."""
        starts = [start for start in self._starts if start + self.file_size > from_offset]
        self.end_offset = starts[0] if starts else self.end_offset
        for at, start in enumerate(starts):
            if start + self.file_size <= self.end_offset:
                continue  # damage reaches over the whole file
            if start > self.end_offset:
                yield Damage(self.end_offset, start, "log files are missing here")
                self.end_offset = start
            is_over = yield from self._walk_file(start, starts[at + 1 :])
            if is_over:
                return

    def record_at(self, log_offset: int) -> Seen | None:
        """Return the record at a log offset, read anew from its file; None when there is none."""
        if not self.file_size:
            return None
        start = log_offset - log_offset % self.file_size
        return self._record(Window(self._files, self.path(start)), log_offset - start, start)[0]

    def _walk_file(self, start: int, later: list[int]) -> Generator[Seen | Damage, None, bool]:
        """Walk one file; the result says whether the log ends here."""
        window = Window(self._files, self.path(start))
        position = self.end_offset - start  # not 0 when damage of an earlier file ends in this one
        while position < self.file_size:
            seen, why = self._record(window, position, start)
            if seen is not None:
                position += seen.size
                self.end_offset = start + position
                yield seen
                continue
            if self._is_closed(window, position):
                if position == 0:  # what fits no empty file is never taken
                    text = "an empty file stands for one that was lost"
                    yield Damage(start, start + self.file_size, text)
                break
            if self._files.size(self.path(start)) is None:  # rule 5
                self.first_offset = self.end_offset = start + self.file_size
                return False
            following = self._following(window, position, start, later)
            if following is not None and self._is_sound_now(window, position, start):
                continue  # a live broker wrote it after the window was read, then what follows
            if following is None:
                self._note_tail(start, position, later, why)
                return True
            yield Damage(start + position, following, why)
            self.end_offset = following
            if following >= start + self.file_size:
                return False
            position = following - start
        self.end_offset = start + self.file_size
        return False

    def _record(self, window: Window, position: int, start: int) -> tuple[Seen | None, str]:
        """Return the record at a position of the file that begins at `start`, or why it is none."""
        size, magic = window.head(position)
        left = self.file_size - position
        if size == 0 and magic == 0:
            return None, "zeros instead of a record"
        if not RECORD_SIZE_MIN <= size <= min(left, RECORD_SIZE_MAX):
            return None, f"a record cannot have {size} bytes here"
        window.cover(position, size)
        at = position - window.start
        try:
            record, size = decode_record(window.data, at, base_offset=start + position - at)
        except CorruptRecord as error:
            return None, error.detail
        if record.log_offset != start + position:
            return None, f"the record says that it lies at log offset {record.log_offset}"
        return Seen(record, size), ""

    def _is_sound_now(self, window: Window, position: int, start: int) -> bool:
        """Whether a record or the file's end is at a position when it is read anew."""
        window.forget()
        is_record = self._record(window, position, start)[0] is not None
        return is_record or self._is_closed(window, position)

    def _is_closed(self, window: Window, position: int) -> bool:
        return window.head(position) == (self.file_size - position, BLANK_MAGIC)

    def _following(self, window: Window, position: int, start: int, later: list[int]) -> int | None:
        """Return the log offset of the next valid thing behind damage, or None."""
        landing = step_over(_Ground(self, window, start), start + position)
        if landing.footing is Footing.SOUND:
            return landing.log_offset
        if landing.footing is Footing.LOST:
            position = landing.log_offset - start
            here = self._search(window, position + 1, start, is_blank_enough=True)
            if here is not None:
                return start + here
        for begin in later:
            other = Window(self._files, self.path(begin))
            found = self._search(other, 0, begin, is_blank_enough=False)
            if found is not None:
                return begin + found
        return None

    def _search(
        self, window: Window, position: int, start: int, *, is_blank_enough: bool
    ) -> int | None:
        """Return the first position from `position` on where a record or the closing blank begins.

        A blank does not say where it lies: alone in a file it may be of a file copied there.
        """
        path = self.path(start)
        while (data := self._files.read_at(path, position, PIECE_SIZE)) is not None:
            if len(data) < BLANK_SIZE:
                break
            for at in _candidates(data):
                where = position + at
                if self._is_record(window, where, start) or (
                    is_blank_enough and self._is_closed(window, where)
                ):
                    return where
            position += len(data) - BLANK_SIZE + 1
        return None

    def _is_record(self, window: Window, position: int, start: int) -> bool:
        window.cover(position, RECORD_SIZE_MIN)
        at = position - window.start
        if len(window.data) - at < RECORD_SIZE_MIN:
            return False
        is_own = FIELD["log_offset"].of(window.data, at) == start + position
        return is_own and self._record(window, position, start)[0] is not None

    def is_sound(self, window: Window, position: int, start: int) -> bool:
        """Whether a whole record begins at a position of a file, or the blank that closes it."""
        seen, _ = self._record(window, position, start)
        return seen is not None or self._is_closed(window, position)

    def is_free(self, log_offset: int) -> bool:
        """Whether there are only zeros from here to the end of the file."""
        path, position = self.path(log_offset), log_offset % self.file_size
        return first_nonzero(self._files, path, position, self.file_size) is None

    def _note_tail(self, start: int, position: int, later: list[int], why: str) -> None:
        self.tail_text = why
        for begin, from_position in ((start, position), *((begin, 0) for begin in later)):
            path = self.path(begin)
            at = first_nonzero(self._files, path, from_position, self.file_size)
            if at is not None:
                self.tail_start = begin + at
                return


class _Ground:
    """One file of the log, for stepping over what is bad in it."""

    def __init__(self, walk: LogWalk, window: Window, start: int) -> None:
        self._walk = walk
        self._window = window
        self._start = start

    def read(self, log_offset: int, size: int) -> bytes:
        """Return bytes of the file, less where it ends."""
        position = log_offset - self._start
        self._window.cover(position, size)
        at = position - self._window.start
        return self._window.data[at : at + size]

    def file_end(self, _log_offset: int) -> int:
        """Return the log offset at which the file ends."""
        return self._start + self._walk.file_size

    def is_sound(self, log_offset: int) -> bool:
        """Whether a whole record begins here, or the blank that closes the file."""
        return self._walk.is_sound(self._window, log_offset - self._start, self._start)

    def is_free(self, log_offset: int) -> bool:
        """Whether there are only zeros from here to the end of the file."""
        return self._walk.is_free(log_offset)


def _candidates(data: bytes) -> list[int]:
    """Give, in order, where a record could begin by its magic."""
    found = []
    for magic in _MAGICS:
        at = data.find(magic, _MAGIC_AT)
        while at >= 0:
            found.append(at - _MAGIC_AT)
            at = data.find(magic, at + 1)
    return sorted(found)
