"""A log that is spread over several folders: where files go, what a crash leaves, what is refused.

Method: the real store on files in memory, with folders added, made read-only and filled up between
its lives, and killed or cut after each of its operations.
"""

import errno
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import DiskFull, StoreError, WriteFailed
from orbitmq.store.check import check
from orbitmq.store.dump import Seen, Wanted, dump
from orbitmq.store.layout import file_name, is_file_name
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.opening import Outside
from orbitmq.store.options import StoreOptions
from orbitmq.store.repair import repair
from orbitmq.store.retention import RetentionSettings
from orbitmq.store.store import Store
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import BigFile, Space
from tests.store.driven import HandClock
from tests.store.opened import flush, open_store, read_all, sync
from tests.store.recovering import BOOT, OTHER_BOOT, ROOT, SLOTS, SMALL, message, reopen
from tests.store.slow_store import assert_derived, blobs_of
from tests.world.crash_images import all_but_one, everything, nothing, only_one, some
from tests.world.memory_disk import Op
from tests.world.memory_files import MemoryFiles

A, B, C = (Path(f"/disks/{letter}/log") for letter in "abc")
LETTERS = {A: "a", B: "b", C: "c"}
SIZE = SMALL.log_file_size
FULL = Space(100 << 30, 1 << 30)
ROOMY = Space(100 << 30, 90 << 30)


def spread(*folders: Path, read_only: Sequence[Path] = ()) -> StoreOptions:
    return msgspec.structs.replace(
        SMALL, log_folders=folders, read_only_log_folders=tuple(read_only)
    )


def made_files() -> MemoryFiles:
    return MemoryFiles(ROOT, *(folder.parent for folder in LETTERS))


def log_paths(files: MemoryFiles) -> list[Path]:
    """The log's files in order, whatever folder they are in."""
    found = [path for path in files.contents() if path.parent in LETTERS]
    return sorted(found, key=lambda path: path.name)


def letters(files: MemoryFiles) -> str:
    """In which folder file number 0, 1, 2 … is."""
    assert [int(path.name) for path in log_paths(files)] == [
        int(log_paths(files)[0].name) + number * SIZE for number in range(len(log_paths(files)))
    ]
    return "".join(LETTERS[path.parent] for path in log_paths(files))


def blobs(files: MemoryFiles) -> dict[str, bytes]:
    """All folders as one whose log is in its place."""
    contents = files.contents()
    logs = {f"commitlog/{path.name}": contents[path] for path in log_paths(files)}
    return {**blobs_of(files, ROOT), **logs}


def fill(store: Store, count: int, first: int = 0, *, is_reserving: bool = False) -> None:
    for number in range(first, first + count):
        message(store, number, queue_id=number % 3, size=150)
        if is_reserving:
            reserve(store)


def reserve(store: Store) -> None:
    """Make the next file ahead, as the broker's thread does."""
    number = store.begin_reserve()
    if number is None:
        return
    try:
        store.reserve(number)
    except StoreError as error:
        store.reserve_failed(number, error)


def all_bodies(store: Store) -> list[int]:
    found = [body for queue_id in range(3) for body in read_all(store, queue_id)]
    return sorted(int(body[:4]) for body in found)


# --- Where files go ---


@pytest.mark.parametrize("is_reserving", [False, True])
def test_files_go_round_the_folders_by_name_whatever_the_order_in_the_setting(
    is_reserving: bool,
) -> None:
    files = made_files()
    store = open_store(ROOT, files, spread(C, A, B))
    fill(store, 30, is_reserving=is_reserving)
    assert letters(files).startswith("abcabcabc")
    assert all_bodies(store) == list(range(30))
    store.close()
    assert check(files, ROOT, spread(A, B, C), BOOT).is_healthy


def test_a_file_that_the_writer_made_first_does_not_make_the_next_folder_count_as_full() -> None:
    """Symptom: on a busy machine a file skipped its folder: the one before was made too late."""
    files = made_files()
    store = open_store(ROOT, files, spread(A, B, C))
    number, late = 0, store.begin_reserve()
    while late is None:
        fill(store, 1, first=number)
        number, late = number + 1, store.begin_reserve()
    while (following := store.begin_reserve()) is None:  # the writer makes the late one itself
        fill(store, 1, first=number)
        number += 1
    assert following == late + 1
    store.reserve_failed(late, WriteFailed("cannot reserve it: File exists"))
    fill(store, 20, first=number)
    assert letters(files).startswith("abcabc")
    assert store.begin_reserve() != following, "it is not due again either"
    store.close()


