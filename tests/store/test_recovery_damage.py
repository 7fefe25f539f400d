"""Recovery of damaged folders: what is lost is what was damaged, and it is named."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.errors import ReadFailed
from orbitmq.store.findings import FindingKind
from orbitmq.store.log_end import fill_missing
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_source import LogFiles
from orbitmq.world.files import SystemFiles
from tests.store.opened import flush, open_store, read_all, send, stage
from tests.store.recovering import (
    BOOT,
    OTHER_BOOT,
    ROOT,
    SMALL,
    bodies,
    healthy,
    kinds,
    message,
    reopen,
    run_store,
    same_twice,
)
from tests.store.slow_store import blobs_of, queue_entries, read_log
from tests.world.memory_files import MemoryFiles

LOG = ROOT / "commitlog"
FIRST = LOG / f"{0:020d}"
SECOND = LOG / f"{1024:020d}"


def killed(steps: str = "m" * 10 + "t" + "m" * 5) -> MemoryFiles:
    run = run_store([*steps])
    return run.files.kill_image(len(run.files.ops))


def closed(steps: str = "m" * 10) -> MemoryFiles:
    files = killed(steps)
    store = open_store(ROOT, files, boot_id=BOOT)
    store.close()
    return files


def change(files: MemoryFiles, path: Path, edit: Callable[[bytearray], object]) -> None:
    data = bytearray(files.read(path) or b"")
    edit(data)
    files.put(path, bytes(data))


def flip(files: MemoryFiles, log_offset: int, bit: int = 0) -> None:
    path = LOG / f"{log_offset // 1024 * 1024:020d}"

    def turn(data: bytearray) -> None:
        data[log_offset % 1024] ^= 1 << bit

    change(files, path, turn)


def place(files: MemoryFiles, body: bytes) -> int:
    """Return the log offset of the record whose body begins so."""
    records = read_log(blobs_of(files, ROOT)).records
    return next(s.record.log_offset for s in records if s.record.body.startswith(body))


def test_one_flipped_bit_in_a_body_costs_one_record() -> None:
    """Symptom of others: everything behind it was cut at the next start."""
    files = killed("m" * 15)
    flip(files, place(files, b"0004") + 90)
    opened = reopen(files, is_full_rebuild=True)
    assert bodies(healthy(files, opened)) == [n for n in range(15) if n != 4]
    (finding,) = [f for f in opened.findings if f.kind is FindingKind.DAMAGE]
    assert finding.path == FIRST
    assert "passed over" in finding.text
    assert opened.queues["T", 1].next_offset == 5


@pytest.mark.parametrize("bit", range(0, 64, 3))
def test_a_flipped_bit_in_a_records_number_costs_that_record_only(bit: int) -> None:
    files = killed("m" * 15)
    flip(files, place(files, b"0007") + 20 + 7 - bit // 8, bit % 8)
    before = queue_entries(blobs_of(run_store([*"m" * 15, "t"]).files, ROOT))
    opened = reopen(files, is_full_rebuild=True)
    del before["T", 1][2]
    assert queue_entries(blobs_of(files, ROOT)) == before
    assert [queue.next_offset for _, queue in sorted(opened.queues.items())] == [5, 5, 5]
    assert kinds(opened) == {FindingKind.DAMAGE, FindingKind.QUEUE_REBUILT}


def test_every_flipped_bit_of_a_log_costs_at_most_its_own_record() -> None:
    healthy_run = run_store([*"m" * 6, "t"])
    image = healthy_run.files.kill_image(len(healthy_run.files.ops))
    expected = queue_entries(blobs_of(image, ROOT))
    records = read_log(blobs_of(image, ROOT)).records
    for position in range(0, len(healthy_run.log), 5):
        files = MemoryFiles(ROOT)
        for path, data in image.contents().items():
            files.put(path, data)
        flip(files, position, position % 8)
        opened = reopen(files, is_full_rebuild=True)
        found = queue_entries(blobs_of(files, ROOT))
        for record, size in records:
            if not record.log_offset <= position < record.log_offset + size:
                key = (record.topic, record.queue_id)
                assert found[key][record.queue_offset] == expected[key][record.queue_offset]
        assert opened.tail.end_offset == len(healthy_run.log)


def test_damage_in_the_tail_of_a_queue_does_not_give_its_numbers_again() -> None:
    """One truth per position: a number that was answered names one message for ever."""
    files = killed("m" * 10 + "t")
    flip(files, place(files, b"0009") + 90)
    opened = reopen(files, is_full_rebuild=True)
    assert opened.queues["T", 0].next_offset == 4  # 0, 3, 6 and the damaged 9
    store = open_store(ROOT, files, boot_id=BOOT)
    message(store, 99, queue_id=0)
    assert store.queue("T", 0).next_offset == 5


def test_numbers_that_damage_swallowed_become_holes_that_readers_pass() -> None:
    files = killed("m" * 12)
    flip(files, place(files, b"0003") + 90)
    flip(files, place(files, b"0006") + 90)
    reopen(files, is_full_rebuild=True)
    data = files.read(ROOT / "consumequeue/T/0" / f"{0:020d}") or b""
    entries = list(struct.iter_unpack(">qiq", data))
    assert [size == 0x7FFFFFFF for _, size, _ in entries] == [False, True, True, False, False]
    offsets = [log_offset for log_offset, size, _ in entries if size]
    assert offsets == sorted(offsets)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_missing_checkpoint_is_made_anew(is_clean: bool) -> None:
    files = closed() if is_clean else killed()
    files.remove(ROOT / "checkpoint")
    opened = reopen(files)
    healthy(files, opened)
    assert opened.findings == []
    same_twice(files)


def test_a_kill_whose_marker_is_missing_loses_nothing() -> None:
    files = killed()
    files.remove(ROOT / "abort")
    opened = reopen(files)
    assert len(healthy(files, opened).records) == 15


@pytest.mark.parametrize("folder", ["consumequeue/T/1", "consumequeue/T", "consumequeue", "index"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_missing_folder_is_made_anew_from_the_log(folder: str, is_clean: bool) -> None:
    files = closed() if is_clean else killed()
    for path in list(files.contents()):
        if path.is_relative_to(ROOT / folder):
            files.remove(path)
    files.forget_ops()
    opened = reopen(files)
    assert len(healthy(files, opened).records) == (10 if is_clean else 15)
    assert FindingKind.QUEUE_REBUILT in kinds(opened)
    same_twice(files)


def test_every_derived_file_may_be_empty_or_cut() -> None:
    """Symptom of others (9728, 10108): an empty last queue file stopped the start."""
    image = killed()
    derived = [p for p in image.contents() if p.parts[2] in ("consumequeue", "index", "checkpoint")]
    for path in derived:
        for size in (0, 7, 50):
            files = MemoryFiles(ROOT)
            for other, data in image.contents().items():
                files.put(other, data[:size] if other == path else data)
            opened = reopen(files)
            assert len(healthy(files, opened).records) == 15
            same_twice(files)


def test_a_queue_file_that_vanished_in_the_middle_is_made_anew() -> None:
    files = killed("m" * 40 + "t")
    files.remove(ROOT / "consumequeue/T/0" / f"{100:020d}")
    files.forget_ops()
    opened = reopen(files)
    assert len(healthy(files, opened).records) == 40
    assert kinds(opened) == {FindingKind.QUEUE_REBUILT, FindingKind.QUEUES_SET_ASIDE}
    same_twice(files)


def test_an_entry_that_says_something_else_is_overruled_by_the_log() -> None:
    files = killed("m" * 10 + "t")
    files.remove(ROOT / "checkpoint")

    def spoil(data: bytearray) -> None:
        data[20 * 2 + 8 + 3] ^= 1  # the size in the third entry

    change(files, ROOT / "consumequeue/T/0" / f"{0:020d}", spoil)
    opened = reopen(files)
    healthy(files, opened)
    (finding,) = opened.findings
    assert "entry 2 of topic T, queue 0" in finding.text


def test_a_torn_last_record_is_cut_and_named() -> None:
    files = killed("m" * 5)
    end = place(files, b"0004")

    def tear(data: bytearray) -> None:
        data[end + 100 :] = bytes(len(data) - end - 100)

    change(files, FIRST, tear)
    opened = reopen(files, boot_id=OTHER_BOOT)
    assert bodies(healthy(files, opened)) == [0, 1, 2, 3]
    (finding,) = opened.findings
    assert (finding.kind, finding.log_offset) == (FindingKind.TORN_TAIL, end)
    same_twice(files, boot_id=OTHER_BOOT)


def test_what_is_more_than_a_torn_record_goes_aside_before_it_is_cleared() -> None:
    files = killed("m" * 5)
    end = len(run_store([*"m" * 5]).log)
    files.put(FIRST, (files.read(FIRST) or b"")[:end] + b"\x77" * 100 + bytes(1024 - end - 100))
    opened = reopen(files)
    assert len(healthy(files, opened).records) == 5
    (finding,) = opened.findings
    assert finding.kind is FindingKind.CUT_BEHIND
    assert b"\x77" * 100 in files.contents().values()


def test_pages_that_the_disk_cannot_read_are_damage_and_not_written_over() -> None:
    run = run_store([*"m" * 40, "t"])
    files = run.files.kill_image(len(run.files.ops))
    files.fail("read", lambda op: op.path == SECOND, times=None)
    opened = reopen(files, is_full_rebuild=True)
    assert {FindingKind.UNREADABLE, FindingKind.DAMAGE} <= kinds(opened)
    files.heal()
    again = reopen(files, is_full_rebuild=True)
    assert len(healthy(files, again).records) == 40


def test_an_end_of_the_log_that_cannot_be_read_is_a_reason_not_to_start() -> None:
    files = killed("m" * 5)
    files.fail("read", lambda op: op.path == FIRST, times=None)
    with pytest.raises(ReadFailed, match="replace the disk"):
        reopen(files)
    files.heal()
    assert len(healthy(files, reopen(files)).records) == 5


def test_a_missing_log_file_in_the_middle_costs_its_records_only() -> None:
    files = killed("m" * 40 + "t")
    lost = read_log({f"commitlog/{SECOND.name}": files.read(SECOND) or b""}).records
    files.remove(SECOND)
    files.forget_ops()
    opened = reopen(files, is_full_rebuild=True)
    log = healthy(files, opened)
    gone = {int(stored.record.body[:4]) for stored in lost}
    assert len(gone) > 2
    assert bodies(log) == [number for number in range(40) if number not in gone]
    assert FindingKind.MISSING_FILE in kinds(opened)
    assert sum(queue.next_offset for queue in opened.queues.values()) == 40
    same_twice(files)


def test_a_missing_last_log_file_does_not_let_numbers_be_given_twice() -> None:
    files = closed("m" * 40)
    last = max(p for p, data in files.contents().items() if p.parent == LOG and any(data))
    files.remove(last)
    files.forget_ops()
    opened = reopen(files)
    assert FindingKind.MISSING_FILE in kinds(opened)
    assert sum(queue.next_offset for queue in opened.queues.values()) == 40
    assert opened.tail.end_offset == int(last.name) + 1024
    same_twice(files)


def test_a_log_without_files_puts_its_queues_aside() -> None:
    files = closed("m" * 10)
    for path in [p for p in files.contents() if p.parent == LOG]:
        files.remove(path)
    files.forget_ops()
    opened = reopen(files)
    assert (opened.tail.end_offset, opened.queues) == (0, {})
    assert kinds(opened) == {FindingKind.MISSING_FILE, FindingKind.QUEUES_SET_ASIDE}
    assert any("aside" in path.parts and any(data) for path, data in files.contents().items())
    same_twice(files)


def test_queues_whose_records_are_all_gone_keep_their_numbers() -> None:
    """A number is not given twice, also when nothing but the queue's file knows of it."""
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, SMALL, boot_id=BOOT)
    for number in range(3):
        stage(store, 7, b"%04d" % number, topic="Old")
    for number in range(30):
        stage(store, 0, b"%04d" % number)
    store.write_staged()
    store.close()
    files.remove(FIRST)
    files.forget_ops()
    opened = reopen(files, is_full_rebuild=True)
    queue = opened.queues["Old", 7]
    assert (queue.next_offset, queue.min_offset) == (3, 3)
    assert opened.first_offset == 1024
    assert opened.queues["T", 0].next_offset == 30
    assert 0 < opened.queues["T", 0].min_offset < 30
    healthy(files, opened)


