"""Compressed bodies: zlib streams, LZ4 frames, zstd frames.

In: a body and its kind (bits 0x700 of the sysFlag, see sysflag.py). Out: the body, packed or plain.

Rules:
1. Unpacking is bounded: no more than `size_max` bytes (and one) are ever produced, whatever the
   body claims. More is a RemoteProtocolError that names the limit.
2. A body is one whole stream; a torn or damaged one is a RemoteProtocolError. Bytes behind it are
   ignored, as Java's inflater does.
3. LZ4 and zstd need packages that are not installed by default; without them a MissingExtra says
   how to get them. They are imported at first use.
"""

import importlib
import zlib
from types import ModuleType

from orbitmq.errors import LocalProtocolError, MissingExtra, RemoteProtocolError
from orbitmq.wire.sysflag import Compression, compression_of, is_compressed

COMPRESSION_LEVEL = 5
"""The original's default. For LZ4 there is no such choice there, and none here."""

PLAIN_SIZE_MAX = 67_108_864
"""Sixteen times the default maxMessageSize: producers check it before they compress, but may have
raised it."""


def compress(
    body: bytes, kind: Compression = Compression.ZLIB, level: int = COMPRESSION_LEVEL
) -> bytes:
    """Return `body` compressed by `kind`."""
    if not 0 <= level <= 9:
        raise LocalProtocolError(f"compression level {level}, allowed are 0 to 9")
    if kind is Compression.ZLIB:
        return zlib.compress(body, level)
    if kind is Compression.LZ4:
        return bytes(_extra("lz4.frame").compress(body))
    # zstd's level 0 would mean its own default; its lowest ordinary level is 1.
    return bytes(_extra("zstandard").ZstdCompressor(level=max(level, 1)).compress(body))


def decompress(body: bytes, kind: Compression, size_max: int = PLAIN_SIZE_MAX) -> bytes:
    """Return `body` as it was before it was compressed by `kind`.

    Raises RemoteProtocolError when it is damaged or would be larger than `size_max`.
    """
    if kind is Compression.ZLIB:
        plain = _inflate(body, size_max)
    elif kind is Compression.LZ4:
        plain = _decompress_lz4(body, size_max)
    else:
        plain = _decompress_zstd(body, size_max)
    if len(plain) > size_max:
        raise _oversize(size_max)
    return plain


def plain_body(body: bytes, sys_flag: int, size_max: int = PLAIN_SIZE_MAX) -> bytes:
    """Return the body of a message as its producer saw it, decompressed if `sys_flag` says so."""
    if not is_compressed(sys_flag):
        return body
    return decompress(body, compression_of(sys_flag), size_max)


def _inflate(body: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, size_max + 1)
    except zlib.error as error:
        raise _damaged("zlib", str(error)) from None
    if not stream.eof and len(plain) <= size_max:
        raise _damaged("zlib", "the stream is torn")
    return plain


def _decompress_lz4(body: bytes, size_max: int) -> bytes:
    frame = _extra("lz4.frame").LZ4FrameDecompressor()
    try:
        plain = bytes(frame.decompress(body, size_max + 1))
    except RuntimeError as error:
        raise _damaged("LZ4", str(error)) from None
    if not frame.eof and len(plain) <= size_max:
        raise _damaged("LZ4", "the frame is torn")
    return plain


def _decompress_zstd(body: bytes, size_max: int) -> bytes:
    zstandard = _extra("zstandard")
    try:
        # The library trusts a size in the frame's header, so it is checked first; -1 is none.
        if zstandard.frame_content_size(body) > size_max:
            raise _oversize(size_max)
        # A limit of 0 would mean none to it.
        room = max(size_max, 1)
        return bytes(zstandard.ZstdDecompressor().decompress(body, max_output_size=room))
    except zstandard.ZstdError as error:
        # The library says the same for a torn frame and for one that needs more room.
        if _zstd_yields_more(zstandard, body, size_max):
            raise _oversize(size_max) from None
        raise _damaged("zstd", str(error)) from None


def _zstd_yields_more(zstandard: ModuleType, body: bytes, size_max: int) -> bool:
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            return len(reader.read(size_max + 1)) > size_max
    except zstandard.ZstdError:
        return False


def _oversize(size_max: int) -> RemoteProtocolError:
    return RemoteProtocolError("body-oversize", f"decompresses to more than {size_max} bytes")


def _damaged(name: str, detail: str) -> RemoteProtocolError:
    return RemoteProtocolError("body-compression", f"not a whole {name} body: {detail}")


def _extra(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise MissingExtra(f"bodies compressed by {package}", package, "compression") from None
