"""Which task reads what: ranges of offsets, split and put together as the options want it.

In: ranges of queues, and how large messages are about. Out: partitions for Spark.

Rules:
1. One task for each queue that has messages, unless options say otherwise.
2. Splits are even; the order inside a queue is kept inside a task.
3. `maxPartitions` wins: several ranges then share a task, the largest placed first.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from orbitmq.spark.topic_options import TopicOptions
from orbitmq.wire.bodies_client import MessageQueue


class Range(NamedTuple):
    """The offsets [begin, end) of one queue."""

    queue: MessageQueue
    begin: int
    end: int

    @property
    def length(self) -> int:
        """How many offsets these are."""
        return self.end - self.begin


class TopicPartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Collection[Range]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


def planned(
    ranges: Collection[Range], options: TopicOptions, record_bytes: int | None = None
) -> list[TopicPartition]:
    """Return the tasks; `record_bytes` is needed where options count bytes."""
    found = [each for each in ranges if each.length > 0]
    limit = _count_max(options, record_bytes)
    if limit is not None:
        found = [part for each in found for part in _split(each, -(-each.length // limit))]
    if options.min_partitions is not None and len(found) < options.min_partitions:
        found = _spread(found, options.min_partitions)
    if options.max_partitions is not None and len(found) > options.max_partitions:
        return _packed(found, options.max_partitions)
    return [TopicPartition([each]) for each in found]


def _count_max(options: TopicOptions, record_bytes: int | None) -> int | None:
    limits = [options.max_records_per_partition]
    if options.max_bytes_per_partition is not None and record_bytes:
        limits.append(max(1, options.max_bytes_per_partition // record_bytes))
    return min((limit for limit in limits if limit is not None), default=None)


def _split(whole: Range, count: int) -> list[Range]:
    borders = [whole.begin + whole.length * each // count for each in range(count + 1)]
    return [Range(whole.queue, begin, end) for begin, end in pairwise(borders) if begin < end]


def _spread(ranges: list[Range], wanted: int) -> list[Range]:
    """Split ranges by their share of all offsets, until there are as many as wanted."""
    parts = [1] * len(ranges)
    left = min(wanted, sum(each.length for each in ranges)) - len(ranges)
    for _ in range(max(0, left)):
        most = max(range(len(ranges)), key=lambda at: ranges[at].length / parts[at])
        parts[most] += 1
    return [part for each, count in zip(ranges, parts, strict=True) for part in _split(each, count)]


def _packed(ranges: list[Range], count: int) -> list[TopicPartition]:
    """Put ranges together in as many tasks (rule 3)."""
    bins: list[list[Range]] = [[] for _ in range(count)]
    sizes = [0] * count
    for each in sorted(ranges, key=lambda each: (-each.length, each)):
        least = sizes.index(min(sizes))
        bins[least].append(each)
        sizes[least] += each.length
    return [TopicPartition(sorted(each)) for each in bins]
