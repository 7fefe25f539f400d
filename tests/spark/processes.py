"""Processes as the system shows them: children, names, and an end by their own id.

In: a process id. Out: ids. Rule: nothing is found by its name alone, only below a known parent.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path


def children(parent: int) -> list[int]:
    """Return the processes that a process has started and that live."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                words = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(words[1]) == parent and words[0] != "Z":
                    found.append(int(folder.name))
    return found


def command(pid: int) -> str:
    """Return a process's command line; nothing when it has ended."""
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    return ""


def name(pid: int) -> str:
    """Return the name of a process's program; nothing when it has ended."""
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "comm").read_text().strip()
    return ""


def kill(pid: int) -> bool:
    """End a process by SIGKILL; False when it had ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
