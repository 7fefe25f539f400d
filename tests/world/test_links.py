"""Folders of links: made once, by whoever comes first, for what is there or comes later."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.errors import MQError
from orbitmq.world.links import link_into


def test_links_lead_to_what_is_there_and_to_what_comes_later(tmp_path: Path) -> None:
    there, later = tmp_path / "there", tmp_path / "later"
    there.write_text("now")
    folder = tmp_path / "a" / "links"
    link_into(folder, [there, later])
    assert (folder / "there").read_text() == "now"
    assert not (folder / "later").exists()
    later.write_text("then")
    assert (folder / "later").read_text() == "then"


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    folder, target = tmp_path / "links", tmp_path / "target"
    folder.mkdir()
    (folder / "target").write_text("mine")
    link_into(folder, [target])
    assert (folder / "target").read_text() == "mine"


def test_several_that_make_the_same_folder_at_once_all_have_it(tmp_path: Path) -> None:
    targets = [tmp_path / str(number) for number in range(50)]
    folder = tmp_path / "links"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: link_into(folder, targets), range(4)))
    assert {path.readlink() for path in folder.iterdir()} == set(targets)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MQError, match=r"make links in .*file/links"):
        link_into(tmp_path / "file" / "links", [tmp_path])
