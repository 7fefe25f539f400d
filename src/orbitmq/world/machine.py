"""Facts about the machine and the user.

In: nothing. Out: how much memory there is, and where the user's files are.
Rule: what is asked here does not change while we run.
"""

import os
from pathlib import Path


def memory_bytes() -> int:
    """Give the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def home_folder() -> Path:
    """Give the folder of the user who runs this process."""
    return Path.home()
