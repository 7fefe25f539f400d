"""Frames are judged as early as possible, held within limits, and written as they are read."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.frame import (
    BINARY,
    FRAME_SIZE_MAX,
    JSON,
    LONG_PIECE,
    Frame,
    FrameDecoder,
    cut_frame,
    encode_frame,
    frame_size,
)


def prefix(length: int, kind: int = JSON, header_size: int = 0) -> bytes:
    return struct.pack(">iI", length, kind << 24 | header_size)


WRONG = [
    (prefix(3)[:4], "frame-length"),
    (prefix(0)[:4], "frame-length"),
    (prefix(-1)[:4], "frame-length"),
    (prefix(-(2**31))[:4], "frame-length"),
    (prefix(FRAME_SIZE_MAX - 3)[:4], "frame-oversize"),
    (prefix(2**31 - 1)[:4], "frame-oversize"),
    (prefix(4, kind=2), "frame-serialization"),
    (prefix(4, kind=0x16), "frame-serialization"),
    (prefix(4, header_size=1), "frame-header"),
    (prefix(100, header_size=97), "frame-header"),
]


@pytest.mark.parametrize(("data", "reason"), WRONG)
@pytest.mark.parametrize("piece", [1, 2, 3, 8])
def test_a_wrong_beginning_is_refused_with_its_last_byte(
    data: bytes, reason: str, piece: int
) -> None:
    decoder = FrameDecoder()
    pieces = [data[start : start + piece] for start in range(0, len(data), piece)]
    for early in pieces[:-1]:
        assert decoder.feed(early) == []
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.feed(pieces[-1])
    assert caught.value.reason == reason


def test_a_frame_is_given_with_its_last_byte_and_nothing_is_held_behind_it() -> None:
    data = encode_frame(BINARY, b"header", b"body")
    decoder = FrameDecoder()
    assert decoder.feed(data[:-1]) == []
    assert decoder.held_bytes == len(data) - 1
    assert decoder.feed(data[-1:]) == [Frame(BINARY, b"header", b"body")]
    assert decoder.held_bytes == 0


def test_many_frames_in_one_read_come_in_order() -> None:
    frames = [Frame(JSON, b"%d" % at, b"x" * at) for at in range(50)]
    decoder = FrameDecoder()
    stream = b"".join(encode_frame(*frame) for frame in frames)
    assert decoder.feed(stream + stream[:5]) == frames
    assert decoder.held_bytes == 5


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    largest = encode_frame(JSON, b"", bytes(FRAME_SIZE_MAX - 8))
    assert len(largest) == FRAME_SIZE_MAX
    assert frame_size(largest, 0) == FRAME_SIZE_MAX
    with pytest.raises(LocalProtocolError, match=str(FRAME_SIZE_MAX)):
        encode_frame(JSON, b"", bytes(FRAME_SIZE_MAX - 7))


def test_a_smaller_limit_can_be_set() -> None:
    data = encode_frame(JSON, b"", bytes(92))
    assert len(FrameDecoder(frame_size_max=100).feed(data)) == 1
    with pytest.raises(RemoteProtocolError, match="limit 99"):
        FrameDecoder(frame_size_max=99).feed(data)


def test_a_frame_that_is_not_all_there_is_no_frame() -> None:
    data = encode_frame(JSON, b"{}", b"body")
    assert [cut_frame(data[:end], 0) for end in range(len(data))] == [None] * len(data)
    assert cut_frame(b"before" + data, 6) == Frame(JSON, b"{}", b"body")


@given(
    st.lists(st.sampled_from([1, 3, 200, LONG_PIECE - 1, LONG_PIECE, 3 * LONG_PIECE]), max_size=12)
)
def test_a_frame_in_long_and_short_pieces_comes_whole(sizes: list[int]) -> None:
    body = bytes(range(256)) * 1_024
    encoded = encode_frame(JSON, b"{}", body)
    decoder, start, frames = FrameDecoder(), 0, []
    for size in (*sizes, len(encoded)):
        frames += decoder.feed(encoded[start : start + size])
        start += size
        assert decoder.held_bytes == (0 if frames else min(start, len(encoded)))
        if frames:
            break
    assert frames == [Frame(JSON, b"{}", body)]


def test_a_frame_that_comes_byte_by_byte_takes_no_more_room_than_it_has() -> None:
    encoded = encode_frame(JSON, b"{}", bytes(100_000))
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        for at in range(len(encoded) - 1):
            assert decoder.feed(encoded[at : at + 1]) == []
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2 * len(encoded)
    assert decoder.feed(encoded[-1:]) == [Frame(JSON, b"{}", bytes(100_000))]
