"""Figures on pages are those of the runs in docs/figures.json; nobody has edited one by hand."""

import re
from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.page import PAGES, TO_COME, Kept, PageUnlike

TEXTS = [pytest.param(path, id=path.name) for path in PAGES]


@pytest.mark.parametrize("path", TEXTS)
def test_a_page_shows_what_the_runs_found(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert page.places_of(text), "the page has places for tables"
    assert page.filled(text, page.read_kept().tables()) == text, (
        "the page is not that of docs/figures.json: run `python -m benchmarks.page`"
    )


def test_a_figure_that_was_edited_by_hand_is_noticed() -> None:
    text = PAGES[1].read_text(encoding="utf-8")
    made = page.read_kept().tables()
    figure = re.search(r"\| (\d[\d,]+)/s/core", text)
    assert figure is not None
    edited = text.replace(figure[1], "9,999,999")
    assert page.filled(edited, made) == text != edited


@pytest.mark.parametrize("path", TEXTS)
def test_no_table_of_figures_stands_outside_its_place(path: Path) -> None:
    """A table written by hand could say anything."""
    text = page.filled(path.read_text(encoding="utf-8"), {})
    assert re.findall(r"^\|[-:|]*--:\|.*$", text, re.MULTILINE) == []


def test_a_place_without_a_table_says_that_its_figures_come(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- table: a -->\n| old |\n<!-- end of table -->\nafter\n")
    page.write_pages(Kept(), [path])
    empty = path.read_text()
    assert empty == f"before\n<!-- table: a -->\n\n{TO_COME}\n\n<!-- end of table -->\nafter\n"
    page.write_pages(Kept(spark={"a": [("what", "is"), ("speed", "7")]}), [path])
    assert "\n| what | is |\n|---|---:|\n| speed | 7 |\n" in path.read_text()
    page.write_pages(Kept(), [path])
    assert path.read_text() == empty


def test_a_table_without_a_place_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("<!-- table: a -->\n<!-- end of table -->\n")
    made = Kept(spark={"a": [("what", "is")], "b": [("what", "is")]})
    with pytest.raises(PageUnlike, match=r"no place for the tables b$"):
        page.write_pages(made, [path])
    assert path.read_text() == "<!-- table: a -->\n<!-- end of table -->\n"
