"""Moving between file systems: what a rename cannot do is copied and then removed.

Method: a rename that is refused as the kernel refuses it, on real files and in the double, there
with a power cut after every operation; and a real second file system where one can be mounted.
"""

import errno
import os
from pathlib import Path

import pytest

from orbitmq.errors import DiskFull
from orbitmq.world.files import SystemFiles
from tests.store.opened import open_store, read_all, send
from tests.world.crash_images import everything, nothing, some
from tests.world.memory_files import MemoryFiles

FILES = SystemFiles()
SOURCE = Path("/far/topic")
TARGET = Path("/store/aside/1-topic")
CONTENTS = {"0/a": b"first" * 300, "0/b": b"", "1/a": bytes(600) + b"end"}


def test_a_file_and_a_folder_are_moved_to_another_file_system(
    tmp_path: Path, small_disk: Path
) -> None:
    """Symptom: Invalid cross-device link at every start."""
    (small_disk / "file").write_bytes(b"x" * 1000)
    for name, data in CONTENTS.items():
        path = small_disk / "topic" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    FILES.move(small_disk / "file", tmp_path / "aside" / "1-file")
    FILES.move(small_disk / "topic", tmp_path / "aside" / "2-topic")
    assert FILES.names(small_disk) == []
    assert (tmp_path / "aside" / "1-file").read_bytes() == b"x" * 1000
    moved = tmp_path / "aside" / "2-topic"
    assert {name: (moved / name).read_bytes() for name in CONTENTS} == CONTENTS
    assert FILES.names(tmp_path / "aside") == ["1-file", "2-topic"]


def test_a_folder_that_does_not_fit_stays_where_it_is(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "topic").mkdir()
    for name in "abc":
        (tmp_path / "topic" / name).write_bytes(b"x" * 500_000)
    with pytest.raises(DiskFull):
        FILES.move(tmp_path / "topic", small_disk / "topic")
    assert FILES.names(tmp_path / "topic") == ["a", "b", "c"]
    assert FILES.names(small_disk) == []


def test_a_store_whose_log_is_on_another_file_system_sets_strays_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a broker with commitlog as a link did not start any more."""
    store = open_store(tmp_path)
    send(store, 0, b"kept")
    store.close()
    (tmp_path / "commitlog" / "notes.txt").write_bytes(b"stray")
    rename = os.replace

    def refuse_across(path: Path, target: Path) -> None:
        if path.parent != target.parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(path, target)

    monkeypatch.setattr(os, "replace", refuse_across)
    store = open_store(tmp_path)
    assert read_all(store, 0) == [b"kept"]
    store.close()
    assert (tmp_path / "aside" / "1-commitlog-notes.txt").read_bytes() == b"stray"
    assert not (tmp_path / "commitlog" / "notes.txt").exists()


def test_a_power_cut_while_moving_leaves_a_whole_one_somewhere() -> None:
    memory = MemoryFiles()
    for name, data in CONTENTS.items():
        memory.put(SOURCE / name, data)
    memory.make_folder(TARGET.parent.parent)
    memory.forget_ops()
    memory.fail("rename", lambda op: op.path == SOURCE, errno.EXDEV, times=None)
    memory.move(SOURCE, TARGET)
    assert memory.contents() == {TARGET / name: data for name, data in CONTENTS.items()}
    for upto in range(len(memory.ops) + 1):
        for choose in (nothing(), everything(), some(upto), some(-1 - upto)):
            left = memory.image(upto, choose).contents()
            found = [
                all(left.get(place / name) == data for name, data in CONTENTS.items())
                for place in (SOURCE, TARGET)
            ]
            assert any(found), f"after {upto} operations"
            if any(path.is_relative_to(TARGET) for path in left):
                assert found[1], f"half a folder under its name after {upto} operations"
