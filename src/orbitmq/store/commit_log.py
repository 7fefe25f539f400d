"""The log's files: a row of equal files that together are one stream of bytes.

In: bytes at log offsets. Out: files of fixed size, each named by the 20 digits of its first offset,
in the folders that log_folders.py gives them, and the newest as memory in the tail's `views`.

Rules:
1. Bytes are written with positioned writes only, at most one per file and call.
2. The next file is made ahead of need, with its space, by a job for a thread. Where that failed or
   came too late, the writer makes it, sparse and at full length. The very first is made so, too:
   a broker that is tried out takes no gigabyte.
3. A failed write leaves nothing behind: what it wrote is blotted out, on the disk as well, before
   anybody is told that it failed.
4. Only the files of the hot part are open and mapped, and only so many of them, besides those that
   are being written or not yet synced. When more are made the hot part begins later.
5. Where one of several folders takes no new file, the next one gets it. And a file that is made
   ahead gets its name on the disk behind that of the file before it, and the log's first file
   before all others: otherwise a power cut could let the log begin with a later one.
"""

from pathlib import Path

from orbitmq.core import LogTail
from orbitmq.ensure import ensure
from orbitmq.errors import DiskFull, StoreError, WriteFailed
from orbitmq.store.log_folders import LogFolders
from orbitmq.world.files import BigFile, Files

BLOT_SIZE = 65_536
MAPPED_FILES_MAX = 128


