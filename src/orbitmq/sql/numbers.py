"""Numbers as the original's run time reads them: from literals, and from the texts of properties.

In: text. Out: a number, or NotComparable. A property is read as the kind of the number that it is
compared with: `3` asks for a 32-bit number, so that `3.5` and `3000000000` cannot be compared
with it, `3000000000` for a 64-bit one and `3.0` for a double.

Rule: what Java reads as a number, and nothing else: no spaces around whole numbers, no underscores,
`5d` and `0x1p3` are doubles, `inf` is none.
"""

import math
import re
import struct
from collections.abc import Callable

NUMBER_CHARS_MAX = 64
"""Longer texts are no numbers to us; Java reads them. It bounds what one comparison costs."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_WHOLE = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_DOUBLE = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_SPACE = "".join(map(chr, range(33)))
_BITS = struct.Struct(">d")
_ORDER = struct.Struct(">q")

Convert = Callable[[str], float]


class NotComparable(Exception):
    """Two values cannot be compared: the message does not match, whatever stands around it.

    It never leaves this package.
    """


def to_int(text: str) -> int:
    """Read a 32-bit number."""
    return _to_whole(text, INT_MAX)


def to_long(text: str) -> int:
    """Read a 64-bit number."""
    return _to_whole(text, LONG_MAX)


def _to_whole(text: str, most: int) -> int:
    if len(text) > NUMBER_CHARS_MAX or _WHOLE.fullmatch(text) is None:
        raise NotComparable
    value = int(text)
    if not -most - 1 <= value <= most:
        raise NotComparable
    return value


def to_double(text: str) -> float:
    """Read a double."""
    text = text.strip(_SPACE) if len(text) <= NUMBER_CHARS_MAX else ""
    if _DOUBLE.fullmatch(text) is not None:
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    found = _HEX_DOUBLE.fullmatch(text)
    if found is None:
        raise NotComparable
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def to_finite(text: str) -> float:
    """Read a double that is compared with a number: NaN is above all of them, as in Java."""
    value = to_double(text)
    return math.inf if math.isnan(value) else value


def to_order(text: str) -> int:
    """Read a double and give its place in Java's order: -0.0 before 0.0, NaN behind all."""
    value = to_double(text)
    if math.isnan(value):
        return LONG_MAX
    bits: int = _ORDER.unpack(_BITS.pack(value))[0]
    return bits if bits >= 0 else -(bits & LONG_MAX) - 1
