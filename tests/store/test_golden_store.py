"""Folders of Apache RocketMQ 4.9.8 under our store, and ours beside them.

Method: the recorded folders (clean stop, kill) are copied and opened by the real store on real
files. What it gives by queue, log offset, message id, key and time is compared with what was
written down when the store was recorded; the files it leaves are compared byte for byte. Then the
same records go through `core.append`, and the folder that ours writes is compared.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from orbitmq.core import (
    BatchColumns,
    BatchStamp,
    CoreState,
    Origin,
    PullStatus,
    Queue,
    Stamp,
    append,
    append_batch,
    gather,
)
from orbitmq.core.state import ENTRY
from orbitmq.store.options import StoreOptions
from orbitmq.store.queue_ext import ADDRESS_MAX
from orbitmq.store.reading import (
    EntryFilter,
    earliest_store_ms,
    gather_cold,
    offset_by_time,
    record_by_offset,
    snapshot,
)
from orbitmq.store.store import KeyQuery, Store
from orbitmq.wire.host import pack_host
from orbitmq.wire.message_id import decode_offset_id, encode_offset_id
from orbitmq.wire.record import Record, decode_record, scan_records
from orbitmq.world.files import SystemFiles
from tests.golden.store import (
    CLEAN,
    CRASHED,
    INDEX_ENTRY_COUNT,
    INDEX_SLOT_COUNT,
    LOG_FILE_SIZE,
    QUEUE_FILE_SIZE,
    described,
    queue_entries,
    store_files,
    stored_records,
    unpack_store,
)
from tests.store import slow_store
from tests.store.opened import flush, open_store, read_all, send
from tests.store.slow_store import Entry, Queues, Stored, blobs_of

BY_FILES = StoreOptions(index_slot_count=INDEX_SLOT_COUNT, index_entry_count=INDEX_ENTRY_COUNT)
"""Sizes of log and queue files are those of the files, whatever the settings say."""
AS_RECORDED = StoreOptions(
    log_file_size=LOG_FILE_SIZE,
    queue_file_size=QUEUE_FILE_SIZE,
    index_slot_count=INDEX_SLOT_COUNT,
    index_entry_count=INDEX_ENTRY_COUNT,
)
FAR_MS = 2**62
WITH_BITS = {f"consumequeue/TopicA/{queue_id}/{0:020d}" for queue_id in (0, 2)}
"""Their extra units have bits of filters, which are not believed after an original was cut off."""
BOTH = pytest.mark.parametrize("name", [CLEAN, CRASHED])
OFF_TIMES_MS = (-5_000, -1, 0, 1, 5_000)
TURN_RECORDS = 7


@pytest.fixture
def root(tmp_path: Path, name: str) -> Path:
    unpack_store(name, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    opened = open_store(root, options=BY_FILES)
    yield opened
    opened.close()


def on_disk(root: Path) -> dict[str, bytes]:
    return blobs_of(SystemFiles(), root)


def part(blobs: dict[str, bytes], folder: str) -> dict[str, bytes]:
    return {path: data for path, data in blobs.items() if path.startswith(folder + "/")}


@cache
def golden_queues() -> Queues:
    """Every entry that the original's queues hold, codes resolved."""
    queues: Queues = {}
    for entry in queue_entries():
        queue = queues.setdefault((entry.topic, entry.queue_id), {})
        queue[entry.queue_offset] = Entry(entry.log_offset, entry.size, entry.tag_code)
    return queues


def record_of(store: Store, log_offset: int) -> tuple[Record, int]:
    data = record_by_offset(store.reader, log_offset, store.tail.visible_offset)
    assert data is not None
    return decode_record(data)


# --- What the store gives ---


@BOTH
def test_every_record_is_given_by_its_log_offset(store: Store) -> None:
    assert len(stored_records()) == 2_105
    for expected in stored_records():
        assert described(*record_of(store, expected["offset"])) == expected
    assert store.tail.end_offset == stored_records()[-1]["offset"] + stored_records()[-1]["size"]


@BOTH
def test_no_record_is_given_for_offsets_inside_records(store: Store) -> None:
    for expected in stored_records()[::50]:
        for inside in (1, 4, expected["size"] - 1):
            offset = expected["offset"] + inside
            assert record_by_offset(store.reader, offset, store.tail.visible_offset) is None


@BOTH
def test_every_record_is_given_by_its_message_id(store: Store) -> None:
    for expected in stored_records():
        record, _ = record_of(store, expected["offset"])
        message_id = encode_offset_id(record.store_host, record.log_offset)
        place = decode_offset_id(message_id)
        assert described(*record_of(store, place.log_offset)) == expected


