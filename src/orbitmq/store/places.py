"""The places of a store, its root and the folders of its log: made, looked at and locked.

In: a Folder. Out: all folders, on the disk, and one lock for all; or a StoreError that says what
does not fit and what to change.

Rules:
1. The root has the original's lock. Each folder of the log is locked by itself as well: under two
   roots it is refused, whatever names lead to it. Nothing is put into it for that, as the original
   allows nothing but log files there.
2. A folder's own name is on the disk before anything in it is said to be.
3. A log is never begun anew by mistake. Where the log lies elsewhere and has no file, or the place
   in the root is gone, but the root says that a log was written, nothing is opened: a disk may not
   be mounted, or a setting forgotten. A root whose own log was emptied starts, as it always did.
4. Of several folders none lies in another, none is named twice, and one can be written to. Those
   that are read-only are there already.
"""

from contextlib import ExitStack
from pathlib import Path

from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import read_checkpoint
from orbitmq.store.layout import Folder, is_file_name
from orbitmq.store.options import StoreOptions
from orbitmq.world.files import Files

UNFINISHED = ".tmp"
"""How the name of a file ends that is not whole yet: see world/file_steps.py."""


class LockedPlaces:
    """The locks of an open store."""

    def __init__(self, locks: ExitStack) -> None:
        self._locks = locks

    def release(self) -> None:
        """Let all folders go."""
        self._locks.close()


def folder_of(root: Path, options: StoreOptions) -> Folder:
    """The store folder that options describe; raises StoreError when they cannot be (rule 4).

    What may be written to is what storePathCommitLog names, without what is read-only.
    """
    folder = Folder(root, options.log_folders, options.read_only_log_folders)
    for setting, paths in (
        ("storePathCommitLog", folder.logs_elsewhere),
        ("readOnlyCommitLogStorePaths", folder.read_only_logs),
    ):
        for path in paths:
            if paths.count(path) > 1:
                raise StoreError(f"{setting} names {path} twice; name each folder once")
    if not folder.writable_logs:
        raise StoreError(
            "readOnlyCommitLogStorePaths names all folders of the log, so that no one is left for"
            " new files; add a folder to storePathCommitLog"
        )
    return folder


def take_places(files: Files, folder: Folder) -> LockedPlaces:
    """Make and hold all folders; raises StoreError when one is taken or they do not fit."""
    _refuse_inside(folder)
    _make(files, folder.root, is_new=files.size(folder.checkpoint) is None)
    with ExitStack() as locks:
        locks.callback(files.lock(folder.lock).release)
        _refuse_wrong_log(files, folder)
        for log in folder.writable_logs:
            _make_log(files, folder, log)
        _hold_logs(files, folder, locks)
        return LockedPlaces(locks.pop_all())


def _hold_logs(files: Files, folder: Folder, locks: ExitStack) -> None:
    for at, log in enumerate(folder.logs):
        try:
            locks.callback(files.hold(log).release)
        except StoreError as error:
            if not at:
                raise
            others = ", ".join(map(str, folder.logs[:at]))
            text = f"{error}; or it is one of {others} under another name: then name it once"
            raise StoreError(text) from error


def ensure_log(files: Files, folder: Folder) -> None:
    """Raise StoreError when there is no log to look into."""
    for log in folder.logs:
        if files.is_folder(log):
            continue
        if log != folder.log_in_root:
            raise StoreError(
                f"there is no log folder {log}; give with --log the folder that"
                f" storePathCommitLog names for the broker of {folder.root}, or all of them with"
                " commas between"
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


def _make_log(files: Files, folder: Folder, log: Path) -> None:
    if log != folder.log_in_root:
        _make(files, log, is_new=not files.names(log))
    else:
        files.make_folder(log)  # the root is synced when it is said to be open
    if len(folder.logs) > 1 and not files.can_write(log):
        raise StoreError(
            f"no file can be made in {log}, which storePathCommitLog names; let this user write"
            " there, or name it in readOnlyCommitLogStorePaths as well"
        )


# --- Refusing ---


def _refuse_inside(folder: Folder) -> None:
    own = (folder.queues, folder.queue_extras, folder.index, folder.config, folder.aside)
    for log in folder.logs:
        for path in own:
            if log.is_relative_to(path):
                raise StoreError(
                    f"storePathCommitLog={log} cannot be used: {path} holds other files of the"
                    " store; choose a folder that is only for the log"
                )
        for other in folder.logs:
            if other != log and log.is_relative_to(other):
                raise StoreError(
                    f"the log cannot be both in {other} and in {log}, which lies inside it; choose"
                    " folders beside each other"
                )


def _refuse_wrong_log(files: Files, folder: Folder) -> None:
    """Refuse to begin a log where there is none, but should be one (rule 3)."""
    for log in folder.read_only_logs:
        if not files.is_folder(log):
            raise StoreError(
                f"there is no folder {log}, which readOnlyCommitLogStorePaths names: mount its"
                " disk, or take it out of the setting if no file of the log is there any more"
            )
    in_logs = [name for log in folder.logs for name in _log_names(files, folder, log)]
    is_in_root = folder.logs == (folder.log_in_root,)
    if in_logs or (is_in_root and files.is_folder(folder.log_in_root)):
        return
    if any(map(is_file_name, files.names(folder.log_in_root))):
        raise StoreError(
            f"storePathCommitLog={described(folder)} has no log, but {folder.log_in_root} has the"
            " one of this store; move its files there, or remove the setting"
        )
    if _has_written(files, folder):
        raise StoreError(
            f"{described(folder)} has no log, but {folder.root} says that one was written: mount"
            " its disk, or set storePathCommitLog to the folder where it is; if it is lost, remove"
            f" {folder.checkpoint} to begin a new one"
        )


def described(folder: Folder) -> str:
    """Return the log's folders as a setting has them."""
    return ",".join(map(str, folder.logs))


def _log_names(files: Files, folder: Folder, log: Path) -> list[str]:
    """Return the names of log files in a folder; raises StoreError when it holds other things."""
    names = [name for name in files.names(log) if not is_unfinished(name)]
    found = list(filter(is_file_name, names))
    if names and not found and log != folder.log_in_root:
        raise StoreError(
            f"storePathCommitLog={log} cannot be used: it holds {names[0]}, and no file of a"
            f" log; choose a folder that is only for the log, such as {log / 'commitlog'}"
        )
    return found


def _has_written(files: Files, folder: Folder) -> bool:
    checkpoint = read_checkpoint(files, folder.checkpoint)
    if checkpoint is None:
        return False
    if checkpoint.synced is not None:
        return checkpoint.synced.log_offset > 0
    return checkpoint.stamps.physic_ms > 0
