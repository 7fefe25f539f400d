"""The two places of a store, its root and its log: made, looked at, and held against others.

In: a Folder. Out: both folders, on the disk, and one lock for both; or a StoreError that says what
does not fit and what to change.

Rules:
1. The root has the original's lock. The log's folder is held by itself as well: under two roots it
   is refused, whatever names lead to it. Nothing is put into it for that, as the original allows
   nothing but log files there.
2. A folder's own name is on the disk before anything in it is said to be.
3. A log is never begun anew by mistake. Where the log lies elsewhere and has no file, or the place
   in the root is gone, but the root says that a log was written, nothing is opened: a disk may not
   be mounted, or a setting forgotten. A root whose own log was emptied starts, as it always did.
"""

from contextlib import ExitStack
from pathlib import Path

from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import read_checkpoint
from orbitmq.store.layout import Folder, is_file_name
from orbitmq.world.files import Files

UNFINISHED = ".tmp"
"""How the name of a file ends that is not whole yet: see world/file_steps.py."""


class HeldPlaces:
    """The locks of an open store."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held

    def release(self) -> None:
        """Let both folders go."""
        self._held.close()


def take_places(files: Files, folder: Folder) -> HeldPlaces:
    """Make and hold both folders; raises StoreError when one is taken or they do not fit."""
    _refuse_inside(folder)
    _make(files, folder.root, is_new=files.size(folder.checkpoint) is None)
    with ExitStack() as held:
        held.callback(files.lock(folder.lock).release)
        _refuse_wrong_log(files, folder)
        _make_log(files, folder)
        held.callback(files.hold(folder.log).release)
        return HeldPlaces(held.pop_all())


def ensure_log(files: Files, folder: Folder) -> None:
    """Raise StoreError when there is no log to look into."""
    if files.is_folder(folder.log):
        return
    if folder.is_log_elsewhere:
        raise StoreError(
            f"there is no log folder {folder.log}; give with --log the folder that"
            f" storePathCommitLog names for the broker of {folder.root}"
        )
    raise StoreError(
        f"{folder.root} is no store folder: it has no folder commitlog; if its broker has"
        " storePathCommitLog set to another place, give that folder with --log"
    )


def is_unfinished(name: str) -> bool:
    """Whether this is a log file that a crash left half made."""
    return name.endswith(UNFINISHED) and is_file_name(name.removesuffix(UNFINISHED))


# --- Making ---


def _make(files: Files, path: Path, *, is_new: bool) -> None:
    """Make a folder; `is_new`: never used before, or killed while it was made (rule 2)."""
    missing = [each for each in (path, *path.parents) if not files.is_folder(each)]
    files.make_folder(path)
    if is_new:
        files.sync([each.parent for each in {path: None, **dict.fromkeys(missing)}])


def _make_log(files: Files, folder: Folder) -> None:
    if folder.is_log_elsewhere:
        _make(files, folder.log, is_new=not files.names(folder.log))
    else:
        files.make_folder(folder.log)  # the root is synced when it is said to be open


# --- Refusing ---


def _refuse_inside(folder: Folder) -> None:
    own = (folder.queues, folder.queue_extras, folder.index, folder.config, folder.aside)
    for path in own:
        if folder.log.is_relative_to(path):
            raise StoreError(
                f"storePathCommitLog={folder.log} cannot be used: {path} holds other files of the"
                " store; choose a folder that is only for the log"
            )


def _refuse_wrong_log(files: Files, folder: Folder) -> None:
    """Refuse to begin a log where there is none, but should be one (rule 3)."""
    names = [name for name in files.names(folder.log) if not is_unfinished(name)]
    is_there = files.is_folder(folder.log)
    if any(map(is_file_name, names)) or (is_there and not folder.is_log_elsewhere):
        return
    if names:
        raise StoreError(
            f"storePathCommitLog={folder.log} cannot be used: it holds {names[0]}, and no file of a"
            f" log; choose a folder that is only for the log, such as {folder.log / 'commitlog'}"
        )
    if any(map(is_file_name, files.names(folder.log_in_root))):
        raise StoreError(
            f"storePathCommitLog={folder.log} has no log, but {folder.log_in_root} has the one of"
            " this store; move its files there, or remove the setting"
        )
    if _has_written(files, folder):
        raise StoreError(
            f"{folder.log} has no log, but {folder.root} says that one was written: mount its disk,"
            " or set storePathCommitLog to the folder where it is; if it is lost, remove"
            f" {folder.checkpoint} to begin a new one"
        )


def _has_written(files: Files, folder: Folder) -> bool:
    checkpoint = read_checkpoint(files, folder.checkpoint)
    if checkpoint is None:
        return False
    if checkpoint.synced is not None:
        return checkpoint.synced.log_offset > 0
    return checkpoint.stamps.physic_ms > 0
