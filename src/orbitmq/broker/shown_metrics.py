"""What a broker shows to Prometheus of what it keeps and has counted.

In: the parts of a broker, its counts. Out: metrics that are read when somebody looks.

Rules:
1. Nothing is counted here; every figure is somebody's own, so it is the one that tools are told.
2. At most SHOWN_MAX topics or pairs of topic and group are shown, the first that there were; all
   others are one row `other`. Nobody can fill a monitoring system by making topics.
3. A look costs a few milliseconds at worst: lags are looked up for LAG_QUEUES_MAX queues.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice

from orbitmq.broker.clients import ClientTable
from orbitmq.broker.cold_reads import ColdReads
from orbitmq.broker.context import Context
from orbitmq.broker.counts import Counts, Pair, Totals
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.core import CoreState
from orbitmq.metrics import OTHER, ROWS_MAX, Registry
from orbitmq.store.retention import used_ratio
from orbitmq.store.stats import PUT_STEP_NAMES, StoreStats
from orbitmq.store.store import Store

SHOWN_MAX = ROWS_MAX - 1
LAG_QUEUES_MAX = 10_000
"""Queues whose lag is looked up at one scrape; the groups behind them are not shown."""

Row = tuple[tuple[str, ...], float]


def add_metrics(registry: Registry, context: Context) -> None:
    """Show what one broker keeps and has counted."""
    _add_store_metrics(registry, context.store)
    _add_cold_metrics(registry, context.cold_reads)
    add_traffic_metrics(registry, context.counts, context.core, context.store)
    add_client_metrics(registry, context.clients, context.queue_locks)
    registry.gauge(
        "orbitmq_broker_held_pulls",
        "Pulls that wait for a message.",
        lambda: len(context.held_reads),
    )
    registry.gauge(
        "orbitmq_broker_delayed_messages",
        "Delayed messages that wait to be delivered.",
        context.delays.waiting_count,
    )
    registry.total(
        "orbitmq_broker_delivered_delayed_messages_total",
        "Delayed messages that were delivered to their topics.",
        lambda: context.counts.delivered_in_all().messages,
    )
    registry.gauge(
        "orbitmq_broker_sql_filters",
        "Filters by expression that groups have on topics.",
        lambda: len(context.filters),
    )


def _add_store_metrics(registry: Registry, store: Store) -> None:
    """Register the gauges of one store."""
    gauge, tail, stats = registry.gauge, store.tail, store.stats
    gauge("orbitmq_store_log_begin_offset", "The log's first byte.", lambda: store.first_offset)
    gauge("orbitmq_store_log_end_offset", "The log's end.", lambda: tail.written_offset)
    gauge(
        "orbitmq_store_unsynced_bytes",
        "The part of the log that is not surely on the disk; limit unsyncedBytesMax.",
        lambda: store.unsynced_bytes,
    )
    gauge(
        "orbitmq_store_unsynced_ms",
        "How long the oldest unsynced byte has waited; limit unsyncedMillisMax.",
        lambda: store.unsynced_ms,
    )
    gauge(
        "orbitmq_store_unwritten_bytes",
        "Queue and index entries that only memory holds; the log has what they are made of.",
        lambda: store.unwritten_bytes,
    )
    gauge(
        "orbitmq_store_dispatch_lag_bytes",
        "The part of the log that is in no queue or not in the key index, not even in memory.",
        lambda: store.dispatch_lag_bytes,
    )
    gauge(
        "orbitmq_store_unindexed_keys",
        "Keys that cannot be looked up because their messages have more than 64.",
        lambda: store.unindexed_keys,
    )
    gauge(
        "orbitmq_store_flush_lag_bytes",
        "The part of the log that a start after a kill would read back.",
        lambda: store.flush_lag_bytes,
    )
    registry.total(
        "orbitmq_store_messages_total",
        "Messages written to the log and given a queue offset.",
        lambda: store.message_count,
    )
    _add_put_metrics(registry, stats)
    gauge(
        "orbitmq_store_damaged_records",
        "Places of the log that were found damaged when they were read; they are passed over.",
        lambda: store.reader.damaged,
    )
    gauge(
        "orbitmq_store_recovery_findings",
        "What the start found in the folder; the log of the start says what.",
        lambda: len(store.findings),
    )
    gauge(
        "orbitmq_store_refusing",
        "1 while no message is taken; the answer to a send says why.",
        lambda: int(bool(tail.refusal)),
    )
    gauge(
        "orbitmq_store_disk_used_ratio",
        "How much of the fullest disk of the store is used, 0 to 1.",
        lambda: max((used_ratio(disk.space) for disk in store.cleaner.disks), default=0.0),
    )


def _add_cold_metrics(registry: Registry, cold_reads: ColdReads) -> None:
    """Register the reads of old messages."""
    gauge = registry.gauge
    gauge(
        "orbitmq_store_cold_pulls",
        "Pulls that were read from the files because their messages are old.",
        lambda: cold_reads.count,
    )
    gauge(
        "orbitmq_store_waiting_reads",
        "Requests for old messages that wait for a thread.",
        lambda: cold_reads.waiting_count,
    )


def _add_put_metrics(registry: Registry, stats: StoreStats) -> None:
    """Register what was put into the log, and how long that took, in the original's steps."""
    gauge = registry.gauge
    gauge("orbitmq_store_put_bytes", "Bytes put into the log.", lambda: stats.put_bytes)
    registry.total(
        "orbitmq_store_refused_writes_total",
        "Turns whose log write the disk refused.",
        lambda: stats.put_failures,
    )
    gauge("orbitmq_store_put_ms_max", "The longest write of the log.", lambda: stats.put_ms_max)
    for number, step in enumerate(PUT_STEP_NAMES):
        gauge(
            "orbitmq_store_put_times",
            "Messages by how long the write took that put them into the log.",
            partial(stats.put_counts.__getitem__, number),
            {"took": step.strip("[]")},
        )