def pulled(store: Store, queue: Queue) -> Iterator[Record]:
    """Every record of a queue, as consumers get them."""
    state = CoreState(store.tail, "c", "r")
    at = queue.min_offset
    while at < queue.readable_offset:
        found = gather(state, queue, at, 32, None)
        if found.status is PullStatus.COLD:
            found = gather_cold(store.reader, snapshot(queue), at, 32)
        assert found.status is PullStatus.FOUND
        yield from scan_records(b"".join(found.parts))
        at = found.next_offset


@BOTH
def test_every_queue_gives_its_records_in_order(store: Store) -> None:
    wanted: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for expected in stored_records():
        wanted.setdefault((expected["topic"], expected["queue_id"]), []).append(expected)
    sizes = {expected["offset"]: expected["size"] for expected in stored_records()}
    assert store.queue_counts().keys() == {topic for topic, _ in wanted}
    for (topic, queue_id), records in wanted.items():
        queue = store.find_queue(topic, queue_id)
        assert queue is not None
        assert (queue.min_offset, queue.next_offset) == (0, len(records))
        found = [described(record, sizes[record.log_offset]) for record in pulled(store, queue)]
        assert found == records


@BOTH
def test_every_queue_entry_is_the_recorded_one(store: Store) -> None:
    count = 0
    for (topic, queue_id), wanted in golden_queues().items():
        view = snapshot(store.queue(topic, queue_id))
        extras = store.reader.extras(view)
        for number, expected in wanted.items():
            log_offset, size, code = ENTRY.unpack(store.reader.entries(view, number, 1))
            resolved = extras.tags_code(code) if code <= ADDRESS_MAX else code
            assert Entry(log_offset, size, resolved or 0) == expected
            count += 1
    assert count == 2_105


@BOTH
def test_every_tag_leads_to_exactly_its_messages(store: Store) -> None:
    """Symptom: of entries whose code is an address, the hot path dropped the message of the tag."""
    state = CoreState(store.tail, "c", "r")
    for (topic, queue_id), entries in golden_queues().items():
        queue = store.queue(topic, queue_id)
        for code in {entry.code for entry in entries.values()}:
            chosen, found_at, at = frozenset({code}), [], 0
            while at < queue.readable_offset:
                found = gather(state, queue, at, 32, chosen)
                if found.status is PullStatus.COLD:
                    tags = EntryFilter(chosen)
                    found = gather_cold(store.reader, snapshot(queue), at, 32, tags)
                found_at += [record.log_offset for record in scan_records(b"".join(found.parts))]
                at = found.next_offset
            assert found_at == [e.log_offset for e in entries.values() if e.code == code]


