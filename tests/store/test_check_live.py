"""`check` and `dump` beside a store at work in another process: they never call it damaged.

Method: real files, small ones, so that everything rolls and is removed many times while it is read.
The run goes on until enough was removed and looked at, not for a time.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitmq.store.check import check
from orbitmq.store.dump import Wanted, dump
from orbitmq.store.log_walk import Damage
from orbitmq.store.verdict import Fault, Level
from orbitmq.world.files import SystemFiles
from orbitmq.world.machine import boot_id
from tests.store.busy_store import OPTIONS

FILES = SystemFiles()
LOOKS_LEAST = 12
REMOVED_LEAST = 20
LOOKS_MAX = 100_000


@contextmanager
def busy(folder: Path) -> Iterator[None]:
    """A store at work; afterwards it has stopped cleanly."""
    command = [sys.executable, "-m", "tests.store.busy_store", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        bounds, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert int(bounds.split()[0]) > 0
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def removed_count(folder: Path) -> int:
    names = FILES.names(folder / "commitlog")
    return int(names[0]) // OPTIONS.log_file_size if names else 0


def looks(folder: Path) -> Iterator[None]:
    for number in range(LOOKS_MAX):
        yield
        if number >= LOOKS_LEAST and removed_count(folder) >= REMOVED_LEAST:
            return
    raise AssertionError(f"only {removed_count(folder)} files were removed")


def odd(folder: Path) -> list[Fault]:
    verdict = check(FILES, folder, OPTIONS, boot_id())
    return [fault for fault in verdict.faults if fault.level is not Level.INFO]


def test_a_folder_that_grows_and_loses_its_oldest_files_is_healthy(tmp_path: Path) -> None:
    """Symptom: one check in four called a live folder damaged."""
    with busy(tmp_path):
        for _ in looks(tmp_path):
            assert odd(tmp_path) == []
    assert odd(tmp_path) == []


def test_a_dump_of_a_live_folder_meets_no_damage(tmp_path: Path) -> None:
    with busy(tmp_path):
        for _ in looks(tmp_path):
            found = list(dump(FILES, tmp_path, Wanted(), OPTIONS))
            assert [item for item in found if isinstance(item, Damage)] == []
            offsets = [item.record.log_offset for item in found if not isinstance(item, Damage)]
            assert offsets == sorted(set(offsets))
