"""Recovery of the original's folders, and of files that do not belong where they are."""

import io
import struct
import tarfile
from pathlib import Path

import msgspec
import pytest

from orbitmq.store.findings import FindingKind
from orbitmq.store.opening import Outside, open_folder
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import KeyQuery
from orbitmq.wire.record import decode_record
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from tests.golden.store import FOLDER as GOLDEN
from tests.golden.store import stored_records
from tests.store.opened import open_store, stage
from tests.store.recovering import (
    BOOT,
    OTHER_BOOT,
    ROOT,
    SMALL,
    bodies,
    healthy,
    kinds,
    log_bytes,
    reopen,
    run_store,
    same_twice,
)
from tests.store.slow_store import assert_derived, blobs_of, queue_entries
from tests.world.memory_files import MemoryFiles

LOG = ROOT / "commitlog"
GOLDEN_OPTIONS = StoreOptions(index_slot_count=500, index_entry_count=200)


def golden(name: str) -> MemoryFiles:
    files = MemoryFiles(ROOT)
    packed = io.BytesIO((GOLDEN / f"{name}.tar.gz").read_bytes())
    with tarfile.open(fileobj=packed) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None:
                inside = member.name.removeprefix("./").partition("/")[2]
                files.put(ROOT / inside, content.read())
    return files


def original(steps: str, *, is_clean: bool = False) -> MemoryFiles:
    """Return a folder as the original leaves it: a checkpoint without our block."""
    run = run_store([*steps])
    files = run.files.kill_image(len(run.files.ops))
    stamps = (files.read(ROOT / "checkpoint") or b"")[:24]
    files.put(ROOT / "checkpoint", stamps.ljust(4096, b"\0"))
    if is_clean:
        files.remove(ROOT / "abort")
        files.forget_ops()
    return files


def set_stamps(files: MemoryFiles, *stamps: int) -> None:
    files.put(ROOT / "checkpoint", struct.pack(">qqq", *stamps).ljust(4096, b"\0"))


@pytest.mark.parametrize("name", ["store-clean", "store-crashed"])
def test_the_originals_folder_gives_all_its_records_and_entries(name: str) -> None:
    files = golden(name)
    before = blobs_of(files, ROOT)
    opened = reopen(files, options=GOLDEN_OPTIONS)
    after = blobs_of(files, ROOT)
    log = assert_derived(after, 500, may_repeat=True)
    assert [s.record.log_offset for s in log.records] == [r["offset"] for r in stored_records()]
    assert len(log.records) == sum(q.next_offset for q in opened.queues.values()) == 2105
    assert opened.findings == []
    assert log_bytes(after) == log_bytes(before)
    again = reopen(files, options=GOLDEN_OPTIONS)
    assert (again.findings, blobs_of(files, ROOT)) == ([], after)
    rebuilt = reopen(files, options=GOLDEN_OPTIONS, is_full_rebuild=True)
    assert kinds(rebuilt) == {FindingKind.QUEUE_REBUILT}
    assert queue_entries(blobs_of(files, ROOT)) == queue_entries(after)


def test_a_clean_folder_of_the_original_is_not_changed_but_for_the_checkpoint() -> None:
    files = golden("store-clean")
    before = blobs_of(files, ROOT)
    reopen(files, options=GOLDEN_OPTIONS)
    after = blobs_of(files, ROOT)
    assert {path for path in after if after[path] != before.get(path)} == {"checkpoint", "abort"}


def test_the_crashed_folder_holds_what_the_original_recovered_from_it() -> None:
    """The clean folder is the crashed one after the original's own recovery and stop."""
    files, clean = golden("store-crashed"), golden("store-clean")
    reopen(files, options=GOLDEN_OPTIONS)
    assert queue_entries(blobs_of(files, ROOT)) == queue_entries(blobs_of(clean, ROOT))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("stamp", [0, 1, 20_000, 2**62])
def test_clocks_that_jump_do_not_choose_where_recovery_begins(stamp: int, is_clean: bool) -> None:
    """Stamps far ahead say that everything is on the disk; the queues say otherwise."""
    files = original("mt" + "m" * 40, is_clean=is_clean)
    set_stamps(files, stamp, stamp, stamp)
    opened = reopen(files)
    assert len(healthy(files, opened).records) == 41
    same_twice(files)


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_folder_of_others_is_read_whole_unless_it_was_stopped_cleanly(is_clean: bool) -> None:
    """Stamps far ahead would choose the newest file."""
    files = original("m" * 41 + "t", is_clean=is_clean)
    set_stamps(files, 2**62, 2**62, 2**62)
    opened = reopen(files, options=msgspec.structs.replace(SMALL, is_indexed=False))
    assert opened.findings == []
    assert sum(queue.next_offset for queue in opened.queues.values()) == 41
    last_file = opened.tail.end_offset // SMALL.log_file_size
    assert opened.tail.hot_offset == (last_file - 2) * SMALL.log_file_size * is_clean


