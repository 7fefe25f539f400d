"""Parts of memory come out as they lie there, whichever way is the quickest for their lengths."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.arrow import segments
from orbitmq.arrow.segments import (
    mask_of,
    numbers_of,
    parts,
    parts_in_any_order,
    places_or_none,
    text_array,
)

MEMORY = bytes(range(256)) * 8
SIZES = st.one_of(
    st.lists(st.integers(0, 40), max_size=20),
    st.lists(st.integers(13, 40), max_size=20),
    st.integers(0, 40).flatmap(lambda size: st.lists(st.just(size), max_size=20)),
)


def borders(sizes: list[int], gap: int) -> tuple[list[int], list[int]]:
    begins, at = [], gap
    for size in sizes:
        begins.append(at)
        at += size + gap
    return begins, [begin + size for begin, size in zip(begins, sizes, strict=True)]


@given(SIZES, st.integers(0, 3))
def test_parts_are_the_bytes_between_their_borders(sizes: list[int], gap: int) -> None:
    begins, ends = borders(sizes, gap)
    found = parts(pa.py_buffer(MEMORY), np.array(begins, np.int64), np.array(ends, np.int64))
    found.validate(full=True)
    wanted = [MEMORY[begin:end] for begin, end in zip(begins, ends, strict=True)]
    assert found.type == pa.binary()
    assert found.to_pylist() == wanted


@given(st.lists(st.integers(0, 40), max_size=20).flatmap(st.permutations))
def test_parts_may_come_in_any_order(begins: list[int]) -> None:
    places = np.array(begins, np.int64) * 48
    found = parts_in_any_order(pa.py_buffer(MEMORY), places, places + np.array(begins, np.int64))
    assert found.to_pylist() == [MEMORY[48 * each : 48 * each + each] for each in begins]


def test_parts_that_lie_too_far_apart_for_views_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records found through queues may lie anywhere in a log file longer than 2 GiB."""
    monkeypatch.setattr(segments, "SPAN_MAX", 1_000)
    monkeypatch.setattr(segments, "_viewed", lambda *_: pytest.fail("viewed"))
    begins = np.array([3, 1_500], np.int64)
    found = parts(pa.py_buffer(MEMORY), begins, begins + np.array([20, 30]))
    assert found.to_pylist() == [MEMORY[3:23], MEMORY[1_500:1_530]]


@given(st.lists(st.text(max_size=9), max_size=20))
def test_words_are_a_text_array(words: list[str]) -> None:
    found = text_array(words)
    found.validate(full=True)
    assert found.equals(pa.array(words, pa.string()))


@given(st.lists(st.one_of(st.just(-1), st.integers(0, 99)), max_size=20))
def test_places_below_zero_are_nulls(places: list[int]) -> None:
    found = places_or_none(np.array(places, np.int64))
    found.validate(full=True)
    assert found.to_pylist() == [None if place < 0 else place for place in places]


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_a_part_of_an_array_comes_out_as_it_is(truths: list[bool], begin: int, size: int) -> None:
    begin = min(begin, len(truths))
    part = slice(begin, begin + size)
    assert mask_of(pa.array(truths, pa.bool_()).slice(begin, size)).tolist() == truths[part]
    numbers = pa.array(range(len(truths)), pa.int32()).slice(begin, size)
    assert numbers_of(numbers, np.int32).tolist() == list(range(len(truths)))[part]
