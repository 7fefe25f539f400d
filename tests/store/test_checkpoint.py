"""The checkpoint: old or new, the original's bytes untouched, our block void when it must be."""

import struct
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.store.checkpoint import (
    Checkpoint,
    FileSizes,
    Mark,
    Stamps,
    encode_checkpoint,
    has_broken_block,
    read_checkpoint,
)
from tests.world.memory_files import MemoryFiles

PATH = Path("/checkpoint")
MARK = Mark(4096, 3, 77, "20261115182457407", 12, 9, 4000, 1_794_770_315_418)
BOOT = bytes(range(16))
COUNTS = st.integers(1, 2**63 - 1)
SIZES = FileSizes(1 << 30, 6_000_000)
VALUE = Checkpoint(Stamps(5, 6, 7), MARK, MARK._replace(log_offset=2048), BOOT, SIZES)


def read(data: bytes) -> Checkpoint | None:
    files = MemoryFiles()
    files.put(PATH, data)
    return read_checkpoint(files, PATH)


numbers = st.integers(-(2**63), 2**63 - 1)
marks = st.builds(
    Mark,
    *[numbers] * 3,
    st.text("0123456789", max_size=17),
    *[numbers] * 4,
)


@given(
    st.builds(
        Checkpoint,
        st.builds(Stamps, numbers, numbers, numbers),
        st.none() | marks,
        st.none() | marks,
        st.binary(min_size=16, max_size=16),
        st.none()
        | st.tuples(COUNTS, COUNTS).map(lambda pair: FileSizes(*pair))
        | st.builds(FileSizes, COUNTS, COUNTS, st.integers(2, 100), COUNTS, COUNTS),
    )
)
def test_what_is_saved_is_read_back(value: Checkpoint) -> None:
    data = encode_checkpoint(value, None)
    assert len(data) == 512
    assert read(data.ljust(4096, b"\0")) == value


def test_the_originals_bytes_are_where_it_looks_for_them_and_the_others_are_kept() -> None:
    old = bytes(24) + bytes(range(100, 140)) + bytes(448)
    data = encode_checkpoint(VALUE, old)
    assert struct.unpack_from(">qqq", data) == (5, 6, 7)
    assert data[24:64] == bytes(range(100, 140))


@pytest.mark.parametrize("position", range(0, 24, 5))
def test_our_block_is_void_when_the_original_has_run(position: int) -> None:
    data = bytearray(encode_checkpoint(VALUE, None))
    data[position] ^= 1
    found = read(bytes(data))
    assert found is not None
    assert (found.written, found.synced) == (None, None)
    assert found.stamps == Stamps._make(struct.unpack_from(">qqq", data))


def test_a_change_of_any_bit_of_our_block_makes_it_void() -> None:
    data = encode_checkpoint(VALUE, None)
    used = len(data.rstrip(b"\0"))
    for bit in range(64 * 8, used * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        found = read(bytes(changed))
        assert found is not None
        assert (found.written, found.synced) == (None, None)


@pytest.mark.parametrize("size", [0, 10, 23, 24, 40, 64, 100, 300, 512, 4096])
def test_a_checkpoint_of_any_length_is_read_as_far_as_it_goes(size: int) -> None:
    found = read(encode_checkpoint(VALUE, None).ljust(4096, b"\0")[:size])
    assert (found is None) == (size < 24)
    assert found is None or found.stamps == Stamps(5, 6, 7)
    assert size < 512 or found == VALUE


def first_version(data: bytes) -> bytes:
    """Return what the first version of our block had: another name, no sizes."""
    sizes_at = 64 + 12 + 40 + 2 * (1 + 3 * 8 + 32 + 4 * 8)
    rest = data[76:sizes_at]
    return (data[:64] + b"ORBITMQ1" + struct.pack(">I", crc32(rest)) + rest).ljust(512, b"\0")


def test_a_block_of_the_first_version_is_read_without_sizes() -> None:
    old = first_version(encode_checkpoint(VALUE, None))
    assert read(old) == msgspec.structs.replace(VALUE, sizes=None)
    assert not has_broken_block(old)
    for position in range(72, len(old.rstrip(b"\0"))):
        broken = bytearray(old)
        broken[position] ^= 1
        found = read(bytes(broken))
        assert found is not None
        assert found.synced is None
        assert has_broken_block(bytes(broken))


def test_no_file_is_no_checkpoint() -> None:
    assert read_checkpoint(MemoryFiles(), PATH) is None
