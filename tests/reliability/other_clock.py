"""The command `orbitmq` with a wall clock that somebody else sets while it runs.

In: the arguments of `orbitmq`, and in ORBITMQ_TEST_CLOCK a file of three numbers that is read at
every look at the clock. Out: the same program; its wall clock jumps, stands or runs at another
speed, its monotonic clock is the machine's.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

from orbitmq.cli.main import main
from orbitmq.world.clock import SystemClock

VARIABLE = "ORBITMQ_TEST_CLOCK"
_SETTING = struct.Struct("<ddd")
"""A moment of the machine's clock, what was shown at that moment, and the speed since (ms)."""


def _machine_ms() -> float:
    return time.time_ns() / 1_000_000


class OtherClock:
    """The hand on another process's clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        now_ms = _machine_ms()
        path.write_bytes(_SETTING.pack(now_ms, now_ms, 1.0))

    def now_ms(self) -> float:
        """What the other process's wall clock shows."""
        return _shown_ms(self.path.read_bytes())

    def jump(self, ms: float) -> None:
        """Set it forward or back."""
        self._set(self.now_ms() + ms, 1.0)

    def run_at(self, speed: float) -> None:
        """Let it go on from where it is, so many times as fast."""
        self._set(self.now_ms(), speed)

    def _set(self, shown_ms: float, speed: float) -> None:
        with self.path.open("r+b") as file:  # in place: the other process has it mapped
            file.write(_SETTING.pack(_machine_ms(), shown_ms, speed))


def _shown_ms(setting: bytes) -> float:
    at_ms, shown_ms, speed = _SETTING.unpack(setting)
    return float(shown_ms + (_machine_ms() - at_ms) * speed)


def _obey(path: str) -> None:
    with Path(path).open("rb") as file:
        setting = mmap.mmap(file.fileno(), _SETTING.size, access=mmap.ACCESS_READ)

    def wall_ms(_clock: SystemClock) -> int:
        return int(_shown_ms(setting[:]))

    setattr(SystemClock, "wall_ms", wall_ms)  # noqa: B010 - mypy takes no assignment to a method


if __name__ == "__main__":
    _obey(os.environ[VARIABLE])
    sys.exit(main())
