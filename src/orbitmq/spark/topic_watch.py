"""Word of new messages: pulls that brokers hold until there is something.

In: the queues that are followed and where they end. Out: a wake-up as soon as one has grown.

Rules:
1. Each queue has one held pull, at its end, that outlives the caller's wait: an idle stream asks
   each queue once in HOLD_S.
2. A held pull that is answered with something is news; one that fails is asked again after a pause,
   and counts as news once: whoever waits then looks by himself.
3. The first message comes along with the answer and is dropped: one pull is cheaper than a second
   kind of request.
"""

import asyncio
from collections.abc import Mapping

from orbitmq.client.pulling import Puller
from orbitmq.client.subscriptions import Selector, Subscription
from orbitmq.errors import MQError
from orbitmq.spark.cluster import Cluster
from orbitmq.wire.bodies_client import MessageQueue

HOLD_S = 15.0
ANSWER_S = 10.0
"""A held pull's answer may come so much later."""
PAUSE_S = 1.0
"""Before a queue is asked again whose broker does not answer."""


class Watch:
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
                    timeout_s=HOLD_S + ANSWER_S,
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