def test_a_folder_that_is_added_gets_its_share_and_old_files_stay_where_they_are() -> None:
    files = made_files()
    store = open_store(ROOT, files, spread(A))
    fill(store, 10)
    store.close()
    before = letters(files)
    assert set(before) == {"a"}
    store = open_store(ROOT, files, spread(A, B))
    fill(store, 20, first=10)
    after = letters(files)
    assert after.startswith(before)
    assert after[len(before) :] == "".join("ab"[n % 2] for n in range(len(before), len(after)))
    assert all_bodies(store) == list(range(30))


def test_a_folder_that_was_made_read_only_is_read_and_gets_no_file() -> None:
    files = made_files()
    store = open_store(ROOT, files, spread(A, B, C))
    fill(store, 15, is_reserving=True)
    store.close()
    in_b = {path for path in log_paths(files) if path.parent == B}
    for options in (spread(A, B, C, read_only=[B]), spread(A, C, read_only=[B])):
        store = open_store(ROOT, files, options)
        fill(store, 15, first=store.message_count + len(all_bodies(store)), is_reserving=True)
        assert {path for path in log_paths(files) if path.parent == B} <= in_b
        letters(files)
        numbers = all_bodies(store)
        assert numbers == list(range(len(numbers)))
        store.close()
        assert check(files, ROOT, options, BOOT).is_healthy
    assert len(numbers) == 45


def test_a_read_only_folder_beside_a_single_one_is_read() -> None:
    files = written(A)
    store = open_store(ROOT, files, spread(B, read_only=[A]))
    fill(store, 12, first=12)
    assert letters(files).strip("a").strip("b") == ""
    assert all_bodies(store) == list(range(24))


def test_a_file_made_ahead_in_a_folder_that_became_read_only_gives_way() -> None:
    """It is empty: the log goes on in a folder that takes files, and no number is there twice."""
    files = made_files()
    store = open_store(ROOT, files, spread(A, B))
    while store.tail.end_offset * 2 < SIZE:
        fill(store, 1, first=store.message_count)
    reserve(store)
    count = store.message_count
    store.close()
    assert letters(files) == "ab"
    store = open_store(ROOT, files, spread(A, B, read_only=[B]))
    assert letters(files) == "a"
    fill(store, 9, first=count, is_reserving=True)
    assert set(letters(files)) == {"a"}
    assert all_bodies(store) == list(range(count + 9))


def test_where_a_disk_is_read_only_indeed_an_empty_file_on_it_is_passed_over() -> None:
    files = files_to_lock()
    store = open_store(ROOT, files, spread(A, B))
    while store.tail.end_offset * 2 < SIZE:
        fill(store, 1, first=store.message_count)
    reserve(store)
    count = store.message_count
    store.close()
    files.lock_disk(B)
    options = spread(A, B, read_only=[B])
    for life in range(2):
        store = open_store(ROOT, files, options)
        fill(store, 9, first=count + 9 * life)
        assert all_bodies(store) == list(range(count + 9 * (life + 1)))
        store.close()
        assert check(files, ROOT, options, BOOT).is_healthy
    assert [path.parent for path in log_paths(files) if int(path.name) == SIZE] == [A, B]


class OneDiskLocked(MemoryFiles):
    """Files of which one disk can be mounted read-only."""

    locked: Path | None = None

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        if self.locked is not None and path.is_relative_to(self.locked):
            raise WriteFailed(f"cannot open {path}: Read-only file system", path)
        return super().open_big(path, size, is_mapped=is_mapped)

    def lock_disk(self, folder: Path) -> None:
        self.locked = folder
        self.unwritable.add(folder)
        for kind in ("write", "create", "resize", "remove", "rename", "link"):
            self.fail(kind, lambda op: _is_below(op, folder), errno.EROFS, times=None)

    def unlock_disk(self) -> None:
        self.locked = None
        self.unwritable.clear()
        self.heal()


def files_to_lock() -> OneDiskLocked:
    return OneDiskLocked(ROOT, *(folder.parent for folder in LETTERS))


