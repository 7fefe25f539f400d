"""The queues' files: what is written is read back, found, cut, and named when it is wrong.

Method: real files for what they hold, the file system in memory for what a crash or a refusal
does; every search is compared with a walk over all entries.
"""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import ReadFailed, StoreError, SyncFailed
from orbitmq.store.consume_queue import (
    HOLE_SIZE,
    NO_QUEUE,
    Extent,
    QueueFiles,
    QueueRange,
    file_size_in,
)
from orbitmq.store.layout import file_name
from orbitmq.world.files import AnyPath, SystemFiles
from tests.golden.store import QUEUE_FILE_SIZE, queue_entries, store_files
from tests.world.crash_images import nothing
from tests.world.memory_files import MemoryFiles

FILE_SIZE = 100
PER_FILE = FILE_SIZE // ENTRY_SIZE
ROOT = Path("/store/consumequeue")


def entries(count: int, first: int = 0) -> bytes:
    """Entry n stands for a record of 100 bytes at log offset 1000 + 100 n."""
    return b"".join(ENTRY.pack(1000 + 100 * n, 100, n) for n in range(first, first + count))


def queue_files(folder: Path, file_size: int = FILE_SIZE, open_max: int = 512) -> QueueFiles:
    return QueueFiles(SystemFiles(), folder, file_size, open_max)


def in_memory() -> tuple[MemoryFiles, QueueFiles]:
    files = MemoryFiles(ROOT)
    return files, QueueFiles(files, ROOT, FILE_SIZE)


def read_all(queues: QueueFiles, topic: str, queue_id: int, count: int) -> bytes:
    data = b""
    while len(data) < count * ENTRY_SIZE:
        at = len(data) // ENTRY_SIZE
        piece = queues.read_cold(topic, queue_id, at, count - at)
        if not piece:
            break
        data += piece
    return data


def only_extent(queues: QueueFiles) -> Extent:
    (extent,) = queues.extents()
    return extent


# --- Writing and reading ---


@settings(deadline=None)
@given(
    runs=st.lists(st.integers(1, 3 * PER_FILE), min_size=1, max_size=8),
    asked=st.integers(0, 60),
    count=st.integers(1, 60),
)
def test_runs_written_behind_read_back_as_one_row(runs: list[int], asked: int, count: int) -> None:
    _, queues = in_memory()
    total = 0
    for run in runs:
        queues.write("T", 3, total, entries(run, total))
        total += run
    assert read_all(queues, "T", 3, total) == entries(total)
    until_file_end = PER_FILE - asked % PER_FILE
    # Files have their full length, so behind the end come zeros, as in the original.
    expected = entries(max(0, total - asked), asked) + bytes(FILE_SIZE)
    is_there = asked // PER_FILE <= (total - 1) // PER_FILE
    wanted = expected[: min(count, until_file_end) * ENTRY_SIZE] if is_there else b""
    assert queues.read_cold("T", 3, asked, count) == wanted


def test_files_are_named_by_their_first_byte_sparse_and_of_full_length(tmp_path: Path) -> None:
    queues = queue_files(tmp_path, file_size=6_000_000)
    queues.write("T", 0, 299_999, entries(2))
    names = sorted(path.name for path in (tmp_path / "T" / "0").iterdir())
    assert names == ["00000000000000000000", "00000000000006000000"]
    for path in (tmp_path / "T" / "0").iterdir():
        assert path.stat().st_size == 6_000_000
        assert path.stat().st_blocks * 512 < 100_000
    queues.close()


def test_reading_what_is_not_there_makes_no_file(tmp_path: Path) -> None:
    queues = queue_files(tmp_path)
    assert queues.read_cold("T", 0, 0, 5) == b""
    assert list(tmp_path.iterdir()) == []


def test_the_writer_never_has_more_files_open_than_allowed_and_readers_none(tmp_path: Path) -> None:
    queues = queue_files(tmp_path, open_max=4)
    before = len(os.listdir("/proc/self/fd"))
    for queue_id in range(20):
        queues.write("T", queue_id, 0, entries(12))
    for queue_id in range(20):
        for offset in range(12):
            assert queues.read_cold("T", queue_id, offset, 1) == entries(1, offset)
    assert len(os.listdir("/proc/self/fd")) - before == 4
    queues.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("topic", ["../../etc", "/etc", "..", ".", "", "a/b", "a\0b"])
