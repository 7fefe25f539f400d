"""The lock of a folder: between processes, and between two parts of one process."""

import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.world.files import SystemFiles

FILES = SystemFiles()
TRY_LOCK = (
    "import sys; from pathlib import Path; from orbitmq.world.files import SystemFiles; "
    "SystemFiles().lock(Path(sys.argv[1]))"
)


def is_locked_for_others(path: Path) -> bool:
    ended = subprocess.run(
        [sys.executable, "-c", TRY_LOCK, str(path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 0 or "another process has" in ended.stderr
    return ended.returncode != 0


def test_a_process_cannot_open_a_folder_twice(tmp_path: Path) -> None:
    """Symptom: two stores wrote to one folder, and closing one took the other's lock away."""
    path = tmp_path / "lock"
    lock = FILES.lock(path)
    (tmp_path / "link").symlink_to(tmp_path)
    for same in (path, tmp_path / "link" / "lock"):
        with pytest.raises(StoreError, match=f"this process has {same.parent} open already"):
            FILES.lock(same)
    assert is_locked_for_others(path), "the refused attempts took nothing away"
    lock.release()
    assert not is_locked_for_others(path)
    FILES.lock(path).release()


def test_two_folders_of_one_process_are_apart(tmp_path: Path) -> None:
    locks = [FILES.lock(tmp_path / name) for name in ("one", "two")]
    locks[0].release()
    assert not is_locked_for_others(tmp_path / "one")
    assert is_locked_for_others(tmp_path / "two")
    locks[1].release()


def test_a_lock_file_that_was_removed_and_made_again_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FILES.lock(path)
    path.unlink()
    second = FILES.lock(path)
    first.release()
    assert is_locked_for_others(path)
    second.release()


TRY_HOLD = TRY_LOCK.replace(".lock(", ".hold(")


def test_a_folder_is_held_by_one_whatever_it_is_called_and_nothing_is_put_into_it(
    tmp_path: Path,
) -> None:
    folder, link = tmp_path / "log", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    held = FILES.hold(folder)
    for same in (folder, link):
        with pytest.raises(StoreError, match=f"another broker has the log folder {same} open"):
            FILES.hold(same)
        other = subprocess.run(
            [sys.executable, "-c", TRY_HOLD, str(same)],
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert b"another broker has the log folder" in other.stderr
    assert list(folder.iterdir()) == []
    held.release()
    FILES.hold(link).release()


def test_what_is_no_folder_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open"):
        FILES.hold(tmp_path / "missing")
