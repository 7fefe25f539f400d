"""Reading the log by its offsets: raw bytes for replication, records for
recovery.

In: a log offset. Out: bytes or records from there on, never past what may be seen.

Rules:
1. The hot part is given as views of mapped files. The rest is read by path: call it from a thread
   when it may be far behind.
2. Damage inside the log is passed over, as recovery passes over it.
"""

from orbitmq.core import LogTail, Walked, record_at
from orbitmq.store.bad_record import Footing, ViewGround, step_over
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.scan import next_record
from orbitmq.wire.record import BLANK_MAGIC, PREFIX, RECORD_SIZE_MAX
from orbitmq.world.files import Files

READ_BYTES_MAX = 1_048_576
SEARCH_BYTES_MAX = 2 * RECORD_SIZE_MAX
"""How much is looked at together for the next whole record: twice what one can take."""


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
        found: list[Walked] = []
        position = 0
        while (record := record_at(data, position, log_offset)) is not None:
            found.append(record)
            position += record.size
        at = log_offset + position
        if found:
            return found, at
        if len(data) < PREFIX.size:
            return found, self._behind_missing_file(log_offset) if not data else at
        size, magic = PREFIX.unpack_from(data)
        if magic == BLANK_MAGIC:
            return found, self._next_file(log_offset)
        if len(data) == bytes_max < SEARCH_BYTES_MAX:  # may be the beginning of a long record
            return self.records(log_offset, max(bytes_max * 4, min(size, SEARCH_BYTES_MAX)))
        return found, self._behind_damage(data, log_offset)

    def _next_file(self, log_offset: int) -> int:
        file_size = self._tail.file_size
        return (log_offset // file_size + 1) * file_size

    def _behind_missing_file(self, log_offset: int) -> int:
        """The file is gone: its bytes may be seen, but nobody has them."""
        return min(self._next_file(log_offset), max(log_offset, self._tail.visible_offset))

    def _behind_damage(self, data: memoryview, log_offset: int) -> int:
        landing = step_over(ViewGround(data, log_offset, self._tail.file_size), log_offset)
        if landing.footing is Footing.SOUND:
            return landing.log_offset
        if landing.footing is Footing.LOST:
            following = next_record(data, landing.log_offset - log_offset, log_offset)
            if following is not None:
                return log_offset + following
        if len(data) >= SEARCH_BYTES_MAX:
            return log_offset + len(data) - RECORD_SIZE_MAX
        is_rest_of_file = (log_offset + len(data)) % self._tail.file_size == 0
        return self._next_file(log_offset) if is_rest_of_file else log_offset + len(data)
