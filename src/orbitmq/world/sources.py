"""When the source files below a folder were changed, for programs that start again then.

In: a folder. Out: each Python file below it with the time of its last change.

Rules:
1. Hidden folders and caches are left out, and links to folders are not followed: they may lead in
   circles.
2. What cannot be looked at counts as not there.
3. At most COUNT_MAX files are looked at: a folder with more is not one to reload.
"""

import os
from pathlib import Path

COUNT_MAX = 10_000


def source_times(folder: Path) -> dict[Path, int]:
    """Return when each Python file below a folder was changed, in nanoseconds since 1970."""
    found: dict[Path, int] = {}
    for inside, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        sources = [Path(inside, name) for name in names if name.endswith(".py")]
        times = {path: _changed_ns(path) for path in sources[: COUNT_MAX - len(found)]}
        found |= {path: changed_ns for path, changed_ns in times.items() if changed_ns is not None}
        if len(found) >= COUNT_MAX:
            break
    return found


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
