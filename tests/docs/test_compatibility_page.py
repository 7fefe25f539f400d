"""The page of what differs from the original is true to the tests: each row names those it has.

In: docs/guides/compatibility.md. Out: a failure with every row that names no test, or one that is
not there.
"""

import re
from pathlib import Path

from tests.test_behaviours import is_collected

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "compatibility.md"
HEAD = "| what | the original | OrbitMQ | why | tests |"
ROWS_LEAST = 25


def rows_of(page: str) -> list[str]:
    """Give the rows of the table of differences."""
    table = page.partition(HEAD)[2].partition("\n\n")[0]
    return [line for line in table.splitlines() if line.startswith("| ")]


def faults(rows: list[str]) -> list[str]:
    """Give what is wrong with rows: no test, or one that is not collected."""
    found = []
    for row in rows:
        names = re.findall(r"`(tests/[^`]+)`", row.rstrip("| ").rpartition(" | ")[2])
        found += [row] if not names else [name for name in names if not is_collected(ROOT, name)]
    return found


def test_each_difference_names_tests_that_exist() -> None:
    rows = rows_of(PAGE.read_text())
    assert len(rows) > ROWS_LEAST
    assert faults(rows) == []


def test_a_row_without_a_test_and_one_with_a_wrong_name_are_found() -> None:
    good = "tests/docs/test_compatibility_page.py::test_each_difference_names_tests_that_exist"
    rows = [f"| a | b | c | d | `{good}` |", "| e | f | g | h | |", f"| i | j | k | | `{good}x` |"]
    page = "\n".join([HEAD, "|---|---|---|---|---|", *rows, "", "`tests/else.py::x`"])
    assert faults(rows_of(page)) == ["| e | f | g | h | |", f"{good}x"]
