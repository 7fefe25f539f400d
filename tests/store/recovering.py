"""Folders that a crash left, for tests of recovery: made by the real store on files in memory.

In: messages to send and the moment at which to cut. Out: files as the crash left them; and what an
opened folder must be, whatever happened to it before.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from orbitmq.store.findings import FindingKind
from orbitmq.store.opening import Opened, Outside, open_folder
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import Store
from orbitmq.world.clock import SystemClock
from tests.store.opened import flush, open_store, stage, sync
from tests.store.slow_store import SlowLog, assert_derived, blobs_of, files_in, queue_entries
from tests.world.memory_files import MemoryFiles

ROOT = Path("/store")
SLOTS = 10
SMALL = StoreOptions(
    log_file_size=1024, queue_file_size=100, index_slot_count=SLOTS, index_entry_count=20
)
BOOT = b"the same machine"
OTHER_BOOT = b"after power cut!"

Step = Callable[[Store], None]


class Run(NamedTuple):
    """A store that was used and never closed."""

    files: MemoryFiles
    acknowledged: list[tuple[int, int]]
    """After how many operations which end of the log was acknowledged."""
    synced: list[tuple[int, int]]
    log: bytes
    """All that was ever written to the log."""


def message(store: Store, number: int, *, queue_id: int = 0, size: int = 40) -> None:
    """Send one message that has keys and a tag."""
    store.tail.store_ms += 700
    properties = b"UNIQ_KEY\x01U%d\x02KEYS\x01k%d\x02TAGS\x01T%d" % (number, number % 3, number % 2)
    stage(store, queue_id, b"%04d" % number + bytes(size), properties)
    store.write_staged()


def run_store(steps: list[str], options: StoreOptions = SMALL) -> Run:
    """Do steps on a new folder: `m` a message, `f` a flush, `s` a sync, `t` a thorough flush."""
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, options, boot_id=BOOT)
    acknowledged: list[tuple[int, int]] = []
    synced: list[tuple[int, int]] = []
    for number, step in enumerate(steps):
        if step == "m":
            message(store, number, queue_id=number % 3)
            acknowledged.append((len(files.ops), store.tail.written_offset))
            continue
        {"f": _flush, "s": sync, "t": _flush_all}[step](store)
        if step != "f":
            synced.append((len(files.ops), store.durable_offset))
    log = log_bytes(blobs_of(files, ROOT))[: store.tail.end_offset]
    return Run(files, acknowledged, synced, log)


def _flush(store: Store) -> None:
    flush(store)


def _flush_all(store: Store) -> None:
    flush(store, is_thorough=True)


def reopen(
    files: MemoryFiles,
    *,
    boot_id: bytes = BOOT,
    options: StoreOptions = SMALL,
    is_full_rebuild: bool = False,
) -> Opened:
    """Open the folder as a restarted broker does, and let it go as a killed one does."""
    outside = Outside(files, SystemClock(), boot_id)
    opened = open_folder(outside, ROOT, options, is_full_rebuild=is_full_rebuild)
    opened.checkpoint.close()
    opened.lock.release()
    return opened


def log_bytes(blobs: Mapping[str, bytes]) -> bytes:
    """Return the log's files as one."""
    return b"".join(data for _, data in files_in(blobs, "commitlog"))


def kinds(opened: Opened) -> set[FindingKind]:
    """Return what kinds of things were found."""
    return {finding.kind for finding in opened.findings}


def healthy(files: MemoryFiles, opened: Opened) -> SlowLog:
    """Assert that queues, index, and the space behind log and queues are as the log says."""
    blobs = blobs_of(files, ROOT)
    log = assert_derived(blobs, SLOTS)
    for base, data in files_in(blobs, "commitlog"):
        behind = data[max(0, opened.tail.end_offset - base) :]
        assert not any(behind), f"not only zeros behind the end of the log in file {base}"
    entries = queue_entries(blobs)
    for key, queue in opened.queues.items():
        folder = f"consumequeue/{key[0]}/{key[1]}"
        for base, data in files_in(blobs, folder):
            assert not any(data[max(0, queue.next_offset * 20 - base) :])
        for number, entry in entries.get(key, {}).items():
            assert number < queue.next_offset
            assert (number >= queue.min_offset) == (entry.log_offset >= log.first_offset)
    return log


def same_twice(files: MemoryFiles, *, boot_id: bytes = BOOT) -> None:
    """Assert that recovering once more changes nothing and finds nothing."""
    before = blobs_of(files, ROOT)
    opened = reopen(files, boot_id=boot_id)
    assert opened.findings == []
    assert blobs_of(files, ROOT) == before


def bodies(log: SlowLog) -> list[int]:
    """Return the numbers of the messages in a log."""
    return [int(stored.record.body[:4]) for stored in log.records]
