"""Batch bodies: all messages or none."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.batch import BatchMessage, encode_batch
from tests.wire.batches import messages_in

MESSAGES = st.builds(
    BatchMessage, st.binary(max_size=50), st.binary(max_size=50), st.integers(-(2**31), 2**31 - 1)
)
TWO = [BatchMessage(b"first", b"a\x01b", 7), BatchMessage(b"", b"", -1)]


@given(st.lists(MESSAGES, min_size=1, max_size=10))
def test_what_is_encoded_decodes_to_the_same_messages(messages: list[BatchMessage]) -> None:
    assert messages_in(encode_batch(messages)) == messages


def test_the_layout_is_the_original_s() -> None:
    assert (
        encode_batch(TWO[:1])
        == bytes.fromhex("0000001e 00000000 00000000 00000007 00000005".replace(" ", ""))
        + b"first"
        + b"\x00\x03a\x01b"
    )


def test_magic_and_crc_are_not_looked_at() -> None:
    data = bytearray(encode_batch(TWO))
    data[4:12] = b"\xff" * 8
    assert messages_in(bytes(data)) == TWO


@pytest.mark.parametrize("cut", range(1, len(encode_batch(TWO))))
def test_a_batch_cut_anywhere_but_between_messages_is_refused(cut: int) -> None:
    data = encode_batch(TWO)
    if cut == len(encode_batch(TWO[:1])):
        assert messages_in(data[:cut]) == TWO[:1]
        return
    with pytest.raises(RemoteProtocolError) as caught:
        messages_in(data[:cut])
    assert caught.value.reason == "batch"


@pytest.mark.parametrize(
    ("position", "value", "detail"),
    [
        (0, 21, "message of 21 bytes at 0"),
        (0, -1, "message of -1 bytes"),
        (0, 31, "message of 31 bytes at 0, 30 are left"),
        (0, 29, "properties of 3 bytes at 27 miss the end"),
        (16, -1, "body of -1 bytes in a message of 30"),
        (16, 9, "body of 9 bytes"),
        (16, 2**31 - 1, "body of 2147483647 bytes"),
    ],
)
def test_sizes_that_do_not_agree_are_refused(position: int, value: int, detail: str) -> None:
    data = bytearray(encode_batch(TWO[:1]))
    struct.pack_into(">i", data, position, value)
    with pytest.raises(RemoteProtocolError, match=detail):
        messages_in(bytes(data))


def test_negative_properties_size_is_refused() -> None:
    data = encode_batch([BatchMessage(b"")])[:-2] + b"\xff\xff"
    with pytest.raises(RemoteProtocolError, match="properties of -1 bytes"):
        messages_in(data)


def test_an_empty_batch_is_refused_in_both_directions() -> None:
    with pytest.raises(RemoteProtocolError, match="no message"):
        messages_in(b"")
    with pytest.raises(LocalProtocolError, match="at least one"):
        encode_batch([])


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (BatchMessage(b"", bytes(32_768)), "properties of 32768 bytes, limit 32767"),
        (BatchMessage(b"", b"", 2**31), "flag 2147483648"),
    ],
)
def test_what_does_not_fit_is_named(message: BatchMessage, detail: str) -> None:
    with pytest.raises(LocalProtocolError, match=detail):
        encode_batch([message])


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_batch_or_a_remote_error(data: bytes) -> None:
    try:
        messages = messages_in(data)
    except RemoteProtocolError:
        return
    assert len(encode_batch(messages)) == len(data)
