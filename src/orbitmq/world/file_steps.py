"""What is done to files in more than one step, written once for every kind of `Files`.

In: small steps of a file system (`Steps`) and paths. Out: files that were replaced, reserved, moved
or copied as a whole; OSError and SyncFailed as the steps raise them.

Rules:
1. A sequence ends with everything it did on the disk: contents first, then names.
2. Whatever a crash leaves of it under a final name is whole; the rest has a name with `.tmp`.
3. `move` and `copy` refuse a target that is there, `reserve` too: nothing is written over.
   Where no rename leads from one file system to another, `move` copies and then removes.
4. The double of the file system in the tests runs these very sequences: its crashes tear them.
"""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from orbitmq.errors import DiskFull, ReadFailed, StoreError, SyncFailed, WriteFailed

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
COPY_BYTES = 1 << 20
"""As much of a copied file is in memory at a time."""

_ZEROS = bytes(COPY_BYTES)


class Steps(Protocol):
    """The single steps; each may raise OSError, or SyncFailed where it syncs."""

    def is_there(self, path: Path) -> bool:
        """Whether a file or folder has this name."""
        ...

    def write_whole(self, path: Path, parts: Iterable[tuple[int, bytes]], size: int) -> None:
        """Make or empty a file, write (position, bytes), make it `size` bytes long and sync it."""
        ...

    def allocate(self, path: Path, size: int) -> None:
        """Make or empty a file, give it `size` bytes of the disk and sync it."""
        ...

    def allocate_nameless(self, path: Path, size: int) -> bool:
        """Do that before the file has its name, which must be free; False: this cannot be done."""
        ...

    def is_folder(self, path: Path) -> bool:
        """Whether a folder has this name."""
        ...

    def names(self, path: Path) -> list[str]:
        """Return the names in a folder."""
        ...

    def read_at(self, path: Path, position: int, size: int) -> bytes | None:
        """Return bytes of a file; short at its end, None when it is not there."""
        ...

    def size(self, path: Path) -> int | None:
        """Return a file's size, None when it is not there."""
        ...

    def link(self, path: Path, target: Path) -> None:
        """Give a file a second name."""
        ...

    def rename(self, path: Path, target: Path) -> None:
        """Rename a file; whoever had that name loses it."""
        ...

    def unlink(self, path: Path) -> None:
        """Take a name away; not an error when it is not there."""
        ...

    def make_folders(self, path: Path) -> list[Path]:
        """Make a folder and its parents; return the folders that got a new name inside."""
        ...

    def remove_folder(self, path: Path) -> None:
        """Remove a folder that is empty."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Return when the names in a folder are on the disk."""
        ...


def refused(error: OSError, action: str, path: object) -> StoreError:
    """Return what a refused change is to the rest of the product."""
    text = f"cannot {action} {path}: {error.strerror}"
    if error.errno in NO_SPACE:
        advice = "free space on that disk or move the data folder (--data-dir)"
        return DiskFull(f"{text}; {advice}", path)
    return WriteFailed(text, path)


@contextlib.contextmanager
def refusing(action: str, path: object) -> Iterator[None]:
    """Turn every OSError inside into what `refused` gives."""
    try:
        yield
    except OSError as error:
        raise refused(error, action, path) from error


def unsynced(error: OSError, path: object) -> SyncFailed:
    """Return what a refused sync is: what was written before it may be lost."""
    return SyncFailed(
        f"cannot sync {path}: {error.strerror}; what was written there may not be on the disk: "
        "check the disk and restart",
        path,
    )


def temporary_of(path: Path) -> Path:
    """Return the name under which the new contents of a file are written first."""
    return _beside(path, ".tmp")


