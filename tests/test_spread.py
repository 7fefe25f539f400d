"""The pieces of work that workers get are made of files that exist, and the long ones lead."""

from pathlib import Path

import pytest

from tests.spread import LONG, SPARK, piece_of, rank_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("piece", LONG)
def test_a_long_piece_has_files(piece: str) -> None:
    assert [*ROOT.glob(f"{piece}*")], "it was renamed or removed: change tests/spread.py"


def test_a_file_is_a_piece_of_its_own() -> None:
    for alone in ("tests/store/test_store.py", "tests/spark/test_log_reading.py"):
        assert piece_of(f"{alone}::test_a[b::c]") == alone


def test_all_tests_that_share_sparks_session_are_one_piece(request: pytest.FixtureRequest) -> None:
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    for item in items:
        assert (piece_of(item.nodeid) == SPARK) or "spark" not in item.fixturenames, item.nodeid


def file_of(piece: str) -> str:
    """Return a file of a piece."""
    return "tests/spark/test_topic_batch.py" if piece == SPARK else piece


def test_what_takes_minutes_begins_first_and_other_files_keep_their_order() -> None:
    others = ["tests/b.py::b", "tests/a.py::a"]
    ids = [*others, *(f"{file_of(piece)}::test" for piece in reversed(LONG))]
    in_order = sorted(ids, key=rank_of)
    assert [piece_of(each) for each in in_order] == [*LONG, "tests/b.py", "tests/a.py"]


def test_pytest_itself_has_this_order(request: pytest.FixtureRequest) -> None:
    ranks = [rank_of(item.nodeid) for item in request.session.items]
    assert ranks == sorted(ranks)
