"""The tables of the README and of docs/performance.md, all made from docs/figures.json.

In: what runs found. Out: `docs/figures.json`, and the pages with its tables; `python -m
benchmarks.page` makes the pages anew from the file. Rules:

1. A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; everything else on a
   page is written by hand and kept. A table without a place is an error, and then nothing is
   written; a place without a table says that its figures come with the next run.
2. The file has two parts, each of one run: `run` of `python -m benchmarks`, and `spark`, the tables
   of `python -m benchmarks.spark`.
3. Nobody writes a figure into these tables by hand: tests/docs/test_figures.py compares.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.report import Report
from benchmarks.servers import ROOT
from benchmarks.tables import Table, Tables, tables

PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
FIGURES = ROOT / "docs" / "figures.json"
TO_COME = "*The figures come with the next run on a quiet machine.*"
END = "<!-- end of table -->"
_PLACE = re.compile(rf"(<!-- table: (.+?) -->\n).*?({END})", re.DOTALL)


class PageUnlike(Exception):
    """The pages have no place for a table."""


@dataclass(slots=True)
class Kept:
    """What docs/figures.json holds."""

    run: Report | None = None
    spark: Tables = field(default_factory=dict)

    def tables(self) -> Tables:
        """Return every table that there is."""
        return (tables(self.run) if self.run else {}) | self.spark


def read_kept(path: Path = FIGURES) -> Kept:
    """Return what was kept of the last runs."""
    return msgspec.json.decode(path.read_bytes(), type=Kept) if path.exists() else Kept()


def keep(kept: Kept, path: Path = FIGURES) -> None:
    """Write the file from which the pages are made."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


def write_pages(kept: Kept, pages: Sequence[Path] = PAGES) -> None:
    """Fill the pages; raises PageUnlike when a table has no place on any of them."""
    made = kept.tables()
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    places = {name for text in texts.values() for name in places_of(text)}
    if missing := made.keys() - places:
        raise PageUnlike(f"the pages have no place for the tables {', '.join(sorted(missing))}")
    for path, text in texts.items():
        path.write_text(filled(text, made), encoding="utf-8")


def places_of(text: str) -> list[str]:
    """Return the names of the tables that a page has places for."""
    return [name for _, name, _ in _PLACE.findall(text)]


def filled(text: str, made: Mapping[str, Table]) -> str:
    """Return a page with its tables."""

    def fill(place: re.Match[str]) -> str:
        head, name, end = place.groups()
        body = "\n".join(table_lines(made[name])) if name in made else TO_COME
        return f"{head}\n{body}\n\n{end}"

    return _PLACE.sub(fill, text)


def table_lines(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column is text, the others are figures."""
    head, *rows = table
    marks = ["---", *("---:" for _ in head[1:])]
    return [_line(head), "|" + "|".join(marks) + "|", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    write_pages(read_kept())
