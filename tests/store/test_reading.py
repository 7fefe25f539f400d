"""Cold reading: the same answers as the hot path gives, and none that is not checked.

Method: made-up stores in memory compared with the hot path or with a plain walk; the original's
folder read message by message; damage, holes, removed files and refused reads one by one.
"""

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.core import PullStatus, Queue, gather
from orbitmq.core.state import ENTRY
from orbitmq.errors import ReadFailed
from orbitmq.store.consume_queue import QueueFiles
from orbitmq.store.layout import Folder, file_name
from orbitmq.store.queue_ext import ADDRESS_MAX, ExtraUnits
from orbitmq.store.reading import (
    NO_TIME,
    ColdLimits,
    ColdReader,
    EntryFilter,
    earliest_store_ms,
    gather_cold,
    min_offsets,
    offset_by_time,
    record_by_offset,
    snapshot,
)
from orbitmq.wire.record import decode_record, scan_records
from orbitmq.world.files import AnyPath, SystemFiles
from tests.golden.store import (
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
    QueueEntry,
    log_files,
    queue_entries,
    store_files,
    stored_records,
)
from tests.store.cold_store import ColdStore, Message, cold_reader
from tests.world.memory_files import MemoryFiles

WIDE = ColdLimits(count_max=32, bytes_max=262_144)


def bodies(parts: list[memoryview]) -> list[bytes]:
    return [record.body for record in scan_records(b"".join(parts))]


def numbered(count: int) -> list[Message]:
    return [Message(b"body %d" % n, store_ms=1000 + n) for n in range(count)]


# --- By queue offset ---


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2)), max_size=60),
    in_memory=st.integers(0, 60),
    asked=st.integers(0, 62),
    count_max=st.integers(1, 40),
    codes=st.none() | st.frozensets(st.integers(0, 2)),
)
def test_cold_and_hot_give_the_same(
    sizes: list[tuple[int, int]],
    in_memory: int,
    asked: int,
    count_max: int,
    codes: frozenset[int] | None,
) -> None:
    messages = [Message(bytes(size), code=code) for size, code in sizes]
    store = ColdStore(messages, in_memory=min(in_memory, len(messages)))
    state = store.hot_state()
    state.pull_bytes_max = WIDE.bytes_max
    offset = asked
    for _ in range(10):
        hot = gather(state, store.queue, offset, count_max, codes)
        cold = gather_cold(
            store.reader, snapshot(store.queue), offset, count_max, EntryFilter(codes), WIDE
        )
        # A cold answer ends where a queue's file ends, but goes on over what it passed over.
        read, expected = b"".join(cold.parts), b"".join(hot.parts)
        assert expected.startswith(read) or read.startswith(expected)
        assert cold.size == sum(map(len, cold.parts))
        if codes is None:
            assert cold.status == hot.status
            assert cold.next_offset <= hot.next_offset
            assert expected.startswith(read)
        offset = cold.next_offset


@pytest.mark.parametrize(
    ("offset", "min_offset", "count", "status", "next_offset"),
    [
        (0, 0, 0, PullStatus.NO_MESSAGE_IN_QUEUE, 0),
        (5, 0, 5, PullStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, 0, 5, PullStatus.OFFSET_OVERFLOW_BADLY, 5),
        (1, 2, 5, PullStatus.OFFSET_TOO_SMALL, 2),
        (2, 2, 5, PullStatus.FOUND, 5),
    ],
)
def test_offsets_outside_are_answered_as_by_the_hot_path(
    offset: int, min_offset: int, count: int, status: PullStatus, next_offset: int
) -> None:
    store = ColdStore(numbered(count))
    store.queue.min_offset = min_offset
    found = gather_cold(store.reader, snapshot(store.queue), offset, 32)
    assert (found.status, found.next_offset) == (status, next_offset)
    hot = gather(store.hot_state(), store.queue, offset, 32, None)
    assert (hot.status, hot.next_offset) == (status, next_offset)


