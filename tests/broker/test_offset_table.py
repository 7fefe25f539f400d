"""The table of consumer offsets: what is stored, found by group and topic, saved and reset."""

import logging
from pathlib import Path

import pytest

from orbitmq.broker import offsets
from orbitmq.broker.offsets import OffsetTable
from orbitmq.core import CoreState, LogTail
from orbitmq.errors import LimitExceeded
from orbitmq.world.files import SystemFiles


def opened(folder: Path) -> OffsetTable:
    return OffsetTable(SystemFiles(), folder, CoreState(LogTail(4096, 0), "c", "r"))


def save(table: OffsetTable) -> bool:
    """Look for changes and save them; whether there were any."""
    for _ in table.looking():
        pass
    action = table.file.take()
    if action is None:
        return False
    action()
    return True


def test_a_lower_offset_is_stored_and_told_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = opened(tmp_path)
    with caplog.at_level(logging.WARNING):
        for offset in (9, 3, 8, 2, 7, 1, 6, 0):
            assert table.commit("G", "T", 0, offset)
    assert table.find("G", "T", 0) == 0
    told = [record.getMessage() for record in caplog.records]
    assert [text.split("went back ")[1].split(" (")[0] for text in told] == [
        "from 9 to 3",
        "from 8 to 2",
        "from 6 to 0",
    ]


def test_an_offset_below_zero_is_not_stored(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.commit("G", "T", 0, -1)
    assert table.find("G", "T", 0) is None
    assert table.topics_of("G") == []


def test_the_file_is_written_when_something_moved_and_read_again(tmp_path: Path) -> None:
    table = opened(tmp_path)
    assert not save(table)
    table.commit("G", "T", 0, 5)
    table.commit("G", "T", 1, 0)
    assert save(table)
    assert not save(table)
    assert (tmp_path / "consumerOffset.json").read_bytes() == b'{"offsetTable":{"T@G":{0:5,1:0}}}'
    again = opened(tmp_path)
    assert again.find_all("G", "T") == {0: 5, 1: 0}
    assert (again.topics_of("G"), again.groups_of("T")) == (["T"], ["G"])


def test_offsets_below_zero_of_an_originals_file_are_none(tmp_path: Path) -> None:
    text = '{"offsetTable":{"T@G":{0:-1,1:4}}}'
    (tmp_path / "consumerOffset.json").write_text(text)
    assert opened(tmp_path).find_all("G", "T") == {1: 4}


def test_changes_are_looked_for_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "LOOK_SLICE", 10)
    table = opened(tmp_path)
    for number in range(35):
        table.commit(f"G{number}", "T", 0, number)
    assert len(list(table.looking())) == 3
    table.commit("G34", "T", 0, 99)
    assert save(table)
    assert opened(tmp_path).find("G34", "T", 0) == 99


def test_removing_a_group_or_a_topic_forgets_its_offsets_and_no_other(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for group, topic in (("G", "T"), ("G", "U"), ("H", "T"), ("H", "U")):
        table.commit(group, topic, 0, 1)
    table.remove_group("G")
    assert (table.topics_of("G"), table.topics_of("H")) == ([], ["T", "U"])
    table.remove_topic("T")
    assert (table.groups_of("T"), table.groups_of("U")) == ([], ["H"])
    assert table.contents()() == b'{"offsetTable":{"U@H":{0:1}}}'
    assert save(table)


def test_a_clone_stands_where_the_other_group_does(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.commit("G", "T", 0, 5)
    table.commit("G", "T", 3, 7)
    table.commit("G", "U", 0, 9)
    table.clone("G", "H", "T")
    assert (table.find_all("H", "T"), table.topics_of("H")) == ({0: 5, 3: 7}, ["T"])


def test_a_reset_offset_stays_until_it_was_taken_note_of(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.commit("G", "T", 0, 9)
    table.reset("G", "T", 0, 2)
    assert not table.commit("G", "T", 0, 10)
    assert table.commit("G", "T", 1, 4)
    assert table.find("G", "T", 0) == 2
    assert table.take_reset("G", "T", 1) is None
    assert table.has_resets("G")
    assert table.take_reset("G", "T", 0) == 2
    assert not table.has_resets("G")
    assert table.take_reset("G", "T", 0) is None
    assert table.commit("G", "T", 0, 3)
    assert table.find("G", "T", 0) == 3


def test_there_is_a_limit_of_topics_and_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "KEYS_MAX", 1)
    table = opened(tmp_path)
    table.commit("G", "T", 0, 1)
    with pytest.raises(LimitExceeded, match="deleteSubGroup"):
        table.commit("H", "T", 0, 1)
    assert table.commit("G", "T", 5, 1)
