"""Files, through one door: whole small files, and big ones that are written at positions.

In: paths and bytes. Out: bytes, maps for reading, or a StoreError (DiskFull, WriteFailed) that
names the file and the cause. Only `read` lets the OSError out: its callers know what the file is.

Rules:
1. Everything that changes a file goes through `Files`, so a test can record, tear and refuse it.
2. `write_at` writes all of its bytes or raises; a short write is continued until refused.
3. A table is replaced by a rename after a sync: after any crash it is the old one or the new one.
4. Maps are for reading only. A mapped file is never truncated.
"""

import contextlib
import errno
import fcntl
import mmap
import os
from pathlib import Path
from typing import Protocol

from orbitmq.errors import DiskFull, StoreError, WriteFailed

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TAKEN = frozenset({errno.EACCES, errno.EAGAIN})
"""What POSIX lets a lock answer when another process holds it."""


class BigFile(Protocol):
    """A file of fixed size that is written at positions and read through a map."""

    size: int

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`, or raise DiskFull or WriteFailed."""
        ...

    def view(self) -> memoryview:
        """Give the whole file as memory that always shows what was written last."""
        ...

    def sync(self) -> None:
        """Return when everything written so far is on the disk."""
        ...

    def close(self) -> None:
        """Close the file and its view; slices of the view stay readable until released."""
        ...


class Files(Protocol):
    """What the rest of the product knows of the file system."""

    def read(self, path: Path) -> bytes | None:
        """Give a file's contents, or None when there is no such file; may raise OSError."""
        ...

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        """Replace a small file as a whole; with `keep_backup` the old one becomes `<name>.bak`."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents; not an error when it is there."""
        ...

    def names(self, path: Path) -> list[str]:
        """Give the sorted names in a folder; empty when there is no such folder."""
        ...

    def open_big(self, path: Path, size: int) -> BigFile:
        """Open a file of exactly `size` bytes, made sparse when it is not there."""
        ...

    def lock(self, path: Path) -> "FolderLock":
        """Take the lock on byte 0 that the original takes, or raise StoreError."""
        ...


class FolderLock(Protocol):
    """A lock that keeps other processes out of a folder."""

    def release(self) -> None:
        """Let the folder go."""
        ...


def _refused(error: OSError, action: str, path: object) -> StoreError:
    text = f"cannot {action} {path}: {error.strerror}"
    if error.errno in _NO_SPACE:
        return DiskFull(f"{text}; free space on that disk or move the data folder (--data-dir)")
    return WriteFailed(text)


class SystemBigFile:
    """A BigFile of the operating system."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _refused(error, "open", path) from error
        try:
            self._give_size(size)
            self._map = self._map_all(size)
        except BaseException:
            os.close(self._fd)
            raise
        self._view = memoryview(self._map)

    def _give_size(self, size: int) -> None:
        present = os.fstat(self._fd).st_size
        if present not in (0, size):
            raise StoreError(
                f"{self._path} has {present} bytes instead of {size}; the file size of a store is "
                "fixed: start with the setting it was written with"
            )
        if present == 0:
            try:
                os.ftruncate(self._fd, size)
            except OSError as error:
                raise _refused(error, f"give {size} bytes to", self._path) from error

    def _map_all(self, size: int) -> mmap.mmap:
        try:
            return mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise _refused(error, f"map {size} bytes of", self._path) from error

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`, or raise DiskFull or WriteFailed."""
        try:
            written = os.pwrite(self._fd, data, position)
            while written < len(data):
                rest = memoryview(data)[written:]
                written += os.pwrite(self._fd, rest, position + written)
        except OSError as error:
            raise _refused(error, "write", self._path) from error

    def view(self) -> memoryview:
        """Give the whole file as memory that always shows what was written last."""
        return self._view

    def sync(self) -> None:
        """Return when everything written so far is on the disk."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _refused(error, "sync", self._path) from error

    def close(self) -> None:
        """Close the file and its view; slices of the view stay readable until released."""
        self._view.release()
        with contextlib.suppress(
            BufferError
        ):  # a reader's slice keeps the map until it is released
            self._map.close()
        os.close(self._fd)


class SystemFiles:
    """The Files of the operating system."""

    def read(self, path: Path) -> bytes | None:
        """Give a file's contents, or None when there is no such file; may raise OSError."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        """Replace a small file as a whole; with `keep_backup` the old one becomes `<name>.bak`."""
        temporary = path.with_name(path.name + ".tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if keep_backup and path.exists():
                backup = path.with_name(path.name + ".bak")
                link = path.with_name(path.name + ".bak.tmp")
                link.unlink(missing_ok=True)
                os.link(path, link)
                os.replace(link, backup)
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except OSError as error:
            raise _refused(error, "replace", path) from error

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents; not an error when it is there."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _refused(error, "make folder", path) from error

    def names(self, path: Path) -> list[str]:
        """Give the sorted names in a folder; empty when there is no such folder."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _refused(error, "list", path) from error

    def open_big(self, path: Path, size: int) -> BigFile:
        """Open a file of exactly `size` bytes, made sparse when it is not there."""
        return SystemBigFile(path, size)

    def lock(self, path: Path) -> FolderLock:
        """Take the lock on byte 0 that the original takes, or raise StoreError."""
        return SystemFolderLock(path)


class SystemFolderLock:
    """A POSIX lock on byte 0 of a file that holds the text `lock`, as the original has it."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _refused(error, "open", path) from error
        try:
            self._take(path)
        except BaseException:
            os.close(self._fd)
            raise

    def _take(self, path: Path) -> None:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(self._fd, b"lock", 0)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise _refused(error, "lock", path) from error
            raise StoreError(
                f"another process has {path.parent} open; stop it or choose another --data-dir"
            ) from None

    def release(self) -> None:
        """Let the folder go."""
        os.close(self._fd)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
