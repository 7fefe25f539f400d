"""Facts about the machine and the user, and how a server uses its memory.

In: nothing. Out: how much memory there is, which boot of the machine this is, where the user's
files are, and what the environment says.
Rule: what is asked here does not change while we run.
"""

import os
import uuid
from pathlib import Path

UNKNOWN_BOOT = bytes(16)
"""What `boot_id` gives when the system does not tell; it counts as equal to nothing."""

KEPT_BYTES = 8_388_608

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def memory_bytes() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def keep_freed_memory() -> None:
    """Have the C library keep what is freed for the next use, up to twice KEPT_BYTES.

    glibc gives freed memory back at once where it is more than 128 KB, and each page costs a fault
    when it is wanted again. Freeing one large piece raises that limit: see mallopt(3).
    """
    bytearray(KEPT_BYTES)


def home_folder() -> Path:
    """Return the folder of the user who runs this process."""
    return Path.home()


def environment_text(name: str) -> str:
    """Return an environment variable; empty when it is not set."""
    return os.environ.get(name, "")


def boot_id() -> bytes:
    """Return 16 bytes that differ after every start of the machine, or UNKNOWN_BOOT."""
    try:
        return uuid.UUID(_BOOT_ID.read_text("ascii").strip()).bytes
    except (OSError, ValueError):
        return UNKNOWN_BOOT


def core_count() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
