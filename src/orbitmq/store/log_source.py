"""The log's bytes, for whoever reads its files without an open store: by path and by log offset.

In: the log's folders, the size of its files and which there are. Out: bytes, whole records, records
that follow each other.

Rules:
1. A record counts as `core.record_at` says. A blank record that fills its file leads to the next.
2. Pages that the disk cannot give count as zeros and are noted.
3. A record counts, whatever its properties hold, unless a crash left it torn (torn.py): only behind
   `unsure_from`, with zeros up to its end and nothing behind it, or with a whole sector of zeros.
4. `LogSource` is what is needed to tell where the log goes on behind damage (record_search.py);
   other readers than LogFiles bring their own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from orbitmq.core import Walked, record_at
from orbitmq.errors import ReadFailed
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.torn import has_lost_sector, is_cut_off
from orbitmq.wire.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    PREFIX,
    RECORD_SIZE_MAX,
    RECORD_SIZE_MIN,
)
from orbitmq.world.files import Files

PIECE_SIZE = 8 << 20
SLICE_SIZE = 1 << 20
PAGE_SIZE = 4_096
NOWHERE = 1 << 63
ZEROS_ENOUGH = 2 * RECORD_SIZE_MAX

_MAGICS = frozenset((MAGIC_V1, MAGIC_V2))
_ZEROS = bytes(SLICE_SIZE)


class Gap(NamedTuple):
    """[start, end) of the log is no record, and the log goes on at `end`."""

    start: int
    end: int


class LogSource(Protocol):
    """The bytes of a log, file by file."""

    def read(self, log_offset: int, size: int) -> bytes | memoryview:
        """Return bytes of one file, zeros or less where there are none."""
        ...

    def file_end(self, log_offset: int) -> int:
        """Return the log offset at which the file of this one ends."""
        ...

    def first_nonzero(self, log_offset: int, end: int) -> int | None:
        """Return the offset of the first byte of [log_offset, end) in one file that is not zero."""
        ...

    def accepts(self, walked: Walked) -> bool:
        """Whether a whole record counts."""
        ...

    def whole_at(self, log_offset: int) -> Walked | None:
        """Return the whole record that begins here, if one does and counts."""
        left = self.file_end(log_offset) - log_offset
        size = claimed_size(self.read(log_offset, PREFIX.size), left)
        if size < RECORD_SIZE_MIN:
            return None
        walked = record_at(memoryview(self.read(log_offset, size)), 0, log_offset)
        return None if walked is None or not self.accepts(walked) else walked

    def is_filled(self, log_offset: int) -> bool:
        """Whether the log goes on in the next file: a blank record fills this one's rest."""
        left = self.file_end(log_offset) - log_offset
        data = self.read(log_offset, PREFIX.size)
        return len(data) == PREFIX.size and PREFIX.unpack(data) == (left, BLANK_MAGIC)

    def is_sound(self, log_offset: int) -> bool:
        """Whether a whole record begins here, or the blank that closes the file."""
        return self.whole_at(log_offset) is not None or self.is_filled(log_offset)

    def is_free(self, log_offset: int) -> bool:
        """Whether there are only zeros from here to the end of the file."""
        return self.first_nonzero(log_offset, self.file_end(log_offset)) is None


