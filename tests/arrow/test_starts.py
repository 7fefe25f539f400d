"""Where records begin: a walk stops at what is no record, a search finds only what is one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.arrow.starts import walk
from orbitmq.wire.record import MAGIC_V1, encode_blank, encode_record
from tests.arrow.made import laid, plain
from tests.golden.store import log_files, stored_records


def test_a_walk_gives_every_record_up_to_the_end() -> None:
    data, starts = laid([plain(number) for number in range(5)])
    found = walk(data)
    assert (found.positions.tolist(), found.end, found.stop) == (starts, len(data), "end")


def test_the_golden_log_is_walked_as_it_was_recorded() -> None:
    found = [
        base + at for base, data in log_files() for at in walk(data, base=base).positions.tolist()
    ]
    assert found == [record["offset"] for record in stored_records()]


@pytest.mark.parametrize(
    ("rest", "stop"),
    [
        (b"", "end"),
        (encode_blank(500) + bytes(492), "blank"),
        (bytes(500), "zero"),
        (bytes(5), "zero"),
        (b"\0\0\1", "cut"),
        (encode_record(plain())[:-1], "cut"),
        (b"\xff" * 500, "damage"),
        (struct.pack(">iI", 90, MAGIC_V1) + bytes(200), "damage"),
    ],
)
def test_a_walk_says_what_it_stopped_at(rest: bytes, stop: str) -> None:
    data, starts = laid([plain(1), plain(2)])
    found = walk(data + rest)
    assert (found.positions.tolist(), found.end, found.stop) == (starts, len(data), stop)


def test_a_record_that_begins_before_the_end_of_a_range_belongs_to_it() -> None:
    data, starts = laid([plain(number) for number in range(4)])
    first = walk(data, 0, starts[2] + 1)
    second = walk(data, first.end, None)
    assert (first.positions.tolist(), first.end, first.stop) == (starts[:3], starts[3], "end")
    assert second.positions.tolist() == starts[3:]


def test_a_walk_of_so_many_records_goes_on_where_it_stopped() -> None:
    data, starts = laid([plain(number) for number in range(5)])
    first = walk(data, count_max=2)
    assert (first.positions.tolist(), first.end, first.stop) == (starts[:2], starts[2], "end")


def test_a_record_of_another_place_ends_the_walk_when_the_place_is_known() -> None:
    data, starts = laid([plain(1), plain(2)], base=1_000)
    strange = data + encode_record(plain(3, log_offset=7))
    assert walk(strange, base=1_000).positions.tolist() == starts
    assert walk(strange, base=1_000).stop == "damage"
    assert len(walk(strange).positions) == 3


@given(st.binary(max_size=300), st.integers(0, 310), st.integers(0, 310))
def test_no_bytes_lead_a_walk_astray(data: bytes, begin: int, end: int) -> None:
    found = walk(data, begin, end, base=0)
    assert not len(found.positions)
    assert found.end == begin


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(1, 1_500),
)
def test_runs_of_one_size_and_others_are_walked_alike(
    runs: list[tuple[int, int]], count_max: int
) -> None:
    bodies = [bytes(size) for count, size in runs for _ in range(count)]
    data, starts = laid([plain(body=body) for body in bodies])
    found = walk(data, base=0, count_max=count_max)
    assert found.positions.tolist() == starts[:count_max]
    assert found.end == [*starts, len(data)][min(count_max, len(starts))]
    rest = walk(data, found.end, base=0)
    assert rest.positions.tolist() == starts[count_max:]
    cut = walk(data[:-1], base=0)
    assert (cut.positions.tolist(), cut.end, cut.stop) == (starts[:-1], starts[-1], "cut")
