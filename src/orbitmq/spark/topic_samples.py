"""About how large messages are, by a few of them.

In: ranges of queues. Out: the mean size of a record in bytes.

Rules:
1. It is an estimate: one pull in the middle of each of a few ranges. Limits in bytes are kept
   about, and at least one message is always let through.
2. A topic that was deleted has no size: whoever reads it finds out.
"""

import asyncio
from collections.abc import Collection

import msgspec

from orbitmq.arrow.starts import walk
from orbitmq.spark.cluster import Cluster, QueueFailed
from orbitmq.spark.topic_gone import is_unknown_topic
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.spark.topic_planning import Range
from orbitmq.spark.topic_pulls import QueuePulls

RANGES_MAX = 8
COUNT = 32
UNKNOWN_BYTES = 1_024
"""Of what cannot be looked at."""


def record_bytes(cluster: Cluster, options: TopicOptions, ranges: Collection[Range]) -> int:
    """Return the mean size of the records of the largest ranges; raises QueueFailed."""
    unfiltered = msgspec.structs.replace(options, tags="", sql92="")
    largest = sorted(ranges, key=lambda each: -each.length)[:RANGES_MAX]

    async def look(each: Range) -> bytes:
        pulls = QueuePulls(cluster, unfiltered, each.queue)
        try:
            return (await pulls.pull((each.begin + each.end) // 2, COUNT)).body
        except QueueFailed as error:
            if not is_unknown_topic(error.cause):
                raise
            return b""

    async def look_everywhere() -> list[bytes]:
        return await asyncio.gather(*(look(each) for each in largest if each.length > 0))

    bodies = cluster.wait(look_everywhere())
    count = sum(len(walk(body).positions) for body in bodies)
    return max(1, sum(map(len, bodies)) // count) if count else UNKNOWN_BYTES