def test_an_answer_from_the_disk_has_eight_messages_at_most() -> None:
    store = ColdStore(numbered(10))
    found = gather_cold(store.reader, snapshot(store.queue), 0, 32)
    assert (found.next_offset, len(bodies(found.parts))) == (8, 8)
    found = gather_cold(store.reader, snapshot(store.queue), 0, 3)
    assert bodies(found.parts) == [b"body 0", b"body 1", b"body 2"]


def test_an_answer_from_the_disk_has_64_kib_at_most_but_always_one_message() -> None:
    big = [Message(bytes(100_000)), Message(bytes(40_000)), Message(bytes(40_000))]
    store = ColdStore(big, log_size=1 << 20)
    ends = [gather_cold(store.reader, snapshot(store.queue), n, 32).next_offset for n in range(3)]
    assert ends == [1, 2, 3]


def test_entries_in_memory_and_in_files_are_one_row() -> None:
    store = ColdStore(numbered(9), in_memory=4)
    found = gather_cold(store.reader, snapshot(store.queue, 3, 32), 3, 32)
    assert bodies(found.parts) == [b"body %d" % n for n in range(3, 9)]
    found = gather_cold(store.reader, snapshot(store.queue, 7, 32), 7, 32)
    assert bodies(found.parts) == [b"body 7", b"body 8"]


def test_a_snapshot_stays_as_it_was_and_copies_no_more_than_asked() -> None:
    store = ColdStore(numbered(9), in_memory=6)
    view = snapshot(store.queue, 5, 2)
    assert (view.base_offset, len(view.entries)) == (5, 40)
    everything = snapshot(store.queue)
    store.queue.entries.clear()
    store.queue.base_offset = 9
    assert len(everything.entries) == 6 * 20
    assert len(bodies(gather_cold(store.reader, everything, 4, 32).parts)) == 5
    assert snapshot(store.queue).entries == b""


def test_what_is_not_readable_yet_is_not_in_a_snapshot() -> None:
    store = ColdStore(numbered(5), in_memory=5)
    store.queue.readable_offset = 3
    assert len(snapshot(store.queue).entries) == 60
    found = gather_cold(store.reader, snapshot(store.queue), 0, 32)
    assert found.next_offset == 3


def test_neighbours_are_read_with_one_read(tmp_path: Path) -> None:
    store = ColdStore(numbered(8), log_size=4_096)
    reads: list[AnyPath] = []

    class CountingFiles(MemoryFiles):
        def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
            reads.append(path)
            return store.files.read_at(path, position, size)

    reader = cold_reader(CountingFiles(tmp_path), store.folder, 4_096, store.queue_files)
    assert len(bodies(gather_cold(reader, snapshot(store.queue), 0, 8).parts)) == 8
    assert len(reads) == 1


def log_reads(store: ColdStore) -> list[AnyPath]:
    """Count from now on which log files are read: the list grows with each read."""
    reads: list[AnyPath] = []

    class CountingFiles(MemoryFiles):
        def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
            reads.append(path)
            return store.files.read_at(path, position, size)

    files = CountingFiles(store.folder.root)
    store.reader = cold_reader(files, store.folder, store.log_size, store.queue_files)
    return reads


def test_messages_of_other_tags_are_passed_over_without_a_read_of_the_log() -> None:
    store = ColdStore([Message(b"x", code=n % 3) for n in range(9)])
    reads = log_reads(store)
    found = gather_cold(store.reader, snapshot(store.queue), 0, 32, EntryFilter(frozenset({7})))
    assert (found.status, found.next_offset, reads) == (PullStatus.NO_MATCHED_MESSAGE, 9, [])


def test_the_offset_by_time_is_found_with_few_reads() -> None:
    """A binary search: 10,000 messages cost about 14 looks, not 10,000."""
    store = ColdStore([Message(b"b", store_ms=n) for n in range(10_000)], log_size=1 << 21)
    reads = log_reads(store)
    assert offset_by_time(store.reader, snapshot(store.queue), 7_777) == 7_777
    assert len(reads) <= 40


