"""Randomness, through one door.

In: a seed, or none. Out: numbers and choices. Rule: nothing else in the product draws random
numbers, so a test can replay them; nothing secret is drawn from here.
"""

import random
from typing import Protocol


class Chance(Protocol):
    """What the rest of the product knows of randomness. Nothing secret is drawn from it."""

    def below(self, limit: int) -> int:
        """Return a number from 0 to limit - 1."""
        ...


class SystemChance:
    """Random numbers from the operating system's seed, or from a given one."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311 - spreads load, keeps no secret

    def below(self, limit: int) -> int:
        """Return a number from 0 to limit - 1."""
        return self._random.randrange(limit)
