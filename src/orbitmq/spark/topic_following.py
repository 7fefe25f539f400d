"""What a running stream knows of its queues: which there are, and where they end.

In: the cluster as it changes. Out: the newest ends, and word when there is something new.

Rules:
1. Queues are looked for again every `routeCacheTtlMs`. A queue that was once known stays: its
   broker may come back, and only its offsets say that messages are gone.
2. A broker that does not answer is told about in the log once, and once when it is back. Its queues
   have no end until then: the stream goes on with the others.
3. A topic that was deleted is a loss (topic_gone.py), told once until it is there again. Brokers
   say 0 for the end of its queues: one that ends earlier than before is looked at, too.
4. Ends are asked for again when a held pull brought news or a route has lost queues, else every
   ASK_AGAIN_S.
"""

import asyncio
import logging
from collections.abc import Mapping

from orbitmq.client.instance import Instance
from orbitmq.client.queue_offsets import max_offset
from orbitmq.errors import MQError
from orbitmq.spark.cluster import Cluster, Retries, cluster_of
from orbitmq.spark.data_loss import report_loss, topic_deleted
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_choice import queues_there_now
from orbitmq.spark.topic_gone import gone_queues, may_be_gone
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.spark.topic_watch import Watch
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.world.clock import Clock, SystemClock

log = logging.getLogger(__name__)

ASK_AGAIN_S = 5.0
ANSWER_S = 2.0
"""So long a stream waits for one queue's end."""
ONCE = Retries(0, 0.0)


class Follower:
    """The queues of one stream; lives in the process that plans it."""

    def __init__(self, options: TopicOptions, clock: Clock | None = None) -> None:
        self._options = options
        self.clock = clock if clock is not None else SystemClock()
        self.cluster: Cluster = cluster_of(options)
        self._queues: set[MessageQueue] = set()
        self._there: set[MessageQueue] = set()
        self._looked_s: float | None = None
        self._asked_s: float | None = None
        self._silent: set[MessageQueue] = set()
        self.gone: set[MessageQueue] = set()
        """Those whose topic was deleted, of which that was told."""
        self._watch: Watch | None = None
        self.ends: Offsets = {}
        """The newest ends that are known."""

    def newest(self, at: Mapping[MessageQueue, int]) -> Offsets:
        """Return where queues end now: those read up to `at` and those that are there (all rules).

        Raises DataLoss for a topic that was deleted.
        """
        now_s = self.clock.monotonic_s()
        self._queues |= set(at)
        ttl_s = self._options.route_cache_ttl_ms / 1000
        if self._looked_s is None or now_s - self._looked_s >= ttl_s:
            self._look()
            self._looked_s = now_s
        is_old = self._asked_s is None or now_s - self._asked_s >= ASK_AGAIN_S
        if is_old or self._queues - self.ends.keys() - self._silent:
            self._ask(at)
        return self.ends

    def wait(self, timeout_s: float) -> None:
        """Return when there may be something new, or after the time-out."""
        if self.cluster.wait(self._wait(timeout_s)):
            self._asked_s = None

    async def _wait(self, timeout_s: float) -> bool:
        if self._watch is None:
            self._watch = Watch(self.cluster, self._options.group)
        ends = {queue: self.ends.get(queue, 0) for queue in self._queues}
        return await self._watch.wait(ends, timeout_s)

    def _look(self) -> None:
        try:
            there = set(queues_there_now(self.cluster, self._options))
        except MQError as error:
            log.warning("topics are as they were known: %s", error)
            return
        for queue in sorted(there - self._queues):
            log.info("queue %s is read from now on", queue)
        if self._there - there:
            self._asked_s = None
        self._queues |= there
        self._there = there

    def _ask(self, at: Mapping[MessageQueue, int]) -> None:
        """Ask all queues; forget the ends of those that do not answer."""
        found = self.cluster.wait(self._ask_all())
        failed = {queue: end for queue, end in found.items() if not isinstance(end, int)}
        ends = {queue: end for queue, end in found.items() if isinstance(end, int)}
        shorter = {queue for queue, end in ends.items() if end < self._end_before(queue, at)}
        self._find_gone(failed, shorter, at)
        self._asked_s = self.clock.monotonic_s()
        self.ends = {queue: end for queue, end in ends.items() if queue not in self.gone}
        for queue in sorted(failed.keys() - self._silent - self.gone):
            log.warning("%s; the stream goes on without it until it answers", failed[queue])
        silent = failed.keys() | self.gone
        for queue in sorted(self._silent - silent):
            log.info("queue %s answers again", queue)
        self._silent = silent

    def _end_before(self, queue: MessageQueue, at: Mapping[MessageQueue, int]) -> int:
        return max(self.ends.get(queue, 0), at.get(queue, 0))

    def _find_gone(
        self,
        failed: Mapping[MessageQueue, MQError],
        shorter: set[MessageQueue],
        at: Mapping[MessageQueue, int],
    ) -> None:
        """Tell of queues whose topic was deleted (rule 3); raises DataLoss."""
        doubtful = {queue for queue, error in failed.items() if may_be_gone(error)} | shorter
        gone = gone_queues(self.cluster, self._options, doubtful)
        for queue in sorted(gone - self.gone):
            what = topic_deleted(at.get(queue, 0))
            report_loss(queue, what, fails=self._options.fail_on_data_loss)
        self.gone = gone | (self.gone & failed.keys())

    async def _ask_all(self) -> dict[MessageQueue, int | MQError]:
        async def end_of(instance: Instance, queue: MessageQueue) -> int:
            return await max_offset(instance, queue, ANSWER_S)

        async def one(queue: MessageQueue) -> int | MQError:
            try:
                found = await self.cluster.ask_each("its end", end_of, [queue], ONCE)
            except MQError as error:
                return error
            return found[queue]

        queues = sorted(self._queues)
        return dict(zip(queues, await asyncio.gather(*map(one, queues)), strict=True))
