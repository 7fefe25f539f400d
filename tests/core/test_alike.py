"""Texts as columns: they say the same of many texts as a look at each of them does."""

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.core.alike import ALIKE_MIN, HASHED_MAX, alike
from orbitmq.wire.java import string_hash

CHARS = b"ab\x01\x02\x7f\xff \0"
SIZE = 12
TEXTS = st.lists(
    st.lists(st.sampled_from(CHARS), min_size=SIZE, max_size=SIZE).map(bytes), max_size=6
).map(lambda texts: [text for text in texts for _ in range(ALIKE_MIN)])
PLACES = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE))


def test_few_texts_empty_ones_and_such_of_several_lengths_are_no_columns() -> None:
    assert alike([b"a"] * (ALIKE_MIN - 1)) is None
    assert alike([b""] * ALIKE_MIN) is None
    assert alike([b"a"] * ALIKE_MIN + [b"bc"]) is None
    assert alike([b"a"] * ALIKE_MIN + [b"bc"] + [b"a"]) is None
    assert alike([b"a"] * ALIKE_MIN) is not None


@given(TEXTS.filter(bool), PLACES, st.binary(max_size=2))
def test_columns_say_what_all_texts_have_at_a_place(
    texts: list[bytes], places: tuple[int, int], part: bytes
) -> None:
    start, end = sorted(places)
    columns = alike(texts)
    assert columns is not None
    assert columns.parts(start, end) == [text[start:end] for text in texts]
    assert columns.is_same(start, end) == (len({text[start:end] for text in texts}) == 1)
    is_there = all(text[start : start + len(part)] == part for text in texts)
    assert columns.has(part, start) == is_there
    assert not columns.has(b"a", SIZE)
    assert not columns.has(b"a", -1)


@given(TEXTS.filter(bool), PLACES, st.sampled_from(["", "T#", "Töpic#"]))
def test_hashes_of_columns_are_java_s_of_each_text(
    texts: list[bytes], places: tuple[int, int], before: str
) -> None:
    start, end = sorted(places)
    columns = alike(texts)
    assert columns is not None
    found = columns.hashes(start, end, b"\x01 ", string_hash(before))
    parts = [text[start:end] for text in texts]
    if start == end or any(set(part) & set(b"\x01 \xff") for part in parts):
        assert found is None
        return
    assert found is not None
    assert found.tolist() == [string_hash(before + part.decode()) for part in parts]


def test_long_parts_are_left_to_others() -> None:
    texts = [b"~" * HASHED_MAX + b"%d" % (number % 2) for number in range(ALIKE_MIN)]
    columns = alike(texts)
    assert columns is not None
    assert columns.hashes(0, HASHED_MAX + 1, b"", 0) is None
    found = columns.hashes(1, HASHED_MAX + 1, b"", string_hash("~"))
    assert found is not None
    assert found.tolist() == [string_hash(text.decode()) for text in texts]
