"""What goes through a broker, by topic and group, and how far groups are behind, as metrics.

In: the queues' own counts, those of pulls, and the consumer offsets. Out: rows, made when somebody
looks.

Rules:
1. At most SHOWN_MAX topics or pairs of topic and group are shown, the first that there were; all
   others are one row `other`. Nobody can fill a monitoring system by making topics.
2. A look costs a few milliseconds at worst: lags are looked up for LAG_QUEUES_MAX queues.
"""

from collections.abc import Iterator
from itertools import islice

from orbitmq.core import CoreState, Got, Topic
from orbitmq.metrics import OTHER, ROWS_MAX, Registry
from orbitmq.store.store import Store

SHOWN_MAX = ROWS_MAX - 1
LAG_QUEUES_MAX = 10_000
"""Queues whose lag is looked up at one scrape; the groups behind them are not shown."""

Row = tuple[tuple[str, ...], float]


def add_traffic_metrics(registry: Registry, core: CoreState, store: Store) -> None:
    """Register what goes in and out of one broker."""
    topic, pair = ("topic",), ("topic", "group")
    registry.rows(
        "orbitmq_broker_put_messages_total",
        "Messages put into a topic since the start.",
        "counter",
        topic,
        lambda: _put_counts(core, store),
    )
    registry.rows(
        "orbitmq_broker_put_bytes_total",
        "Bytes of records put into a topic since the start.",
        "counter",
        topic,
        lambda: _put_bytes(core, store),
    )
    registry.rows(
        "orbitmq_broker_got_messages_total",
        "Messages of a topic that a group's pulls got since the start.",
        "counter",
        pair,
        lambda: ((key, got.count) for key, got in _gots(core)),
    )
    registry.rows(
        "orbitmq_broker_got_bytes_total",
        "Bytes of a topic that a group's pulls got since the start.",
        "counter",
        pair,
        lambda: ((key, got.size) for key, got in _gots(core)),
    )
    registry.rows(
        "orbitmq_broker_lag_messages",
        "Messages of a topic that a group has not consumed yet, by its stored offsets.",
        "gauge",
        pair,
        lambda: _lags(core, store),
    )


def _used(core: CoreState) -> Iterator[Topic]:
    """Return the topics that something was put into, as many as are shown."""
    used = (
        topic
        for topic in core.topics.values()
        if any(queue.put_count for queue in topic.queues.values())
    )
    return islice(used, SHOWN_MAX)


def _put_counts(core: CoreState, store: Store) -> Iterator[Row]:
    rest = store.message_count
    for topic in _used(core):
        count = sum(queue.put_count for queue in topic.queues.values())
        rest -= count
        yield (topic.name,), count
    if rest > 0:  # topics that are gone, too
        yield (OTHER,), rest


def _put_bytes(core: CoreState, store: Store) -> Iterator[Row]:
    rest = store.stats.put_bytes
    for topic in _used(core):
        size = sum(queue.put_bytes for queue in topic.queues.values())
        rest -= size
        yield (topic.name,), size
    if rest > 0:
        yield (OTHER,), rest


def _gots(core: CoreState) -> Iterator[tuple[tuple[str, str], Got]]:
    pairs = iter(core.got.items())
    yield from islice(pairs, SHOWN_MAX)
    rest = Got()
    for got in (*(got for _, got in pairs), core.got_other):
        rest.count += got.count
        rest.size += got.size
    if rest.count:
        yield (OTHER, OTHER), rest


def _lags(core: CoreState, store: Store) -> Iterator[Row]:
    looked_up = 0
    for key, offsets in islice(core.offsets.items(), SHOWN_MAX):
        looked_up += len(offsets)
        if looked_up > LAG_QUEUES_MAX:
            return
        topic, _, group = key.partition("@")
        lag = 0
        for queue_id, offset in offsets.items():
            queue = store.find_queue(topic, queue_id)
            if queue is not None:
                lag += max(0, queue.readable_offset - max(offset, queue.min_offset))
        yield (topic, group), lag
