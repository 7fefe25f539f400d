"""From which offset on the rows of a batch can lie in its topic's queues.

In: the query or named write, and what was committed of it. Out: an offset for each queue before
which nothing of the batch is; for the next batch, kept by the brokers as a consumer group's offset.

Rules:
1. When batch n is committed, everything of it is stored and nothing of n + 1 is: the ends of its
   queues are where n + 1 begins. Batch n may still be repeated, so the ends of n - 1 are kept as
   well: even and odd batches have a group each.
2. A broker that forgets the newest offsets in a crash gives older ones, which is only slower.
3. Without such an offset, with one behind the queue's end (its topic was made again), and for
   batch writes, time decides: not before the look back, and for a write without a name not before
   it began on the program's clock.
4. An offset that could not be kept is no failure of the batch.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping

from orbitmq.errors import MQError
from orbitmq.spark.cluster import Cluster, Retries
from orbitmq.spark.sink_keys import TaskKey
from orbitmq.spark.sink_patience import patiently, readable_queues
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.world.clock import SystemClock

log = logging.getLogger(__name__)

GROUP_PREFIX = "SPARK_SINK_"
CLOCK_SLACK_MS = 10 * 60 * 1000
"""So much the clocks of program and brokers may differ."""
KEEP_RETRIES = Retries(count=1, interval_s=0.5)
LOOK_RETRIES = Retries(count=20, interval_s=0.5)


class Bounds:
    """Where the rows of one batch begin."""

    def __init__(self, cluster: Cluster, task: TaskKey, earliest_ms: int) -> None:
        self._cluster = cluster
        self._group = group_of(task.query, task.batch - 1)
        self._earliest_ms = earliest_ms

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic; none when it does not exist."""
        return self._cluster.wait(
            patiently(lambda: readable_queues(self._cluster, topic), LOOK_RETRIES.count)
        )

    def starts(self, topic: str) -> dict[MessageQueue, int]:
        """Return the first offset of each queue at which a row of the batch can be."""
        queues = self.queues(topic)
        kept = self._cluster.group_offsets(self._group, queues, LOOK_RETRIES)
        ends = self._cluster.max_offsets(queues, LOOK_RETRIES)
        known = {queue: at for queue, at in kept.items() if at and at <= ends[queue]}
        unknown = {queue: self._earliest_ms for queue in queues if queue not in known}
        by_time = self._cluster.offsets_for_times(unknown, LOOK_RETRIES)
        return {**{queue: max(0, at) for queue, at in by_time.items()}, **known}


def earliest_ms(look_back_ms: int, begun_ms: int | None = None) -> int:
    """Return the time before which nothing is stored (rule 3); `begun_ms`: of a nameless write."""
    if begun_ms is not None:
        return max(0, begun_ms - CLOCK_SLACK_MS)
    return max(0, SystemClock().wall_ms() - look_back_ms)


def group_of(query: str, batch: int) -> str:
    """Return the consumer group in whose name brokers keep the ends of a batch (rule 1)."""
    digest = hashlib.blake2b(query.encode(), digest_size=8)
    return f"{GROUP_PREFIX}{digest.hexdigest()}_{batch % 2}"


def keep_ends(
    cluster: Cluster, query: str, batch: int, ends: Iterable[Mapping[MessageQueue, int]]
) -> None:
    """Have brokers keep where a batch has ended (rules 1 and 4)."""
    highest: dict[MessageQueue, int] = {}
    for each in ends:
        for queue, end in each.items():
            highest[queue] = max(end, highest.get(queue, 0))
    group = group_of(query, batch)
    try:
        cluster.store_group_offsets(group, highest, KEEP_RETRIES)
    except MQError as error:
        log.info("the end of batch %d is not kept, a repeated one reads more: %s", batch, error)
