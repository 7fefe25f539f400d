"""Compressed bodies: three kinds, bounded, and clear words when a package is missing."""

import contextlib
import importlib
import sys
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import LocalProtocolError, MissingExtra, RemoteProtocolError
from orbitmq.wire.compression import compress, decompress, plain_body
from orbitmq.wire.sysflag import Compression, with_compression

KINDS = st.sampled_from(Compression)
Packer = Callable[[bytes], bytes]


def streamed_zstd(body: bytes) -> bytes:
    """A frame without its size in the header, as Java's stream writes it."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(body)


PACKERS = [
    (Compression.ZLIB, zlib.compress),
    (Compression.LZ4, importlib.import_module("lz4.frame").compress),
    (Compression.ZSTD, zstandard.ZstdCompressor().compress),
    (Compression.ZSTD, streamed_zstd),
]


@given(st.binary(max_size=5_000), KINDS, st.integers(0, 9))
def test_what_is_compressed_decompresses(body: bytes, kind: Compression, level: int) -> None:
    packed = compress(body, kind, level)
    assert decompress(packed, kind, len(body)) == body
    assert plain_body(packed, with_compression(0, kind)) == body


@pytest.mark.parametrize(("kind", "pack"), PACKERS)
def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not(
    kind: Compression, pack: Packer
) -> None:
    packed = pack(bytes(10_000))
    assert decompress(packed, kind, 10_000) == bytes(10_000)
    with pytest.raises(RemoteProtocolError, match="more than 9999 bytes") as caught:
        decompress(packed, kind, 9_999)
    assert caught.value.reason == "body-oversize"


@pytest.mark.parametrize(("kind", "pack"), PACKERS)
def test_an_empty_body_passes_with_a_limit_of_nothing(kind: Compression, pack: Packer) -> None:
    assert decompress(pack(b""), kind, 0) == b""
    with pytest.raises(RemoteProtocolError, match="more than 0 bytes"):
        decompress(pack(b"x"), kind, 0)


@pytest.mark.parametrize(("kind", "pack"), PACKERS)
def test_a_bomb_is_refused_without_being_unpacked(kind: Compression, pack: Packer) -> None:
    bomb = pack(bytes(200_000_000))
    assert len(bomb) < 1_000_000
    with pytest.raises(RemoteProtocolError, match="more than 1000 bytes"):
        decompress(bomb, kind, 1_000)


@pytest.mark.parametrize(("kind", "pack"), PACKERS)
def test_a_torn_body_is_refused_wherever_it_is_cut(kind: Compression, pack: Packer) -> None:
    packed = pack(b"orbit " * 100)
    for cut in range(len(packed)):
        with pytest.raises(RemoteProtocolError) as caught:
            decompress(packed[:cut], kind)
        assert caught.value.reason == "body-compression"


@pytest.mark.parametrize(("kind", "pack"), PACKERS)
def test_bytes_behind_the_stream_are_ignored(kind: Compression, pack: Packer) -> None:
    assert decompress(pack(b"body") + b"more", kind) == b"body"


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    packed = bytearray(zstandard.ZstdCompressor().compress(b"a" * 200))
    assert zstandard.frame_content_size(bytes(packed)) == 200
    packed[5] = 100
    with pytest.raises(RemoteProtocolError):
        decompress(bytes(packed), Compression.ZSTD, 1_000)


def test_a_body_that_is_not_compressed_stays_as_it_is() -> None:
    assert plain_body(b"body", 0x300) == b"body"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="unknown compression type 5"):
        plain_body(b"body", 0x501)


@pytest.mark.parametrize("level", [-1, 10])
def test_a_level_out_of_range_is_refused(level: int) -> None:
    with pytest.raises(LocalProtocolError, match="allowed are 0 to 9"):
        compress(b"body", Compression.ZLIB, level)


@pytest.mark.parametrize(
    ("kind", "module", "package"),
    [(Compression.LZ4, "lz4.frame", "lz4"), (Compression.ZSTD, "zstandard", "zstandard")],
)
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, kind: Compression, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for work in (compress, decompress):
        with pytest.raises(MissingExtra, match=r"pip install orbitmq\[compression\]") as caught:
            work(b"body", kind)
        assert caught.value.package == package


@given(st.binary(max_size=300), KINDS, st.integers(0, 1_000))
def test_arbitrary_bytes_are_a_body_within_the_limit_or_a_remote_error(
    data: bytes, kind: Compression, size_max: int
) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert len(decompress(data, kind, size_max)) <= size_max
