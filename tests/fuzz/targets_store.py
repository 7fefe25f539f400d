"""Fuzz targets of the store's files: whatever they hold, the store opens or says why not.

Rule: a folder with one file replaced by any bytes is opened twice. The second time it finds what
the first one left: the same queues and the same end of the log, and nothing is ever read twice.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from orbitmq.errors import StoreError
from orbitmq.store.check import check
from orbitmq.store.checkpoint import encode_checkpoint, read_checkpoint
from orbitmq.store.options import StoreOptions
from tests.store.opened import BOOT, flush, open_store, read_all, stage
from tests.world.memory_files import MemoryFiles

ROOT = Path("/store")
OPTIONS = StoreOptions(
    log_file_size=4_096, queue_file_size=200, index_slot_count=7, index_entry_count=16
)
LOG = ROOT / "commitlog" / f"{0:020d}"
QUEUE = ROOT / "consumequeue" / "T" / "0" / f"{0:020d}"
CHECKPOINT = ROOT / "checkpoint"


@cache
def _healthy() -> dict[Path, bytes]:
    """A folder of eight messages after a kill: part of them written behind."""
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, OPTIONS)
    for number in range(8):
        stage(store, number % 2, b"%d" % number, f"KEYS\x01k{number}\x02TAGS\x01a".encode())
        store.write_staged()
        if number == 3:
            flush(store, is_thorough=True)
        if number == 5:
            flush(store)
    return files.contents()


def _index() -> Path:
    return next(path for path in _healthy() if path.parent.name == "index")


def _opened(files: MemoryFiles) -> tuple[int, list[list[bytes]]]:
    store = open_store(ROOT, files, OPTIONS)
    try:
        bodies = [read_all(store, queue_id) for queue_id in range(2)]
        assert all(len(set(found)) == len(found) for found in bodies)
        return store.tail.end_offset, bodies
    finally:
        store.close()


def _open_with(path: Path, data: bytes) -> None:
    """Open the folder with one file replaced, twice."""
    files = MemoryFiles(ROOT)
    for name, content in _healthy().items():
        files.put(name, data if name == path else content)
    check(files, ROOT, OPTIONS, BOOT)
    first = _opened(files)
    assert _opened(files) == first


def fuzz_log(data: bytes) -> None:
    """Any bytes as a file of the log."""
    _open_with(LOG, data.ljust(4_096, b"\0")[:4_096])


def fuzz_queue(data: bytes) -> None:
    """Any bytes as a file of a queue."""
    _open_with(QUEUE, data.ljust(200, b"\0")[:200])


def fuzz_index(data: bytes) -> None:
    """Any bytes as a file of the key index."""
    size = len(_healthy()[_index()])
    _open_with(_index(), data.ljust(size, b"\0")[:size])


def fuzz_checkpoint(data: bytes) -> None:
    """Any bytes as the checkpoint; what can be read of it is written and read again alike."""
    _open_with(CHECKPOINT, data)
    files = MemoryFiles(ROOT)
    files.put(CHECKPOINT, data)
    found = read_checkpoint(files, CHECKPOINT)
    if found is not None and found.synced is not None:
        files.put(CHECKPOINT, encode_checkpoint(found, data))
        assert read_checkpoint(files, CHECKPOINT) == found


ALLOWED = (StoreError,)
TARGETS: dict[str, Callable[[bytes], None]] = {
    "log": fuzz_log,
    "queue": fuzz_queue,
    "index": fuzz_index,
    "checkpoint": fuzz_checkpoint,
}
SEEDS: dict[str, list[bytes]] = {
    "log": [_healthy()[LOG][:1_400]],
    "queue": [_healthy()[QUEUE]],
    "index": [_healthy()[_index()]],
    "checkpoint": [_healthy()[CHECKPOINT][:600]],
}
