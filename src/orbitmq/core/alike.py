"""Texts of one length as columns: what stands at the same place in all of them is one slice.

In: many texts, such as the properties of the messages of one sender. Out: whether they are alike
where it matters, parts of them, and Java's hashes of parts.

Rules:
1. Fewer than `ALIKE_MIN` texts, and texts of several lengths, are nobody's columns: None.
2. No text takes a step of its own. A column costs as much as a few texts would, so parts that are
   hashed have at most `HASHED_MAX` characters.
3. Java's hash is a sum: a column that is the same in all texts adds the same number to each.
"""

import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache

from orbitmq.core.packing import low_words

ALIKE_MIN = 16
HASHED_MAX = 64
_LANE = 8
"""A hash is summed up in so many bytes: 64 characters times 2^32 do not overflow them."""
_MASK = 0xFFFFFFFF
_POWERS = tuple(pow(31, exponent, 2**32) for exponent in range(HASHED_MAX + 1))


class Alike:
    """Texts of one length."""

    __slots__ = ("count", "first", "joined", "size")

    def __init__(self, texts: Sequence[bytes]) -> None:
        """The texts must be of one length: see `alike`."""
        self.first = texts[0]
        self.joined = b"".join(texts)
        self.size = len(texts[0])
        self.count = len(texts)

    def has(self, part: bytes, place: int) -> bool:
        """Whether all of them have this part at this place."""
        joined, size, count = self.joined, self.size, self.count
        if place < 0 or place + len(part) > size:
            return False
        return all(
            joined[at::size] == part[at - place : at - place + 1] * count
            for at in range(place, place + len(part))
        )

    def is_same(self, start: int, end: int) -> bool:
        """Whether all of them have the same between these places."""
        return self.has(self.first[start:end], start)

    def parts(self, start: int, end: int) -> list[bytes]:
        """Return of each what stands between these places."""
        return [part for (part,) in _cutter(start, end, self.size).iter_unpack(self.joined)]

    def hashes(self, start: int, end: int, forbidden: bytes, before: int) -> "array[int] | None":
        """Java's hash of each part between these places, behind a text whose hash is `before`.

        None: it has no character or more than `HASHED_MAX`, or one that is forbidden or not ASCII.
        """
        if not 0 < end - start <= HASHED_MAX or not _is_free(self.first[start:end], forbidden):
            return None
        joined, size, count = self.joined, self.size, self.count
        same, lanes, total = before * _POWERS[end - start], bytearray(_LANE * count), 0
        for place in range(start, end):
            column, power = joined[place::size], _POWERS[end - place - 1]
            if column.count(column[:1]) == count:
                same += column[0] * power
            elif _is_free(column, forbidden):
                lanes[::_LANE] = column
                total += int.from_bytes(lanes, "little") * power
            else:
                return None
        total += int.from_bytes((same & _MASK).to_bytes(_LANE, "little") * count, "little")
        return low_words(total, count)


def _is_free(text: bytes, forbidden: bytes) -> bool:
    return text.isascii() and not any(char in text for char in forbidden)


def alike(texts: Sequence[bytes]) -> Alike | None:
    """Return texts as columns (rule 1)."""
    if len(texts) < ALIKE_MIN or len(texts[0]) != len(texts[-1]):
        return None
    return Alike(texts) if len(set(map(len, texts))) == 1 and texts[0] else None


@lru_cache(maxsize=1_024)
def _cutter(start: int, end: int, size: int) -> struct.Struct:
    return struct.Struct(f"{start}x{end - start}s{size - end}x")
