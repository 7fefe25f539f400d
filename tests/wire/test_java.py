"""Java's string hash, and the checksum."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.wire.checksum import body_crc
from orbitmq.wire.java import index_hash, string_hash


def slow_hash(text: str) -> int:
    """The definition: h = 31 h + unit over UTF-16 units, wrapped into signed 32 bits."""
    value = 0
    packed = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(packed), 2):
        value = (31 * value + int.from_bytes(packed[position : position + 2], "big")) % 2**32
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("Aa", 2112),
        ("BB", 2112),
        ("标签", 857175),
        ("\U0001f600", 1772899),
        ("\ud83d\ude00", 1772899),
        ("\ud800", 55296),
        ("€uro \U0001f600 mixed", -1980141416),
        ("topic#key", 386934027),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_known_values_of_java(text: str, value: int) -> None:
    assert string_hash(text) == value


@given(st.text(st.characters()) | st.text("abc", min_size=250, max_size=800))
def test_the_fast_hash_equals_the_definition(text: str) -> None:
    assert string_hash(text) == slow_hash(text)


@pytest.mark.parametrize("count", [255, 256, 257, 511, 512, 513])
def test_lengths_around_a_chunk_hash_right(count: int) -> None:
    assert string_hash("z" * count) == slow_hash("z" * count)


def test_the_index_uses_the_absolute_value_and_0_for_the_one_without() -> None:
    assert index_hash("polygenelubricants") == 0
    assert index_hash("€uro \U0001f600 mixed") == 1980141416
    assert index_hash("TagA") == 2598919


@given(st.binary())
def test_the_checksum_has_31_bits(data: bytes) -> None:
    assert body_crc(data) == zlib.crc32(data) % 2**31
    assert body_crc(memoryview(data)) == body_crc(bytearray(data))


def test_the_checksum_of_no_data_is_0() -> None:
    assert body_crc(b"") == 0
