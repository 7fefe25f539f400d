"""The machine under the benchmark: which cores to use, who else uses them, CPU and memory.

In: /proc and the scheduler. Out: core numbers, used cores, MB. Rule: a run that others disturbed is
still shown, but it says so; nobody may take its figures for clean ones.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SAMPLE_S = 0.25
TOUCHED_BYTES_PER_S = 1 << 30
"""More than any server writes in a second of a run."""
TOUCHED_BYTES_MAX = 4 << 30

QUIET_CORES = 0.2
"""Others may use this much of a core in a run that counts as quiet."""


def cores() -> tuple[int | None, int | None]:
    """The cores of server and generator, or (None, None) when there is only one for both."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return None, None
    return allowed[0], allowed[1]


def pin(pid: int, core: int | None) -> None:
    """Bind a process that has just been started; its later threads inherit it."""
    if core is not None:
        os.sched_setaffinity(pid, {core})


def others_cores(sample_s: float = SAMPLE_S) -> float:
    """How many cores are in use right now, while the benchmark itself waits."""
    before = _busy_s()
    time.sleep(sample_s)
    return max(0.0, (_busy_s() - before) / sample_s)


def await_quiet(limit_s: float) -> float:
    """Wait at most `limit_s` for a quiet machine; return the cores that others used last."""
    deadline = time.monotonic() + limit_s
    used = others_cores()
    while used >= QUIET_CORES and time.monotonic() < deadline:
        used = others_cores()
    return used


def touch_free_memory(run_s: float = 4.0) -> None:
    """Use and give back as much free memory as a run of `run_s` needs, in a process of its own.

    In a virtual machine a page that was never used, or was given back, must first come from the
    host; that can cost more than all a broker does for a message. Afterwards the files that a run
    writes find pages that are there. Every server gets this before every run.
    """
    wanted = min(TOUCHED_BYTES_MAX, int(TOUCHED_BYTES_PER_S * run_s))
    size = min(wanted, _available_bytes() // 3)
    program = (
        "import mmap; mmap.mmap(-1, %d, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS"
        " | mmap.MAP_POPULATE)"
    )
    subprocess.run([sys.executable, "-c", program % size], check=True)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def resident_mb(pid: int) -> float:
    """The memory that a process has in RAM, in MB of 10**6 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(f"process {pid} has no VmRSS; it has ended")


def cpu_s(pid: int) -> float:
    """User and system time that a process has used, all its threads, in steps of a tick."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class OthersWatch:
    """Says how many cores others used since it was made: neither we, our children nor `pids`."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._begin = self._now()

    def cores(self) -> float:
        """Return it; a child counts as ours when it has ended."""
        (begin_s, begin_busy_s), (now_s, busy_s) = self._begin, self._now()
        return max(0.0, (busy_s - begin_busy_s) / (now_s - begin_s))

    def _now(self) -> tuple[float, float]:
        own = os.times()
        own_s = own.user + own.system + own.children_user + own.children_system
        return own.elapsed, _busy_s() - own_s - sum(map(cpu_s, self._pids))


def _busy_s() -> float:
    """Seconds that all cores together were not idle: all but the columns idle and iowait."""
    first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    ticks = [int(word) for word in first.split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
