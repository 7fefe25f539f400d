"""Followers: work that goes through the log in order, each under a name with a saved position.

In: the log up to what may be seen. Out: its records, from where each follower stood, also after a
restart.

Rules:
1. A position is a log offset at which a record begins, or the end. It moves when its owner says so:
   what was read but not yet dealt with is read again after a crash.
2. Positions are saved with each thorough flush. One that lies before the log's first record (its
   files were removed) is moved there; one behind the end is moved to the end.
"""

from pathlib import Path

import msgspec

from orbitmq.core import Walked
from orbitmq.errors import StoreError
from orbitmq.store.log_reader import READ_BYTES_MAX, LogReader
from orbitmq.world.files import Files

FILE_NAME = "followers.json"


class Follower:
    """One reader of the log, by name."""

    def __init__(self, name: str, position: int, log: LogReader) -> None:
        self.name = name
        self.position = position
        self._log = log

    def read(self, bytes_max: int = READ_BYTES_MAX) -> tuple[list[Walked], int]:
        """Return the next records and the position behind them, for `advance` when all is done."""
        return self._log.records(self.position, bytes_max)

    def advance(self, position: int) -> None:
        """Say that everything before `position` is dealt with; it never goes back."""
        self.position = max(self.position, position)


class Followers:
    """All followers of one store, and those of earlier runs that nobody asked for yet."""

    def __init__(self, files: Files, folder: Path, log: LogReader) -> None:
        self._files = files
        self._path = folder / FILE_NAME
        self._log = log
        self._saved = self._load()
        self.live: dict[str, Follower] = {}

    def attach(self, name: str, first_offset: int, end_offset: int) -> Follower:
        """Return the follower of this name; a new one begins at the log's first record."""
        follower = self.live.get(name)
        if follower is None:
            position = min(max(self._saved.get(name, first_offset), first_offset), end_offset)
            follower = self.live[name] = Follower(name, position, self._log)
        return follower

    def take(self) -> dict[str, int] | None:
        """Return the table to be saved, or None when no position has moved since the last save."""
        positions = self._saved | {name: one.position for name, one in self.live.items()}
        return None if positions == self._saved else positions

    def save(self, positions: dict[str, int]) -> None:
        """Write a table that was taken; for a thread."""
        self._files.make_folder(self._path.parent)
        self._files.replace(self._path, msgspec.json.encode(positions, order="sorted"))

    def note_saved(self, positions: dict[str, int]) -> None:
        """Say that a table is on the disk; without it the same positions are taken again."""
        self._saved = positions

    def _load(self) -> dict[str, int]:
        try:
            data = self._files.read(self._path)
            return msgspec.json.decode(data, type=dict[str, int]) if data else {}
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise StoreError(
                f"cannot read {self._path}: {error}; mend it, or remove it: then every follower "
                "begins at the log's first record"
            ) from None