def test_records_are_found_behind_removed_files_and_none_in_them_or_outside() -> None:
    store = ColdStore([Message(bytes(300)) for _ in range(20)])
    end = len(store.log)
    for start in (0, 1_000):
        store.files.remove(store.log_path(start))
    for place, record in zip(store.places, store.records, strict=True):
        expected = record if place >= 2_000 else None
        assert record_by_offset(store.reader, place, end) == expected
    assert record_by_offset(store.reader, end + 5_000, end + 10_000) is None


def test_holes_are_passed_over_and_not_counted_as_damage() -> None:
    hole = Message(None)
    store = ColdStore([hole, hole, Message(b"a"), hole, Message(b"b"), hole])
    found = gather_cold(store.reader, snapshot(store.queue), 0, 32)
    assert (bodies(found.parts), found.next_offset) == ([b"a", b"b"], 6)
    found = gather_cold(store.reader, snapshot(store.queue), 5, 32)
    assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 6)
    assert store.reader.damaged == 0


def test_a_look_goes_over_800_entries_and_no_more() -> None:
    store = ColdStore([Message(None)] * 2_000)
    view = snapshot(store.queue)._replace(
        base_offset=0, entries=ENTRY.pack(0, 0x7FFFFFFF, 0) * 2_000
    )
    found = gather_cold(store.reader, view, 0, 32)
    assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 800)


@pytest.mark.parametrize("at", [0, 4, 8, 20 + 15, 88])
def test_a_damaged_record_is_passed_over_and_counted_once(at: int) -> None:
    """Size, magic, CRC, own offset and body each give it away."""
    store = ColdStore(numbered(6))
    store.damage(store.places[2] + at)
    for _ in range(2):
        found = gather_cold(store.reader, snapshot(store.queue), 0, 32)
        assert bodies(found.parts) == [b"body %d" % n for n in (0, 1, 3, 4, 5)]
        assert found.next_offset == 6
    assert store.reader.damaged == 1


def test_behind_damage_an_answer_is_filled_up() -> None:
    store = ColdStore(numbered(20))
    for number in range(5):
        store.damage(store.places[number] + 8)
    found = gather_cold(store.reader, snapshot(store.queue), 0, 32)
    assert bodies(found.parts) == [b"body %d" % n for n in range(5, 10)]
    assert found.next_offset == 10  # a queue's file ends there


@pytest.mark.parametrize(
    "entry",
    [(0, 0x7FFFFFFE, 0), (0, -5, 0), (-8, 100, 0), (0, 50, 0), (3, 100, 0), (0, 101, 0)],
)
def test_an_entry_that_leads_to_no_record_is_passed_over(entry: tuple[int, int, int]) -> None:
    store = ColdStore(numbered(3))
    store.queue_files.write("T", 0, 1, ENTRY.pack(*entry))
    found = gather_cold(store.reader, snapshot(store.queue), 0, 32)
    assert bodies(found.parts) == [b"body 0", b"body 2"]
    assert store.reader.damaged == 1


def test_a_cut_log_file_is_damage_behind_its_end_only() -> None:
    store = ColdStore(numbered(6))
    store.files.resize(store.log_path(0), store.places[2] + 30)
    found = gather_cold(store.reader, snapshot(store.queue), 0, 32)
    assert bodies(found.parts) == [b"body 0", b"body 1"]


def test_a_refused_read_is_raised_and_passes_nothing_over() -> None:
    store = ColdStore(numbered(3), in_memory=3)
    store.files.fail("read")
    with pytest.raises(ReadFailed):
        gather_cold(store.reader, snapshot(store.queue), 0, 32)
    assert store.reader.damaged == 0
    assert len(bodies(gather_cold(store.reader, snapshot(store.queue), 0, 32).parts)) == 3


