"""Which folder has a file of the log, and which one gets a new one: who needs a path asks here.

In: the log's folders, and which of them are on disks that are too full. Out: paths of log files.

Rules:
1. The files of one log lie in one or in several folders. A file stays where it was made.
2. New file number k goes to folder k mod n of those n, sorted by name, that take files, as in the
   original. Those that are read-only or too full take none; if all are too full, all that are not
   read-only do. A folder whose disk refuses a new file gets none until the next look, as long as
   another takes it, however full that is.
3. In a read-only folder nothing is made. The log goes on in a file that lies there and is not full,
   as in the original, and old files are removed there, too.
4. A file of zeros holds nothing. It is left out where another folder has a file of that name, or
   where nothing more is written: it was made ahead, before the settings changed.
5. Where a new file goes is decided on the loop; threads only ask where a file is.
"""

from pathlib import Path
from typing import NamedTuple

from orbitmq.ensure import ensure
from orbitmq.store.layout import Folder, file_name, is_file_name
from orbitmq.world.files import Files

_HEAD_SIZE = 8
"""Size and magic: every file of the log begins with them."""


class Found(NamedTuple):
    """What lies in the log's folders."""

    files: list[Path]
    """The log's files, in order."""
    empty: list[Path]
    """Files of zeros that are left out (rule 4)."""
    doubles: list[Path]
    """Files that hold something, as another one of the same name does, which is in `files`."""
    strays: list[Path]
    """What is no log file by its name."""


class LogFolders:
    """The folders of one log, and where each of its files is."""

    def __init__(
        self, files: Files, writable: tuple[Path, ...], read_only: tuple[Path, ...] = ()
    ) -> None:
        ensure(bool(writable), "a log has a folder for its next file")
        self._files = files
        self.writable = writable
        self._read_only = frozenset(read_only)
        self.all = (*writable, *read_only)
        self._only = writable[0] if len(self.all) == 1 else None
        """The one folder: nothing needs to be remembered then."""
        self._known: dict[int, Path] = {}
        """The folders of files, by the files' first offsets."""
        self._full: frozenset[Path] = frozenset()
        self._refused: set[Path] = set()

    @classmethod
    def of(cls, files: Files, folder: Folder) -> "LogFolders":
        """Return those of a store folder."""
        return cls(files, folder.writable_logs, folder.read_only_logs)

    @property
    def is_spread(self) -> bool:
        """Whether there are several folders."""
        return self._only is None

    def __str__(self) -> str:
        return ", ".join(map(str, self.all))

    # --- Where files are ---

    def find(self) -> Found:
        """Look what is there, and remember where each file is."""
        paths = [path for folder in self.all for path in self._paths(folder)]
        paths.sort(key=lambda path: path.name)
        found = Found([], [], [], [path for path in paths if not self._is_log_file(path)])
        candidates: dict[str, list[Path]] = {}
        for path in paths:
            if self._is_log_file(path):
                candidates.setdefault(path.name, []).append(path)
        for same in candidates.values():
            self._sort_out(same, found)
        if self._only is None:
            self._known = {int(path.name): path.parent for path in found.files}
        return found

    def _sort_out(self, same: list[Path], found: Found) -> None:
        """Choose among files of the same name (rule 4)."""
        empty: list[Path] = []
        if len(same) > 1 or same[0].parent in self._read_only:
            empty = [path for path in same if self._holds_nothing(path)]
        if len(empty) == len(same):
            kept = next((path for path in same if path.parent not in self._read_only), None)
            found.files.extend([kept] if kept is not None else [])
            found.empty.extend(path for path in same if path != kept)
            return
        first, *others = [path for path in same if path not in empty]
        found.files.append(first)
        found.doubles.extend(others)
        found.empty.extend(empty)

    def _holds_nothing(self, path: Path) -> bool:
        head = self._files.read_at(path, 0, _HEAD_SIZE)
        if head is None or any(head):
            return False
        return self._files.is_zeros(path, 0, self._files.size(path) or 0) is not False

    def _paths(self, folder: Path) -> list[Path]:
        return [folder / name for name in self._files.names(folder)]

    def _is_log_file(self, path: Path) -> bool:
        return is_file_name(path.name) and not self._files.is_folder(path)

    def starts(self) -> list[int]:
        """Return the first offsets of the files that are there now, in order."""
        names = {name for folder in self.all for name in self._files.names(folder)}
        return sorted(int(name) for name in names if is_file_name(name))

    def extent(self) -> tuple[int, int]:
        """Where the first file of several folders begins, and how many folders have files."""
        known = list(self._known.items())
        return min((start for start, _ in known), default=0), len({folder for _, folder in known})

    def path(self, start: int) -> Path:
        """Return the path of the file that begins at a log offset; where there is none, of none."""
        name = file_name(start)
        folder = self._only or self._known.get(start)
        if folder is None:  # removed, or made by another process since the last look
            folders = (each for each in self.all if self._files.size(each / name) is not None)
            folder = next(folders, self.writable[0])
        return folder / name

    def describe(self, start: int) -> str:
        """Say which file begins at a log offset, where none does."""
        if self._only is not None:
            return str(self.path(start))
        return f"log file {file_name(start)}, in any of {self},"

    def is_read_only(self, path: Path) -> bool:
        """Whether a file of the log lies where nothing is made any more."""
        return path.parent in self._read_only

    # --- Where files go ---

    def give(self, number: int, start: int) -> Path:
        """Return the path of a file that is there or is to be made now (rule 2)."""
        if self._only is None and start not in self._known:
            sound = [folder for folder in self.writable if folder not in self._refused]
            takers = [folder for folder in sound if folder not in self._full] or sound
            takers = takers or list(self.writable)
            self._known[start] = takers[number % len(takers)]
        return self.path(start)

    def move_on(self, start: int) -> bool:
        """Say that the folder of a new file takes none; False: no other does either."""
        folder = self._known.pop(start, None)
        if folder is None:
            return False
        self._refused.add(folder)
        return not self._refused.issuperset(self.writable)

    def note_full(self, folders: frozenset[Path]) -> None:
        """Take in which folders are on disks that are too full."""
        self._full = folders
        self._refused.clear()

    def forget(self, start: int) -> None:
        """Say that a file was removed."""
        self._known.pop(start, None)
