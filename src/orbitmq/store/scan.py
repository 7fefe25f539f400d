"""Reading the log's files from an offset on: its records, and what damage lies between them.

In: the log's files, read in pieces by path. Out: records in order, gaps, and where the log ends.

Rules:
1. A record counts as `core.record_at` says. A blank record that fills its file leads to the next.
2. The first bytes p that are no record: when the log goes on at q, in this file or a later one,
   [p, q) is a gap and the walk goes on at q; otherwise the log ends at p. The sizes of the bad
   record tell q (bad_record.py). Only if they do not, its inside is searched, and what the queues
   refute (entry_proof.py) does not count: a body can hold whole records.
3. It never ends below the floor, up to which the log surely was written. Where only a prefix may be
   kept (after a power cut) it ends at the first p that is not below the floor.
4. Memory is bounded, and time is linear in the bytes looked at, whatever they hold: a body may be
   full of magics, of whole headers, of headers whose records all end at the same place.
5. Pages that the disk cannot give count as zeros and are noted.
6. A record counts, whatever its properties hold, unless a crash left it torn (torn.py): only behind
   `unsure_from`, with zeros up to its end and nothing behind it, or with a whole sector of zeros.
"""

import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from orbitmq.core import Walked, record_at
from orbitmq.errors import ReadFailed
from orbitmq.store.bad_record import Footing, step_over
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.torn import has_lost_sector, is_cut_off
from orbitmq.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    FIELD,
    MAGIC_V1,
    MAGIC_V2,
    PREFIX,
    RECORD_SIZE_MAX,
    RECORD_SIZE_MIN,
    layout_of,
)
from orbitmq.world.files import Files

PIECE_SIZE = 8 << 20
SLICE_SIZE = 1 << 20
PAGE_SIZE = 4_096
NOWHERE = 1 << 63
SEARCH_SIZE = 2 * RECORD_SIZE_MAX
ZEROS_ENOUGH = 2 * RECORD_SIZE_MAX
LONG_BODY_SIZE = 65_536
"""Longer bodies are summed by parts when a record is looked for: see _Sums."""

_INT = struct.Struct(">i")
_MAGICS = frozenset((MAGIC_V1, MAGIC_V2))
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
"""Both magics begin with it."""
_ZEROS = bytes(SLICE_SIZE)
_ONES = 0xFFFF_FFFF


Refute = Callable[[Walked], bool]


def _nothing_refuted(_walked: Walked) -> bool:
    return False


class Gap(NamedTuple):
    """[start, end) of the log is no record, and the log goes on at `end`."""

    start: int
    end: int


class LogFiles:
    """The log's files by number, for reading."""

    def __init__(
        self, files: Files, folders: LogFolders, file_size: int, numbers: list[int]
    ) -> None:
        self._files = files
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

    def is_torn(self, walked: Walked) -> bool:
        """Whether a part of a record that its CRC does not protect was never written (rule 6)."""
        if walked.log_offset < self.unsure_from:
            return False
        if not self.is_power_cut:
            return is_cut_off(walked, self.is_free)
        file_start = walked.log_offset - walked.log_offset % self.file_size
        return has_lost_sector(walked, file_start, self.read)

    def whole_at(self, log_offset: int) -> Walked | None:
        """Return the whole record that begins here, if one does."""
        left = self.file_end(log_offset) - log_offset
        size = _needed(memoryview(self.read(log_offset, PREFIX.size)), left)
        if size < RECORD_SIZE_MIN:
            return None
        walked = record_at(memoryview(self.read(log_offset, size)), 0, log_offset)
        return None if walked is None or self.is_torn(walked) else walked

    def is_filled(self, log_offset: int) -> bool:
        """Whether the log goes on in the next file: a blank record fills this one's rest."""
        left = self.file_end(log_offset) - log_offset
        data = self.read(log_offset, BLANK_SIZE)
        return len(data) == BLANK_SIZE and PREFIX.unpack(data) == (left, BLANK_MAGIC)

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
            data = self._files.read_at(path, position, size)
        except ReadFailed:
            data = b"".join(self._read_pages(path, log_offset, size))
        return (data or b"").ljust(size, b"\0")

    def _read_pages(self, path: Path, log_offset: int, size: int) -> Iterator[bytes]:
        end = log_offset + size
        while log_offset < end:
            left_in_page = PAGE_SIZE - log_offset % PAGE_SIZE
            piece = min(left_in_page, end - log_offset)
            try:
                data = self._files.read_at(path, log_offset % self.file_size, piece)
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
            ranges = self._files.data_ranges(self.path(log_offset), log_offset - base)
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
            if log.is_torn(walked):
                return
            yield walked
            position += walked.size
        if not position:
            needed = _needed(data, file_end - log_offset)
            if needed <= len(data):
                return
            size = needed
        else:
            log_offset += position
            size = PIECE_SIZE


def _needed(data: memoryview, left: int) -> int:
    """Return the size that what begins here says it has, or 0 when it is no record."""
    if len(data) < PREFIX.size:
        return 0
    size, magic = PREFIX.unpack_from(data)
    return size if magic in _MAGICS and size <= min(left, RECORD_SIZE_MAX) else 0


class _Ground:
    """The log's files, for stepping over what is bad in them."""

    def __init__(self, log: LogFiles, is_refuted: Refute) -> None:
        self._log = log
        self._is_refuted = is_refuted
        self.read = log.read
        self.file_end = log.file_end
        self.is_free = log.is_free

    def is_sound(self, log_offset: int) -> bool:
        """Whether a whole record begins here, or the blank that closes the file."""
        walked = self._log.whole_at(log_offset)
        if walked is None:
            return self._log.is_filled(log_offset)
        return not self._is_refuted(walked)


