"""Bit positions of filters and bit maps, against numbers that others calculated."""

import pytest

from orbitmq.store.bloom import Bloom, has_all
from orbitmq.wire.murmur import murmur3_first_half


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"", "00000000000000000000000000000000"),
        (b"hello", "029bbd41b3a7d8cb191dae486a901e5b"),
        (b"The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
    ],
)
def test_the_hash_equals_published_vectors(data: bytes, whole: str) -> None:
    assert murmur3_first_half(data) == int.from_bytes(bytes.fromhex(whole)[:8], "little")


@pytest.mark.parametrize(
    ("group", "topic", "positions"),
    [
        ("CGS", "TopicA", (43, 110, 103)),  # from an original's consumerFilter.json
        ("CID_JODIE_1", "TopicTest", (96, 40, 33)),
    ],
)
def test_positions_are_those_of_the_original(
    group: str, topic: str, positions: tuple[int, ...]
) -> None:
    assert Bloom().positions(group, topic) == positions


@pytest.mark.parametrize(
    ("error_percent", "filter_count", "hash_count", "bit_count"),
    [(20, 32, 3, 112), (1, 1, 7, 16), (50, 32, 1, 48), (99, 1_024, 1, 24), (25, 8, 2, 24)],
)
def test_the_shape_follows_from_the_settings(
    error_percent: int, filter_count: int, hash_count: int, bit_count: int
) -> None:
    bloom = Bloom(error_percent=error_percent, filter_count=filter_count)
    assert (bloom.hash_count, bloom.bit_count) == (hash_count, bit_count)
    positions = bloom.positions("g", "t")
    assert len(positions) == hash_count
    assert all(0 <= position < bit_count for position in positions)


def test_a_bit_map_holds_the_bits_of_all_filters_lowest_first() -> None:
    bloom = Bloom()
    bits = bloom.bit_map([(0, 9, 111), (1,)])
    assert bits == bytes([0b11, 0b10, *([0] * 11), 0b1000_0000])
    assert has_all(bits, (0, 9, 111))
    assert has_all(bits, (1, 0))
    assert not has_all(bits, (0, 9, 110))
    assert bloom.bit_map([]) == bytes(14)


def test_who_passed_is_always_found_and_who_did_not_seldom() -> None:
    bloom = Bloom()
    groups = [bloom.positions(f"group-{number}", "T") for number in range(64)]
    bits = bloom.bit_map(groups[:8])
    assert all(has_all(bits, positions) for positions in groups[:8])
    assert sum(has_all(bits, positions) for positions in groups[8:]) < 10


def test_names_that_are_no_text_have_positions_too() -> None:
    assert Bloom().positions("\ud800", "T") == Bloom().positions("?", "T")
