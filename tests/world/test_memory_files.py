"""The double of the file system: it does what the system does, and its crashes are right.

Method: random sequences run on SystemFiles and on MemoryFiles and every answer is compared; then
hand-made cases say which states a power cut may leave and which it may not.
"""

import errno
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import DiskFull, ReadFailed, StoreError, SyncFailed, WriteFailed
from orbitmq.world.files import Files, SystemFiles
from tests.world.crash_images import SECTOR, all_but_one, everything, nothing, only_one, some
from tests.world.memory_files import MemoryFiles

EXAMPLES = 150
"""For each of the comparisons; 6,000 took 40 s."""

STORE = Path("/store")
TABLE = STORE / "table"
LOG = STORE / "log"

# ---- the same as the system ----------------------------------------------------------------------

Step = Callable[[Files, Path], object]

NAMES = ["a", "b", "c", "d", "d/a", "d/b", "d/e/a", "a/x", "a.tmp"]
PATHS = st.sampled_from(NAMES)
SMALL = st.integers(0, 1500)
DATA = st.binary(max_size=40).map(lambda piece: piece * 37)


def write_big(position: int, data: bytes, size: int, name: str, files: Files, root: Path) -> object:
    file = files.open_big(root / name, size)
    try:
        file.write_at(position % size, data[: size - position % size])
        file.sync()
        return file.read_at(position, 100), bytes(file.view())
    finally:
        file.close()


def facts(name: str, files: Files, root: Path) -> object:
    path = root / name
    has_time = files.modified_ms(path) is not None
    listed = files.names(path), files.listing(path)
    return files.size(path), files.is_folder(path), listed, has_time


def reserve(name: str, size: int, files: Files, root: Path) -> None:
    """Reserve a file, unless something has the name it bears meanwhile.

    The double makes it under such a name, as a system must that has no files without any; there
    more can be torn by a crash.
    """
    meanwhile = root / f"{name}.tmp"
    if files.size(meanwhile) is None and not files.is_folder(meanwhile):
        files.reserve(root / name, size)


STEPS = st.one_of(
    st.builds(lambda n: lambda f, r: f.read(r / n), PATHS),
    st.builds(lambda n, p, s: lambda f, r: f.read_at(r / n, p, s), PATHS, SMALL, SMALL),
    st.builds(lambda n, p, s: lambda f, r: f.is_zeros(r / n, p, s), PATHS, SMALL, SMALL),
    st.builds(lambda n: partial(facts, n), PATHS),
    st.builds(
        lambda n, d, b: lambda f, r: f.replace(r / n, d, keep_backup=b), PATHS, DATA, st.booleans()
    ),
    st.builds(lambda n, s: partial(reserve, n, s + 1), PATHS, SMALL),
    st.builds(lambda n, s: lambda f, r: f.resize(r / n, s), PATHS, SMALL),
    st.builds(
        lambda n, m, p, s: lambda f, r: f.copy(r / n, r / m, p, s),
        PATHS,
        PATHS,
        SMALL,
        st.none() | SMALL,
    ),
    st.builds(lambda n, m: lambda f, r: f.move(r / n, r / m), PATHS, PATHS),
    st.builds(lambda n: lambda f, r: f.remove(r / n), PATHS),
    st.builds(lambda n: lambda f, r: f.make_folder(r / n), PATHS),
    st.builds(lambda n: lambda f, r: f.remove_folder(r / n), PATHS),
    st.builds(lambda n, m: lambda f, r: f.sync([r / n, r / m]), PATHS, PATHS),
    st.builds(
        lambda p, d, s, n: partial(write_big, p, d, s, n),
        SMALL,
        DATA,
        st.sampled_from([1, 700, 1500]),
        PATHS,
    ),
)


def answer(step: Step, files: Files, root: Path) -> object:
    try:
        return step(files, root)
    except (StoreError, OSError) as error:
        return type(error)


