"""What a running stream knows of its queues: which there are, where they end, and when they grow.

In: the cluster as it changes. Out: the newest ends, and word when there is something new.

Rules:
1. Queues are looked for again every `routeCacheTtlMs`. A queue that was once known stays: its
   broker may come back, and only its offsets say that messages are lost.
2. A broker that does not answer is warned of once, and once when it is back. Its queues have no end
   until then: the stream goes on with the others.
3. A topic that was deleted is a loss (topic_loss.py), reported once until it is there again.
   Brokers say 0 for the end of its queues: one that ends earlier than before is looked at, too.
4. Ends are asked for again when a held pull brought news or a route has lost queues, else every
   ASK_AGAIN_S. Each queue has one held pull, at its end, that outlives the caller's wait; one that
   fails is asked again after a pause, and counts as news once.
"""

import asyncio
import logging
from collections.abc import Mapping

from orbitmq.client.instance import Instance
from orbitmq.client.pulling import Puller
from orbitmq.client.queue_offsets import max_offset
from orbitmq.client.subscriptions import Selector, Subscription
from orbitmq.errors import MQError
from orbitmq.spark.cluster import Cluster, Retries, cluster_of
from orbitmq.spark.data_loss import report_loss, topic_deleted
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_choice import queues_there_now
from orbitmq.spark.topic_loss import deleted_queues, may_be_deleted
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.world.clock import Clock, SystemClock

log = logging.getLogger(__name__)

HOLD_S = 15.0
HOLD_SLACK_S = 10.0
"""A held pull's answer may come so much later."""
PAUSE_S = 1.0
"""Before a queue is asked again whose broker does not answer."""


class HeldPulls:
    """Held pulls of one stream, on the loop in the background."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._held: dict[MessageQueue, tuple[int, asyncio.Task[None]]] = {}
        self._news = asyncio.Event()

    async def wait(self, ends: Mapping[MessageQueue, int], timeout_s: float) -> bool:
        """Return when a queue goes on behind its end, or after the time-out; give whether."""
        self._hold(ends)
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def _hold(self, ends: Mapping[MessageQueue, int]) -> None:
        loop = asyncio.get_running_loop()
        for queue in [each for each in self._held if each not in ends]:
            self._held.pop(queue)[1].cancel()
        for queue, end in ends.items():
            at, task = self._held.get(queue, (-1, None))
            if task is None or task.done() or at != end:
                if task is not None:
                    task.cancel()
                self._held[queue] = end, loop.create_task(self._follow(queue, end))

    async def _follow(self, queue: MessageQueue, end: int) -> None:
        """Wait until a queue has another end than this one."""
        wired = self._cluster.wire_queue(queue)
        puller = Puller(await self._cluster.instance(), self._cluster.wrap(self._group))
        subscription = Subscription(wired.topic, Selector.tags(), version=0)
        is_silent = False
        while True:
            try:
                answer = await puller.pull_raw(
                    wired,
                    subscription,
                    end,
                    count_max=1,
                    suspend_s=HOLD_S,
                    timeout_s=HOLD_S + HOLD_SLACK_S,
                    sends_expression=True,
                )
            except MQError:
                if not is_silent:
                    self._news.set()
                is_silent = True
                await asyncio.sleep(PAUSE_S)
                continue
            if answer.max_offset != end or is_silent:
                self._news.set()
                return


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
        """Those whose topic was deleted, of which that was reported."""
        self._pulls: HeldPulls | None = None
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
        if self._pulls is None:
            self._pulls = HeldPulls(self.cluster, self._options.group)
        ends = {queue: self.ends.get(queue, 0) for queue in self._queues}
        return await self._pulls.wait(ends, timeout_s)

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
        doubtful = {queue for queue, error in failed.items() if may_be_deleted(error)} | shorter
        gone = deleted_queues(self.cluster, self._options, doubtful)
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