def test_where_a_log_file_is_gone_the_next_file_is_where_to_go_on() -> None:
    store = ColdStore([Message(bytes(300)) for _ in range(20)], in_memory=5)
    second_file = next(n for n, at in enumerate(store.places) if at >= 1_000)
    third_file = next(n for n, at in enumerate(store.places) if at >= 2_000)
    store.files.remove(store.log_path(1_000))
    before = gather_cold(store.reader, snapshot(store.queue), 0, 32)
    assert (before.status, before.next_offset) == (PullStatus.FOUND, second_file)
    for offset in range(second_file, third_file):
        gone = gather_cold(store.reader, snapshot(store.queue), offset, 32)
        assert (gone.status, gone.next_offset) == (PullStatus.MESSAGE_WAS_REMOVING, third_file)
        assert gone.parts == []


def test_a_small_snapshot_does_to_go_on_behind_a_removed_file() -> None:
    store = ColdStore([Message(bytes(300)) for _ in range(20)], in_memory=20)
    third_file = next(n for n, at in enumerate(store.places) if at >= 2_000)
    store.files.remove(store.log_path(0))
    store.files.remove(store.log_path(1_000))
    offset = 0
    for _ in range(third_file):
        gone = gather_cold(store.reader, snapshot(store.queue, offset, 2), offset, 2)
        if gone.status is PullStatus.FOUND:
            break
        assert gone.status is PullStatus.MESSAGE_WAS_REMOVING
        assert offset < gone.next_offset <= third_file
        offset = gone.next_offset
    assert offset == third_file


def test_where_all_log_files_are_gone_the_end_is_where_to_go_on() -> None:
    store = ColdStore(numbered(5))
    store.files.remove(store.log_path(0))
    gone = gather_cold(store.reader, snapshot(store.queue), 1, 32)
    assert (gone.status, gone.next_offset) == (PullStatus.MESSAGE_WAS_REMOVING, 5)


def test_where_a_queue_file_is_missing_the_next_one_is_where_to_go_on() -> None:
    store = ColdStore(numbered(25), in_memory=2)
    store.files.remove(store.folder.queues / "T" / "0" / file_name(200))
    found = gather_cold(store.reader, snapshot(store.queue), 13, 32)
    assert (found.status, found.next_offset) == (PullStatus.OFFSET_FOUND_NULL, 20)
    store.files.remove(store.folder.queues / "T" / "0" / file_name(400))
    found = gather_cold(store.reader, snapshot(store.queue), 21, 32)
    assert (found.status, found.next_offset) == (PullStatus.OFFSET_FOUND_NULL, 23)


def test_a_second_filter_sees_the_record_and_lets_it_pass_or_not() -> None:
    store = ColdStore([Message(b"x%d" % n, code=n % 2) for n in range(10)])

    def is_wanted(record: memoryview) -> bool:
        return int(decode_record(record)[0].body[1:]) % 3 == 0

    found = gather_cold(
        store.reader, snapshot(store.queue), 0, 32, EntryFilter(frozenset({1}), is_wanted)
    )
    assert bodies(found.parts) == [b"x3", b"x9"]
    found = gather_cold(store.reader, snapshot(store.queue), 0, 1, EntryFilter(accepts=is_wanted))
    assert (bodies(found.parts), found.next_offset) == ([b"x0"], 1)
    found = gather_cold(
        store.reader, snapshot(store.queue), 0, 32, EntryFilter(accepts=lambda _: False)
    )
    assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 10)


# --- The original's folder ---


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> ColdReader:
    root = tmp_path_factory.mktemp("golden")
    for name, data in store_files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    folder, files = Folder(root), SystemFiles()
    queue_files = QueueFiles(files, folder.queues, QUEUE_FILE_SIZE)
    return cold_reader(files, folder, LOG_FILE_SIZE, queue_files)


