"""The log read from its files in bounded pieces, without a store: for check and dump.

In: the log's folders, live or not. Out: its records in order, with damage between them named.

Rules:
1. Only positioned reads by path: no lock, no map, nothing changed, memory bounded by pieces or one
   record, whatever the files are like.
2. What is a record says `core.record_at`; where the log goes on behind damage, record_search.py.
3. Bytes that are no record are damage when the log goes on behind them. Otherwise it ends there,
   and `tail_start` says where the first byte lies that is not zero, if any.
4. A file that holds nothing but a blank record is what recovery puts in the place of a lost one.
5. A file that vanishes while it is read was removed by a live broker: the log begins behind it.
"""

from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import Walked
from orbitmq.errors import CorruptRecord
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_source import LogFiles, walk_file
from orbitmq.store.record_search import resumes_at
from orbitmq.wire.record import PREFIX, RECORD_SIZE_MAX, RECORD_SIZE_MIN, decode_record
from orbitmq.world.files import Files

PIECE_SIZE = 1 << 20

_ZEROS = bytes(PIECE_SIZE)


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
        numbers = [start // self.file_size for start in self._starts]
        self.log = LogFiles(files, folders, self.file_size, numbers)
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

    def walk(self, from_offset: int = 0) -> Iterator[Walked | Damage]:
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

    def whole_at(self, log_offset: int) -> Walked | None:
        """Return the record at a log offset, read anew from its file; None when there is none."""
        return self.log.whole_at(log_offset) if self.file_size else None

    def _walk_file(self, start: int, later: list[int]) -> Generator[Walked | Damage, None, bool]:
        """Walk one file; the result says whether the log ends here."""
        log, file_end = self.log, start + self.file_size
        while True:
            # It is not `start` when damage of an earlier file ends in this one.
            for walked in walk_file(log, self.end_offset):
                self.end_offset = walked.log_offset + walked.size
                yield walked
            offset = self.end_offset
            if offset == file_end or (log.is_filled(offset) and offset > start):
                break
            if log.is_filled(offset):  # what fits no empty file is never taken
                yield Damage(start, file_end, "an empty file stands for one that was lost")
                break
            if self._files.size(self.path(start)) is None:  # rule 5
                self.first_offset = self.end_offset = file_end
                return False
            why = self._why_none(offset)
            following = resumes_at(log, offset, later)
            if following is not None and log.is_sound(offset):
                continue  # a live broker wrote it after it was read, then what follows
            if following is None:
                self._note_tail(offset, later, why)
                return True
            yield Damage(offset, following, why)
            self.end_offset = following
            if following >= file_end:
                return False
        self.end_offset = file_end
        return False

    def _why_none(self, log_offset: int) -> str:
        """Return why no record begins here."""
        left = self.log.file_end(log_offset) - log_offset
        head = self.log.read(log_offset, PREFIX.size)
        size, magic = PREFIX.unpack(head.ljust(PREFIX.size, b"\0"))
        if size == 0 and magic == 0:
            return "zeros instead of a record"
        if not RECORD_SIZE_MIN <= size <= min(left, RECORD_SIZE_MAX):
            return f"a record cannot have {size} bytes here"
        try:
            data = self.log.read(log_offset, size)
            record, _ = decode_record(data, base_offset=log_offset)
        except CorruptRecord as error:
            return error.detail
        return f"the record says that it lies at log offset {record.log_offset}"

    def _note_tail(self, offset: int, later: list[int], why: str) -> None:
        self.tail_text = why
        for begin in (offset, *later):
            path = self.path(begin)
            at = first_nonzero(self._files, path, begin % self.file_size, self.file_size)
            if at is not None:
                self.tail_start = begin - begin % self.file_size + at
                return