def _is_below(op: Op, folder: Path) -> bool:
    return op.path.is_relative_to(folder)


def test_the_log_goes_on_in_a_read_only_folder_until_its_last_file_is_full() -> None:
    files = made_files()
    store = open_store(ROOT, files, spread(A, B))
    fill(store, 2)
    store.close()
    store = open_store(ROOT, files, spread(A, B, read_only=[A]))
    fill(store, 10, first=2)
    assert letters(files).startswith("abb")
    assert all_bodies(store) == list(range(12))


# --- Disks ---


def test_a_folder_on_a_disk_that_is_too_full_is_passed_over_until_there_is_room() -> None:
    files = made_files()
    files.spaces = {A: ROOMY, B: FULL, C: ROOMY}
    store = open_store(ROOT, files, spread(A, B, C))
    fill(store, 20)
    before = letters(files)
    assert set(before) == {"a", "c"}
    files.spaces[B] = ROOMY
    look(store)
    fill(store, 20, first=20)
    assert "b" in letters(files)[len(before) :]
    files.spaces = dict.fromkeys((A, B, C), FULL)
    look(store)
    fill(store, 30, first=40)
    assert set(letters(files)[-3:]) == {"a", "b", "c"}, "all are too full: all take files"


def look(store: Store) -> None:
    """Look for old files and at the disks, as the broker does every ten seconds."""
    job = store.cleaner.begin()
    job.run()
    store.cleaner.finish(job)


def test_writes_are_refused_only_when_no_folder_has_room() -> None:
    files = made_files()
    tight = Space(100 << 30, 4 << 30)
    files.spaces = {A: tight, B: ROOMY, C: ROOMY}
    files.make_folder(C)
    store = open_store(ROOT, files, spread(A, B, C, read_only=[C]))
    look(store)
    assert not store.tail.refusal
    files.spaces[B] = tight
    look(store)
    assert "96.0% full" in store.tail.refusal


@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("is_reserving", [False, True])
def test_a_folder_that_takes_no_new_file_costs_nothing_as_long_as_another_does(
    trouble: int, is_reserving: bool
) -> None:
    files = made_files()
    store = open_store(ROOT, files, spread(A, B))
    fill(store, 2)
    for kind in ("create", "link"):
        files.fail(kind, lambda op: _is_below(op, B), trouble, times=None)
    fill(store, 18, first=2, is_reserving=is_reserving)
    assert set(letters(files)) == {"a"}
    files.heal()
    look(store)
    fill(store, 10, first=20, is_reserving=is_reserving)
    assert "b" in letters(files)
    store.close()
    store = open_store(ROOT, files, spread(A, B))
    assert all_bodies(store) == list(range(30))


def test_when_no_folder_takes_a_file_the_send_is_refused_and_nothing_is_lost() -> None:
    files = made_files()
    store = open_store(ROOT, files, spread(A, B))
    fill(store, 3)
    files.fail("create", 1, errno.ENOSPC, times=None)
    files.fail("link", 1, errno.ENOSPC, times=None)
    with pytest.raises(DiskFull):
        fill(store, 5, first=3)
    files.heal()
    count = store.message_count
    fill(store, 5, first=count)
    assert all_bodies(store) == list(range(count + 5))
    assert set(letters(files)) == {"a", "b"}


def test_a_folder_that_takes_no_file_stopped_the_log_although_a_fuller_one_took_it() -> None:
    """Symptom: one disk refused files, the other was above 85 %, and every send was refused."""
    files = made_files()
    files.spaces = {A: ROOMY, B: Space(100 << 30, 13 << 30)}
    store = open_store(ROOT, files, spread(A, B))
    look(store)
    for kind in ("create", "link"):
        files.fail(kind, lambda op: _is_below(op, A), errno.ENOSPC, times=None)
    fill(store, 12)
    assert set(letters(files)) == {"b"}
    assert all_bodies(store) == list(range(12))