def golden_queues(reader: ColdReader) -> dict[Queue, list[QueueEntry]]:
    by_key: dict[tuple[str, int], list[QueueEntry]] = defaultdict(list)
    for entry in queue_entries():
        by_key[entry.topic, entry.queue_id].append(entry)
    return {
        Queue(topic, queue_id, len(entries)): entries
        for (topic, queue_id), entries in by_key.items()
    }


def test_every_message_of_the_originals_queues_is_read(golden: ColdReader) -> None:
    log = dict(log_files())
    expected = {record["offset"]: record for record in stored_records()}
    seen = 0
    for queue, entries in golden_queues(golden).items():
        offset, data = 0, b""
        while offset < queue.readable_offset:
            found = gather_cold(golden, snapshot(queue, offset, 32), offset, 32)
            assert found.status is PullStatus.FOUND
            assert offset < found.next_offset <= offset + 8
            data += b"".join(found.parts)
            offset = found.next_offset
        stored = []
        for entry in entries:
            start = entry.log_offset // LOG_FILE_SIZE * LOG_FILE_SIZE
            at = entry.log_offset - start
            stored.append(log[start][at : at + entry.size])
        assert data == b"".join(stored)
        for entry, record in zip(entries, scan_records(data), strict=True):
            told = expected[entry.log_offset]
            assert (record.topic, record.queue_offset) == (told["topic"], told["queue_offset"])
            assert (record.crc, record.store_ms) == (told["body_crc"], told["store_timestamp"])
            seen += 1
    assert seen == sum(1 for _ in queue_entries()) > 2_000
    assert golden.damaged == 0


def test_every_record_of_the_original_is_found_by_its_log_offset(golden: ColdReader) -> None:
    end = max(record["offset"] + record["size"] for record in stored_records())
    for told in stored_records():
        data = record_by_offset(golden, told["offset"], end)
        assert data is not None
        assert len(data) == told["size"]
        assert decode_record(data)[0].log_offset == told["offset"]
        assert record_by_offset(golden, told["offset"] + 1, end) is None


def test_tags_behind_extra_units_filter_as_tags_do(golden: ColdReader) -> None:
    filtered = 0
    for queue, entries in golden_queues(golden).items():
        raw = [
            ENTRY.unpack(golden.queue_files.read_cold(queue.topic, queue.queue_id, n, 1))[2]
            for n in range(queue.readable_offset)
        ]
        if max(raw) > ADDRESS_MAX:
            continue
        for code in {entry.tag_code for entry in entries}:
            wanted = [entry.log_offset for entry in entries if entry.tag_code == code]
            chosen = EntryFilter(frozenset({code}))
            view = snapshot(queue)
            offset, found_at = 0, []
            while offset < queue.readable_offset:
                found = gather_cold(golden, view, offset, 32, chosen)
                found_at += [one.log_offset for one in scan_records(b"".join(found.parts))]
                offset = found.next_offset
            assert found_at == wanted
            filtered += 1
    assert filtered > 10


def test_extra_units_that_cannot_be_read_let_the_entry_pass(golden: ColdReader) -> None:
    queue = next(one for one in golden_queues(golden) if one.topic == "TopicA")
    bare = Folder(Path("/none"))
    reader = cold_reader(SystemFiles(), bare, LOG_FILE_SIZE, golden.queue_files)
    none = frozenset({123_456_789})
    assert gather_cold(golden, snapshot(queue), 0, 8, EntryFilter(none)).parts == []
    found = gather_cold(reader, snapshot(queue), 0, 8, EntryFilter(none))
    assert found.status is PullStatus.MESSAGE_WAS_REMOVING  # chosen, but this folder has no log


