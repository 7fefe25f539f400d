"""Holes in files: where the system knows them they are not read, where it does not all is data."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from orbitmq.errors import ReadFailed
from orbitmq.world import big_file
from orbitmq.world.files import SystemFiles

FILES = SystemFiles()
SIZE = 1 << 24


def refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


def holed(path: Path, *places: int) -> Path:
    """Make a file of holes with a few bytes at some places."""
    with path.open("wb") as file:
        for place in places:
            file.seek(place)
            file.write(b"data")
        file.truncate(SIZE)
    return path


def test_holes_are_not_among_the_data_ranges(tmp_path: Path) -> None:
    path = holed(tmp_path / "file", 100, 8 << 20)
    first, second = FILES.data_ranges(path, 0)
    assert first[0] <= 100 < first[1] < 1 << 20
    assert second[0] <= 8 << 20 < second[1] < 9 << 20
    assert FILES.data_ranges(path, 102)[0][0] == 102
    assert FILES.data_ranges(path, first[1]) == [second]
    assert FILES.data_ranges(path, second[1]) == []
    assert FILES.data_ranges(path, SIZE + 1) == []
    assert FILES.data_ranges(tmp_path / "none", 0) == []


def test_behind_many_holes_all_the_rest_counts_as_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(big_file, "RANGES_MAX", 2)
    path = holed(tmp_path / "file", *range(0, SIZE, 1 << 20))
    ranges = FILES.data_ranges(path, 0)
    assert len(ranges) == 3
    assert ranges[1][1] == ranges[2][0]
    assert ranges[2][1] == SIZE


def test_where_holes_are_not_known_everything_is_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = holed(tmp_path / "file", 100)
    monkeypatch.setattr(os, "lseek", lambda *_args: refuse(errno.EINVAL))
    assert FILES.data_ranges(path, 7) == [(7, SIZE)]
    assert FILES.is_zeros(path, 104, SIZE - 104) is True
    assert FILES.is_zeros(path, 103, SIZE - 103) is False
    monkeypatch.setattr(os, "lseek", lambda *_args: refuse(errno.EIO))
    with pytest.raises(ReadFailed, match=f"cannot read {path}"):
        FILES.data_ranges(path, 7)


def test_the_rest_of_a_file_is_zeros_or_not_and_holes_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = holed(tmp_path / "file", 100, 8 << 20)
    read: list[int] = []
    whole = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        read.append(size)
        return whole(fd, size, position)

    monkeypatch.setattr(os, "pread", counted)
    assert FILES.is_zeros(path, 104, SIZE - 104) is False
    behind = (8 << 20) + 4
    assert FILES.is_zeros(str(path), behind, SIZE - behind) is True
    assert sum(read) < 1 << 20
    assert FILES.is_zeros(path, behind, SIZE - behind - 1) is False, "it is longer than that"
    assert FILES.is_zeros(path, behind, SIZE - behind + 1) is False, "it is shorter than that"
    assert FILES.is_zeros(tmp_path / "none", 0, 0) is None
