"""Time, through one door.

In: nothing. Out: wall time in ms (what records and peers carry) and monotonic seconds (what every
time-out, lease and expiry uses). Rule: nothing else in the product reads a clock, so a test can
pass a clock of its own.
"""

import time
from datetime import UTC, datetime, tzinfo
from typing import Protocol


class Clock(Protocol):
    """What the rest of the product knows of time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def file_stamp(self, wall_ms: int) -> int:
        """Return local time as the number yyyyMMddHHmmssSSS: what index files are called by."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)
    """Seconds since some fixed moment; never goes back. Read once per read: a call less counts."""

    def file_stamp(self, wall_ms: int) -> int:
        """Return local time as the number yyyyMMddHHmmssSSS: what index files are called by."""
        seconds, rest_ms = divmod(wall_ms, 1000)
        return int(time.strftime("%Y%m%d%H%M%S", time.localtime(seconds))) * 1000 + rest_ms


def local_zone() -> tzinfo:
    """The machine's zone with the offset of now: what ids that name a month are made with."""
    zone = datetime.now(UTC).astimezone().tzinfo
    return zone if zone is not None else UTC
