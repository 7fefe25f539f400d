"""The locks that keep others out of a folder: one of the original's kind, and one without a file.

In: the path of a file in that folder, or of the folder itself. Out: a lock to release, or a
StoreError that names the cause.

Rules:
1. The system drops a process's lock when it closes any descriptor of the locked file: nobody reads,
   copies or syncs a lock file that its own process holds.
2. The system gives a process a lock that it has already. So the process keeps a list of its own,
   and a file on it is not even opened a second time (rule 1).
3. A folder that is held gets no file: the lock is on the folder (flock), of which the original
   knows nothing. It belongs to one opening, so a second one in the same process is refused too.
"""

import errno
import os
import threading
from pathlib import Path
from types import ModuleType
from typing import Protocol

from orbitmq.errors import StoreError
from orbitmq.world.file_steps import refused

_TAKEN = frozenset({errno.EACCES, errno.EAGAIN})
"""What POSIX lets a lock answer when another process holds it."""

_Identity = tuple[int, int]
"""Device and number of a file: the same under every name that leads to it."""

_guard = threading.Lock()
_held: set[_Identity] = set()
"""The lock files of this process."""


class FolderLock(Protocol):
    """A lock that keeps other processes out of a folder."""

    def release(self) -> None:
        """Let the folder go."""
        ...


class SystemFolderLock:
    """A POSIX lock on byte 0 of a file that holds the text `lock`, as the original has it."""

    def __init__(self, path: Path) -> None:
        fcntl = _posix_locks()
        with _guard:
            if _identity(path) in _held:
                raise StoreError(taken_here(path))
            try:
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise refused(error, "open", path) from error
            try:
                self._take(path, fcntl)
                facts = os.fstat(self._fd)
            except BaseException:
                os.close(self._fd)
                raise
            self._key: _Identity = (facts.st_dev, facts.st_ino)
            _held.add(self._key)

    def _take(self, path: Path, fcntl: ModuleType) -> None:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(self._fd, b"lock", 0)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise refused(error, "lock", path) from error
            raise StoreError(
                f"another process has {path.parent} open; stop it or choose another --data-dir"
            ) from None

    def release(self) -> None:
        """Let the folder go."""
        with _guard:
            _held.discard(self._key)
            os.close(self._fd)


class SystemFolderHold:
    """A lock on the folder itself (rule 3)."""

    def __init__(self, path: Path) -> None:
        fcntl = _posix_locks()
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise refused(error, "open", path) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno not in _TAKEN:
                raise refused(error, "lock", path) from error
            raise StoreError(held_elsewhere(path)) from None

    def release(self) -> None:
        """Let the folder go."""
        os.close(self._fd)


def _posix_locks() -> ModuleType:
    """Return what locks files; raises StoreError on Windows, where programs are clients only."""
    try:
        import fcntl
    except ImportError:
        raise StoreError(
            "brokers and name servers run on Linux and macOS only: this system has no POSIX locks"
        ) from None
    return fcntl


def held_elsewhere(path: Path) -> str:
    """Say that another store has a folder open."""
    return (
        f"another broker has the log folder {path} open, under another store folder; stop it, or"
        " set storePathCommitLog to a folder that only this broker has"
    )


def taken_here(path: Path) -> str:
    """Say that this very process holds a lock."""
    return f"this process has {path.parent} open already; close it there or open another folder"


def _identity(path: Path) -> _Identity | None:
    try:
        facts = os.stat(path)
    except OSError:  # not there yet; everything else `open` meets again and tells
        return None
    return facts.st_dev, facts.st_ino
