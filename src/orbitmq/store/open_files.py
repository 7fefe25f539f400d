"""Files of queues that are open for writing: a bounded number, the longest unused one goes first.

In: topic, queue id and number of a file. Out: the file, open; whoever has it writes at positions.
Rule: one thread at a time, the flush job's.
"""

from collections import OrderedDict
from pathlib import Path

from orbitmq.world.files import BigFile, Files

OPEN_FILES_MAX = 256
"""An open file costs one descriptor and no map."""

FileKey = tuple[str, int, int]
"""Topic, queue id and number of a file."""


class OpenFiles:
    """Files by (topic, queue id, number); the longest unused one is closed for a new one."""

    def __init__(self, files: Files, count_max: int = OPEN_FILES_MAX) -> None:
        self._files = files
        self._count_max = count_max
        self._open: OrderedDict[FileKey, BigFile] = OrderedDict()
        self._numbers: dict[tuple[str, int], set[int]] = {}

    def get(self, key: FileKey) -> BigFile | None:
        """Return a file that is open."""
        file = self._open.get(key)
        if file is not None:
            self._open.move_to_end(key)
        return file

    def open(self, key: FileKey, path: Path, size: int) -> BigFile:
        """Open a file; made, sparse, when it is not there."""
        if len(self._open) >= self._count_max:
            self._close(next(iter(self._open)))
        file = self._files.open_big(path, size, is_mapped=False)
        self._open[key] = file
        self._numbers.setdefault(key[:2], set()).add(key[2])
        return file

    def forget(self, topic: str, queue_id: int) -> None:
        """Close what is open of a queue."""
        for number in list(self._numbers.get((topic, queue_id), ())):
            self._close((topic, queue_id, number))

    def close(self) -> None:
        """Close everything."""
        for key in list(self._open):
            self._close(key)

    def _close(self, key: FileKey) -> None:
        numbers = self._numbers[key[:2]]
        numbers.discard(key[2])
        if not numbers:
            del self._numbers[key[:2]]
        self._open.pop(key).close()
