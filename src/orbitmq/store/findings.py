"""What opening a folder found and did, and where it puts what it does not understand.

In: facts noticed by survey and recovery. Out: findings for the broker's log, for check and repair;
files and parts of files under `aside/`.

Rule: nothing that cannot be made anew from the log is deleted or overwritten before it is aside.
"""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from orbitmq.store.layout import Folder
from orbitmq.world.files import Files

_NAME_CHARS_MAX = 100


class FindingKind(StrEnum):
    """What kind of thing was found."""

    TORN_TAIL = "TORN_TAIL"
    """The last write was cut off: what it left is no record, and nothing follows it."""
    DAMAGE = "DAMAGE"
    """Bytes inside the log are no record, or one that cannot be trusted."""
    CUT_BEHIND = "CUT_BEHIND"
    """After a power cut: unsynced records behind the first that is missing."""
    UNREADABLE = "UNREADABLE"
    """The disk could not give these bytes."""
    MISSING_FILE = "MISSING_FILE"
    STRAY_FILE = "STRAY_FILE"
    WRONG_SIZE = "WRONG_SIZE"
    QUEUE_REBUILT = "QUEUE_REBUILT"
    """Queues and index were made anew from the whole log."""
    QUEUES_SET_ASIDE = "QUEUES_SET_ASIDE"
    INDEX_REBUILT = "INDEX_REBUILT"


class Finding(NamedTuple):
    """One thing found, and what was done about it. `log_offset` is -1 where none is meant."""

    kind: FindingKind
    path: Path
    log_offset: int
    size: int
    text: str


class Aside:
    """The folder for what is taken out of the way; each thing gets a number of its own."""

    def __init__(self, files: Files, folder: Folder) -> None:
        self._files = files
        self._folder = folder

    def move(self, path: Path) -> Path:
        """Move a file or folder there and give its new path."""
        target = self._target(path)
        self._files.move(path, target)
        return target

    def copy(self, path: Path, start: int = 0, size: int | None = None) -> Path:
        """Copy a file, or a part of one, there and return the copy's path."""
        target = self._target(path)
        self._files.copy(path, target, start, size)
        return target

    def _target(self, path: Path) -> Path:
        taken = [name.partition("-")[0] for name in self._files.names(self._folder.aside)]
        numbers = [int(text) for text in taken if text.isascii() and text.isdigit()]
        name = "-".join(self._folder.name_inside(path).parts)[-_NAME_CHARS_MAX:]
        return self._folder.aside / f"{max(numbers, default=0) + 1}-{name}"
