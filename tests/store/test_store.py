"""The store: what is acknowledged is readable, and is there after reopening."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq import store as store_package
from orbitmq.core import CoreState, gather
from orbitmq.errors import DiskFull, SyncFailed
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import KeyQuery
from orbitmq.wire.record import scan_records
from orbitmq.world.files import SystemFiles
from tests.store.opened import SMALL, flush, open_store, read_all, send, stage, sync
from tests.store.refusing import RefusingFiles


def test_what_is_written_is_readable_at_once_and_nothing_before(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stage(store, 0, b"one")
    assert read_all(store, 0) == []
    grown = store.write_staged()
    assert [queue.queue_id for queue in grown] == [0]
    assert read_all(store, 0) == [b"one"]
    store.close()


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    turns=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=1500)), max_size=6), max_size=6
    ),
    written_behind=st.booleans(),
)
def test_everything_is_there_in_order_before_and_after_reopening(
    tmp_path_factory: pytest.TempPathFactory,
    turns: list[list[tuple[int, bytes]]],
    written_behind: bool,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    expected: dict[int, list[bytes]] = defaultdict(list)
    store = open_store(folder)
    for turn in turns:
        for queue_id, body in turn:
            stage(store, queue_id, body)
            expected[queue_id].append(body)
        store.write_staged()
        if written_behind:
            flush(store)
    for queue_id in range(3):
        assert read_all(store, queue_id) == expected[queue_id]
    end = store.tail.end_offset
    store.close()
    reopened = open_store(folder)
    assert reopened.tail.end_offset == end
    for queue_id in range(3):
        assert read_all(reopened, queue_id) == expected[queue_id]
    reopened.close()


@pytest.mark.parametrize("room", [0, 7, 60, 150, 2000])
def test_a_turn_that_the_disk_refuses_leaves_nothing_behind(tmp_path: Path, room: int) -> None:
    files = RefusingFiles()
    store = open_store(tmp_path, files)
    stage(store, 0, b"kept")
    store.write_staged()
    end = store.tail.end_offset
    files.room[0] = room
    for number in range(3):
        stage(store, number % 2, b"x" * 1500)
    with pytest.raises(DiskFull):
        store.write_staged()
    assert (store.tail.end_offset, store.tail.written_offset) == (end, end)
    assert read_all(store, 0) == [b"kept"]
    assert store.queue("T", 1).next_offset == 0
    files.room[0] = 1 << 40
    store.close()
    reopened = open_store(tmp_path)
    assert reopened.tail.end_offset == end
    reopened.close()


def test_service_goes_on_when_the_disk_has_room_again(tmp_path: Path) -> None:
    files = RefusingFiles()
    store = open_store(tmp_path, files)
    files.room[0] = 50
    stage(store, 0, b"refused")
    with pytest.raises(DiskFull):
        store.write_staged()
    files.room[0] = 1 << 40
    stage(store, 0, b"taken")
    store.write_staged()
    assert read_all(store, 0) == [b"taken"]
    store.close()


def test_queue_entries_stay_in_memory_while_their_file_refuses(tmp_path: Path) -> None:
    files = RefusingFiles()
    store = open_store(tmp_path, files)
    stage(store, 0, b"one")
    store.write_staged()
    files.room[0] = 0
    with pytest.raises(DiskFull):
        flush(store)
    assert read_all(store, 0) == [b"one"]
    files.room[0] = 1 << 40
    flush(store)
    assert read_all(store, 0) == [b"one"]
    store.close()


def test_one_read_goes_on_from_the_queue_s_file_into_memory(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(3):
        stage(store, 0, b"%d" % number)
        store.write_staged()
        if number == 1:
            flush(store)
    found = gather(CoreState(store.tail, "c", "r"), store.queue("T", 0), 0, 32, None)
    bodies = [record.body for record in scan_records(b"".join(found.parts))]
    assert (bodies, found.next_offset) == ([b"0", b"1", b"2"], 3)
    del found  # its views of the log
    store.close()


def test_a_second_process_is_kept_out_of_an_open_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    program = (
        "import sys; from pathlib import Path; from tests.store.opened import open_store; "
        "open_store(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert refused.returncode != 0
    assert "another process has" in refused.stderr
    store.close()


def test_a_refused_message_does_not_come_back_with_what_is_stored_after_it(tmp_path: Path) -> None:
    """Symptom: of refused records only the first was blotted out; the others joined a later one."""
    files = RefusingFiles()
    store = open_store(tmp_path, files)
    stage(store, 0, b"kept")
    store.write_staged()
    files.room[0] = 300
    for body in (b"R1", b"R2", b"R3"):
        stage(store, 0, body)
    stage(store, 0, bytes(200))
    with pytest.raises(DiskFull):
        store.write_staged()
    files.room[0] = 1 << 40
    stage(store, 1, b"OK")
    store.write_staged()
    store.close()
    reopened = open_store(tmp_path)
    assert (read_all(reopened, 0), read_all(reopened, 1)) == ([b"kept"], [b"OK"])
    reopened.close()


def test_a_message_above_four_mebibytes_is_there_after_reopening(tmp_path: Path) -> None:
    """Symptom: with a larger maxMessageSize a clean restart lost it and what followed."""
    bodies = [b"a", bytes(6 << 20), b"c"]
    store = open_store(tmp_path, options=StoreOptions(log_file_size=1 << 24))
    for body in bodies:
        stage(store, 0, body)
    store.write_staged()
    end = store.tail.end_offset
    store.close()
    reopened = open_store(tmp_path, options=StoreOptions(log_file_size=1 << 24))
    assert (reopened.queue("T", 0).readable_offset, reopened.tail.end_offset) == (3, end)
    reopened.close()


def ten_messages(folder: Path) -> Path:
    store = open_store(folder)
    for number in range(10):
        stage(store, 0, b"%04d" % number)
    store.write_staged()
    store.close()
    return folder / "commitlog" / f"{0:020d}"


def change(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def test_a_torn_last_record_is_cut_and_service_goes_on(tmp_path: Path) -> None:
    log = ten_messages(tmp_path)
    change(log, b"0009", b"00xx")
    store = open_store(tmp_path)
    stage(store, 0, b"next")
    store.write_staged()
    expected = [b"%04d" % number for number in range(9)] + [b"next"]
    assert read_all(store, 0) == expected
    store.close()
    reopened = open_store(tmp_path)
    assert read_all(reopened, 0) == expected
    reopened.close()


def test_queue_files_of_an_odd_size_hold_whole_entries(tmp_path: Path) -> None:
    """Symptom: a file size that is no multiple of 20 made messages unreadable."""
    store = open_store(tmp_path, options=StoreOptions(log_file_size=4096, queue_file_size=50))
    bodies = [b"%d" % number for number in range(10)]
    for body in bodies:
        stage(store, 0, body)
    store.write_staged()
    flush(store)
    assert read_all(store, 0) == bodies
    store.close()


def test_a_disk_that_is_full_at_the_stop_does_not_keep_the_folder_locked(tmp_path: Path) -> None:
    """Symptom: when the last write of a stop failed, log sync and lock release were skipped."""
    files = RefusingFiles()
    store = open_store(tmp_path, files)
    stage(store, 0, b"kept")
    store.write_staged()
    files.room[0] = 0
    with pytest.raises(DiskFull):
        store.close()
    reopened = open_store(tmp_path)
    assert read_all(reopened, 0) == [b"kept"]
    reopened.close()
    program = (
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], check=True, timeout=30)


def test_switching_the_index_off_and_on_again_keeps_what_was_indexed(tmp_path: Path) -> None:
    """Symptom: a start without index marked it as empty, and the next one removed its files."""
    for number, is_indexed in enumerate((True, False, True)):
        store = open_store(tmp_path, options=msgspec.structs.replace(SMALL, is_indexed=is_indexed))
        stage(store, 0, b"%d" % number, f"KEYS\x01k{number}".encode())
        store.write_staged()
        store.close()
    store = open_store(tmp_path)
    counts = [len(store.lookup(KeyQuery("T", f"k{n}", 0, 2**62, 9))()) for n in range(3)]
    assert counts == [1, 0, 1]
    store.close()


class SetClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def file_stamp(self, wall_ms: int) -> int:
        return 20_260_101_000_000_000 + wall_ms


def test_the_age_of_the_unsynced_part_counts_from_its_first_byte(tmp_path: Path) -> None:
    """Symptom: after a slow sync it counted from the sync's end: bytes waited twice the limit."""
    clock = SetClock()
    store = open_store(tmp_path, clock=clock)
    send(store, 0, b"synced")
    job = store.begin_sync()
    assert job is not None
    clock.now_s += 1
    send(store, 0, b"oldest that is not")
    clock.now_s += 6
    send(store, 0, b"younger")
    job.run()
    store.finish_sync(job)
    assert store.unsynced_ms == 6_000
    clock.now_s += 5
    store.check_age()
    assert store.unsynced_ms == 11_000
    assert "unsyncedMillisMax" in store.tail.refusal
    sync(store)
    assert (store.unsynced_ms, store.tail.refusal) == (0, "")
    store.close()


