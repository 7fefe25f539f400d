"""How the store writes and reads its files: in sequence, ahead of need, behind, and as views.

Method: a store on files in memory whose operations are all noted, or on real files for maps.
"""

import gc
import mmap
import weakref
from collections import defaultdict
from pathlib import Path

import msgspec

from orbitmq.core import CoreState, gather
from orbitmq.store.checkpoint import Stamps, read_checkpoint
from orbitmq.store.opening import Outside
from orbitmq.store.retention import RetentionSettings
from orbitmq.store.store import Store
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from tests.store.opened import BOOT, SMALL, flush, open_store, read_all, send, stage, sync
from tests.world.crash_images import nothing
from tests.world.memory_files import MemoryFiles

ROOT = Path("/store")


def reserve(store: Store) -> None:
    """Make the next log file ahead, as the broker's thread does."""
    number = store.begin_reserve()
    if number is not None:
        store.reserve(number)


def spans(files: MemoryFiles, part: str) -> dict[Path, list[tuple[int, int]]]:
    """Where each file of a part of the folder was written to, in the order of the writes."""
    written: dict[Path, list[tuple[int, int]]] = defaultdict(list)
    for op in files.ops:
        if op.kind == "write" and op.path.is_relative_to(ROOT / part):
            written[op.path].append((op.position, op.position + len(op.data)))
    return written


def test_log_and_queues_are_written_in_sequence_and_nothing_twice() -> None:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files)
    for number in range(40):
        send(store, number % 2, b"x" * 300, b"y" * 100)
        if number % 7 == 0:
            flush(store, is_thorough=number % 14 == 0)
    flush(store)
    log, queues = spans(files, "commitlog"), spans(files, "consumequeue")
    assert len(log) > 4
    assert list(log) == sorted(log), "file after file"
    assert len(queues) > 8
    for places in (*log.values(), *queues.values()):
        ends = [0, *(end for _, end in places)]
        assert [start for start, _ in places] == ends[:-1], "each write begins where the last ended"
    store.close()


def test_the_next_log_file_is_there_before_it_is_needed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0, bytes(1_000))
    reserve(store)
    assert len(list((tmp_path / "commitlog").iterdir())) == 1, "not before the last is half full"
    send(store, 0, bytes(1_500))
    reserve(store)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "commitlog").iterdir()}
    assert sizes == {f"{0:020d}": 4_096, f"{4_096:020d}": 4_096}
    send(store, 0, bytes(2_000))
    assert [len(body) for body in read_all(store, 0)] == [1_000, 1_500, 2_000]
    store.close()


def test_recent_records_are_read_as_views_of_files_that_are_mapped_whole(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0, *[bytes(900)] * 6)
    found = gather(CoreState(store.tail, "c", "r"), store.queue("T", 0), 0, 32, None)
    assert len(found.parts) == 2, "neighbours are one view; they lie in two files"
    for part in found.parts:
        assert isinstance(part.obj, mmap.mmap), "not a copy"
        assert len(part.obj) == 4_096
    del part, found
    store.close()


def test_a_removed_log_file_is_unmapped_when_its_last_reader_has_let_go(tmp_path: Path) -> None:
    settings = RetentionSettings(reserved_ms=0, delete_hours=";".join(map(str, range(24))))
    store = Store(Outside(SystemFiles(), SystemClock(), BOOT), tmp_path, SMALL, settings)
    send(store, 0, *[bytes(900)] * 10)
    flush(store, is_thorough=True)
    found = gather(CoreState(store.tail, "c", "r"), store.queue("T", 0), 0, 1, None)
    (part,) = found.parts
    text = bytes(part)
    mapped = weakref.ref(part.obj)
    for _ in range(2):  # the first look removes nothing by age
        job = store.cleaner.begin()
        job.run()
        store.cleaner.finish(job)
    assert 0 in job.removed
    assert not (tmp_path / "commitlog" / f"{0:020d}").exists(), "it leaves the folder at once"
    assert bytes(part) == text, "who reads it goes on reading"
    gc.collect()
    assert mapped() is not None
    del part, found
    gc.collect()
    assert mapped() is None
    store.close()


def test_files_of_a_queue_that_was_made_anew_are_not_removed_for_the_old_one(
    tmp_path: Path,
) -> None:
    settings = RetentionSettings(reserved_ms=0, delete_hours=";".join(map(str, range(24))))
    store = Store(Outside(SystemFiles(), SystemClock(), BOOT), tmp_path, SMALL, settings)
    send(store, 0, *[bytes(900)] * 10)
    send(store, 1, *[bytes(900)] * 10)
    flush(store, is_thorough=True)
    for _ in range(2):  # the first look removes nothing by age
        job = store.cleaner.begin()
        job.run()
        store.cleaner.finish(job)
    trim = store.cleaner.begin_trim()
    assert trim is not None
    trim.run()
    store.cleaner.finish_trim(trim)
    assert store.queue("T", 0).min_offset > 0, "queues begin later before their files go"
    first = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    assert first.exists()
    store.remove_topics({"T"})
    store.flush_all()
    send(store, 0, b"anew")
    flush(store)
    assert store.cleaner.begin_remove() is None
    assert first.exists()
    assert read_all(store, 0) == [b"anew"]
    store.close()


def test_the_checkpoint_moves_with_the_flush_of_the_queues_to_what_is_safe() -> None:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files)
    store.tail.store_ms = 5_000
    send(store, 0, b"one")
    sync(store)
    flush(store)
    path = ROOT / "checkpoint"
    found = read_checkpoint(files, path)
    assert found is not None
    assert found.stamps == Stamps(0, 0, 0), "queues are written, not safe"
    flush(store, is_thorough=True)
    for seen in (files, files.image(len(files.ops), nothing())):  # now, and after a power cut
        found = read_checkpoint(seen, path)
        assert found is not None
        assert found.stamps == Stamps(5_000, 5_000, 0)
        assert seen.size(path) == 4_096
    store.close()


def test_queue_entries_are_in_memory_first_and_in_their_files_later() -> None:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, msgspec.structs.replace(SMALL, is_sync_flush=True))
    send(store, 0, b"one")
    sync(store)
    assert read_all(store, 0) == [b"one"]
    assert not spans(files, "consumequeue"), "what is acknowledged and read is not there yet"
    flush(store)
    assert spans(files, "consumequeue")
    store.close()


def test_the_index_stamp_of_the_checkpoint_is_that_of_the_last_key_that_is_safe() -> None:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files)
    store.tail.store_ms = 7_000
    send(store, 0, b"none")
    store.tail.store_ms = 9_000
    stage(store, 0, b"keyed", b"KEYS\x01k\x02")
    store.write_staged()
    flush(store, is_thorough=True)
    found = read_checkpoint(files, ROOT / "checkpoint")
    assert found is not None
    assert found.stamps == Stamps(9_000, 9_000, 9_000)
    store.close()
