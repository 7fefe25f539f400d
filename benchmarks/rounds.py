"""Rounds: which of several counts, and how a run tells how far it is.

In: what rounds measured. Out: the typical one. Rule: a round that others disturbed counts only when
there is no other.
"""

import sys
from collections.abc import Sequence
from typing import Protocol, TypeVar

from benchmarks.machine import QUIET_CORES


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


def say(what: str) -> None:
    """Tell how far the run is."""
    print(f"benchmarks: {what}", file=sys.stderr)
