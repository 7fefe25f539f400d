"""Which filters of groups a message passes, told in advance: bit maps in extra units.

In: the filters of all groups, messages on their way into queue files; later the units of messages
that somebody pulls. Out: a bit map for each message, and for a unit "surely not" or "perhaps".

Rules:
1. A message's bits are made after it was stored, with the filters that are there then. So a bit map
   speaks of a filter only if that was born before the message was stored. Of later ones, and where
   there is no bit map or one of another shape, nothing is known: the record is looked at.
2. Filters are looked at on the loop (`freeze`), bits are made in the flush's thread.
3. Only a filter that is registered has bits; an expression that comes with a pull has none.
"""

from collections.abc import Callable

from orbitmq.broker.filters import FilterData, FilterTable
from orbitmq.config.broker import BrokerSettings
from orbitmq.sql import Expression, compile_expression
from orbitmq.store.bloom import Bloom, has_all
from orbitmq.store.queue_ext import Unit, UnitFilter
from orbitmq.store.queue_ext_writing import BitMapOf
from orbitmq.wire.properties import parse_properties

_BYTE_BITS = 8
_ByTopic = dict[str, list[tuple[tuple[int, ...], Expression]]]
"""For each topic the filters on it: their bits, and what passes."""


def bloom_of(settings: BrokerSettings) -> Bloom:
    """Return the shape of bit maps that the settings ask for."""
    return Bloom(
        error_percent=settings.max_error_rate_of_bloom_filter,
        filter_count=settings.expect_consumer_num_use_filter,
    )


def bit_maps(
    filters: FilterTable, settings: BrokerSettings
) -> Callable[[], BitMapOf | None] | None:
    """Return what makes bit maps of messages at each flush; None: the settings want none."""
    is_on = settings.enable_calc_filter_bit_map and settings.enable_consume_queue_ext
    return BitMaps(filters).freeze if is_on else None


class BitMaps:
    """Makes the bit maps of one broker's messages."""

    def __init__(self, filters: FilterTable) -> None:
        self._filters = filters
        self._version = -1
        self._frozen: BitMapOf | None = None
        self._compiled: dict[str, Expression] = {}
        """Of the filters that were there at the last look."""

    def freeze(self) -> BitMapOf | None:
        """Return what makes bit maps with the filters that are there now; None: there are none."""
        if self._version != self._filters.version:
            self._version = self._filters.version
            by_topic = self._by_topic()
            self._frozen = _bit_map_of(by_topic, self._filters.bloom) if by_topic else None
        return self._frozen

    def _by_topic(self) -> _ByTopic:
        by_topic: _ByTopic = {}
        compiled: dict[str, Expression] = {}
        for topic, filters in self._filters.snapshot().by_topic.items():
            for data in filters.group_filter_data.values():
                bits, text = data.bloom_bits, data.expression
                compiled[text] = self._compiled.get(text) or compile_expression(text)
                if bits is not None:
                    by_topic.setdefault(topic, []).append((bits.bit_pos, compiled[text]))
        self._compiled = compiled
        return by_topic


def _bit_map_of(by_topic: _ByTopic, bloom: Bloom) -> BitMapOf:
    def bit_map_of(topic: str, properties: bytes) -> bytes:
        filters = by_topic.get(topic)
        if filters is None:
            return b""
        values = parse_properties(properties)
        return bloom.bit_map(bits for bits, one in filters if one.accepts(values))

    return bit_map_of


def unit_filter(data: FilterData, bloom: Bloom) -> UnitFilter | None:
    """Return what says of a unit whether its message may pass a registered filter.

    None: nothing can be said, every message must be looked at.
    """
    bits, born_ms = data.bloom_bits, data.born_ms
    if bits is None or not _fits(data, bloom):
        return None

    def may_accept(unit: Unit) -> bool:
        if unit.store_ms <= born_ms or len(unit.bit_map) * _BYTE_BITS != bits.bit_num:
            return True
        return has_all(unit.bit_map, bits.bit_pos)

    return may_accept


def _fits(data: FilterData, bloom: Bloom) -> bool:
    """Whether a filter's bits are of the shape that bit maps have."""
    bits = data.bloom_bits
    if bits is None or (bits.bit_num, len(bits.bit_pos)) != (bloom.bit_count, bloom.hash_count):
        return False
    return all(0 <= position < bits.bit_num for position in bits.bit_pos)
