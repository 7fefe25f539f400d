"""Files, through one door: whole small files, big ones written at positions, names and folders.

In: paths and bytes. Out: bytes, facts, maps for reading, or a StoreError (DiskFull, WriteFailed,
ReadFailed, SyncFailed) that names the file and the cause. Only `read` lets the OSError out: its
callers know what the file is. Every call may come from any thread.

Rules:
1. Everything that changes a file goes through `Files`, so a test can record, tear and refuse it.
2. A table is replaced by a rename after a sync: after any crash it is the old one or the new one.
3. Making, renaming and removing names is on the disk only after `sync` of their folder; `replace`,
   `reserve`, `move` and `copy` do that themselves.
"""

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from orbitmq.errors import ReadFailed
from orbitmq.world import file_steps
from orbitmq.world.big_file import (
    BigFile,
    SystemBigFile,
    data_ranges,
    is_zeros,
    make_whole,
    read_all,
    write_rest,
)
from orbitmq.world.file_steps import MISSING, refused, refusing, unsynced
from orbitmq.world.folder_lock import FolderLock, SystemFolderHold, SystemFolderLock
from orbitmq.world.portable import OPEN_FLAGS, SYNCS_FOLDERS, set_mode, sync_data

__all__ = ["NO_FILE", "AnyPath", "BigFile", "Files", "FolderLock", "Space", "SystemFiles"]

SYNC_EACH_MAX = 64
"""Up to so many files are synced one by one; more are synced with their whole file system."""

NO_FILE = -1
"""In a listing: the size of what is no file."""

AnyPath = Path | str
"""For calls made once for each queue: to build a Path costs as much as what the system does."""

_T = TypeVar("_T")
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_NO_ALLOCATION = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Space(NamedTuple):
    """The bytes of a file system: all of them, and those that we may still take."""

    total: int
    free: int


class Files(Protocol):
    """What the rest of the product knows of the file system."""

    def read(self, path: Path) -> bytes | None:
        """Return a file's contents, or None when there is no such file; may raise OSError."""
        ...

    def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
        """Return bytes of a file, short only at its end; None when there is no such file."""
        ...

    def data_ranges(self, path: Path, start: int) -> list[tuple[int, int]]:
        """The parts of a file from `start` on, each up to its end, outside of which are zeros.

        Where the system does not tell holes from data it is all of the rest. Empty: no such file.
        """
        ...

    def is_zeros(self, path: AnyPath, position: int, size: int) -> bool | None:
        """Whether a file ends `size` bytes behind `position`, and these are zeros; None: no file.

        Holes are not read.
        """
        ...

    def size(self, path: Path) -> int | None:
        """Return a file's size; None when there is no such file (a folder is none)."""
        ...

    def modified_ms(self, path: Path) -> int | None:
        """Return when a file was written last; None when there is no such file."""
        ...

    def is_folder(self, path: Path) -> bool:
        """Whether a folder has this name."""
        ...

    def can_write(self, path: Path) -> bool:
        """Whether this process may make files in a folder."""
        ...

    def names(self, path: AnyPath) -> list[str]:
        """Return the sorted names in a folder; empty when there is no such folder."""
        ...

    def listing(self, path: AnyPath) -> list[tuple[str, int]] | None:
        """Return the sorted names in a folder with the files' sizes; None when it is no folder.

        What is no file has the size NO_FILE.
        """
        ...

    def space(self, path: Path) -> Space:
        """Return the space of the file system on which a file or folder lies."""
        ...

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        """Replace a small file as a whole; with `keep_backup` the old one becomes `<name>.bak`."""
        ...

    def reserve(self, path: Path, size: int) -> None:
        """Make a file of zeros with its space taken; a file that is there is refused.

        DiskFull leaves nothing behind.
        """
        ...

    def resize(self, path: Path, size: int) -> None:
        """Cut a file or lengthen it with zeros. It is on the disk after `sync` of the file."""
        ...

    def copy(self, path: Path, target: Path, start: int = 0, size: int | None = None) -> None:
        """Copy a file or a part of it to a name that is free; makes the target's folder."""
        ...

    def move(self, path: Path, target: Path) -> None:
        """Rename a file or folder to a name that is free, also on another file system.

        Makes the target's folder.
        """
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; not an error when it is not there."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents; not an error when it is there."""
        ...

    def remove_folder(self, path: Path) -> None:
        """Remove a folder if it is empty; not an error when it is not, or not there."""
        ...

    def sync(self, paths: Sequence[Path]) -> None:
        """Return when files' contents and folders' names are on the disk, or raise SyncFailed.

        A path that is gone is passed over: there is nothing left of it to keep.
        """
        ...

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        """Open a file of exactly `size` bytes, made sparse when it is not there.

        One that is not mapped has no `view`.
        """
        ...

    def lock(self, path: Path) -> FolderLock:
        """Take the lock on byte 0 that the original takes, or raise StoreError."""
        ...

    def hold(self, path: Path) -> FolderLock:
        """Hold a folder itself, whatever names lead to it; raises StoreError when it is held."""
        ...


