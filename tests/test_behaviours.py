"""The behaviour catalogue is complete, well formed and true to the tests that exist.

In: tests/behaviours.toml, the test files it names, docs/reference/behaviours.md. Out: one failure
per kind of mistake, with every offender in it. The second half feeds the checks wrong catalogues,
so that a check that stopped finding anything fails as well.
"""

import ast
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import pytest

from tools.behaviours_page import (
    CATALOGUE_PATH,
    PAGE_PATH,
    PARTS,
    ROOT,
    Behaviour,
    CatalogueError,
    main,
    read_catalogue,
    render_page,
)

# First and last number of each run of ids. Part A leaves gaps between its subjects; ids are stable.
ID_RANGES: Mapping[str, Sequence[tuple[int, int]]] = {
    "A": (
        (1, 11),
        (20, 30),
        (40, 58),
        (70, 84),
        (100, 112),
        (120, 138),
        (150, 172),
        (180, 184),
        (190, 192),
        (200, 204),
        (210, 217),
        (230, 243),
        (250, 254),
        (260, 266),
    ),
    "B": ((1, 177),),
    "C": ((1, 300),),
    "D": ((1, 330),),
}
ID_COUNT = 965

PLANNED = '[A-001]\ndoes = "It works."\nstate = "planned"\n'


def expected_ids() -> list[str]:
    return [
        f"{letter}-{number:03d}"
        for letter, ranges in ID_RANGES.items()
        for first, last in ranges
        for number in range(first, last + 1)
    ]


def missing_ids(behaviours: Iterable[Behaviour]) -> list[str]:
    present = {behaviour.id for behaviour in behaviours}
    return [id_ for id_ in expected_ids() if id_ not in present]


def foreign_ids(behaviours: Iterable[Behaviour]) -> list[str]:
    known = set(expected_ids())
    return [behaviour.id for behaviour in behaviours if behaviour.id not in known]


def is_collected(root: Path, name: str) -> bool:
    """Whether `tests/path.py::test_name` or `tests/path.py::TestClass::test_name` is collected."""
    path, *steps = name.split("::")
    parts = PurePosixPath(path).parts
    if parts[:1] != ("tests",) or ".." in parts or not (root / path).is_file():
        return False
    if not PurePosixPath(path).match("test_*.py") or not 1 <= len(steps) <= 2:
        return False
    body = parsed(root / path)
    for class_name in steps[:-1]:
        body = class_body(body, class_name)
    return has_test(body, steps[-1])


@functools.cache
def parsed(path: Path) -> list[ast.stmt]:
    """Return the statements of a file; hundreds of entries name tests of a few dozen files."""
    return ast.parse(path.read_text(encoding="utf-8")).body


def class_body(body: Sequence[ast.stmt], name: str) -> list[ast.stmt]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name and name.startswith("Test"):
            return node.body
    return []


def has_test(body: Sequence[ast.stmt], name: str) -> bool:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return name.startswith("test") and any(
        isinstance(node, functions) and node.name == name for node in body
    )


def absent_tests(root: Path, behaviours: Iterable[Behaviour]) -> list[str]:
    return [
        f"{behaviour.id}: {name}"
        for behaviour in behaviours
        for name in behaviour.tests
        if not is_collected(root, name)
    ]


@pytest.fixture(scope="module")
def catalogue() -> tuple[Behaviour, ...]:
    return read_catalogue(CATALOGUE_PATH.read_text(encoding="utf-8"))


def test_the_id_ranges_make_965_ids() -> None:
    assert len(expected_ids()) == ID_COUNT
    assert list(ID_RANGES) == list(PARTS)


def test_every_behaviour_id_has_an_entry(catalogue: tuple[Behaviour, ...]) -> None:
    assert missing_ids(catalogue) == []


def test_no_entry_has_an_id_outside_the_ranges(catalogue: tuple[Behaviour, ...]) -> None:
    assert foreign_ids(catalogue) == []


def test_entries_are_sorted_by_id(catalogue: tuple[Behaviour, ...]) -> None:
    ids = [behaviour.id for behaviour in catalogue]
    assert ids == sorted(ids)


def test_every_sentence_ends_with_a_full_stop(catalogue: tuple[Behaviour, ...]) -> None:
    assert [behaviour.id for behaviour in catalogue if not behaviour.does.endswith(".")] == []


def test_every_named_test_exists(catalogue: tuple[Behaviour, ...]) -> None:
    assert absent_tests(ROOT, catalogue) == []


def test_the_page_is_what_the_generator_makes(catalogue: tuple[Behaviour, ...]) -> None:
    page = PAGE_PATH.read_text(encoding="utf-8")
    assert page == render_page(catalogue), "run python tools/behaviours_page.py"
    assert main(["--check"]) == 0


