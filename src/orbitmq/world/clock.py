"""Time, through one door.

In: nothing. Out: wall time in ms (what records and peers carry) and monotonic seconds (what every
time-out, lease and expiry uses). Rule: nothing else in the product reads a clock, so a test can
pass a clock of its own.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the product knows of time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()