def test_a_topic_that_would_lead_out_of_the_folder_is_refused(tmp_path: Path, topic: str) -> None:
    queues = queue_files(tmp_path / "in")
    with pytest.raises(StoreError, match="cannot be the name of a folder"):
        queues.write(topic, 0, 0, entries(1))
    with pytest.raises(StoreError, match="cannot be the name of a folder"):
        queues.read_cold(topic, 0, 0, 1)
    assert list(tmp_path.iterdir()) == []


# --- Syncing ---


def test_after_a_sync_a_power_cut_takes_nothing() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(7))
    queues.write("U", 5, 0, entries(1))
    queues.sync()
    left = QueueFiles(files.image(len(files.ops), nothing()), ROOT, FILE_SIZE)
    assert read_all(left, "T", 0, 7) == entries(7)
    assert left.read_cold("U", 5, 0, 1) == entries(1)


def test_without_a_sync_a_power_cut_may_take_everything() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(7))
    left = QueueFiles(files.image(len(files.ops), nothing()), ROOT, FILE_SIZE)
    assert left.read_cold("T", 0, 0, 1) == b""


def test_a_failed_sync_is_raised_and_what_it_was_for_is_not_forgotten() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(1))
    files.fail("sync")
    with pytest.raises(SyncFailed):
        queues.sync()
    count = len(files.ops)
    queues.sync()
    assert len(files.ops) > count


def test_a_sync_with_nothing_written_does_nothing() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(1))
    queues.sync()
    count = len(files.ops)
    queues.sync()
    assert len(files.ops) == count


def test_a_refused_write_is_raised() -> None:
    files, queues = in_memory()
    files.fail("write", trouble=errno.ENOSPC)
    with pytest.raises(StoreError, match="cannot write"):
        queues.write("T", 0, 0, entries(1))
    queues.write("T", 0, 0, entries(1))
    assert queues.read_cold("T", 0, 0, 1) == entries(1)


# --- What is there ---


def test_a_sound_folder_has_an_extent_for_each_queue_and_no_faults() -> None:
    _, queues = in_memory()
    queues.write("T", 0, 0, entries(12))
    queues.write("T", 10, 7, entries(1))
    queues.write("%RETRY%g", 0, 0, entries(5))
    assert list(queues.extents()) == [
        Extent("%RETRY%g", 0, 0, 1),
        Extent("T", 0, 0, 3),
        Extent("T", 10, 5, 1),
    ]


def test_an_empty_folder_of_a_queue_is_an_empty_queue(tmp_path: Path) -> None:
    (tmp_path / "T" / "0").mkdir(parents=True)
    (tmp_path / "U").mkdir()
    assert list(queue_files(tmp_path).extents()) == [Extent("T", 0, 0, 0)]


def test_no_folder_at_all_has_no_extents(tmp_path: Path) -> None:
    assert list(queue_files(tmp_path / "none").extents()) == []
    assert file_size_in(SystemFiles(), tmp_path / "none") is None


def test_a_missing_file_in_the_middle_is_a_fault(tmp_path: Path) -> None:
    queues = queue_files(tmp_path)
    queues.write("T", 0, 0, entries(20))
    missing = tmp_path / "T" / "0" / file_name(100)
    missing.unlink()
    extent = only_extent(queues)
    assert (extent.first_offset, extent.file_count) == (0, 1)
    assert extent.faults == (f"{missing} is missing: files come behind it",)


@pytest.mark.parametrize("size", [0, 40, 99, 101, 200])
def test_a_file_of_another_size_is_a_fault_and_is_to_be_set_aside(
    tmp_path: Path, size: int
) -> None:
    queues = queue_files(tmp_path)
    queues.write("T", 0, 0, entries(12))
    wrong = tmp_path / "T" / "0" / file_name(100)
    os.truncate(wrong, size)
    extent = only_extent(queues)
    assert f"{wrong} has {size} bytes instead of 100" in extent.faults
    assert extent.strays == (wrong,)


def test_a_last_file_without_length_is_what_a_kill_leaves_and_no_fault(tmp_path: Path) -> None:
    queues = queue_files(tmp_path)
    queues.write("T", 0, 0, entries(PER_FILE))
    last = tmp_path / "T" / "0" / file_name(FILE_SIZE)
    last.touch()
    extent = only_extent(queues)
    assert (extent.faults, extent.file_count) == ((), 2)
    assert queues.end_before(extent, 10**9) == PER_FILE
    assert queues.read_cold("T", 0, 5, 1) == b""
    queues.cut("T", 0, PER_FILE)
    assert last.read_bytes() == bytes(FILE_SIZE)