def keys_of(record: dict[str, Any]) -> set[str]:
    properties = record["properties"]
    keys = {properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")}
    return keys - {""}


@cache
def records_by_key() -> dict[tuple[str, str], list[int]]:
    """Log offsets, newest first, by topic and key."""
    by_key: dict[tuple[str, str], list[int]] = {}
    for record in stored_records():
        for key in keys_of(record):
            by_key.setdefault((record["topic"], key), []).insert(0, record["offset"])
    return by_key


@BOTH
def test_every_key_leads_to_exactly_its_records(store: Store) -> None:
    by_offset = {record["offset"]: record for record in stored_records()}
    assert len(records_by_key()) > 2_000
    for (topic, key), wanted in records_by_key().items():
        found = store.lookup(KeyQuery(topic, key, 0, FAR_MS, 10_000))()
        assert found == sorted(set(found), reverse=True), "newest first, none twice"
        same = [
            offset
            for offset in found
            if by_offset[offset]["topic"] == topic and key in keys_of(by_offset[offset])
        ]
        assert same == wanted
        assert store.lookup(KeyQuery(topic, key, 0, FAR_MS, 1))() == found[:1]


@BOTH
def test_keys_are_looked_up_within_times(store: Store) -> None:
    """The original keeps seconds since a file's first entry: a second more may be among them."""
    times = {record["offset"]: record["store_timestamp"] for record in stored_records()}
    for topic, key in list(records_by_key())[::40]:
        everything = store.lookup(KeyQuery(topic, key, 0, FAR_MS, 10_000))()
        for begin_ms in {times[offset] for offset in everything}:
            found = store.lookup(KeyQuery(topic, key, begin_ms, begin_ms + 500, 10_000))()
            inside = {at for at in everything if begin_ms <= times[at] <= begin_ms + 500}
            assert inside <= set(found)
            assert all(begin_ms - 1_000 < times[at] < begin_ms + 1_500 for at in found)


def nearest(times: list[int], timestamp_ms: int) -> int:
    """The number of the message stored nearest to a time, the older of two as near."""
    newer = next((number for number, time in enumerate(times) if time >= timestamp_ms), len(times))
    if newer == 0 or newer == len(times):
        return max(0, newer - (newer == len(times)))
    is_older = timestamp_ms - times[newer - 1] <= times[newer] - timestamp_ms
    return newer - 1 if is_older else newer


@BOTH
def test_every_queue_finds_messages_by_time(store: Store) -> None:
    times: dict[tuple[str, int], list[int]] = {}
    for record in stored_records():
        times.setdefault((record["topic"], record["queue_id"]), []).append(
            record["store_timestamp"]
        )
    for (topic, queue_id), stored in times.items():
        view = snapshot(store.queue(topic, queue_id))
        asked = {time + off for time in stored[::10] for off in OFF_TIMES_MS}
        for timestamp_ms in asked:
            found = offset_by_time(store.reader, view, timestamp_ms)
            assert found == nearest(stored, timestamp_ms)
        assert earliest_store_ms(store.reader, view) == stored[0]


# --- What it leaves ---


@pytest.mark.parametrize("name", [CLEAN])
def test_a_clean_folder_that_ours_opens_and_closes_keeps_its_bytes(root: Path) -> None:
    store = open_store(root, options=BY_FILES)
    assert store.findings == []
    store.close()
    left = on_disk(root)
    before = store_files(CLEAN)
    changed = {path for path in before | left if before.get(path) != left.get(path)}
    assert changed <= {"checkpoint"}
    assert left["checkpoint"][24:64] == before["checkpoint"][24:64]


@pytest.mark.parametrize("name", [CRASHED])
def test_a_killed_folder_gets_exactly_what_was_missing(root: Path) -> None:
    store = open_store(root, options=BY_FILES)
    assert store.findings == []
    store.close()
    left, before = on_disk(root), store_files(CRASHED)
    assert part(left, "commitlog") == part(before, "commitlog")
    assert slow_store.queue_entries(left) == golden_queues()
    log = slow_store.assert_derived(left, INDEX_SLOT_COUNT)
    demanded = slow_store.build_index(log.records, INDEX_SLOT_COUNT, INDEX_ENTRY_COUNT)
    assert slow_store.index_files(left) == demanded
    assert "abort" not in left
    changed = {path for path in before | left if before.get(path) != left.get(path)}
    newest = max(part(before, "index"))
    assert changed == {
        "abort",
        "checkpoint",
        f"consumequeue/TopicFill/2/{8_000:020d}",
        newest,
        *WITH_BITS,
    }


@BOTH
def test_recovering_twice_changes_nothing(root: Path) -> None:
    open_store(root, options=BY_FILES).close()
    once = on_disk(root)
    for is_clean in (True, False, True):
        if not is_clean:
            (root / "abort").touch()
        store = open_store(root, options=BY_FILES)
        assert store.findings == []
        store.close()
        assert on_disk(root) == once


@BOTH
def test_recovery_without_our_marks_ends_the_same(root: Path) -> None:
    """As if the original had run in between: our block is void, its own stamps count."""
    open_store(root, options=BY_FILES).close()
    once = on_disk(root)
    for is_clean in (True, False):
        (root / "checkpoint").write_bytes(store_files(CRASHED)["checkpoint"])
        if not is_clean:
            (root / "abort").touch()
        open_store(root, options=BY_FILES).close()
        again = on_disk(root)
        changed = {path for path in once | again if once.get(path) != again.get(path)}
        assert changed - {"checkpoint"} <= (set() if is_clean else WITH_BITS)
        assert slow_store.queue_entries(again) == slow_store.queue_entries(once)


@BOTH
def test_appending_goes_on_behind_the_recorded_records(root: Path) -> None:
    store = open_store(root, options=BY_FILES)
    bodies = [b"ours %d" % number + bytes(3_000) for number in range(40)]
    send(store, 0, *bodies)
    end = store.tail.end_offset
    assert end > 1_835_008, "the log has rolled"
    store.close()
    store = open_store(root, options=BY_FILES)
    assert store.findings == []
    assert store.tail.end_offset == end
    assert read_all(store, 0) == bodies
    for expected in stored_records():
        assert described(*record_of(store, expected["offset"])) == expected
    store.close()
    left = on_disk(root)
    recorded_end = stored_records()[-1]["offset"] + stored_records()[-1]["size"]
    log = b"".join(data for _, data in slow_store.files_in(left, "commitlog"))
    before = b"".join(data for _, data in slow_store.files_in(store_files(CLEAN), "commitlog"))
    assert log[:recorded_end] == before[:recorded_end]
    slow_store.assert_derived(left, INDEX_SLOT_COUNT, may_repeat=is_filed_twice(left))


def is_filed_twice(blobs: dict[str, bytes]) -> bool:
    """Whether this is the folder whose last record the original indexed twice."""
    return blobs.keys() >= part(store_files(CLEAN), "index").keys()


# --- The same records through ours ---


@cache
def recorded() -> tuple[Stored, ...]:
    return tuple(slow_store.read_log(store_files(CLEAN)).records)


class RecordedWriter:
    """Appends records as their senders did, at the times that were recorded."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._origins: dict[tuple[bytes, bytes], Origin] = {}

    def append(self, stored: Stored) -> int:
        record = stored.record
        self._store.tail.store_ms = record.store_ms
        queue = self._store.queue(record.topic, record.queue_id)
        stamp = Stamp(
            record.flag,
            record.sys_flag,
            record.born_ms,
            record.reconsume_times,
            record.prepared_offset,
            slow_store.code_of(record),
        )
        origin = self._origin(record)
        return append(self._store.tail, queue, origin, stamp, record.body, record.properties)

    def _origin(self, record: Record) -> Origin:
        hosts = (pack_host(record.born_host), pack_host(record.store_host))
        return self._origins.setdefault(hosts, Origin(*hosts))


def write_as_recorded(root: Path, records: Iterable[Stored]) -> dict[str, bytes]:
    """Return the folder that ours writes of the records, closed cleanly."""
    store = open_store(root, options=AS_RECORDED)
    writer = RecordedWriter(store)
    for number, stored in enumerate(records):
        assert writer.append(stored) == stored.record.log_offset
        if number % TURN_RECORDS == 0:
            store.write_staged()
        if number % 500 == 0:
            flush(store, is_thorough=number % 1_000 == 0)
    store.write_staged()
    store.close()
    return on_disk(root)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return write_as_recorded(tmp_path_factory.mktemp("ours") / "store", recorded())


def test_our_log_has_the_bytes_of_the_original(ours: dict[str, bytes]) -> None:
    """Blank records included: their filler is zeros in the original's files as well."""
    assert part(ours, "commitlog") == part(store_files(CLEAN), "commitlog")


def test_our_queues_have_the_files_and_entries_of_the_original(ours: dict[str, bytes]) -> None:
    """The original's codes lie behind addresses into its extra files, ours in the entries."""
    theirs = part(store_files(CLEAN), "consumequeue")
    mine = part(ours, "consumequeue")
    assert mine.keys() == theirs.keys()
    assert slow_store.queue_entries(ours) == golden_queues()
    for path, data in theirs.items():
        pairs = zip(ENTRY.iter_unpack(mine[path]), ENTRY.iter_unpack(data), strict=True)
        for our_entry, their_entry in pairs:
            assert our_entry[:2] == their_entry[:2]
            assert our_entry[2] == their_entry[2] or their_entry[2] <= ADDRESS_MAX


def test_our_index_has_the_bytes_of_the_original(ours: dict[str, bytes], tmp_path: Path) -> None:
    """File for file. The newest of the clean folder is apart: after the kill the original filed
    three entries twice. The killed folder has it as it was, up to where its header says."""
    mine, theirs = slow_store.index_files(ours), slow_store.index_files(store_files(CLEAN))
    assert len(mine) == len(theirs) == 31
    assert mine[:-1] == theirs[:-1]
    killed = slow_store.index_files(store_files(CRASHED))
    end_offset = int.from_bytes(killed[-1][24:32], "big")
    known = [stored for stored in recorded() if stored.record.log_offset <= end_offset]
    assert len(known) == len(recorded()) - 1
    assert slow_store.index_files(write_as_recorded(tmp_path / "store", known)) == killed


@pytest.mark.parametrize("distance", range(380, 440, 8))
def test_a_batch_that_does_not_fit_moves_to_the_next_file_as_a_whole(
    tmp_path: Path, distance: int
) -> None:
    """All recorded batches lie inside a file: here one meets the end at several distances."""
    store = open_store(tmp_path / "store")
    queue, origin = store.queue("TopicA", 0), Origin(bytes(8), bytes(8))
    around = 91 + len("TopicA")
    stamp = Stamp(0, 0, 1, 0, 0, 0)
    append(store.tail, queue, origin, stamp, bytes(4_096 - distance - around), b"")
    assert store.tail.end_offset == 4_096 - distance
    sizes = [around + 20, around + 30, around + 40]
    bodies = [bytes(size - around) for size in sizes]
    messages = BatchColumns(bodies, [b""] * 3, [0] * 3, [0] * 3)
    offsets = append_batch(store.tail, queue, origin, BatchStamp(0, 1, 0), messages)
    start = 4_096 - distance if sum(sizes) + 8 <= distance else 4_096
    assert offsets == [start, start + sizes[0], start + sizes[0] + sizes[1]]
    store.write_staged()
    assert [len(body) for body in read_all(store, 0, topic="TopicA")][1:] == [20, 30, 40]
    store.close()
