"""A queue's files: its entries, written behind in bigger pieces.

In: runs of 20-byte entries at queue offsets. Out: files of fixed size named by the 20 digits of
their first byte's offset in the queue, and entries read back from them.

Rules:
1. The files are derived from the log: whatever is missing in them is filled from it at the start.
2. The newest entries are in the core's Queue; a read that reaches back further comes here.
"""

from pathlib import Path

from orbitmq.core.state import ENTRY_SIZE
from orbitmq.world.files import BigFile, Files


class QueueFiles:
    """Writes and reads the entries of one queue. Files are opened when first needed."""

    def __init__(self, files: Files, folder: Path, file_size: int) -> None:
        self._files = files
        self._folder = folder
        self._file_size = file_size
        self._open: dict[int, BigFile] = {}

    def write(self, queue_offset: int, entries: bytes | bytearray) -> None:
        """Write whole entries from `queue_offset` on; raises StoreError when a file refuses."""
        start = queue_offset * ENTRY_SIZE
        done = 0
        while done < len(entries):
            number, position = divmod(start + done, self._file_size)
            piece = memoryview(entries)[done : done + self._file_size - position]
            self._file(number).write_at(position, piece)
            done += len(piece)

    def read(self, queue_offset: int, count: int) -> bytes:
        """Give up to `count` whole entries from `queue_offset` on; at a file's end it stops."""
        number, position = divmod(queue_offset * ENTRY_SIZE, self._file_size)
        view = self._file(number).view()
        return bytes(view[position : position + count * ENTRY_SIZE])

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, number: int) -> BigFile:
        file = self._open.get(number)
        if file is None:
            self._files.make_folder(self._folder)
            path = self._folder / f"{number * self._file_size:020d}"
            file = self._open[number] = self._files.open_big(path, self._file_size)
        return file
