"""Recent queue entries stay in memory; old ones are left to threads, the loop reads no file."""

import threading
from pathlib import Path

import pytest

from orbitmq.core import CoreState, PullStatus, Queue, gather
from orbitmq.store.kept_entries import RUN_BYTES, KeptEntries
from orbitmq.store.options import StoreOptions
from orbitmq.world.files import BigFile, SystemFiles
from tests.store.opened import flush, open_store, read_all, send

OPTIONS = StoreOptions(
    log_file_size=1 << 20,
    queue_file_size=2_000,
    index_slot_count=10,
    index_entry_count=20,
    kept_bytes_max=10 * 20 + 2 * RUN_BYTES,
)


class WatchedFiles(SystemFiles):
    """Tells which queue files the test's own thread, which stands for the loop, reads."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._loop = threading.get_ident()

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        self._note(path)
        return super().open_big(path, size, is_mapped=is_mapped)

    def size(self, path: Path) -> int | None:
        self._note(path)
        return super().size(path)

    def _note(self, path: Path) -> None:
        if "consumequeue" in path.parts and threading.get_ident() == self._loop:
            self.seen.append(path.name)


def test_the_hot_path_reads_no_queue_file_however_old_the_offset(tmp_path: Path) -> None:
    """Symptom: a pull of a flushed entry opened and read the queue's file on the loop."""
    files = WatchedFiles()
    store = open_store(tmp_path, files, OPTIONS)
    for number in range(30):
        send(store, 0, b"%d" % number)
        if number % 5 == 4:
            flush(store)
    queue, state = store.queue("T", 0), CoreState(store.tail, "c", "r")
    files.seen.clear()
    statuses = [gather(state, queue, at, 1, None).status for at in range(30)]
    assert files.seen == []
    assert statuses == [PullStatus.COLD] * 20 + [PullStatus.FOUND] * 10
    assert read_all(store, 0) == [b"%d" % number for number in range(30)]
    store.close()


def test_entries_that_are_not_written_stay_above_the_limit(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=OPTIONS)
    for number in range(40):
        send(store, 0, b"%d" % number)
    queue = store.queue("T", 0)
    assert (queue.base_offset, len(queue.entries)) == (0, 40 * 20)
    flush(store)
    assert queue.base_offset == 40, "one run that is longer than the limit leaves as a whole"
    send(store, 0, b"40")
    assert read_all(store, 0) == [b"%d" % number for number in range(41)]
    store.close()


@pytest.mark.parametrize("run_size", [1, 3])
def test_what_was_written_first_leaves_first_whatever_its_queue(run_size: int) -> None:
    first, second = (Queue("T", number, 0) for number in range(2))
    kept = KeptEntries(bytes_max=2 * (run_size * 20 + RUN_BYTES))
    for queue in (first, second, first):
        queue.entries += bytes(run_size * 20)
        queue.flushed_offset += run_size
        kept.add(queue, queue.flushed_offset, run_size * 20)
    kept.trim()
    assert (first.base_offset, len(first.entries)) == (run_size, run_size * 20)
    assert (second.base_offset, len(second.entries)) == (0, run_size * 20)
