"""This process's memory: how much it uses, how much it may use, getting some and giving it back.

In: what the system says. Out: bytes.

Rules:
1. Only memory of our own counts (anonymous): pages of mapped files are the kernel's to take back.
2. What the system does not tell counts as 0 used, or as no limit: nobody is refused for that.
"""

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

from orbitmq.world.machine import memory_bytes

_STATM = Path("/proc/self/statm")
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_FOLDER = Path("/sys/fs/cgroup")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def own_bytes() -> int:
    """Return the resident memory that is our own."""
    try:
        _, resident, of_files, *_ = _STATM.read_bytes().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(of_files)) * _PAGE_SIZE


def allowed_bytes(cgroup: Path = _CGROUP, folder: Path = _CGROUP_FOLDER) -> int:
    """Return the machine's memory, or what the process's control group allows if that is less."""
    found = memory_bytes()
    for file in _limit_files(cgroup, folder):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
            found = min(found, int(file.read_text("ascii")))
    return found


def _limit_files(cgroup: Path, folder: Path) -> list[Path]:
    """Return the files that may hold a limit, of version 2 and 1, from our group up to the root."""
    try:
        lines = cgroup.read_text("utf-8").splitlines()
    except OSError:
        return []
    files: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = folder, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = folder / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        above = [one for one in group.parents if one == root or root in one.parents]
        files += [one / name for one in dict.fromkeys((group, *above))]
    return files


def zeros(size: int) -> memoryview:
    """Return new memory full of zeros; the system provides a page when it is first written to."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def give_back() -> None:
    """Have the C library return free memory to the system, where it can; takes milliseconds."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