@pytest.mark.parametrize(
    "name", ["00000000000000000050", "notes.txt", "0", "00000000000000000000x"]
)
def test_a_stray_file_in_a_queue_is_a_fault(tmp_path: Path, name: str) -> None:
    queues = queue_files(tmp_path)
    queues.write("T", 0, 0, entries(3))
    stray = tmp_path / "T" / "0" / name
    stray.write_bytes(bytes(FILE_SIZE))
    extent = only_extent(queues)
    assert extent[:4] == ("T", 0, 0, 1)
    assert extent.faults == (f"{stray} does not belong to the queue: no multiple of 100",)
    assert extent.strays == (stray,)


def test_a_folder_where_a_file_should_be_is_a_fault(tmp_path: Path) -> None:
    stray = tmp_path / "T" / "0" / file_name(0)
    stray.mkdir(parents=True)
    extent = only_extent(queue_files(tmp_path))
    assert extent.faults == (f"{stray} is no file",)
    assert extent.strays == (stray,)


@pytest.mark.parametrize(
    "name", ["x", "-1", "01", "+1", "1.0", "2147483648", "99999999999", "\u0661"]
)
def test_a_folder_that_is_no_queue_is_a_fault(tmp_path: Path, name: str) -> None:
    (tmp_path / "T" / name).mkdir(parents=True)
    extent = only_extent(queue_files(tmp_path))
    assert extent.queue_id == NO_QUEUE
    assert extent.faults == (f"{tmp_path / 'T' / name} has a name that no queue can have",)
    assert extent.strays == (tmp_path / "T" / name,)


def test_files_where_folders_should_be_are_faults(tmp_path: Path) -> None:
    (tmp_path / "T").mkdir()
    (tmp_path / "T" / "0").write_bytes(b"file")
    (tmp_path / "U").write_bytes(b"file")
    first, second = queue_files(tmp_path).extents()
    assert (first.topic, first.queue_id) == ("T", NO_QUEUE)
    assert first.faults == (f"{tmp_path / 'T' / '0'} is no folder of a queue",)
    assert second.faults == (f"{tmp_path / 'U'} is no folder of a topic",)
    assert second.strays == (tmp_path / "U",)


