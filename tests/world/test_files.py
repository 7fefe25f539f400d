"""Files of the system: what each call does, and what the system refuses.

A refusal is one of our errors that names the file and its cause, and leaves nothing open. Where the
disk must be full, a small tmpfs is mounted; where mounting is not allowed, that test is skipped.
"""

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import DiskFull, ReadFailed, StoreError, SyncFailed, WriteFailed
from orbitmq.world import files as files_module
from orbitmq.world.files import NO_FILE, SYNC_EACH_MAX, Space, SystemFiles

FILES = SystemFiles()


def refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


def open_count() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("module", "call", "number", "error"),
    [
        (os, "ftruncate", errno.ENOSPC, DiskFull),
        (os, "ftruncate", errno.EIO, WriteFailed),
        (mmap, "mmap", errno.ENOMEM, WriteFailed),
    ],
)
def test_a_big_file_that_gets_no_size_or_no_map_is_a_store_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    call: str,
    number: int,
    error: type[StoreError],
) -> None:
    """Symptom: a bare OSError went past everything that answers senders."""
    before = open_count()
    monkeypatch.setattr(module, call, lambda *_args, **_names: refuse(number))
    with pytest.raises(error, match=f"{tmp_path / 'big'}: {os.strerror(number)}"):
        SystemFiles().open_big(tmp_path / "big", 4096)
    assert open_count() == before


def test_a_sync_that_is_refused_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SystemFiles().open_big(tmp_path / "big", 4096)
    monkeypatch.setattr(os, "fdatasync", lambda _fd: refuse(errno.EIO))
    with pytest.raises(SyncFailed, match="cannot sync"):
        file.sync()
    file.close()


def test_slices_of_a_closed_file_stay_readable_and_its_view_does_not(tmp_path: Path) -> None:
    file = SystemFiles().open_big(tmp_path / "big", 4096)
    file.write_at(10, b"kept")
    view = file.view()
    piece = view[10:14]
    file.close()
    assert bytes(piece) == b"kept"
    with pytest.raises(ValueError, match="released"):
        view.tobytes()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EAGAIN])
def test_a_lock_that_is_taken_is_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "lockf", lambda *_args: refuse(number))
    with pytest.raises(StoreError, match="another process"):
        SystemFiles().lock(tmp_path / "lock")


def test_a_lock_that_the_system_cannot_give_is_not_blamed_on_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_count()
    monkeypatch.setattr(fcntl, "lockf", lambda *_args: refuse(errno.ENOLCK))
    with pytest.raises(StoreError, match=f"cannot lock {tmp_path / 'lock'}"):
        SystemFiles().lock(tmp_path / "lock")
    assert open_count() == before


def test_a_folder_where_the_lock_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreError, match=f"cannot open {tmp_path / 'lock'}: Is a directory"):
        SystemFiles().lock(tmp_path / "lock")


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "commitlog").write_bytes(b"")
    with pytest.raises(StoreError, match=f"cannot list {tmp_path / 'commitlog'}: Not a directory"):
        SystemFiles().names(tmp_path / "commitlog")


# ---- reading and asking --------------------------------------------------------------------------


def test_read_at_gives_the_bytes_at_a_place_and_less_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    before = open_count()
    assert FILES.read_at(tmp_path / "file", 2, 3) == b"234"
    assert FILES.read_at(tmp_path / "file", 8, 100) == b"89"
    assert FILES.read_at(tmp_path / "file", 100, 5) == b""
    assert FILES.read_at(tmp_path / "none", 0, 1) is None
    assert FILES.read_at(tmp_path / "file" / "inside", 0, 1) is None
    assert open_count() == before


def test_read_at_goes_on_after_a_short_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: whole(fd, min(size, 3), at))
    assert FILES.read_at(tmp_path / "file", 1, 8) == b"12345678"
    assert FILES.read_at(tmp_path / "file", 1, 80) == b"123456789"


def test_a_read_that_the_system_refuses_is_not_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_count()
    with pytest.raises(ReadFailed, match=f"cannot read {tmp_path}: Is a directory"):
        FILES.read_at(tmp_path, 0, 1)
    file = FILES.open_big(tmp_path / "big", 10)
    monkeypatch.setattr(os, "pread", lambda *_args: refuse(errno.EIO))
    with pytest.raises(ReadFailed, match=r"cannot read .*big: Input/output error"):
        file.read_at(0, 1)
    file.close()
    monkeypatch.setattr(os, "open", lambda *_args: refuse(errno.EMFILE))
    with pytest.raises(ReadFailed, match=r"cannot open .*big: Too many open files"):
        FILES.read_at(tmp_path / "big", 0, 1)
    assert open_count() == before