def test_a_lost_queue_whose_first_records_are_gone_begins_at_its_own_number() -> None:
    files = closed("m" * 30)
    files.remove(FIRST)
    for path in [p for p in files.contents() if p.is_relative_to(ROOT / "consumequeue")]:
        files.remove(path)
    files.forget_ops()
    opened = reopen(files)
    log = healthy(files, opened)
    for queue_id in range(3):
        numbers = [s.record.queue_offset for s in log.records if s.record.queue_id == queue_id]
        queue = opened.queues["T", queue_id]
        assert (queue.min_offset, queue.next_offset) == (numbers[0], numbers[-1] + 1)
    same_twice(files)


def test_the_file_of_a_lost_beginning_is_filled_up_with_blanks() -> None:
    files = closed("m" * 30)
    files.remove(FIRST)
    for path in [p for p in files.contents() if p.is_relative_to(ROOT / "consumequeue")]:
        files.remove(path)
    files.forget_ops()
    opened = reopen(files)
    blank = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    filled = 0
    for queue_id in range(3):
        count = opened.queues["T", queue_id].min_offset
        start = count // 5 * 100  # five entries a file
        data = files.read(ROOT / f"consumequeue/T/{queue_id}/{start:020d}") or b""
        assert data.startswith(blank * (count % 5))
        assert data[20 * (count % 5) :][:20] not in (b"", blank, bytes(20))
        filled += count % 5
    assert filled > 0


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_topic_that_was_deleted_and_made_again_starts_at_0(is_full: bool, count: int) -> None:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, boot_id=BOOT)
    for number in range(4):
        message(store, number)
    queue = store.queue("T", 0)
    queue.next_offset = queue.readable_offset = queue.base_offset = queue.flushed_offset = 0
    queue.entries.clear()
    for number in range(4, 4 + count):
        message(store, number)
    image = files.kill_image(len(files.ops))
    opened = reopen(image, is_full_rebuild=is_full)
    assert opened.queues["T", 0].next_offset == count
    assert len(healthy(image, opened).records) == 4 + count


