"""A file as memory, for reading only: for those who look into a store that is not theirs.

In: a path. Out: the file's bytes, or nothing when there is no such file.

Rules:
1. Nothing is changed and nothing made: a disk that is mounted for reading will do.
2. The memory shows what others write meanwhile. It stays until nobody holds it, also when the file
   has lost its name.
"""

import mmap
import os
from pathlib import Path

from orbitmq.errors import ReadFailed
from orbitmq.world.file_steps import MISSING


def mapped(path: Path) -> memoryview | None:
    """Give a file's bytes; None when there is no such file. Raises ReadFailed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in MISSING:
            return None
        raise ReadFailed(f"cannot open {path}: {error.strerror}", path) from error
    try:
        size = os.fstat(fd).st_size
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ) if size else b"")
    except OSError as error:
        raise ReadFailed(f"cannot map {path}: {error.strerror}", path) from error
    finally:
        os.close(fd)