def real_contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_the_double_answers_as_the_system_does(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root, system, memory = Path(name), SystemFiles(), MemoryFiles(Path(name))
        for step in steps:
            assert answer(step, memory, root) == answer(step, system, root)
        assert memory.contents() == real_contents(root)
        for upto in (len(memory.ops) // 2, len(memory.ops)):
            memory.image(upto, some(upto))
        assert memory.kill_image(len(memory.ops)).contents() == memory.contents()


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_after_everything_was_synced_every_power_cut_leaves_everything(steps: list[Step]) -> None:
    memory = MemoryFiles(STORE)
    for step in steps:
        answer(step, memory, STORE)
    paths = [*memory.contents(), *(STORE / name for name in NAMES)]
    memory.sync([*paths, *(folder for path in paths for folder in path.parents)])
    upto = len(memory.ops)
    assert memory.image(upto, nothing()).contents() == memory.contents()
    assert memory.image(upto, some(7)).contents() == memory.contents()


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(STEPS, max_size=15), data=st.data())
def test_a_power_cut_that_loses_nothing_is_a_kill(steps: list[Step], data: st.DataObject) -> None:
    memory = MemoryFiles(STORE)
    for step in steps:
        answer(step, memory, STORE)
    upto = data.draw(st.integers(0, len(memory.ops)))
    assert memory.image(upto, everything()).contents() == memory.kill_image(upto).contents()


@settings(deadline=None)
@given(
    writes=st.lists(st.tuples(st.integers(0, 30_000), st.binary(max_size=40)), max_size=5),
    start=st.integers(0, 33_000),
)
def test_the_data_ranges_of_the_double_leave_out_nothing_but_zeros(
    writes: list[tuple[int, bytes]], start: int
) -> None:
    files = MemoryFiles(STORE)
    file = files.open_big(LOG, 32_768)
    for position, data in writes:
        file.write_at(position, data)
    rest = bytearray(files.contents()[LOG])
    ranges = files.data_ranges(LOG, start)
    assert all(start <= begin < end <= 32_768 for begin, end in ranges)
    for begin, end in ranges:
        assert any(rest[begin:end])
        rest[begin:end] = bytes(end - begin)
    assert not any(rest[start:])


def test_a_view_shows_what_is_written_later_and_what_is_read_by_path() -> None:
    memory = MemoryFiles(STORE)
    file = memory.open_big(LOG, 4096)
    view = file.view()
    piece = view[10:14]
    file.write_at(10, b"kept")
    assert bytes(piece) == b"kept"
    assert memory.read_at(LOG, 9, 6) == b"\0kept\0"
    assert view.readonly
    file.close()
    assert bytes(piece) == b"kept"
    with pytest.raises(ValueError, match="released"):
        view.tobytes()


def test_a_view_of_an_image_is_live_and_leaves_the_source_as_it_was() -> None:
    memory = MemoryFiles()
    memory.put(LOG, bytes(1024))
    image = memory.image(0, nothing())
    file = image.open_big(LOG, 1024)
    view = file.view()
    file.write_at(0, b"new")
    assert bytes(view[:3]) == b"new"
    assert memory.read(LOG) == bytes(1024)
    assert image.kill_image(0).read(LOG) == bytes(1024)


def test_cutting_a_mapped_file_is_told_as_the_bug_it_is() -> None:
    memory = MemoryFiles(STORE)
    file = memory.open_big(LOG, 1024)
    with pytest.raises(BrokenInvariant, match="mapped"):
        memory.resize(LOG, 512)
    file.close()
    memory.resize(LOG, 512)
    with pytest.raises(BrokenInvariant, match="closed"):
        file.write_at(0, b"late")
    with pytest.raises(BrokenInvariant, match="without a map"):
        memory.open_big(LOG, 512, is_mapped=False).view()


def test_a_lock_is_held_until_released_and_not_in_an_image() -> None:
    memory = MemoryFiles(STORE)
    lock = memory.lock(STORE / "lock")
    with pytest.raises(StoreError, match="this process has"):
        memory.lock(STORE / "lock")
    memory.kill_image(len(memory.ops)).lock(STORE / "lock")
    lock.release()
    memory.lock(STORE / "lock")
    held = memory.hold(STORE)
    with pytest.raises(StoreError, match="another broker has"):
        memory.hold(STORE)
    held.release()
    memory.hold(STORE)


def test_a_file_does_not_end_behind_its_end(tmp_path: Path) -> None:
    """Symptom: no bytes behind the end of a file were zeros in the double, not in the system."""
    for files, root in ((MemoryFiles(STORE), STORE), (SystemFiles(), tmp_path)):
        files.replace(root / "a", b"")
        assert [files.is_zeros(root / "a", position, 0) for position in (0, 1)] == [True, False]


def test_space_and_time_are_what_the_test_says() -> None:
    memory = MemoryFiles(STORE)
    memory.space_now = memory.space_now._replace(free=5)
    memory.now_ms = 17
    memory.replace(TABLE, b"x")
    assert memory.space(STORE).free == 5
    assert memory.modified_ms(TABLE) == 17
    with pytest.raises(ReadFailed):
        memory.space(STORE / "none")


# ---- what a power cut leaves ---------------------------------------------------------------------


def synced_log(size: int = 4 * SECTOR) -> MemoryFiles:
    memory = MemoryFiles()
    memory.put(LOG, bytes(size))
    return memory


def found(memory: MemoryFiles, *, seeds: int = 200) -> set[bytes | None]:
    """What the log may be after a power cut now."""
    upto = len(memory.ops)
    return {memory.image(upto, some(seed)).read(LOG) for seed in range(seeds)}


def test_each_unsynced_sector_is_kept_or_lost_by_itself() -> None:
    memory = synced_log(2 * SECTOR)
    memory.open_big(LOG, 2 * SECTOR).write_at(SECTOR - 1, b"ab")
    left, right = bytes(SECTOR - 1), bytes(SECTOR - 1)
    assert found(memory) == {left + pair + right for pair in (b"\0\0", b"a\0", b"\0b", b"ab")}


def test_a_synced_sector_stays_and_a_later_write_is_at_risk() -> None:
    memory = synced_log(SECTOR)
    file = memory.open_big(LOG, SECTOR)
    file.write_at(0, b"1")
    file.sync()
    file.write_at(1, b"2")
    assert {content[:2] for content in found(memory) if content} == {b"1\0", b"12"}


def test_a_sector_written_twice_may_be_found_as_the_first_write_left_it() -> None:
    memory = synced_log(SECTOR)
    file = memory.open_big(LOG, SECTOR)
    file.write_at(0, b"1")
    file.write_at(1, b"2")
    assert {content[:2] for content in found(memory) if content} == {b"\0\0", b"1\0", b"12"}


def test_images_of_earlier_places_in_the_log_know_nothing_of_later_ones() -> None:
    memory = synced_log(SECTOR)
    file = memory.open_big(LOG, SECTOR)
    file.write_at(0, b"1")
    file.write_at(0, b"2")
    first = [memory.image(upto, everything()).read_at(LOG, 0, 1) for upto in (2, 0, 1)]
    assert first == [b"2", b"\0", b"1"]


def test_all_but_one_and_only_one_choose_each_unit_in_turn() -> None:
    memory = synced_log(3 * SECTOR)
    memory.open_big(LOG, 3 * SECTOR).write_at(0, b"x" * 3 * SECTOR)
    upto = len(memory.ops)
    assert [unit.kind for unit in memory.units(upto)] == ["sector"] * 3
    lost = [memory.image(upto, all_but_one(number)).read(LOG) or b"" for number in range(4)]
    kept = [memory.image(upto, only_one(number)).read(LOG) or b"" for number in range(4)]
    assert [content[::SECTOR] for content in lost] == [b"\0xx", b"x\0x", b"xx\0", b"\0xx"]
    assert [content[::SECTOR] for content in kept] == [b"x\0\0", b"\0x\0", b"\0\0x", b"x\0\0"]


def test_a_file_that_grew_has_its_old_size_or_the_new_one_with_zeros() -> None:
    memory = synced_log(SECTOR)
    memory.resize(LOG, 3 * SECTOR)
    memory.open_big(LOG, 3 * SECTOR).write_at(2 * SECTOR, b"x")
    sizes = {len(content) for content in found(memory) if content is not None}
    assert sizes == {SECTOR, 3 * SECTOR}
    grown = {content for content in found(memory) if content and len(content) > SECTOR}
    assert grown == {bytes(3 * SECTOR), bytes(2 * SECTOR) + b"x".ljust(SECTOR, b"\0")}


def test_a_file_that_was_cut_and_lengthened_has_zeros_after_the_sync() -> None:
    memory = MemoryFiles()
    memory.put(LOG, b"x" * 700)
    memory.resize(LOG, 100)
    memory.resize(LOG, 700)
    memory.sync([LOG])
    assert found(memory) == {b"x" * 100 + bytes(600)}


def test_a_new_file_may_be_gone_until_its_folder_is_synced() -> None:
    memory = MemoryFiles(STORE)
    file = memory.open_big(LOG, SECTOR)
    file.write_at(0, b"x")
    file.sync()
    assert {None, b"x".ljust(SECTOR, b"\0")} == found(memory)
    memory.sync([STORE])
    assert None not in found(memory)


def test_a_file_whose_name_is_safe_may_be_empty_until_it_is_synced() -> None:
    memory = MemoryFiles(STORE)
    memory.open_big(LOG, SECTOR)
    memory.sync([STORE])
    assert found(memory) == {b"", bytes(SECTOR)}


def test_a_removed_file_may_be_there_again_until_its_folder_is_synced() -> None:
    memory = synced_log(SECTOR)
    memory.remove(LOG)
    assert found(memory) == {None, bytes(SECTOR)}
    memory.sync([STORE])
    assert found(memory) == {None}


def test_changes_of_names_in_one_folder_are_kept_in_order() -> None:
    memory = MemoryFiles(STORE)
    for name in "abc":
        memory.open_big(STORE / name, 1)
    upto = len(memory.ops)
    kept = {tuple(memory.image(upto, some(seed)).names(STORE)) for seed in range(200)}
    assert kept == {(), ("a",), ("a", "b"), ("a", "b", "c")}


def test_what_lies_in_a_folder_is_lost_with_the_folder() -> None:
    memory = MemoryFiles(STORE)
    memory.make_folder(STORE / "sub")
    memory.replace(STORE / "sub" / "table", b"x")
    assert memory.image(len(memory.ops), nothing()).contents() == {}
    memory.sync([STORE])
    image = memory.image(len(memory.ops), nothing())
    assert image.contents() == {STORE / "sub" / "table": b"x"}


def test_a_moved_file_is_always_in_one_of_its_places() -> None:
    memory = synced_log(SECTOR)
    target = STORE / "aside" / "1-log"
    memory.move(LOG, target)
    for upto in range(len(memory.ops) + 1):
        for seed in range(20):
            assert len(memory.image(upto, some(seed)).contents()) == 1
    assert list(memory.image(len(memory.ops), nothing()).contents()) == [target]


def test_a_new_file_that_was_moved_is_never_found_twice() -> None:
    memory = MemoryFiles(STORE, STORE / "aside")
    memory.open_big(LOG, SECTOR)
    memory.move(LOG, STORE / "aside" / "1-log")
    for upto in range(len(memory.ops) + 1):
        for seed in range(20):
            assert len(memory.image(upto, some(seed)).contents()) <= 1


@pytest.mark.parametrize("keep_backup", [False, True])
def test_a_replaced_table_is_the_old_or_the_new_one_after_every_power_cut(
    keep_backup: bool,
) -> None:
    memory = MemoryFiles()
    memory.put(TABLE, b"first" * 300)
    memory.replace(TABLE, b"second" * 300, keep_backup=keep_backup)
    memory.replace(TABLE, b"third" * 300, keep_backup=keep_backup)
    first_done = max(at for at, op in enumerate(memory.ops[:-1]) if op.kind == "sync_folder") + 1
    tables = [word * 300 for word in (b"first", b"second", b"third")]
    seen = set()
    for upto in range(len(memory.ops) + 1):
        for seed in range(30):
            image = memory.image(upto, some(seed))
            table = image.read(TABLE)
            assert table in (tables if upto < first_done else tables[1:])
            seen.add(table)
            backup = image.read(STORE / "table.bak")
            assert backup is None or backup in tables
    assert seen == set(tables)
    assert memory.image(len(memory.ops), nothing()).read(TABLE) == tables[2]


def test_a_table_replaced_after_a_crash_that_made_it_and_its_backup_one_leaves_no_link(
    tmp_path: Path,
) -> None:
    """Symptom: a rename between two names of one file does nothing, and `.bak.tmp` stayed."""
    (tmp_path / "table").write_bytes(b"old")
    (tmp_path / "table.bak").hardlink_to(tmp_path / "table")
    SystemFiles().replace(tmp_path / "table", b"new", keep_backup=True)
    memory = MemoryFiles()
    memory.put(TABLE, b"old")
    memory.replace(TABLE, b"lost", keep_backup=True)
    linked = next(at for at, op in enumerate(memory.ops) if op.kind == "rename") + 1
    image = memory.kill_image(linked)
    assert image.read(STORE / "table.bak") == image.read(TABLE) == b"old"
    image.replace(TABLE, b"new", keep_backup=True)
    for files, root in ((SystemFiles(), tmp_path), (image, STORE)):
        assert files.names(root) == ["table", "table.bak"]
        assert files.read(root / "table") == b"new"
        assert files.read(root / "table.bak") == b"old"


@pytest.mark.parametrize("has_nameless", [True, False])
def test_a_copy_or_reservation_that_a_power_cut_tears_is_not_found_under_its_name(
    has_nameless: bool,
) -> None:
    memory = MemoryFiles()
    memory.has_nameless = has_nameless
    memory.put(LOG, b"x" * 1500)
    memory.copy(LOG, STORE / "aside" / "copy", 100, 1300)
    memory.reserve(STORE / "next", 1500)
    for upto in range(len(memory.ops) + 1):
        for seed in range(20):
            image = memory.image(upto, some(seed))
            assert image.read(STORE / "aside" / "copy") in (None, b"x" * 1300)
            assert image.read(STORE / "next") in (None, bytes(1500))


def test_a_recovered_image_can_be_cut_again() -> None:
    memory = synced_log(SECTOR)
    memory.open_big(LOG, SECTOR).write_at(0, b"1")
    image = memory.image(len(memory.ops), everything())
    image.open_big(LOG, SECTOR).write_at(1, b"2")
    assert {content[:2] for content in found(image) if content} == {b"1\0", b"12"}


# ---- failures ------------------------------------------------------------------------------------


def test_a_sync_that_failed_is_not_made_good_by_the_next_one() -> None:
    """Symptom: pages count as clean after a failed sync, and the next sync says all is well."""
    memory = synced_log(SECTOR)
    file = memory.open_big(LOG, SECTOR)
    file.write_at(0, b"1")
    memory.fail("sync")
    with pytest.raises(SyncFailed, match="cannot sync"):
        file.sync()
    file.sync()
    assert {content[:1] for content in found(memory) if content} == {b"\0", b"1"}
    file.write_at(0, b"1")
    file.sync()
    assert {content[:1] for content in found(memory) if content} == {b"1"}


def test_a_sync_of_a_folder_that_failed_leaves_its_names_at_risk() -> None:
    memory = MemoryFiles(STORE)
    memory.open_big(LOG, SECTOR)
    memory.fail("sync_folder")
    with pytest.raises(SyncFailed):
        memory.sync([LOG, STORE])
    assert found(memory) == {None, bytes(SECTOR)}


def test_a_write_fails_at_the_nth_one_and_as_often_as_told() -> None:
    memory = synced_log(SECTOR)
    file = memory.open_big(LOG, SECTOR)
    memory.fail("write", 2, errno.EIO, times=2)
    file.write_at(0, b"1")
    for _ in range(2):
        with pytest.raises(WriteFailed, match="cannot write"):
            file.write_at(0, b"2")
    file.write_at(1, b"3")
    assert memory.read_at(LOG, 0, 2) == b"13"


def test_a_short_write_leaves_its_first_half_and_a_full_disk() -> None:
    memory = synced_log(SECTOR)
    file = memory.open_big(LOG, SECTOR)
    memory.fail("write", lambda op: op.position == 4, "short", times=None)
    file.write_at(0, b"1234")
    for _ in range(2):
        with pytest.raises(DiskFull, match="No space"):
            file.write_at(4, b"5678")
    assert memory.read_at(LOG, 0, 8) == b"123456\0\0"
    memory.heal()
    file.write_at(4, b"5678")
    assert memory.read_at(LOG, 0, 8) == b"12345678"


def test_a_read_or_rename_that_fails_is_one_of_our_errors() -> None:
    memory = synced_log(SECTOR)
    memory.fail("read", times=None)
    with pytest.raises(ReadFailed):
        memory.read_at(LOG, 0, 1)
    with pytest.raises(ReadFailed):
        memory.open_big(LOG, SECTOR).read_at(0, 1)
    with pytest.raises(OSError, match="Input/output"):
        memory.read(LOG)
    memory.fail("rename")
    with pytest.raises(WriteFailed):
        memory.replace(TABLE, b"x")
    assert not memory.is_folder(TABLE)
    assert memory.size(TABLE) is None


@pytest.mark.parametrize("has_nameless", [True, False])
def test_a_reservation_or_copy_on_a_full_disk_leaves_nothing_behind(has_nameless: bool) -> None:
    memory = synced_log(SECTOR)
    memory.has_nameless = has_nameless
    memory.fail("resize", lambda op: op.position > 0, errno.ENOSPC)
    with pytest.raises(DiskFull):
        memory.reserve(STORE / "next", 100)
    memory.fail("sync", lambda op: op.path.name == "copy.tmp")
    with pytest.raises(SyncFailed):
        memory.copy(LOG, STORE / "copy")
    assert list(memory.contents()) == [LOG]


def test_a_failure_can_be_something_to_do_instead() -> None:
    memory = synced_log(SECTOR)
    calls: list[int] = []
    memory.fail("sync", 1, lambda: calls.append(len(memory.ops)))
    memory.sync([LOG])
    assert calls == [0]
    assert memory.ops[-1].kind == "sync"
