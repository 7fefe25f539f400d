"""The log's files: a row of equal files that together are one stream of bytes.

In: bytes at log offsets. Out: files of fixed size, each named by the 20 digits of its first offset,
and each file as memory in the tail's `views`.

Rules:
1. Bytes are written with positioned writes only, at most one per file and call.
2. A file is made, sparse and at full length, when its first byte is written.
3. A failed write leaves no valid record behind its start: the place where it began is blotted out.
"""

import contextlib
from pathlib import Path

from orbitmq.core import LogTail
from orbitmq.errors import StoreError
from orbitmq.world.files import BigFile, Files

BLOT_SIZE = 65_536


class CommitLog:
    """Writes, maps and syncs the files of one log."""

    def __init__(self, files: Files, folder: Path, tail: LogTail) -> None:
        self._files = files
        self._folder = folder
        self._tail = tail
        self._open: dict[int, BigFile] = {}
        self._unsynced: set[int] = set()
        files.make_folder(folder)
        for name in files.names(folder):
            if len(name) == 20 and name.isdigit():
                self._file(int(name) // tail.file_size)

    @property
    def file_numbers(self) -> list[int]:
        """The numbers (first offset // file size) of the files that are there, in order."""
        return sorted(self._open)

    def write(self, log_offset: int, data: bytes) -> None:
        """Write `data` at `log_offset`, cut where files end.

        Raises StoreError when a file refuses; then nothing of `data` will be read as a record.
        """
        file_size = self._tail.file_size
        done = 0
        try:
            while done < len(data):
                number, position = divmod(log_offset + done, file_size)
                piece = memoryview(data)[done : done + file_size - position]
                self._file(number).write_at(position, piece)
                self._unsynced.add(number)
                done += len(piece)
        except BaseException:
            self._blot(log_offset, len(data))
            raise

    def sync(self) -> None:
        """Bring everything written so far to the disk. Blocks: call it from a thread."""
        for number in list(self._unsynced):
            self._unsynced.discard(number)  # first: it may be written to while it is synced
            try:
                self._open[number].sync()
            except StoreError:
                self._unsynced.add(number)
                raise

    def close(self) -> None:
        """Sync and close all files; they are closed also when the sync fails."""
        try:
            self.sync()
        finally:
            self._tail.views.clear()
            for file in self._open.values():
                file.close()
            self._open.clear()

    def _file(self, number: int) -> BigFile:
        file = self._open.get(number)
        if file is None:
            first_offset = number * self._tail.file_size
            path = self._folder / f"{first_offset:020d}"
            file = self._open[number] = self._files.open_big(path, self._tail.file_size)
            self._tail.views[number] = file.view()
        return file

    def _blot(self, log_offset: int, size: int) -> None:
        """Write zeros over what a refused write left: as far as it got, its space exists.

        Not only over its first record: those behind it are whole, and a later write that ends where
        one of them begins would bring it back.
        """
        end = log_offset + size
        with contextlib.suppress(StoreError):
            while log_offset < end:
                number, position = divmod(log_offset, self._tail.file_size)
                piece = min(BLOT_SIZE, end - log_offset, self._tail.file_size - position)
                if number not in self._open:
                    return
                self._open[number].write_at(position, bytes(piece))
                log_offset += piece