def replace(steps: Steps, path: Path, data: bytes, *, keep_backup: bool) -> None:
    """Replace a file as a whole: after any crash it is the old one or the new one."""
    temporary = temporary_of(path)
    steps.write_whole(temporary, [(0, data)], len(data))
    if keep_backup and steps.is_there(path):
        link = _beside(path, ".bak.tmp")
        steps.unlink(link)
        steps.link(path, link)
        steps.rename(link, _beside(path, ".bak"))
        # When a crash made file and backup one, that rename does nothing and the link is left.
        steps.unlink(link)
    steps.rename(temporary, path)
    steps.sync_folder(path.parent)


def reserve(steps: Steps, path: Path, size: int) -> None:
    """Make a file at full length with its space taken, or leave nothing behind."""
    if not steps.allocate_nameless(path, size):
        _refuse_taken(steps, path)
        with _nothing_left(steps, _beside(path, ".tmp")) as temporary:
            steps.allocate(temporary, size)
            # Not a rename: the writer may have made and filled the file meanwhile, and a rename
            # would put zeros in the place of what it acknowledged.
            steps.link(temporary, path)
        steps.unlink(temporary)
    steps.sync_folder(path.parent)


def move(steps: Steps, path: Path, target: Path) -> None:
    """Rename a file or folder, in a folder that is made when it is not there."""
    _refuse_taken(steps, target)
    for folder in steps.make_folders(target.parent):
        steps.sync_folder(folder)
    try:
        steps.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _move_across(steps, path, target)
        return
    # The new name goes first: a crash in between may leave two names, never none.
    steps.sync_folder(target.parent)
    if path.parent != target.parent:
        steps.sync_folder(path.parent)


def _move_across(steps: Steps, path: Path, target: Path) -> None:
    """Move to another file system: the copy is whole and on the disk before anything goes."""
    if steps.is_folder(path):
        temporary = _beside(target, ".tmp")
        try:
            _copy_folder(steps, path, temporary)
            steps.rename(temporary, target)
        except BaseException:
            _remove_all(steps, temporary)
            raise
        steps.sync_folder(target.parent)
    else:
        copy(steps, path, target, 0, None)
    _remove_all(steps, path)
    steps.sync_folder(path.parent)


def _copy_folder(steps: Steps, path: Path, target: Path) -> None:
    for folder in steps.make_folders(target):
        steps.sync_folder(folder)
    for name in steps.names(path):
        if steps.is_folder(path / name):
            _copy_folder(steps, path / name, target / name)
        else:
            copy(steps, path / name, target / name, 0, None)


def _remove_all(steps: Steps, path: Path) -> None:
    """Remove a file, or a folder with everything in it."""
    if not steps.is_folder(path):
        steps.unlink(path)
        return
    for name in steps.names(path):
        _remove_all(steps, path / name)
    steps.remove_folder(path)


def copy(steps: Steps, path: Path, target: Path, start: int, size: int | None) -> None:
    """Copy bytes of a file into a new one; what is zero in it takes no space."""
    _refuse_taken(steps, target)
    present = steps.size(path)
    if present is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    end = present if size is None else min(present, start + size)
    for folder in steps.make_folders(target.parent):
        steps.sync_folder(folder)
    with _nothing_left(steps, _beside(target, ".tmp")) as temporary:
        steps.write_whole(temporary, _chunks(steps, path, start, end), max(0, end - start))
        steps.rename(temporary, target)
    steps.sync_folder(target.parent)


def _chunks(steps: Steps, path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    for position in range(start, end, COPY_BYTES):
        wanted = min(COPY_BYTES, end - position)
        chunk = steps.read_at(path, position, wanted)
        if chunk is None or len(chunk) < wanted:
            text = f"{path} became shorter while it was copied; stop who writes to it"
            raise ReadFailed(text, path)
        if chunk != _ZEROS[:wanted]:
            yield position - start, chunk


@contextlib.contextmanager
def _nothing_left(steps: Steps, temporary: Path) -> Iterator[Path]:
    """Remove the temporary file when it cannot be finished: it may be what filled the disk."""
    try:
        yield temporary
    except BaseException:
        steps.unlink(temporary)
        raise


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _refuse_taken(steps: Steps, path: Path) -> None:
    if steps.is_there(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
