"""A big file: of fixed size, written at positions, read through a map or at positions.

In: positions and bytes. Out: bytes, a view of the whole file, or a StoreError (DiskFull,
WriteFailed, ReadFailed, SyncFailed) that names the file and the cause. May be used by any thread.

Rules:
1. `write_at` writes all of its bytes or raises; a short write is continued until refused.
2. Maps are for reading only. A mapped file is never truncated.
3. A new file's name is on the disk only after its folder was synced.
4. A new file has its length before it has its name, where the system can do that: an original
   broker does not start on a folder with a file that a kill left empty.
"""

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import ReadFailed, StoreError
from orbitmq.world.file_steps import refused, unsynced
from orbitmq.world.portable import write_at

_NO_NAMELESS = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""What a file system answers that has no files without a name."""

_NO_HOLES = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""What a file system answers that does not know its holes."""

RANGES_MAX = 1_024
"""Behind so many holes a file counts as one without."""

_ZEROS = bytes(1 << 16)


class BigFile(Protocol):
    """A file of fixed size that is written at positions and read through a map."""

    size: int

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`, or raise DiskFull or WriteFailed."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Return bytes from `position` on, short only at the file's end; may raise ReadFailed."""
        ...

    def view(self) -> memoryview:
        """Return the whole file as memory that always shows what was written last."""
        ...

    def sync(self) -> None:
        """Return when everything written so far is on the disk, or raise SyncFailed."""
        ...

    def close(self) -> None:
        """Close the file and its view; slices of the view stay readable until released."""
        ...


class SystemBigFile:
    """A BigFile of the operating system."""

    def __init__(self, path: Path, size: int, *, is_mapped: bool) -> None:
        self._path = path
        self.size = size
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        try:
            self._fd = _open_or_make(path, size)
        except OSError as error:
            raise refused(error, "open", path) from error
        try:
            self._give_size(size)
            if is_mapped:
                self._map = self._map_all(size)
                self._view = memoryview(self._map)
        except BaseException:
            os.close(self._fd)
            raise

    def _give_size(self, size: int) -> None:
        present = os.fstat(self._fd).st_size
        if present not in (0, size):
            raise StoreError(wrong_size(self._path, present, size))
        if present == 0:
            try:
                os.ftruncate(self._fd, size)
            except OSError as error:
                raise refused(error, f"give {size} bytes to", self._path) from error

    def _map_all(self, size: int) -> mmap.mmap:
        try:
            return mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise refused(error, f"map {size} bytes of", self._path) from error

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`, or raise DiskFull or WriteFailed."""
        try:
            written = os.pwrite(self._fd, data, position)
            if written < len(data):
                write_rest(self._fd, position, data, written)
        except OSError as error:
            raise refused(error, "write", self._path) from error

    def read_at(self, position: int, size: int) -> bytes:
        """Return bytes from `position` on, short only at the file's end; may raise ReadFailed."""
        try:
            return read_all(self._fd, position, size)
        except OSError as error:
            raise ReadFailed(f"cannot read {self._path}: {error.strerror}", self._path) from error

    def view(self) -> memoryview:
        """Return the whole file as memory that always shows what was written last."""
        if self._view is None:
            raise BrokenInvariant(f"{self._path} was opened without a map and has no view")
        return self._view

    def sync(self) -> None:
        """Return when everything written so far is on the disk, or raise SyncFailed."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise unsynced(error, self._path) from error

    def close(self) -> None:
        """Close the file and its view; slices of the view stay readable until released."""
        if self._view is not None:
            self._view.release()
        if self._map is not None:
            with contextlib.suppress(BufferError):  # a reader's slice keeps the map until released
                self._map.close()
        os.close(self._fd)


def _open_or_make(path: Path, size: int) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    try:
        fd = make_whole(path, lambda nameless: os.ftruncate(nameless, size))
    except FileExistsError:  # another thread was faster
        return os.open(path, flags)
    return os.open(path, flags | os.O_CREAT, 0o644) if fd is None else fd


def make_whole(path: Path, prepare: Callable[[int], None]) -> int | None:
    """Make a file that is prepared before it has its name; return it open. A kill leaves nothing.

    None: the file system cannot do that, or there is no /proc. Raises FileExistsError when the name
    is taken meanwhile, and what `prepare` raises.
    """
    try:
        fd = os.open(path.parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in _NO_NAMELESS:
            return None
        raise
    try:
        prepare(fd)
        # The descriptor of a folder, here any, makes Python follow the link to the file itself.
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    except FileNotFoundError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def wrong_size(path: Path, present: int, size: int) -> str:
    """Say that a file has another size than its store."""
    return (
        f"{path} has {present} bytes instead of {size}; the file size of a store is "
        "fixed: start with the setting it was written with"
    )


def write_rest(
    fd: int, position: int, data: bytes | bytearray | memoryview, written: int = 0
) -> None:
    """Write what is left of `data` behind its first `written` bytes; a short write goes on."""
    with memoryview(data) as whole:
        while written < len(whole):
            written += write_at(fd, whole[written:], position + written)


def read_all(fd: int, position: int, size: int) -> bytes:
    """Return `size` bytes from `position` on, or as many as the file has."""
    data = os.pread(fd, size, position)
    if len(data) == size or not data:
        return data
    parts, left = [data], size - len(data)
    while left and data:
        data = os.pread(fd, left, position + size - left)
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def data_ranges(fd: int, start: int) -> list[tuple[int, int]]:
    """Return the parts of a file from `start` on outside of which are zeros."""
    ranges: list[tuple[int, int]] = []
    size = os.fstat(fd).st_size
    try:
        while start < size and len(ranges) < RANGES_MAX:
            begin = os.lseek(fd, start, os.SEEK_DATA)
            start = os.lseek(fd, begin, os.SEEK_HOLE)
            ranges.append((begin, start))
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole is left
            return ranges
        if error.errno not in _NO_HOLES:
            raise
    return [*ranges, (start, size)] if start < size else ranges


def is_zeros(fd: int, position: int, size: int) -> bool:
    """Whether a file ends `size` bytes behind `position`, and these are zeros."""
    facts = os.fstat(fd)
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if facts.st_size != position + size:
        return False
    for begin, end in data_ranges(fd, position):
        for at in range(begin, end, len(_ZEROS)):
            data = read_all(fd, at, min(len(_ZEROS), end - at))
            if data != _ZEROS[: len(data)]:
                return False
    return True
