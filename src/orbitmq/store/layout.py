"""Where everything of a store folder lies, and how its files are called.

In: the root of a store folder, and where its log is if that lies elsewhere. Out: paths and names.
Rule: nobody else builds a path inside a store folder or knows how a file is named.
"""

from pathlib import Path

import msgspec

QUEUE_ID_MAX = 2**31 - 1

_NAME_DIGITS = 20
_NAME_BYTES_MAX = 255
"""What file systems take."""


def file_name(offset: int) -> str:
    """Give the name of the log or queue file whose first byte has this offset."""
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
    log_elsewhere: Path | None = None
    """Where the log is, perhaps on another disk; None: in the root, as always."""

    @property
    def log(self) -> Path:
        """The log's files, and nothing else: the original refuses a log folder with other files."""
        return self.log_elsewhere or self.log_in_root

    @property
    def log_in_root(self) -> Path:
        """Where the log is unless somebody said otherwise."""
        return self.root / "commitlog"

    @property
    def is_log_elsewhere(self) -> bool:
        """Whether the log lies outside of the folder's own place for it."""
        return self.log != self.log_in_root

    def name_inside(self, path: Path) -> Path:
        """Give how a file of the store would be called from the root, were the log there."""
        if path.is_relative_to(self.log):
            return Path(self.log_in_root.name) / path.relative_to(self.log)
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