def test_a_removed_entry_is_reported_as_missing() -> None:
    others = [Behaviour(id_, "It works.", "planned") for id_ in expected_ids() if id_ != "B-177"]
    assert missing_ids(others) == ["B-177"]


def test_an_id_in_a_gap_of_part_a_is_reported_as_foreign() -> None:
    assert foreign_ids([Behaviour("A-012", "It works.", "planned")]) == ["A-012"]


def test_a_well_formed_catalogue_is_read_with_all_its_fields() -> None:
    text = (
        PLANNED
        + '[B-001]\ndoes = "x."\nstate = "proven"\ntests = ["tests/test_a.py::test_b"]\n'
        + '[C-001]\ndoes = "x."\nstate = "refused"\nreason = "No JVM."\n'
    )
    assert read_catalogue(text) == (
        Behaviour("A-001", "It works.", "planned"),
        Behaviour("B-001", "x.", "proven", tests=("tests/test_a.py::test_b",)),
        Behaviour("C-001", "x.", "refused", reason="No JVM."),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PLANNED + 'note = "x"\n', "'note'"),
        (PLANNED + 'tests = ["tests/test_a.py::test_b"]\n', "'tests'"),
        (PLANNED.replace("planned", "done"), "'done'"),
        (PLANNED.replace('state = "planned"\n', ""), "state None"),
        (PLANNED.replace("It works.", " "), "lacks its sentence"),
        (PLANNED.replace("It works.", "x" * 141), "at most 140"),
        (PLANNED.replace("planned", "proven"), "proven by no test"),
        (PLANNED.replace("planned", "proven") + "tests = []\n", "proven by no test"),
        (PLANNED.replace("planned", "proven") + "tests = [1]\n", "proven by no test"),
        (PLANNED.replace("planned", "refused"), "without a reason"),
        (PLANNED.replace("planned", "refused") + 'reason = ""\n', "without a reason"),
        (PLANNED.replace("A-001", "A-1"), "A-1 is not an id"),
        ('A-001 = "x"\n', "not a table"),
        (PLANNED + PLANNED, "not valid TOML"),
    ],
)
def test_a_malformed_entry_is_refused_with_its_problem(text: str, problem: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        read_catalogue(text)
    assert len(caught.value.problems) == 1
    assert problem in caught.value.problems[0]


def test_all_problems_of_a_catalogue_are_named_at_once() -> None:
    with pytest.raises(CatalogueError) as caught:
        read_catalogue('[A-001]\nstate = "done"\n[A-002]\nstate = "refused"\n')
    assert [problem[:5] for problem in caught.value.problems] == ["A-001", "A-002", "A-002"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tests/test_a.py::test_plain", True),
        ("tests/test_a.py::test_awaited", True),
        ("tests/test_a.py::TestGroup::test_inside", True),
        ("tests/test_a.py::test_inside", False),
        ("tests/test_a.py::TestGroup::test_plain", False),
        ("tests/test_a.py::TestGroup", False),
        ("tests/test_a.py::Hidden::test_inside", False),
        ("tests/test_a.py::test_commented", False),
        ("tests/test_a.py::helper", False),
        ("tests/test_a.py", False),
        ("tests/test_b.py::test_plain", False),
        ("tests/support.py::test_plain", False),
        ("test_a.py::test_plain", False),
        ("tests/../tests/test_a.py::test_plain", False),
    ],
)
def test_a_test_is_found_by_its_definition_only(tmp_path: Path, name: str, found: bool) -> None:
    source = (
        "def test_plain(): ...\n"
        "async def test_awaited(): ...\n"
        "class TestGroup:\n    def test_inside(self): ...\n"
        "class Hidden:\n    def test_inside(self): ...\n"
        "# def test_commented(): ...\n"
        "def helper(): ...\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(source, encoding="utf-8")
    (tmp_path / "tests" / "support.py").write_text(source, encoding="utf-8")
    (tmp_path / "test_a.py").write_text(source, encoding="utf-8")
    behaviour = Behaviour("A-001", "It works.", "proven", tests=(name,))
    assert absent_tests(tmp_path, [behaviour]) == ([] if found else [f"A-001: {name}"])


def test_the_page_counts_states_and_keeps_cells_whole() -> None:
    page = render_page(
        [
            Behaviour("A-001", "Splits at || only.", "planned"),
            Behaviour("A-002", "Keeps <group>.", "proven", tests=("tests/test_a.py::test_b",)),
            Behaviour("D-001", "Runs Java.", "refused", reason="No JVM."),
        ]
    )
    assert "| A: Concepts and operation | 1 | 1 | 0 | 2 |" in page
    assert "| all | 1 | 1 | 1 | 3 |" in page
    assert r"| A-001 | Splits at \|\| only. | planned |" in page
    assert "| A-002 | Keeps &lt;group>. | proven: `tests/test_a.py::test_b` |" in page
    assert "| D-001 | Runs Java. | refused: No JVM. |" in page
