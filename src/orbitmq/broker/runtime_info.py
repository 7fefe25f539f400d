"""The runtime table of a broker: what `brokerStatus`, `clusterList` and dashboards read (28).

In: the broker's parts, and what only the disk knows. Out: texts by name.

Rules:
1. Names and forms are those of 4.9.7, and the few that 5.x tools read under another name.
2. Every figure is true. What there is no such thing of here reads as in an idle original: no
   request waits in a pool of threads (size and wait 0; the query pool's are the reads of old
   messages that wait for a thread), no lock guards the page cache, no buffer lies before the log,
   and no time of a pull is measured (getMessageEntireTimeMax).
3. Rates are given from the first second on; the original leaves them empty until it has samples.
"""

from collections.abc import Sequence
from typing import NamedTuple

from orbitmq.broker.context import Context
from orbitmq.broker.stats import Rate
from orbitmq.store.retention import Disk, least_used, used_ratio
from orbitmq.wire.command import VERSION
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.world.files import Space

VERSION_NAME = "V4_9_7"
_POOLS = {"send": 10_000, "pull": 100_000, "query": 20_000, "litePull": 100_000, "ack": 100_000}
"""The pools of the original, with how many requests may wait for each by default."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_UNLIMITED = str(2**31 - 1)


class DiskFacts(NamedTuple):
    """What only the disk knows: the room for log and queues, and the log's first store time."""

    logs: Sequence[Disk]
    """Those of the folders that get new files of the log."""
    queues: Disk
    others: Sequence[Disk]
    """Those of folders that storePathCommitLog names and that get none."""
    first_ms: int


def runtime_table(context: Context) -> dict[str, str]:
    """Return what the broker knows without asking the disk."""
    return {
        **_who(context),
        **_totals(context),
        **_rates(context.stats.rates(context.clock.monotonic_s())),
        **_pools(context),
        **_store(context),
        **_delays(context),
    }


def _who(context: Context) -> dict[str, str]:
    now_ms = context.clock.wall_ms()
    return {
        "brokerVersionDesc": VERSION_NAME,
        "brokerVersion": str(VERSION),
        "brokerActive": "true",
        "bootTimestamp": str(context.boot_ms),
        "runtime": _duration(max(0, now_ms - context.boot_ms) // 1000),
        "startAcceptSendRequestTimeStamp": str(
            context.settings.start_accept_send_request_time_stamp
        ),
    }


def _totals(context: Context) -> dict[str, str]:
    stats = context.stats
    now = stats.totals(context.clock.monotonic_s())
    (put_yesterday, put_today), (got_yesterday, got_today) = stats.put_mornings, stats.got_mornings
    return {
        "msgPutTotalYesterdayMorning": str(put_yesterday),
        "msgPutTotalTodayMorning": str(put_today),
        "msgPutTotalTodayNow": str(now.put),
        "msgGetTotalYesterdayMorning": str(got_yesterday),
        "msgGetTotalTodayMorning": str(got_today),
        "msgGetTotalTodayNow": str(now.got),
    }


def _rates(rates: list[Rate]) -> dict[str, str]:
    got = " ".join(str(rate.got) for rate in rates)
    return {
        "putTps": " ".join(str(rate.put) for rate in rates),
        "getFoundTps": " ".join(str(rate.found) for rate in rates),
        "getMissTps": " ".join(str(rate.missed) for rate in rates),
        "getTotalTps": " ".join(str(rate.found + rate.missed) for rate in rates),
        "getTransferedTps": got,
        "getTransferredTps": got,  # as 5.x spells it
    }


def _pools(context: Context) -> dict[str, str]:
    table = {
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "100000",
        "pageCacheLockTimeMills": "0",
    }
    for pool, capacity in _POOLS.items():
        waiting = context.cold_reads.waiting_count if pool == "query" else 0
        table[f"{pool}ThreadPoolQueueSize"] = str(waiting)
        table[f"{pool}ThreadPoolQueueCapacity"] = str(capacity)
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return table


def _store(context: Context) -> dict[str, str]:
    store = context.store
    stats = store.stats
    average = stats.put_bytes / stats.put_count if stats.put_count else 0.0
    p99_ms, p999_ms = context.stats.put_ms_percentiles
    return {
        "putMessageTimesTotal": str(stats.put_count),
        "putMessageFailedTimes": str(stats.put_failures),
        "putMessageSizeTotal": str(stats.put_bytes),
        "putMessageAverageSize": str(average),
        "putMessageEntireTimeMax": str(stats.put_ms_max),
        "putMessageDistributeTime": stats.put_times(),
        "putLatency99": f"{p99_ms:.2f}",
        "putLatency999": f"{p999_ms:.2f}",
        "getMessageEntireTimeMax": str(context.counts.get_ms_max),
        "dispatchMaxBuffer": "0",
        "dispatchBehindBytes": str(store.dispatch_lag_bytes),
        "remainHowManyDataToFlush": _bytes(store.unsynced_bytes),
        "remainTransientStoreBufferNumbs": _UNLIMITED,
        "commitLogMinOffset": str(store.first_offset),
        "commitLogMaxOffset": str(store.tail.visible_offset),
    }


def disk_table(facts: DiskFacts) -> dict[str, str]:
    """Return the rest of the table.

    Of several folders of the log the one with most room counts, and the capacity is that of the
    store folder's disk, as in the original.
    """
    log = least_used(facts.logs).space
    shown = log if len(facts.logs) == 1 else facts.queues.space
    return {
        "commitLogDirCapacity": f"Total : {_bytes(shown.total)}, Free : {_bytes(shown.free)}.",
        "commitLogDiskRatio": _ratio(log),
        **{
            f"commitLogDiskRatio_{disk.folder}": _ratio(disk.space)
            for disk in (*facts.logs, *facts.others)
        },
        "consumeQueueDiskRatio": _ratio(facts.queues.space),
        "earliestMessageTimeStamp": str(facts.first_ms),
    }


def _delays(context: Context) -> dict[str, str]:
    """Give, for each delay level in use, what is delivered and what there is."""
    topic = context.core.topics.get(SCHEDULE_TOPIC)
    queues = topic.queues.values() if topic is not None else ()
    return {
        f"scheduleMessageOffset_{queue.queue_id + 1}": (
            f"{context.delays.find(queue.queue_id + 1)},{queue.readable_offset}"
        )
        for queue in queues
        if queue.readable_offset
    }


# --- Forms ---


def _ratio(space: Space) -> str:
    return str(round(used_ratio(space), 2))


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _bytes(size: int) -> str:
    """Return a size as people read it: 349 B, 4.5 KiB, 252.0 GiB.

    >>> _bytes(4_557)
    '4.5 KiB'
    """
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{size / 1024**power:.1f} {_UNITS[power]}"