def test_a_topic_folder_whose_name_is_not_text_is_a_fault(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/\xff\xfe")
    extent = only_extent(queue_files(tmp_path))
    assert extent.queue_id == NO_QUEUE
    assert extent.faults[0].endswith("has a name that no topic can have")


def test_the_size_of_a_folders_files_is_the_one_most_of_them_have(tmp_path: Path) -> None:
    queues = queue_files(tmp_path)
    queues.write("T", 0, 0, entries(12))
    (tmp_path / "T" / "0" / file_name(100)).write_bytes(bytes(60))
    (tmp_path / "T" / "0" / file_name(300)).write_bytes(bytes(30))
    (tmp_path / "T" / "1").mkdir()
    (tmp_path / "T" / "1" / file_name(0)).write_bytes(b"")
    (tmp_path / "T" / "1" / "notes").write_bytes(bytes(20))
    (tmp_path / "U").write_bytes(b"")
    assert file_size_in(SystemFiles(), tmp_path) == FILE_SIZE


def test_a_folder_that_the_disk_refuses_to_list_is_no_stray(tmp_path: Path) -> None:
    class RefusingFiles(SystemFiles):
        def listing(self, path: AnyPath) -> list[tuple[str, int]] | None:
            if Path(path).name == "0":
                raise StoreError("cannot list it")
            return super().listing(path)

    queue_files(tmp_path).write("T", 0, 0, entries(1))
    with pytest.raises(StoreError, match="cannot list it"):
        list(QueueFiles(RefusingFiles(), tmp_path, FILE_SIZE).extents())


# --- Searching ---


def linear_end(data: bytes, log_offset: int) -> int:
    for place, (entry_offset, size, _) in enumerate(ENTRY.iter_unpack(data)):
        if size <= 0 or entry_offset >= log_offset:
            return place
    return len(data) // ENTRY_SIZE


@settings(deadline=None)
@given(
    first_file=st.integers(0, 3),
    steps=st.lists(st.integers(1, 50), max_size=1_200),
    file_count=st.sampled_from([1, 2, 5, 300]),
    asked=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
)
def test_the_end_before_a_log_offset_is_that_of_a_walk(
    first_file: int, steps: list[int], file_count: int, asked: list[int]
) -> None:
    """Files of one entry up to more than a page, queues of one file and of many."""
    files = MemoryFiles(ROOT)
    per_file = max(1, len(steps) // file_count)
    queues = QueueFiles(files, ROOT, per_file * ENTRY_SIZE)
    first = first_file * per_file
    log_offset, data = 0, b""
    for step in steps:
        log_offset += step
        data += ENTRY.pack(log_offset, step, 0)
    queues.write("T", 0, first, data or bytes(ENTRY_SIZE))
    extent = only_extent(queues)
    for at in (*asked, log_offset, log_offset + 1):
        expected = first + linear_end(data, at)
        assert queues.end_before(extent, at) == expected
        assert queues.first_from(extent, at) == expected
        bounds = QueueRange("T", 0, first, first + len(data) // ENTRY_SIZE)
        assert queues.first_from(bounds, at) == expected


@settings(deadline=None)
@given(total=st.integers(0, 600), wanted=st.integers(0, 600))
def test_the_end_inside_a_page_is_found_wherever_it_lies(total: int, wanted: int) -> None:
    queues = QueueFiles(MemoryFiles(ROOT), ROOT, 20_000)
    queues.write("T", 0, 0, entries(total) or bytes(ENTRY_SIZE))
    found = queues.end_before(only_extent(queues), 1000 + 100 * wanted)
    assert found == min(total, wanted)


def test_a_search_inside_bounds_stays_there() -> None:
    _, queues = in_memory()
    queues.write("T", 0, 0, entries(20))
    assert queues.first_from(QueueRange("T", 0, 4, 9), 0) == 4
    assert queues.first_from(QueueRange("T", 0, 4, 9), 10**9) == 9
    assert queues.first_from(QueueRange("T", 0, 4, 9), 1_650) == 7


def test_fillers_of_a_lost_beginning_are_before_the_first_record() -> None:
    _, queues = in_memory()
    filler = ENTRY.pack(0, HOLE_SIZE, 0)
    queues.write("T", 0, 0, filler * 7 + entries(3, 7))
    assert queues.first_from(only_extent(queues), 0) == 7
    assert queues.end_before(only_extent(queues), 10**9) == 10


def test_a_big_queue_is_searched_with_few_reads(tmp_path: Path) -> None:
    reads: list[int] = []

    class CountingFiles(SystemFiles):
        def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
            reads.append(size)
            return super().read_at(path, position, size)

    queues = QueueFiles(CountingFiles(), tmp_path, 6_000_000)
    queues.write("T", 0, 0, entries(250_000))
    extent = only_extent(queues)
    assert queues.end_before(extent, 1000 + 100 * 123_456) == 123_456
    assert len(reads) < 40
    assert max(reads) <= 4_096
    reads.clear()
    assert queues.end_before(extent, 1000 + 100 * 150) == 150
    assert len(reads) == 1
    queues.close()


def test_a_search_that_meets_a_missing_file_ends_there() -> None:
    files = MemoryFiles(ROOT)
    queues = QueueFiles(files, ROOT, 8_000)
    queues.write("T", 0, 0, entries(1_200))
    extent = only_extent(queues)
    files.remove(ROOT / "T" / "0" / file_name(8_000))
    assert queues.first_from(extent, 10**9) == 400


def test_a_read_that_the_disk_refuses_is_no_end() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(3))
    extent = only_extent(queues)
    files.fail("read")
    with pytest.raises(ReadFailed):
        queues.end_before(extent, 10**9)


# --- Cutting and expiring ---


@settings(deadline=None)
@given(
    total=st.integers(1, 23), end=st.integers(0, 23), is_thorough=st.booleans(), again=st.booleans()
)
def test_behind_a_cut_are_zeros_and_no_files(
    total: int, end: int, is_thorough: bool, again: bool
) -> None:
    end = min(end, total)
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(total))
    for _ in range(1 + again):
        queues.cut("T", 0, end, is_thorough=is_thorough)
    contents = files.contents()
    assert b"".join(contents[path] for path in sorted(contents)).rstrip(b"\0") == entries(
        end
    ).rstrip(b"\0")
    assert {len(data) for data in contents.values()} == {FILE_SIZE}
    assert len(contents) <= end // PER_FILE + 1
    assert queues.end_before(only_extent(queues), 10**9) == end
    queues.write("T", 0, end, entries(4, end))
    assert read_all(queues, "T", 0, end + 4) == entries(end + 4)


def test_a_thorough_cut_finds_what_lies_behind_zeros() -> None:
    files = MemoryFiles(ROOT)
    queues = QueueFiles(files, ROOT, 6_000_000)
    queues.write("T", 0, 0, entries(10))
    queues.write("T", 0, 100_000, entries(1))
    queues.cut("T", 0, 10)
    path = ROOT / "T" / "0" / file_name(0)
    assert files.contents()[path].rstrip(b"\0").endswith(entries(1).rstrip(b"\0"))
    queues.cut("T", 0, 10, is_thorough=True)
    assert files.contents()[path] == entries(10) + bytes(6_000_000 - 200)


def test_a_sound_queue_is_not_touched_by_a_cut() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(8))
    count = len(files.ops)
    queues.cut("T", 0, 8)
    queues.cut("T", 1, 0)
    assert len(files.ops) == count


