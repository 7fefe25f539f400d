"""Java's string hash: the arithmetic under tag codes and key indexes.

In: text. Out: numbers as a Java broker computes them.

Rules:
1. The hash runs over UTF-16 units: a character beyond U+FFFF counts as its two surrogates, and a
   lone surrogate, which Java allows, as itself.
2. Results wrap into signed 32 bits.
"""

import struct
from collections.abc import Sequence
from operator import mul

_CHUNK = 256
_MASK = 0xFFFFFFFF
_POWERS = tuple(pow(31, exponent, 2**32) for exponent in range(_CHUNK, -1, -1))
"""31 to the power of 256, 255 … 0; a text of n units needs the last n."""

INT_MIN = -(2**31)


def string_hash(text: str) -> int:
    """Return `String.hashCode()` of `text`.

    >>> string_hash("TagA"), string_hash("Aa") == string_hash("BB")
    (2598919, True)
    """
    units: Sequence[int]
    if text.isascii():
        units = text.encode()
    else:
        packed = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(packed) // 2}H", packed)
    value = 0
    # One multiplication table for every chunk: a sum of products is faster than a loop of our own.
    for start in range(0, len(units), _CHUNK):
        chunk = units[start : start + _CHUNK]
        count = len(chunk)
        value = (value * _POWERS[-count - 1] + sum(map(mul, chunk, _POWERS[-count:]))) & _MASK
    return value - 2**32 if value > 0x7FFFFFFF else value


def index_hash(text: str) -> int:
    """Return the hash under which the key index files `text`: the absolute value.

    The absolute value of -2^31 does not fit Java's int; the original files such keys under 0.
    """
    value = string_hash(text)
    return 0 if value == INT_MIN else abs(value)
