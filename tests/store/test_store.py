"""The skeleton store: what is acknowledged is readable, and is there after reopening."""

import os
import subprocess
import sys
import tarfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.core import CoreState, Queue, Stamp, append, gather
from orbitmq.core.state import ENTRY
from orbitmq.errors import DiskFull, StoreError
from orbitmq.store.consume_queue import OpenFiles, QueueFiles
from orbitmq.store.store import Store
from orbitmq.wire.record import scan_records
from orbitmq.world.files import SystemFiles
from tests.core.hot import ORIGIN
from tests.store.refusing import RefusingFiles

GOLDEN = Path(__file__).parent.parent / "golden"
LOG_FILE = 4096
QUEUE_FILE = 100


def open_store(folder: Path, files: SystemFiles | None = None) -> Store:
    return Store(files or SystemFiles(), folder, log_file_size=LOG_FILE, queue_file_size=QUEUE_FILE)


def stage(store: Store, queue_id: int, body: bytes) -> Queue:
    queue = store.queue("T", queue_id)
    append(store.tail, queue, ORIGIN, Stamp(0, 0, 1, 0, 0, 0), body, b"")
    return queue


def read_all(store: Store, queue_id: int) -> list[bytes]:
    state = CoreState(store.tail, "c", "r")
    queue = store.queue("T", queue_id)
    bodies: list[bytes] = []
    while len(bodies) < queue.readable_offset:
        found = gather(state, queue, len(bodies), 32, None)
        bodies += [record.body for record in scan_records(b"".join(found.parts))]
    return bodies


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
            store.write_queues()
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
        store.write_queues()
    assert read_all(store, 0) == [b"one"]
    files.room[0] = 1 << 40
    store.write_queues()
    assert read_all(store, 0) == [b"one"]
    store.close()


def test_one_read_goes_on_from_the_queue_s_file_into_memory(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(3):
        stage(store, 0, b"%d" % number)
        store.write_staged()
        if number == 1:
            store.write_queues()
    found = gather(CoreState(store.tail, "c", "r"), store.queue("T", 0), 0, 32, None)
    bodies = [record.body for record in scan_records(b"".join(found.parts))]
    assert (bodies, found.next_offset) == ([b"0", b"1", b"2"], 3)
    del found  # its views of the log
    store.close()


def test_a_second_process_is_kept_out_of_an_open_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    program = (
        "import sys; from pathlib import Path; from orbitmq.store.store import Store; "
        "from orbitmq.world.files import SystemFiles; Store(SystemFiles(), Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert refused.returncode != 0
    assert "another process has" in refused.stderr
    store.close()


def test_a_log_file_of_another_size_is_refused_by_name(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(b"short")
    with pytest.raises(StoreError, match=f"{0:020d} has 5 bytes instead of 4096"):
        open_store(tmp_path)


def test_the_original_stores_queues_are_made_anew_equal_to_the_originals(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "store-clean.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = [path.parent for path in tmp_path.rglob("commitlog")]
    originals = {
        path.relative_to(root): path.read_bytes()
        for path in (root / "consumequeue").rglob("0*")
        if path.is_file() and "SCHEDULE_TOPIC_XXXX" not in path.parts
    }
    for path in originals:
        (root / path).unlink()
    Store(SystemFiles(), root, log_file_size=131_072, queue_file_size=2_000).close()
    compared = 0
    for path, entries in originals.items():
        if entries.strip(b"\0"):
            compared += compare_entries(entries, (root / path).read_bytes())
    assert compared > 1_500


def compare_entries(original: bytes, ours: bytes) -> int:
    """Compare entry by entry; a code below 32 bits is the address of an extra unit, not a hash."""
    count = 0
    for theirs, mine in zip(ENTRY.iter_unpack(original), ENTRY.iter_unpack(ours), strict=True):
        is_address = theirs[2] <= -(2**31) - 1
        assert mine[:2] == theirs[:2]
        assert is_address or mine[2] == theirs[2]
        count += theirs[1] > 0
    return count


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
    store = Store(SystemFiles(), tmp_path, log_file_size=1 << 24)
    for body in bodies:
        stage(store, 0, body)
    store.write_staged()
    end = store.tail.end_offset
    store.close()
    reopened = Store(SystemFiles(), tmp_path, log_file_size=1 << 24)
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


def test_damage_inside_the_log_is_refused_with_its_place_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """Symptom: one changed byte cut the log there silently, and the next send wrote over it."""
    log = ten_messages(tmp_path)
    change(log, b"0003", b"9999")
    with pytest.raises(
        StoreError, match=r"commitlog/0{20} at log offset \d+: a whole record follows"
    ):
        open_store(tmp_path)
    change(log, b"9999", b"0003")
    store = open_store(tmp_path)
    assert len(read_all(store, 0)) == 10
    store.close()


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


def test_a_missing_log_file_is_named(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(3):
        stage(store, 0, bytes(3_900))
        store.write_staged()
    store.close()
    (tmp_path / "commitlog" / f"{LOG_FILE:020d}").unlink()
    with pytest.raises(StoreError, match="the file before it is missing"):
        open_store(tmp_path)


def test_a_topic_that_was_deleted_and_made_again_starts_at_0(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for body in (b"old", b"old"):
        stage(store, 0, body)
    store.write_staged()
    queue = store.queue("T", 0)
    queue.next_offset = queue.readable_offset = queue.base_offset = 0
    queue.entries.clear()
    stage(store, 0, b"new")
    store.write_staged()
    store.close()
    reopened = open_store(tmp_path)
    assert read_all(reopened, 0) == [b"new"]
    reopened.close()


def test_queue_files_of_an_odd_size_hold_whole_entries(tmp_path: Path) -> None:
    """Symptom: a file size that is no multiple of 20 made messages unreadable."""
    store = Store(SystemFiles(), tmp_path, log_file_size=LOG_FILE, queue_file_size=50)
    bodies = [b"%d" % number for number in range(10)]
    for body in bodies:
        stage(store, 0, body)
    store.write_staged()
    store.write_queues()
    assert read_all(store, 0) == bodies
    store.close()


def test_open_queue_files_are_bounded(tmp_path: Path) -> None:
    """Symptom: each queue kept two descriptors; many topics made the broker unable to start."""
    opened = OpenFiles(SystemFiles(), QUEUE_FILE, count_max=3)
    queues = [QueueFiles(opened, tmp_path / str(number)) for number in range(10)]
    before = len(os.listdir("/proc/self/fd"))
    for number, queue in enumerate(queues):
        queue.write(0, ENTRY.pack(number, 1, 0))
    assert len(os.listdir("/proc/self/fd")) <= before + 6
    for number, queue in enumerate(queues):
        assert queue.read(0, 1) == ENTRY.pack(number, 1, 0)
    opened.close()
    assert len(os.listdir("/proc/self/fd")) == before


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