def add_traffic_metrics(registry: Registry, counts: Counts, core: CoreState, store: Store) -> None:
    """Register what goes in and out of one broker."""
    topic, pair = ("topic",), ("topic", "group")
    registry.rows(
        "orbitmq_broker_put_messages_total",
        "Messages put into a topic since the start.",
        "counter",
        topic,
        lambda: (((topic,), put.messages) for topic, put in _puts(counts)),
    )
    registry.rows(
        "orbitmq_broker_put_bytes_total",
        "Bytes of records put into a topic since the start.",
        "counter",
        topic,
        lambda: (((topic,), put.size) for topic, put in _puts(counts)),
    )
    registry.rows(
        "orbitmq_broker_got_messages_total",
        "Messages of a topic that a group's pulls got since the start.",
        "counter",
        pair,
        lambda: ((pair, got.messages) for pair, got in _gots(counts)),
    )
    registry.rows(
        "orbitmq_broker_got_bytes_total",
        "Bytes of a topic that a group's pulls got since the start.",
        "counter",
        pair,
        lambda: ((pair, got.size) for pair, got in _gots(counts)),
    )
    registry.rows(
        "orbitmq_broker_lag_messages",
        "Messages of a topic that a group has not consumed yet, by its stored offsets.",
        "gauge",
        pair,
        lambda: _lags(core, store),
    )


def _puts(counts: Counts) -> Iterator[tuple[str, Totals]]:
    rest = Totals(counts.put_count, counts.writes.put_bytes)
    used = ((topic.name, put) for topic, put in counts.puts() if put.messages)
    for name, put in islice(used, SHOWN_MAX):
        rest = Totals(rest.messages - put.messages, rest.size - put.size)
        yield name, put
    if rest.messages > 0:  # topics that are gone, too
        yield OTHER, rest


def _gots(counts: Counts) -> Iterator[tuple[Pair, Totals]]:
    rest = counts.got_in_all()
    for pair, got in islice(counts.gots(), SHOWN_MAX):
        rest = Totals(rest.messages - got.messages, rest.size - got.size)
        yield pair, got
    if rest.messages > 0:  # of pairs that are forgotten, too
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


def add_client_metrics(registry: Registry, clients: ClientTable, locks: QueueLocks) -> None:
    """Show how many clients there are."""
    registry.gauge(
        "orbitmq_broker_client_connections",
        "Connections that have sent a heartbeat.",
        lambda: clients.connection_count,
    )
    groups = "orbitmq_broker_client_groups"
    groups_help = "Groups of which somebody is connected, by kind."
    registry.gauge(
        groups, groups_help, lambda: len(clients.consumer_groups()), {"kind": "consumer"}
    )
    registry.gauge(
        groups, groups_help, lambda: len(clients.producer_groups()), {"kind": "producer"}
    )
    members = "orbitmq_broker_client_members"
    members_help = "Connections in groups, counted once for each group, by kind."
    registry.gauge(members, members_help, lambda: clients.consumer_count, {"kind": "consumer"})
    registry.gauge(members, members_help, lambda: clients.producer_count, {"kind": "producer"})
    registry.gauge(
        "orbitmq_broker_queue_locks",
        "Queues that a client has locked, or had until a moment ago.",
        lambda: len(locks),
    )