def test_a_clean_stop_proves_nothing_when_the_queues_lack_an_entry() -> None:
    files = original("mt" + "m" * 40, is_clean=True)
    for path in files.names(ROOT / "consumequeue/T/0")[1:]:
        files.put(ROOT / "consumequeue/T/0" / path, bytes(SMALL.queue_file_size))
    opened = reopen(files)
    assert sum(queue.next_offset for queue in opened.queues.values()) == 41
    assert len(healthy(files, opened).records) == 41


def test_our_marks_count_no_longer_when_the_original_has_run() -> None:
    """The original went on behind our mark, made other entries there, and wrote its stamps."""
    run = run_store([*"mmmmmmt", *"m" * 9])
    files = run.files.kill_image(len(run.files.ops))
    checkpoint = bytearray(files.read(ROOT / "checkpoint") or b"")
    checkpoint[15] ^= 1
    files.put(ROOT / "checkpoint", bytes(checkpoint))
    wrong = ROOT / "consumequeue/T/0" / f"{0:020d}"
    entries = bytearray(files.read(wrong) or b"")
    entries[7] ^= 4
    files.put(wrong, bytes(entries))
    opened = reopen(files)
    assert len(healthy(files, opened).records) == 15
    assert FindingKind.QUEUE_REBUILT in kinds(opened)


def test_records_that_the_original_stored_malformed_are_passed_over() -> None:
    """Seen live: a sender's IPv6 bits made a record that cut off all behind it at the restart."""
    files = original("m" * 9)
    path = LOG / f"{0:020d}"
    data = bytearray(files.read(path) or b"")
    _, size = decode_record(bytes(data))
    (sys_flag,) = struct.unpack_from(">i", data, size + 36)
    struct.pack_into(">i", data, size + 36, sys_flag | 0x30)
    files.put(path, bytes(data))
    opened = reopen(files)
    assert bodies(healthy(files, opened)) == [0, 2, 3, 4, 5, 6, 7, 8]
    assert FindingKind.DAMAGE in kinds(opened)


def test_a_log_of_others_without_any_record_puts_their_queues_aside() -> None:
    files = original("mmmt")
    files.put(LOG / f"{0:020d}", bytes(1024))
    opened = reopen(files)
    assert (opened.tail.end_offset, opened.queues) == (0, {})
    assert FindingKind.QUEUES_SET_ASIDE in kinds(opened)


# --- files that are not as they should be ---


def killed(steps: str = "m" * 30) -> MemoryFiles:
    run = run_store([*steps])
    return run.files.kill_image(len(run.files.ops))


def test_a_folder_written_with_other_sizes_opens_with_its_own() -> None:
    files = killed()
    other = StoreOptions(
        log_file_size=1 << 30, queue_file_size=6_000_000, index_slot_count=10, index_entry_count=20
    )
    opened = reopen(files, options=other)
    assert opened.tail.file_size == 1024
    assert len(healthy(files, opened).records) == 30


def test_a_lone_file_of_another_size_keeps_it() -> None:
    files = killed("mmm")
    opened = reopen(files, options=StoreOptions(index_slot_count=10, index_entry_count=20))
    assert (opened.tail.file_size, opened.findings) == (1024, [])


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 600, 1500])
def test_a_log_file_of_another_length_is_copied_aside_and_brought_to_size(
    number: int, size: int
) -> None:
    files = killed()
    path = LOG / f"{1024 * number:020d}"
    data = files.read(path) or b""
    files.put(path, data[:size].ljust(size, b"\0"))
    opened = reopen(files, is_full_rebuild=True)
    assert files.size(path) == 1024
    assert FindingKind.WRONG_SIZE in kinds(opened)
    copies = [p for p in files.contents() if p.parent == ROOT / "aside"]
    assert size in [files.size(copy) for copy in copies if path.name in copy.name]
    log = healthy(files, opened)
    assert len(log.records) == 30 if size > 1024 else 20 < len(log.records) < 30
    same_twice(files)


def test_an_empty_log_file_is_what_a_kill_leaves_and_no_finding() -> None:
    files = killed()
    last = max(path for path in files.contents() if path.parent == LOG)
    files.put(LOG / f"{int(last.name) + 1024:020d}", b"")
    opened = reopen(files)
    assert opened.findings == []
    assert len(healthy(files, opened).records) == 30


