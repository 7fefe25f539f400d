"""The key index: which records carry a key, by hash, newest first.

In: rows in log order (`add`). Out: log offsets (`lookup`), jobs that write what is new, and the
state that a mark keeps.

Rules:
1. The loop owns the index. A job is frozen on the loop, written by one thread at a time and given
   back to `finish`; a job that was not finished is taken back by the next `freeze`.
2. `lookup` may run in any thread. It finds what was filed; for the rest see `waiting`. Filing takes
   the loop's time: `add` and `drain_some` do a few milliseconds of it at most.
3. Entries are a function of the log: after a crash the index is set back to a mark and fed again.
   Files behind the mark's are removed; slots that name entries behind it are turned back at once
   and synced: once a new entry took such a number, the slot would lead into a foreign chain.
4. A file is taken only if its header agrees with its size, its first and its last entry; others are
   in `bad_files` and not read. Recovery decides about them.
5. Files are called by local time, but always later than the last one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import ROW
from orbitmq.ensure import ensure
from orbitmq.errors import ReadFailed
from orbitmq.store.index_file import EMPTY, FilePart, IndexFile
from orbitmq.store.index_load import (
    BadFile,
    Counts,
    completed,
    header_before,
    read_header,
    tail_hashes,
    wake,
    zero_rest,
)
from orbitmq.store.index_shape import ENTRY, Header, Shape, is_index_name
from orbitmq.wire.java import index_hash
from orbitmq.world.clock import Clock
from orbitmq.world.files import BigFile, Files

PENDING_BYTES = 512 * ROW.size
"""So many rows are collected before they are filed: together that is quicker."""
SLICE_BYTES = 4_096 * ROW.size
"""What is filed in one go: some milliseconds of the loop's time."""
STEPS_MAX = 1_000_000
"""A look-up ends after so many entries: one that shares its slot with a key of millions."""


class KeyQuery(NamedTuple):
    """Which messages to look for: topic and key, and the store times between which they lie."""

    topic: str
    key: str
    begin_ms: int
    end_ms: int
    count_max: int


class _Search:
    """One look-up while it goes from file to file."""

    def __init__(self, query: KeyQuery) -> None:
        self._query = query
        self._key_hash = index_hash(f"{query.topic}#{query.key}")
        self._steps_left = STEPS_MAX
        self.found: dict[int, None] = {}

    @property
    def is_over(self) -> bool:
        """Whether enough was found, or too much was looked at."""
        return len(self.found) >= self._query.count_max or self._steps_left <= 0

    def follow(self, file: IndexFile) -> None:
        """Find what one file has."""
        query = self._query
        for entry in file.chain(self._key_hash % file.shape.slot_count):
            time_ms = file.header.begin_ms + 1000 * entry.age_s
            self._steps_left -= 1
            if self.is_over or time_ms + 999 < query.begin_ms:
                break
            if entry.key_hash == self._key_hash and time_ms <= query.end_ms:
                self.found[entry.log_offset] = None


class IndexState(NamedTuple):
    """What a mark keeps of the index; an empty name: there is no entry at all."""

    index_name: str
    index_count: int
    index_slots: int
    index_end_offset: int
    index_end_ms: int


NOTHING = IndexState("", 0, 0, 0, 0)


class _Writers:
    """The files that jobs write to; used by one thread at a time."""

    def __init__(self, files: Files, folder: Path, size: int) -> None:
        self._files = files
        self._folder = folder
        self._size = size
        self._open: dict[Path, BigFile] = {}
        self._unsynced: set[Path] = set()
        self._is_folder_synced = True

    def file(self, path: Path) -> BigFile:
        """Return a file to write to, made when it is not there."""
        file = self._open.get(path)
        if file is None:
            self._is_folder_synced &= self._files.size(path) is not None
            self._files.make_folder(self._folder)
            file = self._files.open_big(path, self._size, is_mapped=False)
            self._open[path] = file
        self._unsynced.add(path)
        return file

    def sync(self) -> None:
        """Return when all that was written is on the disk; then only the newest stays open."""
        for path in sorted(self._unsynced):
            self._open[path].sync()
        if not self._is_folder_synced:
            self._files.sync([self._folder, self._folder.parent])
        self._is_folder_synced = True
        self._unsynced.clear()
        for path in sorted(self._open)[:-1]:
            self._open.pop(path).close()

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()
        self._unsynced.clear()


