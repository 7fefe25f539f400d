"""Reading the log by its offsets: raw bytes for replication, records for
recovery.

In: a log offset. Out: bytes or records from there on, never past what may be seen.

Rules:
1. The hot part is given as views of mapped files. The rest is read by path: call it from a thread
   when it may be far behind.
2. Damage inside the log is passed over, as recovery passes over it (record_search.py).
"""

from orbitmq.core import LogTail, Walked, walk_records
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_source import LogFiles, claimed_size
from orbitmq.store.record_search import resumes_at
from orbitmq.world.files import Files

READ_BYTES_MAX = 1_048_576


class LogReader:
    """Reads one log."""

    def __init__(self, files: Files, folders: LogFolders, tail: LogTail) -> None:
        self._files = files
        self._folders = folders
        self._tail = tail

    def raw(self, log_offset: int, size_max: int) -> memoryview:
        """Return the bytes from a log offset on: to the end of its file, of what may be seen, or
        `size_max`; empty when there are none."""
        tail = self._tail
        number, position = divmod(log_offset, tail.file_size)
        size = min(size_max, tail.visible_offset - log_offset, tail.file_size - position)
        if size <= 0:
            return memoryview(b"")
        view = tail.views.get(number) if log_offset >= tail.hot_offset else None
        if view is not None:
            return view[position : position + size]
        path = self._folders.path(number * tail.file_size)
        return memoryview(self._files.read_at(path, position, size) or b"")

    def records(self, log_offset: int, bytes_max: int = READ_BYTES_MAX) -> tuple[list[Walked], int]:
        """Return the records from a log offset on, and the offset at which to go on.

        When it gives none and the offset has not moved, there is nothing more to see.
        """
        data = self.raw(log_offset, bytes_max)
        found = list(walk_records(data, 0, log_offset))
        if found:
            return found, found[-1].log_offset + found[-1].size
        file_size, visible = self._tail.file_size, self._tail.visible_offset
        if log_offset >= visible:
            return found, log_offset
        numbers = [start // file_size for start in self._folders.starts()]
        log = LogFiles(self._files, self._folders, file_size, numbers)
        file_end = log.file_end(log_offset)
        size = claimed_size(data, file_end - log_offset)
        if len(data) == bytes_max < size:
            return self.records(log_offset, size)
        if not data or log.is_filled(log_offset):  # where the file is gone, nobody has its bytes
            return found, min(file_end, visible)
        later = [each * file_size for each in numbers if each * file_size > log_offset]
        following = resumes_at(log, log_offset, later)
        return found, visible if following is None else min(following, visible)
