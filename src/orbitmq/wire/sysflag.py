"""The bits of a message's sysFlag.

In and out: the flag as a number; each function gives a new number and touches only its own bits.

Rules:
1. Bits nobody knows are kept as they are: 5.x uses more of them than 4.9 did.
2. Compression type 0 means zlib: clients older than the type bits wrote nothing else.
"""

from enum import IntEnum

from orbitmq.errors import RemoteProtocolError

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8
OUTSIDE_QUEUE = 0x4
"""Set in prepared (4) and rolled back (12) messages, not in committed (8) and plain (0) ones."""

SENDER_BITS = COMPRESSED | MULTI_TAGS | COMPRESSION_MASK
"""What a plain sender may set; all other bits are the broker's."""


class Transaction(IntEnum):
    """What a record is in a transaction; the value is the bits in place."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class Compression(IntEnum):
    """How a body is compressed; the value is what stands in the type bits."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def is_compressed(sys_flag: int) -> bool:
    """Whether the body is compressed."""
    return bool(sys_flag & COMPRESSED)


def transaction_of(sys_flag: int) -> Transaction:
    """Return the transaction type."""
    return Transaction(sys_flag & TRANSACTION_MASK)


def with_transaction(sys_flag: int, transaction: Transaction) -> int:
    """Return `sys_flag` with another transaction type."""
    return (sys_flag & ~TRANSACTION_MASK) | transaction


def enters_queue(sys_flag: int) -> bool:
    """Whether a record gets a queue entry: prepared and rolled back ones do not."""
    return not sys_flag & OUTSIDE_QUEUE


def with_host_bits(sys_flag: int, *, born_is_v6: bool, store_is_v6: bool) -> int:
    """Return `sys_flag` with the bits that say how wide the two hosts are."""
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    return sys_flag | (BORN_HOST_V6 if born_is_v6 else 0) | (STORE_HOST_V6 if store_is_v6 else 0)


def compression_of(sys_flag: int) -> Compression:
    """Return the compression type; raises RemoteProtocolError for the four values without one."""
    kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    if kind == 0:
        return Compression.ZLIB
    try:
        return Compression(kind)
    except ValueError:
        raise RemoteProtocolError(
            "body-compression",
            f"unknown compression type {kind} in sysFlag {sys_flag:#x}; known are"
            " 0 and 3 (zlib), 1 (LZ4), 2 (zstd)",
        ) from None


def with_compression(sys_flag: int, kind: Compression) -> int:
    """Return `sys_flag` as it says that the body is compressed by `kind`."""
    return (sys_flag & ~COMPRESSION_MASK) | COMPRESSED | (kind << COMPRESSION_SHIFT)


def without_compression(sys_flag: int) -> int:
    """Return `sys_flag` as it says that the body is not compressed."""
    return sys_flag & ~(COMPRESSED | COMPRESSION_MASK)
