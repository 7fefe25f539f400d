"""The pieces of work that workers get are made of files that exist, and the long ones lead."""

from pathlib import Path

import pytest

from tests.spread import CLUSTERS, CLUSTERS_TOO, COMPAT, LONG, SPARK, piece_of, rank_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("piece", LONG)
def test_a_long_piece_has_files(piece: str) -> None:
    assert [*ROOT.glob(f"{piece}*")], "it was renamed or removed: change tests/spread.py"


def test_a_file_is_a_piece_and_all_of_spark_and_all_compatibility_programs_are_one() -> None:
    java = f"{COMPAT}java.py::test_a[4.9.7::x]", f"{COMPAT}java_groups.py::test_b"
    assert {piece_of(each) for each in java} == {COMPAT}
    assert piece_of("tests/spark/test_a.py::test_a") == SPARK
    assert {piece_of(f"{each}::test_a") for each in (CLUSTERS, CLUSTERS_TOO)} == {CLUSTERS}
    assert piece_of("tests/store/test_store.py::test_a[b::c]") == "tests/store/test_store.py"


def test_what_takes_minutes_begins_first_and_other_files_keep_their_order() -> None:
    others = ["tests/b.py::b", "tests/a.py::a"]
    ids = [*others, *(f"{piece}::test" for piece in reversed(LONG))]
    in_order = sorted(ids, key=rank_of)
    assert [piece_of(each) for each in in_order] == [*LONG, "tests/b.py", "tests/a.py"]


def test_pytest_itself_has_this_order(request: pytest.FixtureRequest) -> None:
    ranks = [rank_of(item.nodeid) for item in request.session.items]
    assert ranks == sorted(ranks)