def test_a_big_file_without_a_map_is_read_at_positions(tmp_path: Path) -> None:
    file = FILES.open_big(tmp_path / "big", 10, is_mapped=False)
    file.write_at(3, b"abc")
    assert file.read_at(2, 5) == b"\0abc\0"
    assert file.read_at(8, 5) == b"\0\0"
    with pytest.raises(BrokenInvariant, match="without a map"):
        file.view()
    file.close()


def test_what_is_asked_of_files_folders_and_nothing(tmp_path: Path) -> None:
    file, folder, none = tmp_path / "file", tmp_path / "folder", tmp_path / "file" / "none"
    file.write_bytes(b"123")
    os.utime(file, ns=(0, 1_234_567_890))
    folder.mkdir()
    assert [FILES.size(path) for path in (file, folder, none)] == [3, None, None]
    assert [FILES.is_folder(path) for path in (file, folder, none)] == [False, True, False]
    assert FILES.modified_ms(file) == 1234
    assert FILES.modified_ms(none) is None


def test_what_may_not_be_asked_is_a_read_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReadFailed, match=r"cannot ask the space of .*none"):
        FILES.space(tmp_path / "none")
    monkeypatch.setattr(os, "stat", lambda _path: refuse(errno.EACCES))
    with pytest.raises(ReadFailed, match=r"cannot look at .*file: Permission denied"):
        FILES.size(tmp_path / "file")


def test_a_listing_has_names_in_order_and_the_sizes_of_files(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"123")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "b")
    (tmp_path / "d").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "e")
    found = [("a", NO_FILE), ("b", 3), ("c", 3), ("d", NO_FILE), ("e", NO_FILE)]
    assert FILES.listing(tmp_path) == FILES.listing(str(tmp_path)) == found
    assert FILES.listing(tmp_path / "a") == []


def test_what_is_no_folder_has_no_listing_and_a_refused_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert FILES.listing(tmp_path / "file") is None
    assert FILES.listing(tmp_path / "none") is None
    monkeypatch.setattr(os, "scandir", lambda _path: refuse(errno.EIO))
    with pytest.raises(StoreError, match=f"cannot list {tmp_path}: Input/output error"):
        FILES.listing(tmp_path)


def test_space_is_in_bytes_and_free_is_what_we_may_take(tmp_path: Path) -> None:
    facts = os.statvfs(tmp_path)
    space = FILES.space(tmp_path)
    assert space.total == facts.f_blocks * facts.f_frsize
    assert 0 <= space.free <= space.total


# ---- changing ------------------------------------------------------------------------------------


def test_reserving_never_replaces_a_file_that_appears_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer makes the next log file itself when it is faster than the thread that reserves."""
    path = tmp_path / "next"

    def allocate(fd: int, start: int, size: int) -> None:
        path.write_bytes(b"acknowledged")
        os.truncate(fd, start + size)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    with pytest.raises(WriteFailed, match="File exists"):
        FILES.reserve(path, 100)
    assert path.read_bytes() == b"acknowledged"
    assert [name.name for name in tmp_path.iterdir()] == ["next"]


def without_nameless_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system refuse files without a name, as old ones and some file systems do."""
    whole = os.open

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            refuse(errno.EOPNOTSUPP)
        return whole(path, flags, mode)

    monkeypatch.setattr(os, "open", opened)


