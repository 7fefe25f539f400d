"""What a test does when this machine lacks what it needs.

In: the cause. Out: a skipped test with a line that says why, or a failed one.

Rule: with ORBITMQ_TEST_ALL=1, as in CI, nothing is skipped: what is missing is a failure.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

MOUNT_LIMIT_S = 20


def cannot(why: str) -> NoReturn:
    """Skip the test that runs, or fail it when all tests must run."""
    if os.environ.get("ORBITMQ_TEST_ALL") == "1":
        pytest.fail(f"{why} (ORBITMQ_TEST_ALL=1 forbids to skip)", pytrace=False)
    pytest.skip(why)


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """Make a folder that is a file system of its own, of so many MiB."""
    folder.mkdir()
    mount(folder, mib)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=MOUNT_LIMIT_S)


def mount(folder: Path, mib: int) -> None:
    """Mount a file system in memory; needs root."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=MOUNT_LIMIT_S
        )
    except OSError as error:
        cannot(f"no mount command: {error}")
    if done.returncode:
        cannot(f"mounting a small tmpfs is not allowed: {done.stderr.strip()}")