class SystemFiles:
    """The Files of the operating system."""

    def read(self, path: Path) -> bytes | None:
        """Return a file's contents, or None when there is no such file; may raise OSError."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
        """Return bytes of a file, short only at its end; None when there is no such file."""
        return _STEPS.read_at(path, position, size)

    def data_ranges(self, path: Path, start: int) -> list[tuple[int, int]]:
        """The parts of a file from `start` on, each up to its end, outside of which are zeros.

        Where the system does not tell holes from data it is all of the rest. Empty: no such file.
        """
        return _reading(path, lambda fd: data_ranges(fd, start)) or []

    def is_zeros(self, path: AnyPath, position: int, size: int) -> bool | None:
        """Whether a file ends `size` bytes behind `position` and these are zeros; None: no file."""
        return _reading(path, lambda fd: is_zeros(fd, position, size))

    def size(self, path: Path) -> int | None:
        """Return a file's size; None when there is no such file (a folder is none)."""
        return _STEPS.size(path)

    def modified_ms(self, path: Path) -> int | None:
        """Return when a file was written last; None when there is no such file."""
        facts = _facts(path)
        return None if facts is None else facts.st_mtime_ns // 1_000_000

    def is_folder(self, path: Path) -> bool:
        """Whether a folder has this name."""
        facts = _facts(path)
        return facts is not None and stat.S_ISDIR(facts.st_mode)

    def can_write(self, path: Path) -> bool:
        """Whether this process may make files in a folder."""
        return os.access(path, os.W_OK | os.X_OK)

    def names(self, path: AnyPath) -> list[str]:
        """Return the sorted names in a folder; empty when there is no such folder."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise refused(error, "list", path) from error

    def listing(self, path: AnyPath) -> list[tuple[str, int]] | None:
        """Return the sorted names in a folder with the files' sizes; None when it is no folder."""
        try:
            with os.scandir(path) as entries:
                found = [(entry.name, _size_of(entry)) for entry in entries]
        except OSError as error:
            if error.errno in MISSING:
                return None
            raise refused(error, "list", path) from error
        found.sort()
        return found

    def space(self, path: Path) -> Space:
        """Return the space of the file system on which a file or folder lies."""
        try:
            facts = os.statvfs(path)
        except OSError as error:
            raise ReadFailed(f"cannot ask the space of {path}: {error.strerror}", path) from error
        return Space(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        """Replace a small file as a whole; with `keep_backup` the old one becomes `<name>.bak`."""
        with refusing("replace", path):
            target = Path(os.path.realpath(path))  # a link stays one
            _make_alike(file_steps.temporary_of(target), target)
            file_steps.replace(_STEPS, target, data, keep_backup=keep_backup)

    def reserve(self, path: Path, size: int) -> None:
        """Make a file of zeros with its space taken; a file that is there is refused."""
        with refusing(f"reserve {size} bytes for", path):
            file_steps.reserve(_STEPS, path, size)

    def resize(self, path: Path, size: int) -> None:
        """Cut a file or lengthen it with zeros. It is on the disk after `sync` of the file."""
        with refusing(f"give {size} bytes to", path):
            os.truncate(path, size)

    def copy(self, path: Path, target: Path, start: int = 0, size: int | None = None) -> None:
        """Copy a file or a part of it to a name that is free; makes the target's folder."""
        with refusing(f"copy {path} to", target):
            file_steps.copy(_STEPS, path, target, start, size)

    def move(self, path: Path, target: Path) -> None:
        """Rename a file or folder to a name that is free, also on another file system."""
        with refusing(f"move {path} to", target):
            file_steps.move(_STEPS, path, target)

    def remove(self, path: Path) -> None:
        """Remove a file; not an error when it is not there."""
        with refusing("remove", path):
            _STEPS.unlink(path)

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents; not an error when it is there."""
        with refusing("make folder", path):
            _STEPS.make_folders(path)

    def remove_folder(self, path: Path) -> None:
        """Remove a folder if it is empty; not an error when it is not, or not there."""
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise refused(error, "remove folder", path) from error

    def sync(self, paths: Sequence[Path]) -> None:
        """Return when files' contents and folders' names are on the disk, or raise SyncFailed."""
        if len(paths) > SYNC_EACH_MAX and _syncfs is not None:
            _sync_file_systems(paths)
        else:
            for path in paths:
                _sync_path(path)

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        """Open a file of exactly `size` bytes, made sparse when it is not there."""
        return SystemBigFile(path, size, is_mapped=is_mapped)

    def lock(self, path: Path) -> FolderLock:
        """Take the lock on byte 0 that the original takes, or raise StoreError."""
        return SystemFolderLock(path)

    def hold(self, path: Path) -> FolderLock:
        """Hold a folder itself, whatever names lead to it; raises StoreError when it is held."""
        return SystemFolderHold(path)


def _make_alike(path: Path, model: Path) -> None:
    """Make a file that only those may read who may read `model`, if that is there."""
    facts = _facts(model)
    if facts is None:
        return
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | OPEN_FLAGS, 0o600)
    try:
        set_mode(fd, stat.S_IMODE(facts.st_mode))
    finally:
        os.close(fd)


class _SystemSteps:
    """The single steps of the operating system."""

    def is_there(self, path: Path) -> bool:
        return os.path.lexists(path)

    def write_whole(self, path: Path, parts: Iterable[tuple[int, bytes]], size: int) -> None:
        with _made(path) as fd:
            for position, data in parts:
                write_rest(fd, position, data)
            os.ftruncate(fd, size)
            _sync_descriptor(fd, path)

    def allocate(self, path: Path, size: int) -> None:
        with _made(path) as fd:
            _allocate(fd, size, path)

    def allocate_nameless(self, path: Path, size: int) -> bool:
        fd = make_whole(path, lambda nameless: _allocate(nameless, size, path))
        if fd is not None:
            os.close(fd)
        return fd is not None

    def is_folder(self, path: Path) -> bool:
        return path.is_dir() and not path.is_symlink()

    def names(self, path: Path) -> list[str]:
        return os.listdir(path)

    def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
        return _reading(path, lambda fd: read_all(fd, position, size))

    def size(self, path: Path) -> int | None:
        facts = _facts(path)
        return facts.st_size if facts is not None and stat.S_ISREG(facts.st_mode) else None

    def link(self, path: Path, target: Path) -> None:
        os.link(path, target)

    def rename(self, path: Path, target: Path) -> None:
        os.replace(path, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_folders(self, path: Path) -> list[Path]:
        changed: list[Path] = []
        if path.is_dir():
            return changed
        for folder in reversed((path, *path.parents)):
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)  # another thread may have been faster
                changed.append(folder.parent)
        return changed

    def remove_folder(self, path: Path) -> None:
        path.rmdir()

    def sync_folder(self, path: Path) -> None:
        if SYNCS_FOLDERS:
            _sync_path(path)


_STEPS = _SystemSteps()
_syncfs: Callable[[int], int] | None = None
"""Linux has it; elsewhere files are synced one by one."""
with contextlib.suppress(TypeError):  # Windows has no library of all that the process has loaded
    _syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


@contextlib.contextmanager
def _made(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def _allocate(fd: int, size: int, path: Path) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in _NO_ALLOCATION:
            raise
        os.ftruncate(fd, size)  # this file system gives no promise; a write may be refused
    _sync_descriptor(fd, path)


def _facts(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError as error:
        if error.errno in MISSING:
            return None
        raise ReadFailed(f"cannot look at {path}: {error.strerror}", path) from error


def _size_of(entry: os.DirEntry[str]) -> int:
    if entry.is_dir():
        return NO_FILE
    try:
        facts = entry.stat()
    except FileNotFoundError:  # a link that leads nowhere
        return NO_FILE
    return facts.st_size if stat.S_ISREG(facts.st_mode) else NO_FILE


def _reading(path: AnyPath, ask: Callable[[int], _T]) -> _T | None:
    """Return what is asked of a file's descriptor; None when there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except OSError as error:
        if error.errno in MISSING:
            return None
        raise ReadFailed(f"cannot open {path}: {error.strerror}", path) from error
    try:
        return ask(fd)
    except OSError as error:
        raise ReadFailed(f"cannot read {path}: {error.strerror}", path) from error
    finally:
        os.close(fd)


def _sync_descriptor(fd: int, path: Path) -> None:
    try:
        sync_data(fd)
    except OSError as error:
        raise unsynced(error, path) from error


def _opened_for_sync(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except OSError as error:
        if error.errno in MISSING:
            return None
        raise unsynced(error, path) from error


def _sync_path(path: Path) -> None:
    fd = _opened_for_sync(path)
    if fd is None:
        return
    try:
        os.fsync(fd) if stat.S_ISDIR(os.fstat(fd).st_mode) else sync_data(fd)
    except OSError as error:
        raise unsynced(error, path) from error
    finally:
        os.close(fd)


def _sync_file_systems(paths: Sequence[Path]) -> None:
    done: set[int] = set()
    for path in paths:
        fd = _opened_for_sync(path)
        if fd is None:
            continue
        try:
            device = os.fstat(fd).st_dev
            if device not in done:
                _sync_file_system(fd)
            done.add(device)
        except OSError as error:
            raise unsynced(error, path) from error
        finally:
            os.close(fd)


def _sync_file_system(fd: int) -> None:
    if _syncfs is not None and _syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
