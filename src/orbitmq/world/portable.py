"""What the client needs of the system where Linux has a call of its own and Windows has none.

In: descriptors and bytes. Out: the same as from the call that is missing.
Rule: the store asks the system itself; it runs on POSIX only.
"""

import os

OPEN_FLAGS: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""For every file that is opened: not for children, and its bytes as they are."""

SYNCS_FOLDERS = hasattr(os, "O_DIRECTORY")
"""Whether a folder can be opened, to have its names on the disk."""


def sync_data(fd: int) -> None:
    """Return when a file's contents are on the disk."""
    (getattr(os, "fdatasync", None) or os.fsync)(fd)


def write_at(fd: int, data: memoryview, position: int) -> int:
    """Write bytes at a position of a file; return how many were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, position)
    os.lseek(fd, position, os.SEEK_SET)
    return os.write(fd, data)


def set_mode(fd: int, mode: int) -> None:
    """Give a file its permissions, where the system has any."""
    if hasattr(os, "fchmod"):
        os.fchmod(fd, mode)
