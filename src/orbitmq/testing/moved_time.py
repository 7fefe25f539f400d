"""Time that can be moved forward, and files whose ages follow it.

In: the machine's clock and files, and seconds to add. Out: the same clock and files, that much
later.

Rules:
1. Only wall time moves: what is due at a moment (delays, retries, age of log files). Time-outs,
   leases and expiry count monotonic seconds, which go on as they are: a jump of an hour throws no
   client out of its group and ends no lock.
2. It never goes back.
3. A file is as old as the moved clock says: one that was written before a jump ages with it, one
   that was written afterwards does not.
"""

from bisect import bisect_right
from pathlib import Path

from orbitmq.world.clock import Clock, SystemClock
from orbitmq.world.files import SystemFiles

AHEAD_S_MAX = 50 * 365 * 86_400
"""Index files count seconds in 31 bits, which is a little more."""


class MovableClock:
    """The machine's clock, with a wall time that runs ahead by what was added."""

    def __init__(self, machine: Clock | None = None) -> None:
        self._machine = machine or SystemClock()
        self._ahead_ms = 0
        self._jumps: list[tuple[int, int]] = []
        """From which of the machine's times on, and how far we were ahead then."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, moved."""
        return self._machine.wall_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; as the machine counts them."""
        return self._machine.monotonic_s()

    def file_stamp(self, wall_ms: int) -> int:
        """Return local time as the number yyyyMMddHHmmssSSS."""
        return self._machine.file_stamp(wall_ms)

    def advance(self, seconds: float) -> None:
        """Move wall time forward; raises ValueError for what is no such step."""
        ahead_ms = self._ahead_ms + round(seconds * 1000)
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds:g} s: what is stored has its times")
        if ahead_ms > AHEAD_S_MAX * 1000:
            raise ValueError(f"time can be moved by {AHEAD_S_MAX} s (50 years) at most, in all")
        self._ahead_ms = ahead_ms
        self._jumps.append((self._machine.wall_ms(), ahead_ms))

    def moved_ms(self, machine_ms: int) -> int:
        """Return what this clock said when the machine's said `machine_ms`."""
        place = bisect_right(self._jumps, machine_ms, key=lambda jump: jump[0])
        return machine_ms + (self._jumps[place - 1][1] if place else 0)


class MovedFiles(SystemFiles):
    """The machine's files, with ages by a clock that was moved."""

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock

    def modified_ms(self, path: Path) -> int | None:
        """Return when a file was written last, by the moved clock; None when there is none."""
        machine_ms = super().modified_ms(path)
        return None if machine_ms is None else self._clock.moved_ms(machine_ms)
