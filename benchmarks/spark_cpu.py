"""CPU of a tree of processes, and rows per CPU second.

In: the ids of processes. Out: seconds that they and all their children have used in a while, those
included that have ended since and were waited for. Rule: nothing that was used before is counted,
whenever it is accounted for.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows, the CPU that they took, and the time."""

    row_count: int
    cpu_s: float
    wall_s: float
    others_cores: float = 0.0

    @property
    def rows_per_core_s(self) -> float:
        """Rows for each second of CPU."""
        return self.row_count / max(self.cpu_s, 1 / TICKS_PER_S)

    @property
    def rows_per_s(self) -> float:
        """Rows for each second."""
        return self.row_count / self.wall_s

    @property
    def cost_us(self) -> float:
        """What rounds are compared by."""
        return 1e6 / self.rows_per_core_s


class CpuWatch:
    """Says how much CPU processes and all that come from them have used since it was made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = set(pids)
        self._begin = _tree(self._pids)

    def cpu_s(self) -> float:
        """Return the seconds."""
        end = _tree(self._pids)
        ticks = sum(one.ticks for one in end.values())
        ticks -= sum(one.ticks for pid, one in self._begin.items() if pid in end)
        # What has ended is in its parent's account, with all that it used before; where the
        # parent has ended as well, or does not wait for it, it is lost.
        ended = [one for pid, one in self._begin.items() if pid not in end]
        waited = {pid: one.waited_ticks for pid, one in end.items()}
        for pid, one in self._begin.items():
            gone = sum(other.ticks for other in ended if other.parent == pid)
            if pid in waited:
                ticks -= min(gone, waited[pid] - one.waited_ticks)
        return ticks / TICKS_PER_S


class _Process(NamedTuple):
    """One process; `ticks` are its own and those of the children that it waited for."""

    parent: int
    ticks: int
    waited_ticks: int


def _tree(pids: set[int]) -> dict[int, _Process]:
    there: dict[int, _Process] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has just ended
            words = text.rpartition(")")[2].split()
            user, system, waited_user, waited_system = map(int, words[11:15])
            waited = waited_user + waited_system
            there[int(folder.name)] = _Process(int(words[1]), user + system + waited, waited)
    wanted, size = set(pids), -1
    while size != len(wanted):
        size = len(wanted)
        wanted |= {pid for pid, one in there.items() if one.parent in wanted}
    return {pid: one for pid, one in there.items() if pid in wanted}


def tree_cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU of these processes and of all that come from them and have not ended."""
    return sum(one.ticks for one in _tree(set(pids)).values()) / TICKS_PER_S