class IndexJob:
    """What is to be written; its methods are for a thread, in the order they stand here."""

    def __init__(self, writers: _Writers, parts: list[FilePart]) -> None:
        self._writers = writers
        self.parts = parts
        self.end_ms = parts[-1].header.end_ms

    def by_file(self) -> Iterator["IndexJob"]:
        """Return the job in pieces, one file each, oldest first.

        A file is to be complete before there is a next one: an original that comes after a kill
        goes on behind what the last file's header says.
        """
        for part in self.parts:
            yield IndexJob(self._writers, [part])

    def write_entries(self) -> None:
        """Write all entries."""
        for part in self.parts:
            part.write_entries(self._writers.file(part.path))

    def sync(self) -> None:
        """Return when what was written is on the disk."""
        self._writers.sync()

    def write_slots(self) -> None:
        """Write slots and headers; the entries they name are on the disk already."""
        for part in self.parts:
            part.write_slots(self._writers.file(part.path))


class KeyIndex:
    """All files of the index."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        clock: Clock,
        *,
        slot_count: int,
        entry_count: int,
        is_on: bool = True,
    ) -> None:
        self._files = files
        self._folder = folder
        self._clock = clock
        self._shape = Shape(slot_count, entry_count)
        self._is_on = is_on
        self.left_out = 0
        """How many keys were not filed because their messages have too many."""
        self._writers = _Writers(files, folder, self._shape.file_size)
        self._reset()

    def _reset(self) -> None:
        self._index_files: tuple[IndexFile, ...] = ()
        """Oldest first; exchanged as a whole, so that a look-up sees one state or the other."""
        self._pending = bytearray()
        """Rows that wait to be filed."""
        self.unwritten_size = 0
        """How many bytes of entries only memory is known to hold."""
        self._job: IndexJob | None = None
        self._bad: list[BadFile] = []
        self._last_name = 0
        self._last_hashes: list[int] = []
        self.end_offset = -1
        """Records at or below it are known: `add` passes over them."""

    # --- Filling ---

    def add(self, rows: bytes, left_out: int = 0) -> None:
        """Take rows in log order; those of messages that are known are passed over.

        `left_out` keys are not among them: their messages have too many.
        """
        if not self._is_on:
            return
        self.left_out += left_out
        if not rows:
            return
        if _offset_in(rows, 0) <= self.end_offset:
            rows = self._unknown(rows)
            if not rows:
                return
        self.end_offset = _offset_in(rows, len(rows) - ROW.size)
        self._last_hashes = []
        self._pending += rows
        if len(self._pending) >= PENDING_BYTES:
            self.drain_some()

    def _unknown(self, rows: bytes) -> bytes:
        offsets = [offset for _, offset, _ in ROW.iter_unpack(rows)]
        start, end = bisect_left(offsets, self.end_offset), bisect_right(offsets, self.end_offset)
        if start < end and self._last_hashes:
            # An original was stopped between two keys of its last message.
            missing = completed(rows[start * ROW.size : end * ROW.size], self._last_hashes)
            self._last_hashes = []
            self._insert(missing)
        return rows[end * ROW.size :]

    def drain(self) -> None:
        """File everything that was added; on the loop only when there is little."""
        while not self.drain_some():
            pass

    def drain_some(self) -> bool:
        """File a slice of what was added; True when nothing is left."""
        pending = self._pending
        some = bytes(pending[:SLICE_BYTES])
        self._insert(some)
        del pending[: len(some)]
        return not pending

    @property
    def memory_bytes(self) -> int:
        """How much only memory holds: entries that are not written, rows to be filed."""
        return self.unwritten_size + len(self._pending)

    @property
    def filed_offset(self) -> int | None:
        """The log offset of the first message that waits to be filed; None when none does."""
        return _offset_in(self._pending, 0) if self._pending else None

    def waiting(self) -> bytes:
        """Return the rows that wait to be filed, for `find_waiting` in a thread."""
        return bytes(self._pending)

    def _insert(self, rows: bytes) -> None:
        self.unwritten_size += ENTRY.size * (len(rows) // ROW.size)
        left = memoryview(rows)
        while left:
            file = self._index_files[-1] if self._index_files else None
            if file is None or file.is_full:
                file = self._new_file(file)
            left = left[ROW.size * file.insert(left) :]

    def _new_file(self, last: IndexFile | None) -> IndexFile:
        stamp = self._clock.file_stamp(self._clock.wall_ms())
        self._last_name = max(stamp, self._last_name + 1)
        header = EMPTY
        if last is not None:
            end_ms, end_offset = last.header.end_ms, last.header.end_offset
            header = Header(end_ms, end_ms, end_offset, end_offset, 0, 1)
        path = self._folder / f"{self._last_name:017d}"
        file = IndexFile(self._files, path, self._shape, header)
        file.wake()
        self._index_files += (file,)
        return file

    def state(self) -> IndexState:
        """Return what a mark needs to come back to everything added so far."""
        self.drain()
        return self.filed_state()

    def filed_state(self) -> IndexState:
        """Return how far the index has come, without what waits to be filed."""
        if not self._index_files:
            return NOTHING
        file = self._index_files[-1]
        header = file.header
        return IndexState(
            file.path.name, header.next_number, header.used_slots, header.end_offset, header.end_ms
        )

    # --- Writing ---

    def freeze(self) -> IndexJob | None:
        """Return the job that writes what is new, None when nothing is."""
        self.drain()
        if self._job is not None:
            self._take_back(self._job)
        parts = [part for file in self._index_files if (part := file.freeze()) is not None]
        self._job = IndexJob(self._writers, parts) if parts else None
        return self._job

    def _take_back(self, job: IndexJob) -> None:
        parts = {part.path: part for part in job.parts}
        for file in self._index_files:
            if file.path in parts:
                file.take_back(parts[file.path])

    def finish(self, job: IndexJob) -> None:
        """Take in that a job is written: memory lets go of what the files hold."""
        ensure(job is self._job, "the job that is finished is the one that was frozen last")
        self._job = None
        written = {part.path for part in job.parts}
        self.unwritten_size -= sum(len(part.entries) for part in job.parts)
        for file in self._index_files:
            if file.path in written:
                file.finish()
        for file in self._index_files[:-1]:
            if not file.unwritten_size:
                file.rest()

    def sync(self) -> None:
        """Return when all that jobs wrote is on the disk; for the thread that runs jobs."""
        self._writers.sync()

    def close(self) -> None:
        """Close the files; what was not written is lost, and comes back by recovery."""
        self._writers.close()

    # --- Looking up ---

    def lookup(self, query: KeyQuery) -> list[int]:
        """Return log offsets of records with a key, newest first.

        Keys of equal hash are among them: compare. Times are kept in seconds: a record stored up
        to a second before `begin_ms` may be among them.
        """
        search = _Search(query)
        for file in reversed(self._index_files):
            header = file.header
            is_inside = header.begin_ms <= query.end_ms
            if is_inside and query.begin_ms <= max(header.begin_ms, header.end_ms):
                search.follow(file)
            if search.is_over or header.begin_ms < query.begin_ms:
                break
        return list(search.found)

    # --- Coming back ---

    def load(self) -> None:
        """Take the files as they are, by their own headers: the original's folder."""
        self._reset()
        loaded = [file for path in self._paths() if (file := self._checked(path)) is not None]
        self._index_files = tuple(loaded)
        self._wake_last()
        if self._index_files:
            self.end_offset, self._last_hashes = tail_hashes(self._index_files)

    def restore(self, mark: IndexState) -> None:
        """Go back to a mark: later files are removed, and so are entries behind it.

        When `bad_files` is not empty afterwards the index does not hold what the mark says.
        """
        self._reset()
        paths = self._paths()
        self._remove([path for path in paths if path.name > mark.index_name])
        if not mark.index_name:
            return
        older = [path for path in paths if path.name < mark.index_name]
        loaded = [file for path in older if (file := self._checked(path)) is not None]
        marked = self._checked(self._folder / mark.index_name, Counts(*mark[1:]))
        if marked is None:
            return
        self._index_files = (*loaded, marked)
        self._wake_last()
        self.end_offset = mark.index_end_offset

    def cut(self, log_offset: int) -> None:
        """Drop the entries of records from `log_offset` on: the log ends there.

        Everything must be written. Without this an index that knows of lost records (the
        original's, after a power cut) would pass over the new ones that take their offsets.
        """
        if self.end_offset < log_offset:
            return
        ensure(not self.unwritten_size, "an index is cut when all of it is written")
        kept = [
            file for file in self._index_files if header_before(file, log_offset).next_number > 1
        ]
        self._remove([file.path for file in self._index_files[len(kept) :]])
        self._last_hashes = []
        self.end_offset = -1
        if kept:
            last = kept.pop()
            header = header_before(last, log_offset)
            kept.append(IndexFile(self._files, last.path, self._shape, header))
            self.end_offset = header.end_offset
        self._index_files = tuple(kept)
        self._wake_last(is_recounted=True)

    def zero_rest(self) -> None:
        """Leave nothing behind the last entry; everything must be written."""
        if self._index_files:
            zero_rest(self._files, self._index_files[-1], self._writers.file)

    def clear(self) -> None:
        """Remove all files of the index: it is to be built anew."""
        self.restore(NOTHING)

    def bad_files(self) -> list[BadFile]:
        """Return the files that could not be taken, and why."""
        return list(self._bad)

    def _paths(self) -> list[Path]:
        paths = []
        for name in self._files.names(self._folder):
            path = self._folder / name
            if is_index_name(name) and not self._files.is_folder(path):
                paths.append(path)
                self._last_name = max(self._last_name, int(name))
            else:
                self._bad.append(BadFile(path, "index files are called by 17 digits"))
        return paths

    def _checked(self, path: Path, mark: Counts | None = None) -> IndexFile | None:
        header: Header | str
        try:
            header = read_header(self._files, path, self._shape, mark)
        except ReadFailed as error:
            header = str(error)
        if isinstance(header, str):
            self._bad.append(BadFile(path, header))
            return None
        return IndexFile(self._files, path, self._shape, header)

    def _wake_last(self, *, is_recounted: bool = False) -> None:
        if not self._index_files:
            return
        file = self._index_files[-1]
        try:
            reason = wake(self._files, file, self._writers.file, is_recounted=is_recounted)
        except ReadFailed as error:
            reason = str(error)
        self._writers.sync()
        if reason:
            self._bad.append(BadFile(file.path, reason))
            self._index_files = self._index_files[:-1]

    def _remove(self, paths: list[Path]) -> None:
        self._writers.close()
        for path in paths:
            self._files.remove(path)
        if paths:
            self._files.sync([self._folder])

    # --- Growing old ---

    def expired(self, min_log_offset: int) -> list[Path]:
        """Return the files whose records are all gone; never the last, never one being written."""
        return [
            file.path
            for file in self._index_files[:-1]
            if file.header.end_offset < min_log_offset and not file.unwritten_size
        ]

    def forget(self, paths: Iterable[Path]) -> None:
        """Look into these files no more: they are about to be removed."""
        gone = frozenset(paths)
        self._index_files = tuple(file for file in self._index_files if file.path not in gone)


def find_waiting(rows: bytes, query: KeyQuery) -> list[int]:
    """Return the log offsets, newest first, of what waits to be filed under a key's hash."""
    wanted = index_hash(f"{query.topic}#{query.key}")
    found = [
        log_offset
        for key_hash, log_offset, store_ms in ROW.iter_unpack(rows)
        if key_hash == wanted and query.begin_ms <= store_ms <= query.end_ms
    ]
    return list(dict.fromkeys(reversed(found)))


def _offset_in(rows: bytes | bytearray, position: int) -> int:
    """Return the log offset of the row that begins at a position."""
    log_offset: int = ROW.unpack_from(rows, position)[1]
    return log_offset