def test_a_number_is_not_given_again_at_any_start_after_a_queues_files_went_aside(
    tmp_path: Path,
) -> None:
    """Symptom: the number was kept for one start, when it was the first of a queue file."""
    store = open_store(tmp_path)  # five entries a file
    send(store, 7, *[b"a"] * 15)
    send(store, 0, *[bytes(300)] * 60)
    flush(store, is_thorough=True)
    store.close()
    for path in sorted((tmp_path / "commitlog").iterdir())[:3]:
        path.unlink()  # as if they had grown old: the log does not mention the queue any more
    (tmp_path / "consumequeue" / "T" / "7" / f"{100:020d}").unlink()
    for _ in range(3):
        again = open_store(tmp_path)
        queue = again.find_queue("T", 7)
        assert queue is not None
        assert (queue.min_offset, queue.next_offset) == (15, 15)
        again.close()
    last = open_store(tmp_path)
    send(last, 7, b"new")
    assert (read_all(last, 7), last.queue("T", 7).next_offset) == ([b"new"], 16)
    last.close()


def test_a_lost_file_too_long_for_a_blank_record_is_made_anew_with_zeros(tmp_path: Path) -> None:
    """Symptom: struct.error at the start, with log files of 2 GiB and more."""
    log_folders = LogFolders(SystemFiles(), (tmp_path,))
    log = LogFiles(SystemFiles(), log_folders, 1 << 31, [0, 2])
    end, findings = fill_missing(SystemFiles(), log, 2 << 31)
    assert (end, findings, log.numbers) == (2 << 31, [], [0, 1, 2])
    path = tmp_path / f"{1 << 31:020d}"
    assert path.stat().st_size == 1 << 31
    assert log.is_free((1 << 31) + 1)


def test_a_number_is_not_given_again_when_queue_files_and_the_last_record_are_lost(
    tmp_path: Path,
) -> None:
    """Symptom: with the queue's files aside nothing told how many numbers had been given."""
    store = open_store(tmp_path)  # five entries a file
    send(store, 0, *[b"a"] * 12)
    at = store.tail.end_offset
    send(store, 0, b"last")
    send(store, 1, b"other")
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at + 88] ^= 1  # in the body
    path.write_bytes(data)
    (tmp_path / "consumequeue" / "T" / "0" / f"{100:020d}").unlink()
    for _ in range(2):
        again = open_store(tmp_path)
        assert again.queue("T", 0).next_offset == 13
        assert read_all(again, 0) == [b"a"] * 12
        again.close()