def test_old_files_that_cannot_be_removed_hid_that_the_disk_is_full() -> None:
    """Symptom: a read-only disk ended the refusal of sends; the log grew until nothing fitted."""
    files = made_files()
    retention = RetentionSettings(reserved_ms=0, delete_hours=";".join(map(str, range(24))))
    store = Store(Outside(files, HandClock(), BOOT), ROOT, spread(A, B), retention)
    fill(store, 12)
    flush(store, is_thorough=True)
    look(store)  # the first look after a start removes nothing by age
    files.spaces = {A: FULL, B: FULL}
    files.fail("remove", lambda op: _is_below(op, A), errno.EROFS, times=None)
    with pytest.raises(StoreError, match=str(A)):
        look(store)
    assert "full" in store.tail.refusal


# --- Crashes ---


def written_store(steps: str, options: StoreOptions) -> tuple[MemoryFiles, list[tuple[int, int]]]:
    """Do steps on new folders; return the files and after how many operations what was synced."""
    files = made_files()
    store = open_store(ROOT, files, options, boot_id=BOOT)
    synced: list[tuple[int, int]] = []
    for number, step in enumerate(steps):
        if step == "m":
            message(store, number, queue_id=number % 3, size=150)
            continue
        if step == "r":
            reserve(store)
            continue
        if step == "s":
            sync(store)
        else:
            flush(store, is_thorough=True)
        synced.append((len(files.ops), store.durable_offset))
    return files, synced


def test_every_crash_keeps_what_was_synced_in_whichever_folder_it_is() -> None:
    options = spread(A, B)
    files, synced = written_store("mmrsmmmtmmrmmmsmm", options)
    whole = b"".join(data for _, data in sorted(log_blobs(files)))
    assert set(letters(files)) == {"a", "b"}
    for upto in range(len(files.ops) + 1):
        choosers = [nothing(), everything(), all_but_one(upto), only_one(upto), some(upto)]
        images = [files.image(upto, choose) for choose in choosers]
        for image in (*images, files.kill_image(upto)):
            opened = reopen(image, boot_id=OTHER_BOOT, options=options)
            log = assert_derived(blobs(image), SLOTS)
            least = max((offset for count, offset in synced if count <= upto), default=0)
            assert opened.tail.end_offset == log.end_offset >= least
            found = b"".join(data for _, data in sorted(log_blobs(image)))
            assert found[: log.end_offset] == whole[: log.end_offset]


def log_blobs(files: MemoryFiles) -> Iterator[tuple[str, bytes]]:
    contents = files.contents()
    return ((path.name, contents[path]) for path in log_paths(files))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_acknowledged_is_lost_whatever_becomes_of_the_folders_between_lives(
    seed: int,
) -> None:
    """Folders come, become read-only and writable again; lives end with a stop or a kill."""
    chance = random.Random(seed)
    files, folders, read_only, count = made_files(), [A], list[Path](), 0
    for _ in range(6):
        options = spread(*folders, read_only=read_only)
        store = open_store(ROOT, files, options)
        kept = {path for path in log_paths(files) if path.parent in read_only}
        assert all_bodies(store) == list(range(count))
        for _ in range(chance.randrange(12)):
            fill(store, 1, first=count, is_reserving=chance.random() < 0.7)
            count += 1
            if chance.random() < 0.3:
                flush(store, is_thorough=chance.random() < 0.5)
        assert {path for path in log_paths(files) if path.parent in read_only} <= kept
        if chance.random() < 0.5:
            store.close()
            assert check(files, ROOT, options, BOOT).is_healthy
        else:
            files = files.kill_image(len(files.ops))
        read_only = chance.sample(folders, chance.randrange(len(folders)))
        folders = sorted({*folders, chance.choice([A, B, C])}, key=lambda _: chance.random())


# --- Removing ---


def test_old_files_go_in_order_across_folders_and_a_power_cut_leaves_a_row() -> None:
    files, clock = made_files(), HandClock()
    options = spread(A, B, C, read_only=[])
    retention = RetentionSettings(reserved_ms=0, delete_hours=";".join(map(str, range(24))))
    store = Store(Outside(files, clock, BOOT), ROOT, options, retention)
    fill(store, 40)
    flush(store, is_thorough=True)
    look(store)  # the first look after a start removes nothing by age
    files.forget_ops()
    count = len(log_paths(files))
    look(store)
    assert len(log_paths(files)) < count - 5
    removed = [op.path for op in files.ops if op.kind == "remove"]
    assert [int(path.name) for path in removed] == [n * SIZE for n in range(len(removed))]
    assert len({path.parent for path in removed}) == 3
    assert all_bodies(store) == list(range(min(all_bodies(store)), 40))
    for upto in range(len(files.ops) + 1):
        for choose in (nothing(), everything(), some(upto)):
            starts = [int(path.name) for path in log_paths(files.image(upto, choose))]
            assert starts == list(range(starts[0], starts[-1] + 1, SIZE))


