"""Files that the system refuses: one of our errors that names the file, nothing left open."""

import errno
import fcntl
import mmap
import os
from pathlib import Path
from typing import NoReturn

import pytest

from orbitmq.errors import DiskFull, StoreError, WriteFailed
from orbitmq.world.files import SystemFiles


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
    with pytest.raises(WriteFailed, match="cannot sync"):
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
