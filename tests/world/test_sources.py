"""Which files a reload looks at."""

from pathlib import Path

from orbitmq.world.sources import source_times


def test_a_folder_that_leads_back_to_itself_is_looked_at_once(tmp_path: Path) -> None:
    """A reload could not begin in a folder with such a link."""
    inner = tmp_path / "inner"
    inner.mkdir()
    for path in (tmp_path / "a.py", inner / "b.py", inner / "notes.txt"):
        path.write_text("")
    (inner / "back").symlink_to(tmp_path)
    assert set(source_times(tmp_path)) == {tmp_path / "a.py", inner / "b.py"}


def test_hidden_folders_and_dangling_links_are_left_out(tmp_path: Path) -> None:
    hidden = tmp_path / ".venv"
    hidden.mkdir()
    (hidden / "c.py").write_text("")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing.py")
    assert source_times(tmp_path) == {}


def test_a_change_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("one")
    before = source_times(tmp_path)
    source.unlink()
    assert source_times(tmp_path) != before
