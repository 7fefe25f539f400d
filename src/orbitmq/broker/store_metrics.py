"""What the store tells about itself, as metrics.

In: the store, and the registry. Out: gauges that are read when somebody looks.
Rule: nothing is counted here; every figure is the store's own.
"""

from functools import partial

from orbitmq.broker.cold_reads import ColdReads
from orbitmq.metrics import Registry
from orbitmq.store.retention import used_ratio
from orbitmq.store.stats import PUT_STEP_NAMES, StoreStats
from orbitmq.store.store import Store


def add_store_metrics(registry: Registry, store: Store, cold_reads: ColdReads) -> None:
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
    gauge("orbitmq_store_put_messages", "Messages put into the log.", lambda: stats.put_count)
    gauge("orbitmq_store_put_bytes", "Bytes put into the log.", lambda: stats.put_bytes)
    gauge(
        "orbitmq_store_put_failures", "Writes of the log that failed.", lambda: stats.put_failures
    )
    gauge("orbitmq_store_put_ms_max", "The longest write of the log.", lambda: stats.put_ms_max)
    for number, step in enumerate(PUT_STEP_NAMES):
        gauge(
            "orbitmq_store_put_times",
            "Messages by how long the write took that put them into the log.",
            partial(stats.put_counts.__getitem__, number),
            {"took": step.strip("[]")},
        )
