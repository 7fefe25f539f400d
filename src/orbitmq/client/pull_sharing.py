"""A pull consumer's topics, shared with its group: which queues it has, looked at again and again.

In: topics with their subscriptions, a nudge when something has changed. Out: queues that come and
go in `PullQueues`, and word to the program's listener.

Rules:
1. Looked at when a topic is subscribed to, every `rebalance_interval_s`, when a broker says that
   the members changed and when a route changes; soon again while something could not be done.
2. What is lost is given away before anything is taken.
3. A topic that does not exist yet is no error: it is looked for again.
"""

import asyncio
import logging
from collections.abc import Mapping

from orbitmq.client.instance import Instance
from orbitmq.client.pull_queues import PullQueues
from orbitmq.client.pull_settings import PullConsumerSettings
from orbitmq.client.shares import Share, Shares
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import MQError

log = logging.getLogger(__name__)

SOON_S = 0.5
"""So long after something could not be done it is tried again; twice as long each time."""


class PullSharing:
    """The shared topics of one consumer."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        settings: PullConsumerSettings,
        subscriptions: Mapping[str, Subscription],
        queues: PullQueues,
    ) -> None:
        strategy = None if settings.is_broadcasting else settings.strategy
        self._shares = Shares(instance, group, strategy)
        self._group = group
        self._settings = settings
        self._subscriptions = subscriptions
        self._queues = queues
        self._queues.is_shared = not settings.is_broadcasting
        self._wanted = asyncio.Event()
        self._looking = asyncio.Lock()
        self._troubled: set[str] = set()

    def soon(self) -> None:
        """Look at once."""
        self._wanted.set()

    async def run(self, *, is_complete: bool) -> None:
        """Look whenever it is time, until cancelled; `is_complete` is what the last look gave."""
        pause_s = SOON_S
        while True:
            interval_s = self._settings.rebalance_interval_s
            wait_s = interval_s if is_complete else min(pause_s, interval_s)
            pause_s = SOON_S if is_complete else pause_s * 2
            try:
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()
                pause_s = SOON_S
            except TimeoutError:
                pass
            self._wanted.clear()
            is_complete = await self.look()

    async def look(self) -> bool:
        """Look at all topics once; give whether everything could be done."""
        async with self._looking:
            is_complete = True
            for topic in list(self._subscriptions):
                is_complete &= await self._look_at(topic)
            for topic in {queue.topic for queue in self._queues.table} - set(self._subscriptions):
                await self._leave(topic)
            return is_complete

    async def _leave(self, topic: str) -> None:
        """Give away the queues of a topic that is not subscribed any more."""
        had = [queue for queue in self._queues.table if queue.topic == topic]
        await self._queues.remove(had)
        self._tell(topic, await self._shares.left(topic, had))

    async def _look_at(self, topic: str) -> bool:
        try:
            share = await self._shares.find(topic)
        except MQError as error:
            if topic not in self._troubled:
                self._troubled.add(topic)
                log.warning("queues of topic %s stay as they are for now: %s", topic, error)
            return False
        except Exception:  # a strategy of the program's own: other topics go on
            log.exception("sharing the queues of topic %s failed; they stay", topic)
            return False
        self._troubled.discard(topic)
        if share is None:
            return False
        await self._take(topic, share)
        return True

    async def _take(self, topic: str, share: Share) -> None:
        subscription = self._subscriptions.get(topic)
        if subscription is None:
            return
        mine = set(share.mine)
        had = {queue for queue in self._queues.table if queue.topic == topic}
        await self._queues.remove(had - mine)
        for queue in share.mine:
            self._queues.add(queue, subscription)
        if had != mine:
            self._tell(topic, share)

    def _tell(self, topic: str, share: Share) -> None:
        log.info(
            "group %s: %d of %d queues of %s are ours",
            self._group,
            len(share.mine),
            len(share.queues),
            topic,
        )
        listener = self._settings.queue_listener
        if listener is None:
            return
        try:
            listener(topic, list(share.queues), list(share.mine))
        except Exception:  # the program's own
            log.exception("the queue listener of group %s failed", self._group)
