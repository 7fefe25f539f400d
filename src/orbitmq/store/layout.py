"""Where everything of a store folder lies, and how its files are called.

In: the root of a store folder. Out: paths and names.
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

    @property
    def log(self) -> Path:
        """The log's files."""
        return self.root / "commitlog"

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