def test_a_lone_file_that_was_cut_is_brought_to_the_setting() -> None:
    files = killed("mmm")
    path = LOG / f"{0:020d}"
    files.put(path, (files.read(path) or b"")[:400])
    opened = reopen(files, options=SMALL)
    assert opened.tail.file_size == 1024
    assert FindingKind.WRONG_SIZE in kinds(opened)


def test_a_copy_of_a_log_file_under_another_name_goes_aside() -> None:
    files = killed()
    copy = files.read(LOG / f"{1024:020d}") or b""
    files.put(LOG / f"{1024 * 50:020d}", copy)
    opened = reopen(files)
    assert len(healthy(files, opened).records) == 30
    assert {FindingKind.MISSING_FILE, FindingKind.CUT_BEHIND} == kinds(opened)
    assert copy in [data for path, data in files.contents().items() if "aside" in path.parts]
    same_twice(files)


@pytest.mark.parametrize(
    "stray",
    [
        "commitlog/readme.txt",
        "commitlog/00000000000000000100",
        "commitlog/folder/inside",
        "consumequeue/file",
        "consumequeue/T/file",
        "consumequeue/T/99999999999/x",
        "consumequeue/T/0/readme.txt",
        "index/readme.txt",
    ],
)
def test_what_does_not_belong_is_moved_aside_and_named(stray: str) -> None:
    files = killed("m" * 10 + "t" + "m" * 5)
    files.put(ROOT / stray, b"something of mine")
    opened = reopen(files)
    assert len(healthy(files, opened).records) == 15
    assert len(opened.findings) == 1
    assert "aside" in opened.findings[0].text
    kept = [p for p, data in files.contents().items() if data == b"something of mine"]
    assert len(kept) == 1
    assert kept[0].is_relative_to(ROOT / "aside")
    same_twice(files)


def test_a_log_file_that_was_being_made_is_removed() -> None:
    files = killed()
    files.put(LOG / f"{1024 * 9:020d}.tmp", bytes(1024))
    opened = reopen(files)
    assert opened.findings == []
    assert not [path for path in files.contents() if path.suffix == ".tmp"]


@pytest.mark.parametrize("boot_id", [BOOT, OTHER_BOOT])
def test_prepared_files_behind_the_end_stay_when_next_and_go_when_not(boot_id: bytes) -> None:
    files = killed()
    last = max(int(path.name) for path in files.contents() if path.parent == LOG)
    for step in (1024, 2048):
        files.put(LOG / f"{last + step:020d}", bytes(1024))
    opened = reopen(files, boot_id=boot_id)
    end_file = opened.tail.end_offset // 1024 * 1024
    left = max(int(path.name) for path in files.contents() if path.parent == LOG)
    assert left == end_file + 1024
    assert kinds(opened) <= {FindingKind.TORN_TAIL, FindingKind.CUT_BEHIND}


def test_nothing_of_recovery_depends_on_the_machine_the_folder_was_copied_from(
    tmp_path: Path,
) -> None:
    """The same on real files: a folder copied from another machine."""
    for path, data in killed("m" * 20 + "t" + "m" * 10).contents().items():
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    outside = Outside(SystemFiles(), SystemClock(), OTHER_BOOT)
    opened = open_folder(outside, tmp_path, SMALL)
    assert sum(queue.next_offset for queue in opened.queues.values()) == 30
    assert_derived(blobs_of(SystemFiles(), tmp_path), 10)
    opened.lock.release()


def test_messages_are_found_by_key_after_the_log_lost_records_that_the_index_knew() -> None:
    """Symptom: new messages that took the places of lost ones were passed over by the index."""
    files = golden("store-crashed")
    kept_end = stored_records()[-300]["offset"]
    for name in files.names(LOG):
        start = int(name)
        data = files.read(LOG / name) or b""
        kept = data[: max(0, kept_end - start)]
        files.put(LOG / name, kept.ljust(len(data), b"\0"))
    store = open_store(ROOT, files, GOLDEN_OPTIONS)
    assert store.tail.end_offset == kept_end
    told = [finding for finding in store.findings if finding.path == ROOT / "consumequeue"]
    assert [(finding.kind, finding.log_offset) for finding in told] == [
        (FindingKind.CUT_BEHIND, kept_end)
    ]
    for number in range(50):
        stage(store, 0, b"new", b"KEYS\x01new%d\x02" % number, topic="Fresh")
    store.write_staged()
    for number in range(50):
        assert store.lookup(KeyQuery("Fresh", f"new{number}", 0, 2**62, 10))()
    store.close()
    log = assert_derived(blobs_of(files, ROOT), 500, may_repeat=True)
    assert len(log.records) == 2105 - 300 + 50
