"""Rounds: how each is made ready, which of several counts, and how a run tells how far it is.

In: what rounds measured. Out: the typical one. Rule: a round that others disturbed counts only when
there is no other.
"""

import sys
from collections.abc import Sequence
from typing import Protocol, TypeVar

from benchmarks.machine import QUIET_CORES, await_quiet, touch_free_memory


class Round(Protocol):
    """What one round measured."""

    @property
    def cost_us(self) -> float:
        """CPU per message."""
        ...

    @property
    def others_cores(self) -> float:
        """What other processes used just before it."""
        ...


R = TypeVar("R", bound=Round)


def typical(rounds: Sequence[R]) -> R:
    """Of the undisturbed rounds, or of all when there is none, the one with the median CPU."""
    quiet = [figures for figures in rounds if figures.others_cores < QUIET_CORES] or rounds
    ordered = sorted(quiet, key=lambda figures: figures.cost_us)
    return ordered[(len(ordered) - 1) // 2]


class Rounds:
    """How often everything is measured; waits for quiet and counts where there was none."""

    def __init__(self, each: int, quiet_limit_s: float) -> None:
        self.each = each
        self.count = self.disturbed_count = 0
        self._quiet_limit_s = quiet_limit_s

    def prepare(self, writing_s: float = 0.0) -> float:
        """Make a round ready that writes for so long; return the cores that others use."""
        if writing_s:
            touch_free_memory(writing_s)
        used = await_quiet(self._quiet_limit_s)
        self.count += 1
        self.disturbed_count += used >= QUIET_CORES
        return used


def say(what: str) -> None:
    """Tell how far the run is."""
    print(f"benchmarks: {what}", file=sys.stderr)
