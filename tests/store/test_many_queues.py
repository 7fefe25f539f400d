"""A folder with many queues is opened with a few calls of the system for each of them.

Method: calls are counted, not seconds, so that other processes do not matter; the programme that
measures seconds, `python -m benchmarks.many_queues`, runs in a tiny form.
"""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks import many_queues
from orbitmq.store.options import StoreOptions
from orbitmq.world.files import AnyPath, SystemFiles
from tests.store.opened import BOOT, flush, open_store, read_all, stage

OPTIONS = StoreOptions(
    log_file_size=1 << 20, queue_file_size=20_000, index_slot_count=10, index_entry_count=400
)
TOPIC_COUNT, QUEUE_COUNT = 5, 40
COUNT = TOPIC_COUNT * QUEUE_COUNT
OTHER_BOOT = b"after power cut!"


class CountingFiles(SystemFiles):
    """Counts the calls that open, list or change something below the queues' folder."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def _count(self, call: str, path: AnyPath) -> None:
        if "consumequeue" in str(path):
            self.calls[call] += 1

    def names(self, path: AnyPath) -> list[str]:
        self._count("names", path)
        return super().names(path)

    def listing(self, path: AnyPath) -> list[tuple[str, int]] | None:
        self._count("listing", path)
        return super().listing(path)

    def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
        self._count("read_at", path)
        return super().read_at(path, position, size)

    def is_zeros(self, path: AnyPath, position: int, size: int) -> bool | None:
        self._count("is_zeros", path)
        return super().is_zeros(path, position, size)

    def size(self, path: Path) -> int | None:
        self._count("size", path)
        return super().size(path)

    def resize(self, path: Path, size: int) -> None:
        self._count("resize", path)
        super().resize(path, size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which every queue holds one message, after a clean stop."""
    store = open_store(tmp_path, options=OPTIONS)
    for number in range(COUNT):
        stage(store, number % QUEUE_COUNT, b"body", topic=f"T{number // QUEUE_COUNT}")
    store.write_staged()
    store.close()
    return tmp_path


def kill(folder: Path) -> None:
    """Open the folder, send one more message to one queue, and leave it as a kill does."""
    store = open_store(folder, options=OPTIONS)
    stage(store, 3, b"more", topic="T2")
    store.write_staged()
    flush(store)
    store._opened.lock.release()


@pytest.mark.parametrize(
    ("is_killed", "boot_id", "looked"),
    [(False, BOOT, 0), (True, BOOT, 0), (True, OTHER_BOOT, COUNT)],
    ids=["clean", "killed", "power cut"],
)
def test_each_queue_is_listed_once_and_read_once(
    folder: Path, is_killed: bool, boot_id: bytes, looked: int
) -> None:
    if is_killed:
        kill(folder)
    files = CountingFiles()
    store = open_store(folder, files, OPTIONS, boot_id=boot_id)
    sample_max, other_max = 2 * 256, 16
    assert COUNT <= files.calls["listing"] <= COUNT + TOPIC_COUNT + sample_max
    assert COUNT <= files.calls["read_at"] <= COUNT + other_max
    assert looked <= files.calls["is_zeros"] <= looked + other_max
    assert files.calls["size"] + files.calls["names"] + files.calls["resize"] <= other_max
    assert sum(store.queue_counts().values()) == COUNT
    expected = [b"body", b"more"] if is_killed else [b"body"]
    assert read_all(store, 3, topic="T2") == expected
    assert read_all(store, 39, topic="T4") == [b"body"]
    assert store.findings == []
    store.close()


@pytest.mark.slow
def test_the_programme_measures_each_kind_of_stop(tmp_path: Path) -> None:
    costs = many_queues.measure(tmp_path / "store", 24)
    assert [cost.name for cost in costs] == [
        "build and clean stop",
        "open after a clean stop",
        "open after a kill",
        "open after a power cut",
        "clean stop",
    ]
    assert all(cost.memory_mb > 0 for cost in costs)
    assert many_queues.disk_mb(tmp_path / "store") > 0
