"""The page of clients and of what differs from the original is true to the tests, and complete.

In: docs/guides/compatibility.md, the compatibility programs' scenarios, tests/behaviour. Out: a
failure with every row that names no test, or one that is not there; with every test that asks
something else of an original than of OrbitMQ and is in no row; with every scenario of a client that
is not in its column.
"""

import re
from pathlib import Path

import pytest

from tests.docs.differences import branching, made_names
from tests.foreign import test_compat_go, test_compat_node, test_compat_python
from tests.foreign.compat_java import CLASSIC, NEWER
from tests.test_behaviours import is_collected

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "compatibility.md"
HEAD = "| what | the original | OrbitMQ | why | tests |"
CLIENTS_HEAD = "| what | Java | Go | ali-ons | rocketmq | nodejs | PyPI |"
ROWS_LEAST = 25
HELPERS = {
    "tests/behaviour/requests.py::await_readable": "a message whose send was answered",
}
"""Functions that branch and are no test, with the row that says why."""


def rows_of(page: str, head: str = HEAD) -> list[str]:
    """Return the rows of a table."""
    table = page.partition(head)[2].partition("\n\n")[0]
    return [line for line in table.splitlines() if line.startswith("| ")]


def names_of(row: str) -> list[str]:
    """Return the tests that a row names."""
    return re.findall(r"`(tests/[^`]+)`", row.rstrip("| ").rpartition(" | ")[2])


def faults(rows: list[str]) -> list[str]:
    """Return what is wrong with rows: no test, or one that is not collected."""
    found = []
    for row in rows:
        names = names_of(row)
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


# --- every branch has its row ---


def test_each_test_that_asks_an_original_for_something_else_is_in_a_row() -> None:
    rows = rows_of(PAGE.read_text())
    sources = {
        f"tests/behaviour/{path.name}": path.read_text()
        for path in (ROOT / "tests" / "behaviour").glob("*.py")
    }
    names = {name for source in sources.values() for name in made_names(source)}
    found = {f"{path}::{name}" for path, text in sources.items() for name in branching(text, names)}
    in_rows = {name for row in rows for name in names_of(row)}
    assert len(found) > ROWS_LEAST
    assert sorted(found - in_rows - HELPERS.keys()) == []
    assert HELPERS.keys() <= found
    firsts = {row.split(" | ")[0].removeprefix("| ") for row in rows}
    assert set(HELPERS.values()) <= firsts


@pytest.mark.parametrize(
    "line",
    [
        "def test_it(): assert x == (1 if judged_original() is None else 2)",
        "@pytest.mark.skipif(judged_original() == '4.9.7', reason='y')\ndef test_it(): pass",
        "OURS = not judged_original()\nonly = mark(OURS)\n@only\ndef test_it(): pass",
        "@only_elsewhere\ndef test_it(): pass",
        "def test_it(system): assert system.version is None",
        "def test_it(): assert os.environ['ORBITMQ_JUDGE']",
    ],
)
def test_every_way_to_branch_is_found(line: str) -> None:
    assert branching(line, ["only_elsewhere"]) == ["test_it"]


def test_a_mark_of_a_whole_file_is_found_and_what_is_of_5x_alone_is_not() -> None:
    assert branching("pytestmark = skipif(judged_original() is not None)") == ["pytestmark"]
    assert branching("def test_it():\n    if judged_original() == '5.5.0': skip()") == []


# --- every scenario is in its client's column ---


def part(prefix: str) -> set[str]:
    """Return the scenarios of one of the Node clients."""
    names = test_compat_node.SCENARIOS
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


@pytest.mark.parametrize(
    ("column", "scenarios"),
    [
        (1, {*CLASSIC, *NEWER}),
        (2, set(test_compat_go.SCENARIOS)),
        (3, part("ali-")),
        (4, part("fork-")),
        (5, part("cpp-")),
        (6, set(test_compat_python.SCENARIOS)),
    ],
    ids=CLIENTS_HEAD.strip("| ").split(" | ")[1:],
)
def test_a_clients_column_names_its_scenarios_and_no_other(
    column: int, scenarios: set[str]
) -> None:
    rows = [row.strip("|").split("|") for row in rows_of(PAGE.read_text(), CLIENTS_HEAD)]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[column])} == scenarios