class Scan:
    """One walk over the log. `end_offset` holds when it is over."""

    def __init__(
        self,
        log: LogFiles,
        start: int,
        floor: int,
        *,
        is_prefix_only: bool,
        sure_end: int = -1,
        is_refuted: Refute = _nothing_refuted,
    ) -> None:
        """`sure_end`: the log was closed there; when nothing is there, nothing is looked for.

        `is_refuted` tells of a record found inside damage whether it cannot be one of the log.
        """
        self._log = log
        self._floor = floor
        self._is_prefix_only = is_prefix_only
        self._sure_end = sure_end
        self._is_refuted = is_refuted
        self._numbers = set(log.numbers)
        self.end_offset = start
        self.following: int | None = None
        """Where, behind the end, the first record lies that is not kept."""

    def walk(self) -> Iterator[Walked | Gap]:
        """Return records and gaps in order."""
        log = self._log
        while True:
            offset = self.end_offset
            if offset // log.file_size in self._numbers:
                file_end = log.file_end(offset)
                for walked in walk_file(log, offset):
                    self.end_offset = walked.log_offset + walked.size
                    yield walked
                offset = self.end_offset
                if offset == file_end or log.is_filled(offset):
                    self.end_offset = file_end
                    continue
            if offset == self._sure_end and self._is_free(offset):
                return
            gap = self._gap(offset)
            if gap is None:
                return
            yield gap
            self.end_offset = gap.end

    def _gap(self, offset: int) -> Gap | None:
        """Return the damage that begins here, or None when the log ends here."""
        following = self._following(offset)
        if offset < self._floor:
            return Gap(offset, min(following, self._floor) if following else self._floor)
        if following is None:
            return None
        if self._is_prefix_only:
            self.following = following
            return None
        return Gap(offset, following)

    def _following(self, offset: int) -> int | None:
        """Where, behind bytes that are no record, the log goes on, in this file or a later."""
        log = self._log
        number = offset // log.file_size
        if number in self._numbers:
            landing = step_over(_Ground(log, self._is_refuted), offset)
            if landing.footing is Footing.SOUND:
                return landing.log_offset
            if landing.footing is Footing.LOST:
                found = find_record(log, landing.log_offset, self._is_refuted)
                if found is not None:
                    return found
        for later in log.numbers:
            if later > number:
                found = find_record(log, later * log.file_size, self._is_refuted)
                if found is not None:
                    return found
        return None

    def _is_free(self, offset: int) -> bool:
        number, position = divmod(offset, self._log.file_size)
        if number not in self._numbers:
            return position == 0 and number - 1 in self._numbers
        return not any(self._log.read(offset, LONG_BODY_SIZE))


def find_record(
    log: LogFiles, log_offset: int, is_refuted: Refute = _nothing_refuted
) -> int | None:
    """Return the offset of the first whole record from here on in this file."""

    def is_none(walked: Walked) -> bool:
        is_first = walked.log_offset % log.file_size == 0  # there is no outer one
        return log.is_torn(walked) or (not is_first and is_refuted(walked))

    file_end = log.file_end(log_offset)
    while log_offset < file_end:
        nonzero = log.first_nonzero(log_offset, file_end)
        if nonzero is None:
            return None
        log_offset = max(log_offset, nonzero - 3)  # a size begins with up to three zeros
        data = memoryview(log.read(log_offset, SEARCH_SIZE))
        position = next_record(data, 0, log_offset, is_none)
        if position is not None:
            return log_offset + position
        if log_offset + len(data) >= file_end:
            return None
        log_offset += len(data) - RECORD_SIZE_MAX
    return None


def next_record(
    view: memoryview,
    position: int,
    file_offset: int,
    is_none: Refute = _nothing_refuted,
) -> int | None:
    """Return the position of the first whole record from `position` on, or None.

    `file_offset` is the log offset of view[0]; what `is_none` says of a record counts.
    """
    sums = _Sums(view)
    for start in _magic_positions(view, position):
        if _is_own(view, start, file_offset) and _has_right_sum(view, start, sums):
            walked = record_at(view, start, file_offset)
            if walked is not None and not is_none(walked):
                return start
    return None


def _magic_positions(view: memoryview, position: int) -> Iterator[int]:
    """Return where records could begin by their magic, from slices that overlap by a magic."""
    magic_at = FIELD["magic"].position
    first = position + magic_at
    while first + len(_MAGIC_START) <= len(view):
        data = bytes(view[first : first + SLICE_SIZE + len(_MAGIC_START) - 1])
        at = data.find(_MAGIC_START)
        while 0 <= at < SLICE_SIZE:
            yield first + at - magic_at
            at = data.find(_MAGIC_START, at + 1)
        first += SLICE_SIZE


def _is_own(view: memoryview, start: int, file_offset: int) -> bool:
    left = len(view) - start
    if left < RECORD_SIZE_MIN:
        return False
    size, magic = PREFIX.unpack_from(view, start)
    if magic not in _MAGICS or not RECORD_SIZE_MIN <= size <= left:
        return False
    return FIELD["log_offset"].of(view, start) == file_offset + start


def _has_right_sum(view: memoryview, start: int, sums: "_Sums") -> bool:
    """Check the CRC of a long body without reading it all; of a short one the walk does it."""
    body_start = start + layout_of(FIELD["sys_flag"].of(view, start)).head.size
    if body_start > len(view):
        return False
    (body_size,) = _INT.unpack_from(view, body_start - _INT.size)
    if not 0 <= body_size <= len(view) - body_start:
        return False
    if body_size <= LONG_BODY_SIZE:
        return True
    return sums.of(body_start, body_start + body_size) & 0x7FFF_FFFF == FIELD["crc"].of(view, start)


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