def test_fewer_dirty_pages_than_asked_for_are_synced_later_or_when_all_are_wanted(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    send(store, 0, b"little")
    assert store.begin_sync(least_pages=4) is None
    while store.unsynced_bytes < 4 * 4_096:
        assert store.begin_sync(least_pages=4) is None
        send(store, 0, bytes(900))
    enough = store.begin_sync(least_pages=4)
    assert enough is not None
    enough.run()
    store.finish_sync(enough)
    assert store.unsynced_bytes == 0
    send(store, 0, b"one more")
    any_byte = store.begin_sync()
    assert any_byte is not None
    any_byte.run()
    store.finish_sync(any_byte)
    store.close()


def test_the_store_knows_nothing_of_broker_and_network() -> None:
    folder = Path(store_package.__file__).parent
    for path in folder.rglob("*.py"):
        text = path.read_text()
        assert "orbitmq.broker" not in text, path
        assert "orbitmq.net" not in text, path


class UnsyncedReserve(SystemFiles):
    """Files whose reserve ends with a failed sync."""

    def reserve(self, path: Path, size: int) -> None:
        super().reserve(path, size)
        raise SyncFailed(f"cannot sync {path.parent}: Input/output error")


def test_a_sync_that_fails_while_a_log_file_is_made_ahead_halts_the_store(tmp_path: Path) -> None:
    """Symptom: it was taken for a lack of room, and later syncs called the log durable."""
    store = open_store(tmp_path, UnsyncedReserve())
    send(store, 0, *[bytes(300)] * 8)
    number = store.begin_reserve()
    assert number == 1
    with pytest.raises(SyncFailed) as failed:
        store.reserve(number)
    store.reserve_failed(number, failed.value)
    assert store.is_halted
    assert "Input/output error" in store.tail.refusal
    assert store.begin_sync() is None
    store.close()
    assert (tmp_path / "abort").exists(), "it was no clean stop"


def test_one_turn_may_be_longer_than_all_files_that_are_kept_open(tmp_path: Path) -> None:
    """Symptom: KeyError; the turn's own files were closed before they were written."""
    store = open_store(tmp_path)
    send(store, 0, b"first")
    sync(store)
    bodies = [b"%03d" % number + bytes(3_000) for number in range(200)]
    send(store, 0, *bodies)
    send(store, 0, b"last")
    assert read_all(store, 0) == [b"first", *bodies, b"last"]
    sync(store)
    store.close()
    reopened = open_store(tmp_path)
    assert reopened.queue("T", 0).readable_offset == 202
    reopened.close()
