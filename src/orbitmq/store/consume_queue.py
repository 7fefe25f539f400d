"""A queue's files: its entries, written behind in bigger pieces.

In: runs of 20-byte entries at queue offsets. Out: files of fixed size named by the 20 digits of
their first byte's offset in the queue, and entries read back from them.

Rules:
1. The files are derived from the log: whatever is missing in them is filled from it at the start.
2. The newest entries are in the core's Queue; a read that reaches back further comes here.
3. All queues together keep a bounded number of files open; entries are given as copies, so any file
   may be closed at any time.
"""

from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path

from orbitmq.core.state import ENTRY_SIZE
from orbitmq.world.files import BigFile, Files

OPEN_FILES_MAX = 512
"""Each costs two descriptors and a map."""


class OpenFiles:
    """Files of one size, opened when first needed, the longest unused one closed for a new one."""

    def __init__(self, files: Files, file_size: int, count_max: int = OPEN_FILES_MAX) -> None:
        self._files = files
        self.file_size = file_size
        self._count_max = count_max
        self._open: OrderedDict[Hashable, BigFile] = OrderedDict()

    def get(self, folder: Path, number: int) -> BigFile:
        """Give the file of a folder by its number; made, with its folder, when it is not there."""
        key = (folder, number)
        file = self._open.get(key)
        if file is not None:
            self._open.move_to_end(key)
            return file
        if len(self._open) >= self._count_max:
            self._open.popitem(last=False)[1].close()
        self._files.make_folder(folder)
        file = self._files.open_big(folder / f"{number * self.file_size:020d}", self.file_size)
        self._open[key] = file
        return file

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()
        self._open.clear()


class QueueFiles:
    """Writes and reads the entries of one queue."""

    def __init__(self, open_files: OpenFiles, folder: Path) -> None:
        self._files = open_files
        self._folder = folder
        self._file_size = open_files.file_size

    def write(self, queue_offset: int, entries: bytes | bytearray) -> None:
        """Write whole entries from `queue_offset` on; raises StoreError when a file refuses."""
        start = queue_offset * ENTRY_SIZE
        done = 0
        while done < len(entries):
            number, position = divmod(start + done, self._file_size)
            piece = memoryview(entries)[done : done + self._file_size - position]
            self._files.get(self._folder, number).write_at(position, piece)
            done += len(piece)

    def read(self, queue_offset: int, count: int) -> bytes:
        """Give up to `count` whole entries from `queue_offset` on; at a file's end it stops."""
        number, position = divmod(queue_offset * ENTRY_SIZE, self._file_size)
        view = self._files.get(self._folder, number).view()
        return bytes(view[position : position + count * ENTRY_SIZE])
