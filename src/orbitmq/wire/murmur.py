"""MurmurHash3 with 128 bits, the variant for 64-bit machines, seed 0.

In: bytes. Out: the first of the two 64-bit halves of their hash, all that the original looks at.
Rule: numbers wrap at 64 bits, as the published algorithm says.
"""

import struct

_MASK = 2**64 - 1
_FACTOR_1 = 0x87C37B91114253D5
_FACTOR_2 = 0x4CF5AD432745937F
_MIX_1 = 0xFF51AFD7ED558CCD
_MIX_2 = 0xC4CEB9FE1A85EC53
_BLOCK = struct.Struct("<QQ")


def murmur3_first_half(data: bytes) -> int:
    """Return the low 64 bits of the hash, unsigned.

    >>> hex(murmur3_first_half(b"hello"))
    '0xcbd8a7b341bd9b02'
    """
    first = second = 0
    whole_size = len(data) - len(data) % _BLOCK.size
    for low, high in _BLOCK.iter_unpack(data[:whole_size]):
        first ^= _scrambled(low, _FACTOR_1, 31, _FACTOR_2)
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _MASK
        second ^= _scrambled(high, _FACTOR_2, 33, _FACTOR_1)
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _MASK
    low, high = _BLOCK.unpack(data[whole_size:].ljust(_BLOCK.size, b"\0"))
    first ^= _scrambled(low, _FACTOR_1, 31, _FACTOR_2) ^ len(data)
    second ^= _scrambled(high, _FACTOR_2, 33, _FACTOR_1) ^ len(data)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    return (_mixed(first) + _mixed(second)) & _MASK


def _scrambled(word: int, factor: int, turn: int, factor_after: int) -> int:
    return _rotated(word * factor & _MASK, turn) * factor_after & _MASK


def _rotated(word: int, turn: int) -> int:
    return (word << turn | word >> 64 - turn) & _MASK


def _mixed(word: int) -> int:
    word = (word ^ word >> 33) * _MIX_1 & _MASK
    word = (word ^ word >> 33) * _MIX_2 & _MASK
    return word ^ word >> 33
