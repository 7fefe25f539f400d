"""Bloom filters of groups: which bits of a message's bit map stand for which group on a topic.

In: how often a filter may err and how many there may be; a group and a topic. Out: a few positions
in a bit map, the same ones that the original calculates.

Rules:
1. A message that passed a group's filter has all bits of that group set. One that did not has them
   only by chance: a bit map says "surely not" or "perhaps".
2. Bit p of a bit map is bit p % 8, from the lowest, of byte p // 8.
"""

import math
from collections.abc import Iterable

from orbitmq.ensure import ensure
from orbitmq.wire.murmur import murmur3_first_half

ERROR_PERCENT = 20
FILTER_COUNT = 32
"""What the original assumes unless it is told otherwise."""

_INT_SPAN = 2**32
_BYTE_BITS = 8


class Bloom:
    """The shape of all bit maps of one broker."""

    def __init__(
        self, *, error_percent: int = ERROR_PERCENT, filter_count: int = FILTER_COUNT
    ) -> None:
        """`error_percent` of 1 to 99: how often a bit map may say "perhaps" where it need not."""
        ensure(1 <= error_percent < 100 and filter_count >= 1, "settings are checked when read")
        rate = error_percent / 100
        self.hash_count = math.ceil(_log(0.5, rate))
        """How many bits stand for one filter."""
        bits = math.ceil(filter_count * _log(2, 1 / rate) * _log(2, math.e))
        self.bit_count = -(-bits // _BYTE_BITS) * _BYTE_BITS

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """Return the bits that stand for a group's filter on a topic.

        >>> Bloom().positions("CGS", "TopicA")
        (43, 110, 103)
        """
        whole = murmur3_first_half(f"{group}#{topic}".encode("utf-8", "replace"))
        low, high = whole % _INT_SPAN, whole // _INT_SPAN
        return tuple(
            _not_negative(low + number * high) % self.bit_count
            for number in range(1, self.hash_count + 1)
        )

    def bit_map(self, filters: Iterable[Iterable[int]]) -> bytes:
        """Return the bit map of a message that passed filters with these positions."""
        bits = 0
        for positions in filters:
            for position in positions:
                bits |= 1 << position
        return bits.to_bytes(self.bit_count // _BYTE_BITS, "little")


def has_all(bit_map: bytes, positions: Iterable[int]) -> bool:
    """Whether all these bits are set; the bit map must be long enough."""
    bits = int.from_bytes(bit_map, "little")
    return all(bits >> position & 1 for position in positions)


def _log(base: float, number: float) -> float:
    """Return a logarithm the way the original does: it is rounded up afterwards."""
    return math.log(number) / math.log(base)


def _not_negative(number: int) -> int:
    """Return a sum as Java has it in 32 bits, with all bits turned if it is negative there."""
    number %= _INT_SPAN
    return number if number < _INT_SPAN // 2 else _INT_SPAN - 1 - number
