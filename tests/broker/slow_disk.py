"""Files whose log syncs wait or fail when a test says so.

In: a gate that is open or shut, and an error. Out: real files.
"""

import threading
from pathlib import Path

from orbitmq.errors import SyncFailed
from orbitmq.world.files import BigFile, SystemFiles

WAIT_S = 20.0


class _SlowLog:
    """A log file whose sync goes through the gate."""

    def __init__(self, inner: BigFile, files: "SlowDisk") -> None:
        self._inner = inner
        self._files = files
        self.size = inner.size

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._inner.write_at(position, data)

    def read_at(self, position: int, size: int) -> bytes:
        return self._inner.read_at(position, size)

    def view(self) -> memoryview:
        return self._inner.view()

    def sync(self) -> None:
        self._files.sync_log(self._inner)

    def close(self) -> None:
        self._inner.close()


class SlowDisk(SystemFiles):
    """Files whose log syncs wait while `gate` is shut and fail while `is_broken`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Semaphore(0)
        """Released each time a sync of the log begins."""
        self.sync_count = 0
        self.is_broken = False

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        inner = super().open_big(path, size, is_mapped=is_mapped)
        return _SlowLog(inner, self) if path.parent.name == "commitlog" else inner

    def sync_log(self, inner: BigFile) -> None:
        """Sync when the gate is open."""
        self.asked.release()
        if not self.gate.wait(WAIT_S):
            raise SyncFailed("the test left the gate shut")
        if self.is_broken:
            raise SyncFailed("cannot sync the log: Input/output error")
        inner.sync()
        self.sync_count += 1