def test_old_files_go_from_read_only_folders_too() -> None:
    files, clock = made_files(), HandClock()
    store = open_store(ROOT, files, spread(A, B))
    fill(store, 12)
    store.close()
    retention = RetentionSettings(reserved_ms=0, delete_hours=";".join(map(str, range(24))))
    options = spread(A, B, read_only=[A])
    store = Store(Outside(files, clock, BOOT), ROOT, options, retention)
    fill(store, 8, first=12)
    flush(store, is_thorough=True)
    for _ in range(3):
        look(store)
    assert not [path for path in log_paths(files) if path.parent == A]


# --- What is refused ---


def written(*folders: Path, count: int = 12) -> MemoryFiles:
    files = made_files()
    store = open_store(ROOT, files, spread(*folders))
    fill(store, count)
    store.close()
    return files


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (spread(A, B, A), f"storePathCommitLog names {A} twice"),
        (spread(A, B, read_only=[B, B]), f"readOnlyCommitLogStorePaths names {B} twice"),
        (spread(A, B, read_only=[B, A]), "no one is left for new files"),
        (spread(A, B, read_only=[C]), f"there is no folder {C}, which readOnlyCommitLogStorePaths"),
        (spread(A, B, B / "more"), "which lies inside it"),
        (spread(A), "is in none of /disks/a/log, but the log goes on"),
        (spread(B, C), "is in none of /disks/b/log, /disks/c/log, but the log goes on"),
    ],
)
def test_folders_that_cannot_be_right_are_refused_and_nothing_is_changed(
    options: StoreOptions, said: str
) -> None:
    files = written(A, B)
    before = {path: data for path, data in files.contents().items() if path.parent in LETTERS}
    with pytest.raises(StoreError, match=said):
        open_store(ROOT, files, options)
    after = {path: data for path, data in files.contents().items() if path.parent in LETTERS}
    assert after == before
    store = open_store(ROOT, files, spread(A, B))
    assert all_bodies(store) == list(range(12))


def test_a_folder_where_nothing_can_be_made_is_refused_at_the_start() -> None:
    files = written(A, B)
    files.unwritable.add(B)
    with pytest.raises(StoreError, match=f"no file can be made in {B}, which storePathCommitLog"):
        open_store(ROOT, files, spread(A, B))
    store = open_store(ROOT, files, spread(A, B, read_only=[B]))
    assert all_bodies(store) == list(range(12))


def test_one_file_in_two_folders_is_refused_unless_one_of_them_is_empty() -> None:
    files = written(A, B)
    name = file_name(0)
    files.put(B / name, bytes(SIZE))
    assert check(files, ROOT, spread(A, B), BOOT).is_healthy
    open_store(ROOT, files, spread(A, B)).close()
    assert files.read(B / name) is None
    files.put(B / name, files.read(A / name) or b"")
    verdict = check(files, ROOT, spread(A, B), BOOT)
    assert [fault.path for fault in verdict.faults] == [str(B / name)]
    with pytest.raises(StoreError, match=f"{A / name} and {B / name} are the same file of the log"):
        open_store(ROOT, files, spread(A, B))


def test_a_lost_file_is_gone_without_only_by_repair() -> None:
    files = written(A, B)
    files.remove(B / file_name(SIZE))
    options = spread(A, B)
    with pytest.raises(StoreError, match="`orbitmq store repair`"):
        open_store(ROOT, files, options)
    assert not check(files, ROOT, options, BOOT).is_healthy
    repair(Outside(files, SystemClock(), BOOT), ROOT, options)
    store = open_store(ROOT, files, options)
    assert 0 < len(all_bodies(store)) < 12