def test_new_files_get_their_length_before_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a kill left an empty queue file, on which the original broker does not start."""
    present: list[list[str]] = []
    truncate, allocate = os.ftruncate, os.posix_fallocate

    def truncated(fd: int, size: int) -> None:
        present.append(FILES.names(tmp_path))
        truncate(fd, size)

    def allocated(fd: int, start: int, size: int) -> None:
        present.append(FILES.names(tmp_path))
        allocate(fd, start, size)

    monkeypatch.setattr(os, "ftruncate", truncated)
    monkeypatch.setattr(os, "posix_fallocate", allocated)
    FILES.open_big(tmp_path / "big", 4096).close()
    FILES.reserve(tmp_path / "next", 4096)
    assert present == [[], ["big"]]
    assert [FILES.size(tmp_path / name) for name in ("big", "next")] == [4096, 4096]


def test_files_are_made_under_a_name_where_there_are_none_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_nameless_files(monkeypatch)
    FILES.open_big(tmp_path / "big", 4096).close()
    FILES.reserve(tmp_path / "next", 4096)
    assert FILES.names(tmp_path) == ["big", "next"]
    assert [FILES.size(tmp_path / name) for name in ("big", "next")] == [4096, 4096]


def test_a_reserved_file_has_its_space_and_is_never_written_over(tmp_path: Path) -> None:
    FILES.reserve(tmp_path / "next", 100_000)
    facts = (tmp_path / "next").stat()
    assert facts.st_size == 100_000
    assert facts.st_blocks * 512 >= 100_000
    assert FILES.names(tmp_path) == ["next"]
    with pytest.raises(WriteFailed, match=r"cannot reserve 5 bytes for .*next: File exists"):
        FILES.reserve(tmp_path / "next", 5)
    assert FILES.size(tmp_path / "next") == 100_000


def test_a_file_system_without_reservations_gives_a_sparse_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", lambda *_args: refuse(errno.EOPNOTSUPP))
    FILES.reserve(tmp_path / "next", 5000)
    assert FILES.read(tmp_path / "next") == bytes(5000)


def test_resize_cuts_and_lengthens_with_zeros(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    FILES.resize(tmp_path / "file", 2)
    FILES.resize(tmp_path / "file", 4)
    assert FILES.read(tmp_path / "file") == b"12\0\0"
    with pytest.raises(WriteFailed, match=r"cannot give 9 bytes to .*none"):
        FILES.resize(tmp_path / "none", 9)


def test_a_copy_is_whole_or_a_part_and_zeros_take_no_space(tmp_path: Path) -> None:
    data = b"head" + bytes(5 << 20) + b"tail"
    (tmp_path / "file").write_bytes(data)
    target = tmp_path / "aside" / "deep" / "1-file"
    FILES.copy(tmp_path / "file", target)
    assert target.read_bytes() == data
    assert target.stat().st_blocks * 512 < 3 << 20
    FILES.copy(tmp_path / "file", target.with_name("part"), len(data) - 6, 4)
    FILES.copy(tmp_path / "file", target.with_name("rest"), len(data) - 6)
    assert FILES.read(target.with_name("part")) == b"\0\0ta"
    assert FILES.read(target.with_name("rest")) == b"\0\0tail"
    assert FILES.names(target.parent) == ["1-file", "part", "rest"]


def test_nothing_is_moved_or_copied_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "new").write_bytes(b"new")
    with pytest.raises(WriteFailed, match=r"cannot move .*new to .*old: File exists"):
        FILES.move(tmp_path / "new", tmp_path / "old")
    with pytest.raises(WriteFailed, match=r"cannot copy .*new to .*old: File exists"):
        FILES.copy(tmp_path / "new", tmp_path / "old")
    with pytest.raises(WriteFailed, match=r"cannot copy .*none to .*x: No such file"):
        FILES.copy(tmp_path / "none", tmp_path / "x")
    assert FILES.read(tmp_path / "old") == b"old"


def test_a_file_or_folder_is_moved_into_a_folder_that_is_made(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "0").write_bytes(b"x")
    FILES.move(tmp_path / "queue", tmp_path / "aside" / "1" / "queue")
    assert FILES.read(tmp_path / "aside" / "1" / "queue" / "0") == b"x"
    assert FILES.names(tmp_path) == ["aside"]


def test_files_and_empty_folders_are_removed_and_missing_ones_are_fine(tmp_path: Path) -> None:
    FILES.make_folder(tmp_path / "a" / "b")
    (tmp_path / "a" / "file").write_bytes(b"")
    FILES.remove_folder(tmp_path / "a" / "b")
    FILES.remove_folder(tmp_path / "a")
    assert FILES.names(tmp_path / "a") == ["file"]
    for _ in range(2):
        FILES.remove(tmp_path / "a" / "file")
        FILES.remove_folder(tmp_path / "a")
    assert FILES.names(tmp_path) == []
    with pytest.raises(WriteFailed, match="cannot remove"):
        FILES.remove(tmp_path)


# ---- syncing -------------------------------------------------------------------------------------


class Synced:
    """Notes which files the system is asked to sync, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        for call in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, call, self._noting(getattr(os, call)))

    def _noting(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def noting(fd: int) -> None:
            self.names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
            call(fd)

        return noting


def test_sync_takes_files_and_folders_and_passes_over_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    synced = Synced(monkeypatch)
    before = open_count()
    FILES.sync([tmp_path / "file", tmp_path / "none", tmp_path / "file" / "none", tmp_path])
    assert synced.names == ["file", tmp_path.name]
    assert open_count() == before


def test_names_are_synced_after_contents_and_new_folders_with_their_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    synced = Synced(monkeypatch)
    FILES.copy(tmp_path / "file", tmp_path / "a" / "b" / "file")
    assert synced.names == [tmp_path.name, "a", "file.tmp", "b"]
    synced.names.clear()
    FILES.move(tmp_path / "file", tmp_path / "a" / "moved")
    assert synced.names == ["a", tmp_path.name]
    synced.names.clear()
    FILES.replace(tmp_path / "table", b"x")
    without_nameless_files(monkeypatch)
    FILES.reserve(tmp_path / "next", 10)
    assert synced.names == ["table.tmp", tmp_path.name, "next.tmp", tmp_path.name]


@pytest.fixture
def many(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / str(number) for number in range(SYNC_EACH_MAX + 1)]
    for path in paths:
        path.write_bytes(b"x")
    return paths


def test_many_files_are_synced_with_one_call_for_their_file_system(
    many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Synced(monkeypatch)
    before = open_count()
    calls: list[int] = []
    whole = files_module._syncfs
    assert whole is not None

    def counted(fd: int) -> int:
        calls.append(fd)
        return whole(fd)

    monkeypatch.setattr(files_module, "_syncfs", counted)
    FILES.sync([many[0].with_name("none"), *many])
    assert len(calls) == 1
    assert synced.names == []
    assert open_count() == before
    FILES.sync(many[1:])
    assert synced.names == [path.name for path in many[1:]]


def test_many_files_are_synced_one_by_one_where_the_system_cannot_do_better(
    many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Synced(monkeypatch)
    monkeypatch.setattr(files_module, "_syncfs", None)
    FILES.sync(many)
    assert synced.names == [path.name for path in many]


def test_a_refused_sync_of_many_files_tells_the_cause(
    many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files_module._syncfs
    assert whole is not None
    monkeypatch.setattr(files_module, "_syncfs", lambda _fd: whole(-1))
    before = open_count()
    with pytest.raises(SyncFailed, match=r"cannot sync .*/0: Bad file descriptor.*restart"):
        FILES.sync(many)
    assert open_count() == before


@pytest.mark.parametrize("call", ["open", "fstat", "fsync"])
def test_every_sync_that_fails_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    before = open_count()
    monkeypatch.setattr(os, call, lambda *_args: refuse(errno.EIO))
    with pytest.raises(SyncFailed, match=f"cannot sync {tmp_path}: Input/output error"):
        FILES.sync([tmp_path])
    monkeypatch.undo()
    assert open_count() == before


def test_a_table_whose_sync_fails_stays_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FILES.replace(tmp_path / "table", b"old")
    monkeypatch.setattr(os, "fdatasync", lambda _fd: refuse(errno.EIO))
    with pytest.raises(SyncFailed, match=r"cannot sync .*table.tmp"):
        FILES.replace(tmp_path / "table", b"new")
    assert FILES.read(tmp_path / "table") == b"old"


def test_two_threads_make_the_same_folder(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"abcdefgh")
    threads = [threading.Thread(target=FILES.make_folder, args=(deep,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert FILES.is_folder(deep)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WriteFailed, match="cannot make folder"):
        FILES.make_folder(tmp_path / "file" / "x")


# ---- a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_is_told_as_such_and_leaves_nothing_of_what_did_not_fit(
    small_disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(b"x" * (2 << 20))
    assert FILES.space(small_disk) == Space(1 << 20, 1 << 20)
    with pytest.raises(DiskFull, match=r"No space left on device; free space .*--data-dir"):
        FILES.reserve(small_disk / "next", 2 << 20)
    with pytest.raises(DiskFull, match=r"cannot copy .*big to .*copy: No space left on device"):
        FILES.copy(tmp_path / "big", small_disk / "copy")
    assert FILES.names(small_disk) == []
    FILES.reserve(small_disk / "next", 900_000)
    with pytest.raises(DiskFull, match="cannot replace"):
        FILES.replace(small_disk / "table", b"x" * 200_000)
    file = FILES.open_big(small_disk / "next", 900_000, is_mapped=False)
    file.write_at(0, b"x" * 900_000)  # reserved: there is room for it whatever else is full
    file.close()
    assert FILES.read(small_disk / "table") is None


def test_a_sparse_file_meets_the_full_disk_when_it_is_written(small_disk: Path) -> None:
    file = FILES.open_big(small_disk / "log", 2 << 20, is_mapped=False)
    file.write_at(0, b"x" * 500_000)
    with pytest.raises(DiskFull, match="cannot write"):
        file.write_at(500_000, b"x" * 1_000_000)
    assert file.read_at(499_999, 1) == b"x"
    file.close()
