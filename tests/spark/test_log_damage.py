"""Where a log goes on behind zeros, and where what is written ends."""

from pathlib import Path

import pytest

from orbitmq.spark.log_damage import SEARCH_BYTES, behind_damage, last_not_zero, written_end
from orbitmq.spark.log_files import LogFile, log_end
from orbitmq.wire.record import encode_blank
from orbitmq.world.files import SystemFiles
from tests.arrow.made import laid, plain

FIRST = laid([plain(1), plain(2)])[0]


@pytest.mark.parametrize("zeros", [1, 7, SEARCH_BYTES - 5, SEARCH_BYTES, 2 * SEARCH_BYTES + 3])
def test_a_record_behind_any_number_of_zeros_is_found(zeros: int) -> None:
    later = len(FIRST) + zeros
    view = memoryview(FIRST + bytes(zeros) + laid([plain(3)], later)[0] + bytes(100))
    assert behind_damage(view, len(FIRST), 0) == later
    assert behind_damage(view, len(FIRST), 0, data_end=later) is None
    assert written_end(view, 0) == len(view) - 100


def test_a_blank_behind_zeros_closes_the_file() -> None:
    later = len(FIRST) + SEARCH_BYTES + 9
    view = memoryview(FIRST.ljust(later, b"\0") + encode_blank(1_000).ljust(1_000, b"\0"))
    assert behind_damage(view, len(FIRST), 0) == later


@pytest.mark.parametrize("zeros", [0, 1, SEARCH_BYTES, 3 * SEARCH_BYTES - 1])
def test_nothing_but_zeros_is_no_damage(zeros: int) -> None:
    view = memoryview(FIRST + bytes(zeros))
    assert behind_damage(view, len(FIRST), 0) is None
    assert written_end(view, 0) == len(FIRST)
    assert len(FIRST) <= last_not_zero(view, len(view)) <= len(FIRST) + SEARCH_BYTES
    assert last_not_zero(memoryview(bytes(zeros)), zeros) == 0


def test_a_copy_without_holes_is_planned_without_a_search_of_all_its_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: planning a query on a copied store took seconds, most of them in its zeros."""
    path = tmp_path / "00000000000000000000"
    path.write_bytes(FIRST + bytes(8 * SEARCH_BYTES))
    looked_at: list[int] = []

    def next_record(view: memoryview, *_: object) -> None:
        looked_at.append(len(view))

    monkeypatch.setattr("orbitmq.store.record_search.next_record", next_record)
    monkeypatch.setattr("orbitmq.spark.log_files.next_record", next_record)
    log_file = LogFile(str(path), 0, path.stat().st_size)
    assert log_end(SystemFiles(), [log_file]) == len(FIRST)
    assert sum(looked_at) <= SEARCH_BYTES