class CommitLog:
    """Writes, maps and syncs the files of one log."""

    def __init__(self, files: Files, folders: LogFolders, tail: LogTail, first_offset: int) -> None:
        self._files = files
        self._folders = folders
        self._tail = tail
        self.first_offset = first_offset
        """Where the log begins: what lies before was removed."""
        self._open: dict[int, BigFile] = {}
        self._unsynced: set[int] = set()
        self._unsynced_folders: set[Path] = set()
        self._reserved = -1
        self._syncs_under_way = 0
        self._leaving: list[BigFile] = []
        self._written_from: int | None = None
        """The first file of the write that is under way."""
        self.is_spoiled = False
        """Whether a refused write left something that could not be blotted out."""
        last = tail.end_offset // tail.file_size
        first = max(tail.hot_offset // tail.file_size, last - MAPPED_FILES_MAX + 1)
        for number in range(first, last):
            if not self._can_open(number):
                first = number + 1
        if tail.end_offset % tail.file_size:
            self._file(last)
        self._unsynced_folders.clear()  # recovery has seen to it
        self._move_hot(first)

    def path(self, number: int) -> Path:
        """Return the path of a file by its number (first offset // file size)."""
        return self._folders.path(number * self._tail.file_size)

    def write(self, log_offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write `data` at `log_offset`, cut where files end.

        Raises StoreError when a file refuses; then nothing of `data` will be read as a record.
        """
        first = log_offset // self._tail.file_size
        last = (log_offset + len(data) - 1) // self._tail.file_size
        self._written_from = first
        try:
            # Before anything is written: a full disk refuses here, most often.
            for number in range(first, last + 1):
                if number not in self._open:
                    self._file(number)
            self._write(log_offset, data)
        finally:
            self._written_from = None

    def _write(self, log_offset: int, data: bytes | bytearray | memoryview) -> None:
        file_size, done = self._tail.file_size, 0
        try:
            while done < len(data):
                number, position = divmod(log_offset + done, file_size)
                piece = memoryview(data)[done : done + file_size - position]
                self._open[number].write_at(position, piece)
                self._unsynced.add(number)
                done += len(piece)
        except BaseException:
            self._blot(log_offset, len(data))
            raise

    def begin_sync(self) -> "Unsynced":
        """Return what must be synced; until `end_sync` no file is closed."""
        numbers, self._unsynced = self._unsynced, set()
        folders, self._unsynced_folders = self._unsynced_folders, set()
        self._syncs_under_way += 1
        big_files = [self._open[number] for number in sorted(numbers)]
        return Unsynced(self._files, big_files, sorted(folders))

    def end_sync(self) -> None:
        """Say that a sync is over, however it ended."""
        self._syncs_under_way -= 1
        if not self._syncs_under_way:
            self._close_leaving()

    def number_to_reserve(self) -> int | None:
        """Return the number of the file to make ahead, or None when none is due.

        What is only staged does not count: its own file may not be there yet, and files must come
        in order.
        """
        number, position = divmod(self._tail.written_offset, self._tail.file_size)
        if position * 2 < self._tail.file_size or self._reserved >= number + 1:
            return None
        self._reserved = number + 1
        self._folders.give(self._reserved, self._reserved * self._tail.file_size)
        return self._reserved

    def reserve(self, number: int) -> None:
        """Make a file ahead of need, with its space; for a thread. Raises StoreError."""
        path, before = self.path(number), self.path(number - 1)
        if self._files.size(path) is None:
            if before.parent != path.parent:
                self._files.sync([before.parent])
            self._files.reserve(path, self._tail.file_size)

    def reserve_failed(self, number: int, error: BaseException) -> None:
        """Say that making a file ahead failed: it is due again, in another folder if one is.

        The writer may have come to the file first, and have the next one made meanwhile.
        """
        is_refused = isinstance(error, DiskFull | WriteFailed)
        if is_refused and self._files.size(self.path(number)) is None:
            self._folders.move_on(number * self._tail.file_size)
        if self._reserved == number:
            self._reserved = -1

    def forget(self, numbers: list[int]) -> None:
        """Close files that are removed, the oldest ones; the log begins behind them."""
        for number in numbers:
            self._close(number)
            self._folders.forget(number * self._tail.file_size)
            self.first_offset = max(self.first_offset, (number + 1) * self._tail.file_size)
        self._move_hot(self.first_offset // self._tail.file_size)

    def keep_hot(self, hot_offset: int) -> None:
        """Close and unmap the files that lie wholly before `hot_offset`."""
        self._move_hot(hot_offset // self._tail.file_size)

    def close(self) -> None:
        """Close all files."""
        for number in list(self._open):
            self._close(number)
        self._close_leaving()

    def _file(self, number: int) -> BigFile:
        file = self._open.get(number)
        if file is None:
            file = self._opened(number)
            self._open[number] = file
            self._tail.views[number] = file.view()
            # Also of a file that was made ahead: its name may be there and not yet on the disk.
            self._unsynced_folders.add(self.path(number).parent)
            if len(self._open) > MAPPED_FILES_MAX:
                self._move_hot(number - MAPPED_FILES_MAX + 1)
        return file

    def _opened(self, number: int) -> BigFile:
        """Open a file, made where it is not there: in the first folder that takes it (rule 5)."""
        start = number * self._tail.file_size
        while True:
            path = self._folders.give(number, start)
            try:
                file = self._files.open_big(path, self._tail.file_size)
            except (DiskFull, WriteFailed):
                is_new = self._folders.is_spread and self._files.size(path) is None
                if not (is_new and self._folders.move_on(start)):
                    raise
                continue
            if self._folders.is_spread and start == self.first_offset == self._tail.written_offset:
                try:
                    self._files.sync([path.parent])
                except StoreError:
                    file.close()
                    raise
            return file

    def _can_open(self, number: int) -> bool:
        """Open a file for reading; False: its disk is read-only indeed, and it is read by path."""
        try:
            self._file(number)
        except WriteFailed:
            if not self._folders.is_read_only(self.path(number)):
                raise
            return False
        return True

    def _move_hot(self, first_number: int) -> None:
        """Let the hot part begin not before this file; files with unsynced bytes stay open."""
        tail = self._tail
        tail.cool(first_number * tail.file_size)
        if self._written_from is not None:
            first_number = min(first_number, self._written_from)
        for number in [number for number in self._open if number < first_number]:
            if number not in self._unsynced:
                self._close(number)

    def _close(self, number: int) -> None:
        self._tail.views.pop(number, None)
        self._unsynced.discard(number)
        file = self._open.pop(number, None)
        if file is None:
            return
        self._leaving.append(file)
        if not self._syncs_under_way:
            self._close_leaving()

    def _close_leaving(self) -> None:
        for file in self._leaving:
            file.close()
        self._leaving.clear()

    def _blot(self, log_offset: int, size: int) -> None:
        """Write zeros over what a refused write left: as far as it got, its space exists.

        Not only over its first record: those behind it are whole, and a later write that ends where
        one of them begins would bring it back. And it is synced: a power cut, too, would.
        """
        end = log_offset + size
        while log_offset < end:
            number, position = divmod(log_offset, self._tail.file_size)
            piece = min(BLOT_SIZE, end - log_offset, self._tail.file_size - position)
            file = self._open[number]
            try:
                # Not through the map: on a full disk, touching what was never written ends us.
                left = file.read_at(position, piece).rstrip(b"\0")
                if left:  # no more than that: what was not written may have no space
                    file.write_at(position, bytes(len(left)))
                    file.sync()
            except StoreError:
                self.is_spoiled = True
                return
            log_offset += piece


class Unsynced:
    """Files with bytes that are not on the disk yet."""

    def __init__(self, files: Files, big_files: list[BigFile], folders: list[Path]) -> None:
        ensure(bool(big_files) or not folders, "a new file has bytes")
        self._files = files
        self._big_files = big_files
        self._folders = folders

    def sync(self) -> None:
        """Bring them to the disk; for a thread. Raises SyncFailed."""
        for file in self._big_files:
            file.sync()
        if self._folders:
            self._files.sync(self._folders)
