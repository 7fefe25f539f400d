"""Where everything of a store folder lies, and how its files are called.

In: the root of a store folder, and where its log is if that lies elsewhere. Out: paths and names.
Rule: nobody else builds a path inside a store folder or knows how a file is named. Which of its
folders has a file of the log: log_folders.py.
"""

from pathlib import Path

import msgspec

QUEUE_ID_MAX = 2**31 - 1

_NAME_DIGITS = 20
_NAME_BYTES_MAX = 255
"""What file systems take."""


def file_name(offset: int) -> str:
    """Return the name of the log or queue file whose first byte has this offset."""
    return str(offset).zfill(_NAME_DIGITS)


def is_file_name(name: str) -> bool:
    """Whether a file of a log or queue can be called so."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


def can_hold_queue(topic: str, queue_id: int) -> bool:
    """Whether files of a queue can lie below these names, and nowhere else."""
    is_plain = "/" not in topic and "\0" not in topic and topic not in ("", ".", "..")
    return is_plain and len(topic.encode()) <= _NAME_BYTES_MAX and 0 <= queue_id <= QUEUE_ID_MAX


class Folder(msgspec.Struct, frozen=True):
    """The paths inside one store folder, as the original has them; `aside` is our own."""

    root: Path
    logs_elsewhere: tuple[Path, ...] = ()
    """Where the log is, perhaps on other disks; none: in the root, as always."""
    read_only_logs: tuple[Path, ...] = ()
    """Folders with files of the log that get no new ones."""

    @property
    def log_in_root(self) -> Path:
        """Where the log is unless somebody said otherwise."""
        return self.root / "commitlog"

    @property
    def named_logs(self) -> tuple[Path, ...]:
        """The folders that storePathCommitLog names or stands for; some may be read-only."""
        return self.logs_elsewhere or (self.log_in_root,)

    @property
    def writable_logs(self) -> tuple[Path, ...]:
        """The folders that get new files of the log, in the original's order: by name."""
        writable = (path for path in self.named_logs if path not in self.read_only_logs)
        return tuple(sorted(writable, key=str))

    @property
    def logs(self) -> tuple[Path, ...]:
        """The folders of the log's files, and of nothing else: the original refuses others."""
        return (*self.writable_logs, *self.read_only_logs)

    def name_inside(self, path: Path) -> Path:
        """Return how a file of the store would be called from the root, were the log there."""
        for log in self.logs:
            if path.is_relative_to(log):
                return Path(self.log_in_root.name) / path.relative_to(log)
        return path.relative_to(self.root)

    @property
    def queues(self) -> Path:
        """The queues' files, by topic and queue id."""
        return self.root / "consumequeue"

    @property
    def queue_extras(self) -> Path:
        """The extra units of queue entries, by topic and queue id."""
        return self.root / "consumequeue_ext"

    @property
    def index(self) -> Path:
        """The key index's files."""
        return self.root / "index"

    @property
    def config(self) -> Path:
        """The tables."""
        return self.root / "config"

    @property
    def removed_topics(self) -> Path:
        """Which topics were removed, and where the log ended then; our own."""
        return self.config / "removedTopics.json"

    @property
    def aside(self) -> Path:
        """Where recovery and repair put what they do not understand, instead of deleting it."""
        return self.root / "aside"

    @property
    def checkpoint(self) -> Path:
        """How far everything was brought to the disk."""
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        """There while the store is open: found at the start, it says that the last run was cut."""
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        """The file whose byte 0 is locked while the store is open."""
        return self.root / "lock"