def test_an_address_that_is_no_unit_is_none() -> None:
    files = MemoryFiles(Path("/ext"))
    unit = bytes.fromhex("0016 0000000000000007 0000000000000009 0002 ffff")
    short = bytes.fromhex("0014 0000000000000008 0000000000000009 0002 ffff")
    files.put(Path("/ext") / file_name(0), unit + short + bytes(56))
    files.put(Path("/ext") / file_name(100), unit)
    files.put(Path("/ext") / "notes", unit)
    units = ExtraUnits(files, Path("/ext"))
    base = -(2**63)
    assert units.tags_code(base) == 7
    assert units.tags_code(base + 22) is None
    assert units.tags_code(base + 60) is None
    assert units.tags_code(base + 95) is None
    assert units.tags_code(base + 100) == 7
    assert units.tags_code(base + 10**15) is None
    assert units.tags_code(base - 1) is None
    files.fail("read")
    assert units.tags_code(base) is None


# --- By log offset ---


def test_no_record_is_given_past_what_may_be_seen() -> None:
    store = ColdStore(numbered(3))
    end = len(store.log)
    assert record_by_offset(store.reader, store.places[2], end) == store.records[2]
    assert record_by_offset(store.reader, store.places[2], end - 1) is None
    assert record_by_offset(store.reader, end, end) is None
    assert record_by_offset(store.reader, -1, end) is None
    assert record_by_offset(store.reader, 10**12, 10**13) is None


def test_any_place_may_be_asked_for_and_only_records_are_given() -> None:
    store = ColdStore([Message(bytes(300)) for _ in range(6)])
    end = len(store.log)
    given_at = [at for at in range(end) if record_by_offset(store.reader, at, end) is not None]
    assert given_at == store.places
    assert store.reader.damaged == 0


def test_a_damaged_record_is_not_given() -> None:
    store = ColdStore(numbered(3))
    store.damage(store.places[1] + 90)
    assert record_by_offset(store.reader, store.places[1], len(store.log)) is None


@settings(deadline=None)
@given(
    count=st.integers(0, 45),
    in_memory=st.integers(0, 45),
    min_offset=st.integers(0, 45),
    first_log_offset=st.integers(0, 9_000),
)
def test_min_offsets_follow_the_logs_first_record(
    count: int, in_memory: int, min_offset: int, first_log_offset: int
) -> None:
    store = ColdStore([Message(bytes(50)) for _ in range(count)], in_memory=min(in_memory, count))
    store.queue.min_offset = min_offset = min(min_offset, count)
    due = max(min_offset, sum(at < first_log_offset for at in store.places))
    moved = min_offsets(store.reader, [snapshot(store.queue)], first_log_offset)
    assert moved == ({} if due == min_offset else {("T", 0): due})


# --- By time ---


def nearest(times: list[tuple[int, int]], asked: int) -> int:
    """The rule of the original, by a walk over (offset, time) of what can be read."""
    newer = next((one for one in times if one[1] >= asked), None)
    older = next((one for one in reversed(times) if one[1] < asked), None)
    if newer is None:
        return older[0] if older else 0
    if older is None or newer[1] == asked:
        return newer[0]
    return older[0] if asked - older[1] <= newer[1] - asked else newer[0]


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from([0, 0, 1, 2, 7]), st.booleans()), max_size=40),
    in_memory=st.integers(0, 40),
    damaged=st.sets(st.integers(0, 39), max_size=5),
)
def test_the_offset_by_time_is_the_nearest_as_a_walk_finds_it(
    steps: list[tuple[int, bool]], in_memory: int, damaged: set[int]
) -> None:
    messages, time_ms = [], 100
    for step, is_hole in steps:
        time_ms += step
        messages.append(Message(None if is_hole else b"b", store_ms=time_ms))
    store = ColdStore(messages, in_memory=min(in_memory, len(messages)))
    damaged = {n for n in damaged if n < len(messages) and messages[n].body is not None}
    for number in damaged:
        store.damage(store.places[number] + 8)
    times = [
        (n, message.store_ms)
        for n, message in enumerate(messages)
        if message.body is not None and n not in damaged
    ]
    for asked in range(95, time_ms + 5):
        assert offset_by_time(store.reader, snapshot(store.queue), asked) == nearest(times, asked)


