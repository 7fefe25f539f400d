"""The checksum of a message body.

In: bytes. Out: CRC-32 (the zlib polynomial) with the highest bit cleared, as the original stores it
so that it fits Java's positive int.
"""

import zlib


def body_crc(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 of `data` in 31 bits; 0 for no data."""
    return zlib.crc32(data) & 0x7FFFFFFF