@pytest.mark.parametrize("is_named", [True, False])
def test_a_disk_with_the_oldest_files_that_is_not_mounted_is_noticed(is_named: bool) -> None:
    """Symptom: the log began behind them, and groups that lagged skipped their messages."""
    files = written(A)
    options = spread(B, read_only=[A])
    store = open_store(ROOT, files, options)
    fill(store, 12, first=12)
    store.close()
    away = {path: files.read(path) or b"" for path in log_paths(files) if path.parent == A}
    for path in away:
        files.remove(path)
    with pytest.raises(StoreError, match="mount the disk that has it"):
        open_store(ROOT, files, options if is_named else spread(B))
    for path, data in away.items():
        files.put(path, data)
    assert all_bodies(open_store(ROOT, files, options)) == list(range(24))


def test_a_folder_whose_files_were_old_and_went_may_stay_or_go() -> None:
    files, clock = written(A), HandClock()
    retention = RetentionSettings(reserved_ms=0, delete_hours=";".join(map(str, range(24))))
    options = spread(B, read_only=[A])
    store = Store(Outside(files, clock, BOOT), ROOT, options, retention)
    fill(store, 12, first=12)
    flush(store, is_thorough=True)
    for _ in range(3):
        look(store)
    assert set(letters(files)) == {"b"}
    store.close()
    open_store(ROOT, files, options).close()
    open_store(ROOT, files, spread(B)).close()


def test_files_moved_from_one_folder_to_another_are_where_they_are() -> None:
    files = written(A, B)
    for path in [path for path in log_paths(files) if path.parent == A]:
        files.move(path, B / path.name)
    assert all_bodies(open_store(ROOT, files, spread(B))) == list(range(12))


def test_a_disk_that_is_read_only_must_not_have_the_file_in_which_the_log_goes_on() -> None:
    files = files_to_lock()
    store = open_store(ROOT, files, spread(A, B))
    fill(store, 2)
    store.close()
    files.lock_disk(A)
    with pytest.raises(StoreError, match=f"move it to {B}, or let its disk be written to"):
        open_store(ROOT, files, spread(A, B, read_only=[A]))
    files.unlock_disk()
    files.move(A / file_name(0), B / file_name(0))
    store = open_store(ROOT, files, spread(A, B, read_only=[A]))
    assert all_bodies(store) == [0, 1]


def test_files_on_a_disk_that_is_read_only_indeed_are_served() -> None:
    files = files_to_lock()
    store = open_store(ROOT, files, spread(A, B))
    while len(letters(files)) != 4:
        fill(store, 1, first=store.message_count)
    count = store.message_count
    store.close()
    files.lock_disk(A)
    store = open_store(ROOT, files, spread(A, B, read_only=[A]))
    fill(store, 6, first=count)
    assert all_bodies(store) == list(range(count + 6))
    assert letters(files).startswith("ababb")


def test_a_folder_under_two_names_is_held_once() -> None:
    files = made_files()
    files.put(B / file_name(0), b"")
    first = open_store(ROOT, files, spread(A, B))
    for options in (spread(B, C), spread(C, read_only=[B])):
        with pytest.raises(StoreError, match=f"another broker has the log folder {B} open"):
            open_store(Path("/other"), files, options)
    first.close()


def test_strays_go_aside_from_every_folder() -> None:
    files = written(A, B)
    files.put(A / "mine", b"1")
    files.put(B / "mine", b"2")
    files.put(B / f"{file_name(0)}.tmp", b"3")
    options = spread(A, B)
    assert not check(files, ROOT, options, BOOT).is_healthy
    store = open_store(ROOT, files, options)
    assert [files.read(ROOT / "aside" / name) for name in files.names(ROOT / "aside")] == [
        b"1",
        b"2",
    ]
    assert all(is_file_name(path.name) for path in log_paths(files))
    assert all_bodies(store) == list(range(12))


# --- Reading without a store ---


def test_dump_and_check_read_all_folders_beside_a_running_broker() -> None:
    files = made_files()
    store = open_store(ROOT, files, spread(A, B))
    fill(store, 12)
    found = dump(files, ROOT, Wanted(), spread(B, A))
    bodies = [int(seen.record.body[:4]) for seen in found if isinstance(seen, Seen)]
    assert bodies == list(range(12))
    assert check(files, ROOT, spread(A, B), BOOT).is_healthy


def test_a_file_that_another_process_made_since_the_last_look_is_found() -> None:
    files = written(A, B)
    folders = LogFolders(files, (A, B))
    folders.find()
    later = file_name(100 * SIZE)
    files.put(B / later, b"x")
    assert folders.path(100 * SIZE) == B / later