@settings(deadline=None)
@given(times=st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_the_offset_by_time_never_goes_back_though_the_clock_did(times: list[int]) -> None:
    """T12: the original's store times may go back with its clock."""
    store = ColdStore([Message(b"b", store_ms=time_ms) for time_ms in times])
    view = snapshot(store.queue)
    found = [offset_by_time(store.reader, view, asked) for asked in range(-1, 32)]
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] < len(times)


def test_time_before_all_after_all_and_of_an_empty_queue() -> None:
    store = ColdStore([Message(b"b", store_ms=1_000 + 10 * n) for n in range(10)])
    view = snapshot(store.queue)
    assert offset_by_time(store.reader, view, 0) == 0
    assert offset_by_time(store.reader, view, 10**13) == 9
    assert offset_by_time(store.reader, view, 1_024) == 2
    assert offset_by_time(store.reader, view, 1_025) == 2
    assert offset_by_time(store.reader, view, 1_026) == 3
    assert offset_by_time(store.reader, view._replace(min_offset=4), 0) == 4
    assert offset_by_time(store.reader, view._replace(min_offset=10), 0) == 10
    assert offset_by_time(ColdStore([]).reader, snapshot(ColdStore([]).queue), 5) == 0


def test_messages_whose_log_file_is_gone_are_older_than_all() -> None:
    store = ColdStore([Message(bytes(300), store_ms=100 + n) for n in range(9)])
    second = next(n for n, at in enumerate(store.places) if at >= 1_000)
    store.files.remove(store.log_path(0))
    view = snapshot(store.queue)
    assert offset_by_time(store.reader, view, 0) == second
    assert earliest_store_ms(store.reader, view) == 100 + second


def test_times_are_found_behind_a_missing_queue_file() -> None:
    store = ColdStore([Message(b"b", store_ms=100 + n) for n in range(25)])
    store.files.remove(store.folder.queues / "T" / "0" / file_name(0))
    view = snapshot(store.queue)
    assert earliest_store_ms(store.reader, view) == 110
    assert offset_by_time(store.reader, view, 0) == 10


def test_the_earliest_time_is_found_behind_a_gap_in_the_log() -> None:
    store = ColdStore([Message(bytes(300), store_ms=100 + n) for n in range(12)])
    third_file = next(n for n, at in enumerate(store.places) if at >= 2_000)
    store.files.remove(store.log_path(1_000))
    view = snapshot(store.queue)._replace(min_offset=2)
    assert store.places[2] >= 1_000
    assert earliest_store_ms(store.reader, view) == 100 + third_file


def test_damage_is_counted_up_to_a_limit() -> None:
    store = ColdStore([])
    for place in range(10_100):
        store.reader.note_damaged(place)
    assert store.reader.damaged == 10_000


def test_the_earliest_time_of_a_queue() -> None:
    store = ColdStore([Message(None), Message(b"b", store_ms=8), Message(b"c", store_ms=9)])
    view = snapshot(store.queue)
    assert earliest_store_ms(store.reader, view) == 8
    assert earliest_store_ms(store.reader, view._replace(min_offset=2)) == 9
    assert earliest_store_ms(store.reader, view._replace(min_offset=3)) == NO_TIME
    assert earliest_store_ms(store.reader, snapshot(ColdStore([]).queue)) == NO_TIME


def test_a_long_damaged_stretch_does_not_hold_up_a_look_by_time() -> None:
    store = ColdStore([Message(b"b", store_ms=n) for n in range(2_000)], log_size=1 << 20)
    store.files.put(store.log_path(0), bytes(store.log_size))
    assert earliest_store_ms(store.reader, snapshot(store.queue)) == NO_TIME
    assert store.reader.damaged == 800
    assert offset_by_time(store.reader, snapshot(store.queue), 1_000) == 0
