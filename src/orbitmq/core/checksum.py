"""The checksum of a record's body: CRC-32 as zlib has it, by the quickest way that is installed.

In: bytes. Out: the number that the record carries, 31 bits as in Java.
Rule: `zlib-ng` (extra `fast`) gives the same numbers eight times as quickly; nothing depends on it.
"""

import importlib
import zlib
from collections.abc import Callable

Bytes = bytes | bytearray | memoryview


def _quickest() -> Callable[[Bytes], int]:
    try:
        quick: Callable[[Bytes], int] = importlib.import_module("zlib_ng.zlib_ng").crc32
    except ImportError:
        return zlib.crc32
    return quick


crc32 = _quickest()
"""32 bits; records carry the lower 31 of them."""