class LogFiles(LogSource):
    """The log's files by number, for reading."""

    def __init__(
        self, files: Files, folders: LogFolders, file_size: int, numbers: list[int]
    ) -> None:
        self.files = files
        self.folders = folders
        self.file_size = file_size
        self.numbers = numbers
        self.unreadable: dict[Gap, None] = {}
        """Pages that the disk could not give."""
        self.unsure_from = NOWHERE
        """From here on the last writes may have been cut off."""
        self.is_power_cut = False
        """Behind that, the disk may have any part of what was written."""
        self._zeros = Gap(0, 0)
        """Where there was nothing but zeros when it was last looked at."""
        self.is_killed_only = False
        """The kernel has kept everything: behind ZEROS_ENOUGH a file holds nothing any more. Where
        holes are not told from data, to read the rest of a gibibyte takes seconds."""

    @property
    def first_offset(self) -> int:
        """Where the log begins."""
        return self.numbers[0] * self.file_size if self.numbers else 0

    @property
    def files_end(self) -> int:
        """Where the last file ends."""
        return (self.numbers[-1] + 1) * self.file_size if self.numbers else 0

    def accepts(self, walked: Walked) -> bool:
        """Whether all of a record was written, also what its CRC does not protect (rule 3)."""
        if walked.log_offset < self.unsure_from:
            return True
        if not self.is_power_cut:
            return not is_cut_off(walked, self.is_free)
        file_start = walked.log_offset - walked.log_offset % self.file_size
        return not has_lost_sector(walked, file_start, self.read)

    def is_free(self, log_offset: int) -> bool:
        """Whether there are only zeros from here to the end of the file."""
        if log_offset % self.file_size == 0:
            return True
        return self.first_nonzero(log_offset, self.file_end(log_offset)) is None

    def path(self, log_offset: int) -> Path:
        """Return the file that holds a log offset."""
        return self.folders.path(log_offset - log_offset % self.file_size)

    def file_end(self, log_offset: int) -> int:
        """Return the log offset at which the file of this one ends."""
        return (log_offset // self.file_size + 1) * self.file_size

    def read(self, log_offset: int, size: int) -> bytes:
        """Bytes of one file, less where the file ends; zeros for what the disk cannot give."""
        size = min(size, self.file_end(log_offset) - log_offset)
        path, position = self.path(log_offset), log_offset % self.file_size
        try:
            data = self.files.read_at(path, position, size)
        except ReadFailed:
            data = b"".join(self._read_pages(path, log_offset, size))
        return (data or b"").ljust(size, b"\0")

    def _read_pages(self, path: Path, log_offset: int, size: int) -> Iterator[bytes]:
        end = log_offset + size
        while log_offset < end:
            left_in_page = PAGE_SIZE - log_offset % PAGE_SIZE
            piece = min(left_in_page, end - log_offset)
            try:
                data = self.files.read_at(path, log_offset % self.file_size, piece)
                yield (data or b"").ljust(piece, b"\0")
            except ReadFailed:
                page = log_offset - log_offset % PAGE_SIZE
                self.unreadable[Gap(page, page + PAGE_SIZE)] = None
                yield bytes(piece)
            log_offset += piece

    def first_nonzero(self, log_offset: int, end: int) -> int | None:
        """Return the offset of the first byte of [log_offset, end) in one file that is not zero."""
        look_end = min(end, log_offset + ZEROS_ENOUGH) if self.is_killed_only else end
        for at, size in self._slices(log_offset, look_end):
            data = self.read(at, size)
            if data != _ZEROS[:size]:
                return at + size - len(data.lstrip(b"\0"))
        self._zeros = Gap(log_offset, end)
        return None

    def last_nonzero(self, log_offset: int, end: int) -> int | None:
        """Return the offset of the last byte of [log_offset, end) in one file that is not zero."""
        if end == self._zeros.end:
            end = max(log_offset, self._zeros.start)
        for at, size in reversed(self._slices(log_offset, end)):
            data = self.read(at, size)
            if data != _ZEROS[:size]:
                return at + len(data.rstrip(b"\0")) - 1
        return None

    def _slices(self, log_offset: int, end: int) -> list[tuple[int, int]]:
        """Return log offset and size of what to read of [log_offset, end) in one file: no holes."""
        base = log_offset - log_offset % self.file_size
        try:
            ranges = self.files.data_ranges(self.path(log_offset), log_offset - base)
        except ReadFailed:
            ranges = [(log_offset - base, end - base)]
        return [
            (base + at, min(SLICE_SIZE, stop - at, end - base - at))
            for start, stop in ranges
            for at in range(start, min(stop, end - base), SLICE_SIZE)
        ]


def walk_file(log: LogFiles, log_offset: int) -> Iterator[Walked]:
    """Return the records from an offset on, back to back, in its file only."""
    file_end = log.file_end(log_offset)
    size = PIECE_SIZE
    while log_offset < file_end:
        data = memoryview(log.read(log_offset, size))
        position = 0
        while (walked := record_at(data, position, log_offset)) is not None:
            if not log.accepts(walked):
                return
            yield walked
            position += walked.size
        if not position:
            needed = claimed_size(data, file_end - log_offset)
            if needed <= len(data):
                return
            size = needed
        else:
            log_offset += position
            size = PIECE_SIZE


def claimed_size(data: bytes | memoryview, left: int) -> int:
    """Return the size that what begins here says it has, or 0 when it is no record."""
    if len(data) < PREFIX.size:
        return 0
    size, magic = PREFIX.unpack_from(data)
    return size if magic in _MAGICS and size <= min(left, RECORD_SIZE_MAX) else 0
