"""What a check has to say: each thing found, how bad it is, and what to do about it.

In: things that the parts of a check notice. Out: one verdict with all of them and a few counts.

Rules:
1. DAMAGE is what a healthy folder cannot have: the exit code tells. A WARNING is
   unusual but harmless. INFO describes the folder.
2. A verdict lists at most FAULTS_MAX things of each level and counts the rest.
"""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

FAULTS_MAX = 1_000
READ_TRIES = 3
"""What is written while it is read looks damaged; once or twice more is enough."""

REPAIR = "`orbitmq store repair` makes it anew from the log"
RESTORE = "bring it back from a copy or a replica; the broker goes on without these records"
SET_ASIDE = "move it out of the folder, or let `orbitmq store repair` set it aside"
RECOVERS = "nothing to do: the broker's start takes care of it"

Progress = Callable[[str, int, int], None]
"""What is being read, how many bytes of it are done, how many there are."""


def no_progress(_part: str, _done: int, _total: int) -> None:
    """Say nothing."""


class Level(StrEnum):
    """How bad it is."""

    DAMAGE = "damage"
    WARNING = "warning"
    INFO = "info"


class Fault(NamedTuple):
    """One thing found. `position` is a byte of the file, or -1 when the whole file is meant."""

    level: Level
    path: str
    position: int
    text: str
    advice: str


class Verdict:
    """Everything found in one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.faults: list[Fault] = []
        self.totals: Counter[Level] = Counter()
        self.counts: Counter[str] = Counter()
        """Records, queues, entries …: what was looked at."""

    @property
    def is_healthy(self) -> bool:
        """Whether there is no damage."""
        return not self.totals[Level.DAMAGE]

    def damage(self, path: Path, position: int, text: str, advice: str = REPAIR) -> None:
        """Note what a healthy folder cannot have."""
        self._add(Level.DAMAGE, path, position, text, advice)

    def warning(self, path: Path, position: int, text: str, advice: str = "") -> None:
        """Note something odd."""
        self._add(Level.WARNING, path, position, text, advice)

    def info(self, path: Path, position: int, text: str, advice: str = "") -> None:
        """Note how things are."""
        self._add(Level.INFO, path, position, text, advice)

    def _add(self, level: Level, path: Path, position: int, text: str, advice: str) -> None:
        self.totals[level] += 1
        if self.totals[level] <= FAULTS_MAX:
            is_inside = path.is_relative_to(self._root)  # a log that lies elsewhere is not
            inside = path.relative_to(self._root) if is_inside else path
            self.faults.append(Fault(level, str(inside), position, text, advice))
