"""Rows of numbers, big-endian, packed many at a time.

In: one row as it is without its numbers, and columns of numbers. Out: all rows, back to back.

Rules:
1. A row is made of fields of four and eight bytes; a column is named by the place of its field,
   counted in units of four bytes.
2. Whole columns are written by strides: `struct` would take a step of Python's for each row.
3. A column that is an array of its field's size already is taken as it is.
"""

import sys
from array import array
from collections.abc import Iterable, Mapping

WORD_SIZE = 4
_IS_LITTLE = sys.byteorder == "little"
_HIGH, _LOW = (1, 0) if _IS_LITTLE else (0, 1)

Columns = Mapping[int, Iterable[int]]


def packed_rows(row: bytes, count: int, narrow: Columns, wide: Columns) -> bytes:
    """Return `count` rows like `row` with their own numbers in it, signed ones of 4 and of 8 bytes.

    >>> packed_rows(bytes(12), 2, {0: [1, -1]}, {1: [2, 3]}).hex(" ", 4)
    '00000001 00000000 00000002 ffffffff 00000000 00000003'
    """
    words = array("i", row * count)
    if _IS_LITTLE:
        words.byteswap()
    step = len(row) // WORD_SIZE
    for place, numbers in narrow.items():
        words[place::step] = _as_array("i", numbers)
    for place, numbers in wide.items():
        halves = array("i", _as_array("q", numbers).tobytes())
        words[place::step] = halves[_HIGH::2]
        words[place + 1 :: step] = halves[_LOW::2]
    if _IS_LITTLE:
        words.byteswap()
    return words.tobytes()


def _as_array(code: str, numbers: Iterable[int]) -> "array[int]":
    if isinstance(numbers, array) and numbers.typecode == code:
        return numbers
    return array(code, numbers)


def low_words(lanes: int, count: int) -> "array[int]":
    """Return the lower four bytes, signed, of each eight that a number has; the lowest first.

    >>> low_words((7 << 64) + (1 << 32) + 2**32 - 1, 2).tolist()
    [-1, 7]
    """
    words = array("i", lanes.to_bytes(2 * WORD_SIZE * count, "little"))
    if not _IS_LITTLE:
        words.byteswap()
    return words[::2]
