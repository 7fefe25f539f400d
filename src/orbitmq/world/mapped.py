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


def mapped(path: Path, *, is_read_ahead: bool = True) -> memoryview | None:
    """Return a file's bytes; None when there is no such file. Raises ReadFailed.

    Without `is_read_ahead` nothing is read but what is looked at: elsewhere holes become memory,
    and are holes no more for who asks the system where they are.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in MISSING:
            return None
        raise ReadFailed(f"cannot open {path}: {error.strerror}", path) from error
    try:
        size = os.fstat(fd).st_size
        if not size:
            return memoryview(b"")
        memory = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        if not is_read_ahead:
            memory.madvise(mmap.MADV_RANDOM)
        return memoryview(memory)
    except OSError as error:
        raise ReadFailed(f"cannot map {path}: {error.strerror}", path) from error
    finally:
        os.close(fd)