def test_a_sound_queue_is_not_touched_by_a_thorough_cut() -> None:
    """After a power cut every queue is looked at: to cut and sync them all would take minutes."""
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(8))
    queues.write("U", 0, 0, entries(PER_FILE))
    count = len(files.ops)
    for extent, end in zip(queues.extents(), (8, PER_FILE), strict=True):
        queues.cut(extent.topic, 0, end, known=extent, is_thorough=True)
    assert len(files.ops) == count


@pytest.mark.parametrize("end", [0, 3, 5, 7, 10])
def test_a_cut_that_knows_the_files_removes_the_later_ones(end: int) -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(18))
    queues.cut("T", 0, end, known=only_extent(queues))
    assert queues.end_before(only_extent(queues), 10**9) == end
    assert len(files.contents()) == end // PER_FILE + 1


def test_a_file_without_length_is_lengthened_by_a_thorough_cut() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(PER_FILE))
    last = ROOT / "T" / "0" / file_name(FILE_SIZE)
    files.put(last, b"")
    queues.cut("T", 0, PER_FILE, known=only_extent(queues), is_thorough=True)
    assert files.contents()[last] == bytes(FILE_SIZE)


def test_a_cut_is_on_the_disk_after_a_sync() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(18))
    queues.sync()
    queues.cut("T", 0, 7)
    queues.sync()
    left = files.image(len(files.ops), nothing())
    assert sorted(left.contents()) == sorted(files.contents())
    assert left.contents() == files.contents()


@settings(deadline=None)
@given(total=st.integers(1, 30), min_log_offset=st.integers(900, 4_500))
def test_files_expire_when_all_their_records_are_gone_and_never_the_last(
    total: int, min_log_offset: int
) -> None:
    _, queues = in_memory()
    queues.write("T", 0, 0, entries(total))
    expected = [
        ROOT / "T" / "0" / file_name(number * FILE_SIZE)
        for number in range((total - 1) // PER_FILE)
        if 1000 + 100 * (number * PER_FILE + PER_FILE - 1) < min_log_offset
    ]
    assert queues.expired("T", 0, min_log_offset) == expected


def test_a_cut_file_does_not_expire() -> None:
    files, queues = in_memory()
    queues.write("T", 0, 0, entries(12))
    files.resize(ROOT / "T" / "0" / file_name(0), 90)
    assert queues.expired("T", 0, 10**9) == []


def test_nothing_expires_where_nothing_is() -> None:
    _, queues = in_memory()
    assert queues.expired("T", 0, 10**9) == []


# --- The original's files ---


def test_the_originals_queues_have_no_faults_and_their_entries_are_found(tmp_path: Path) -> None:
    for name, data in store_files().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    folder = tmp_path / "consumequeue"
    assert file_size_in(SystemFiles(), folder) == QUEUE_FILE_SIZE
    queues = queue_files(folder, QUEUE_FILE_SIZE)
    ends: dict[tuple[str, int], int] = {}
    for entry in queue_entries():
        key = (entry.topic, entry.queue_id)
        ends[key] = max(ends.get(key, 0), entry.queue_offset + 1)
        read = queues.read_cold(entry.topic, entry.queue_id, entry.queue_offset, 1)
        assert ENTRY.unpack(read)[:2] == (entry.log_offset, entry.size)
    extents = list(queues.extents())
    assert [extent.faults for extent in extents] == [()] * len(extents)
    found = {(one.topic, one.queue_id): queues.end_before(one, 1 << 62) for one in extents}
    assert {key: end for key, end in found.items() if end} == ends
