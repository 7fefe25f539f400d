"""The queues of a pull consumer: those it has, and a task for each that pulls it.

In: queues to have, by the program's choice or as the group's share; seeks. Out: messages in the
cache, offsets in the store.

Rules:
1. A queue begins where the store says, or as `from_where` says for a new group. What then decides
   is `position` and `done` (see `pull_cache`).
2. A queue that is given away has its `done` stored first, if the consumer stores by itself.
3. A pull that fails is made again after a second, whatever the reason; the log says it once, and
   once when it works again. Connections that cannot be made have the route asked for again.
4. Only what has changed is stored. A shared queue's last owner may store its offset after we read
   it, so before our own first store we look again, a while later, and never store less than that.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from orbitmq.client.consumer_settings import from_ms
from orbitmq.client.instance import Instance
from orbitmq.client.offset_stores import OffsetStore, first_offset
from orbitmq.client.pull_cache import PullCache, PulledQueue
from orbitmq.client.pull_settings import PullConsumerSettings
from orbitmq.client.pulling import Puller, PullStatus
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import BrokerNotFound, ConnectFailed, MQError, OutcomeUnknown
from orbitmq.wire.bodies_client import MessageQueue

log = logging.getLogger(__name__)

RETRY_S = 1.0
SETTLE_S = 1.0
"""So long after a queue became ours its last owner may still store its offset."""
ANSWER_S = 10.0
"""So much longer than a broker holds a pull the client waits for its answer."""


class PullQueues:
    """The queues of one consumer."""

    def __init__(
        self, instance: Instance, puller: Puller, store: OffsetStore, settings: PullConsumerSettings
    ) -> None:
        self.table: dict[MessageQueue, PulledQueue] = {}
        self.cache = PullCache(settings)
        self.store = store
        self._instance = instance
        self._puller = puller
        self._settings = settings
        self._from_ms = from_ms(settings.from_time_s, instance.clock.wall_ms())
        self._troubled: set[str] = set()
        self.is_shared = False
        """Whether other members may have the queues before and after us."""

    # --- having queues ---

    def add(self, queue: MessageQueue, subscription: Subscription) -> None:
        """Have a queue and begin to pull it."""
        if queue not in self.table:
            pulled = self.table[queue] = PulledQueue(queue, subscription)
            pulled.began_s = self._instance.loop.time()
            pulled.pulling = self._instance.spawn(self._pull_from_store(pulled))

    async def remove(self, queues: Iterable[MessageQueue]) -> None:
        """Have these queues no more (rule 2)."""
        lost = [self.table.pop(queue) for queue in list(queues) if queue in self.table]
        await self._stop(lost)
        for pulled in lost:
            self.cache.forget(pulled)
            self._puller.forget(pulled.queue)
        if self._settings.auto_commit:
            await self._try_to_store(lost)
        for pulled in lost:
            self.store.remove(pulled.queue)

    async def restart(self, pulled: PulledQueue, offset: int) -> None:
        """Go on elsewhere in a queue."""
        while pulled.pulling is not None and not pulled.pulling.done():
            await self._stop([pulled])  # again, if another restart was faster
        self.cache.forget(pulled)
        pulled.begin(offset)
        if self.table.get(pulled.queue) is pulled:
            pulled.pulling = self._instance.spawn(self._pull(pulled, offset))

    async def pull_again(self, topic: str) -> None:
        """Throw away what is in memory of a topic: its selector is another one now."""
        for pulled in [each for each in self.table.values() if each.queue.topic == topic]:
            if pulled.position is not None:
                await self.restart(pulled, pulled.position)

    async def close(self, *, consumes_last: bool) -> None:
        """Pull nothing any more, and store offsets if that is ours to do."""
        await self._stop(self.table.values())
        self.cache.wake()
        if self._settings.auto_commit:
            if consumes_last:
                self.cache.settle()
            await self._try_to_store(self.table.values())

    async def _stop(self, queues: Iterable[PulledQueue]) -> None:
        tasks = [pulled.pulling for pulled in queues if pulled.pulling is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- offsets ---

    async def store_by_time(self) -> None:
        """Store what has been due for a while; what fails is logged and stays due."""
        now_s = self._instance.loop.time()
        ripe = [
            each
            for each in self.table.values()
            if each.is_settled or now_s - each.began_s >= SETTLE_S
        ]
        await self._try_to_store(ripe)

    async def _try_to_store(self, queues: Iterable[PulledQueue]) -> None:
        try:
            await self.store_done(queues)
            self._worked("offsets")
        except Exception as error:  # the store may be the program's own
            self._failed("offsets", f"offsets of group {self._settings.group} wait: {error}")

    async def store_done(self, queues: Iterable[PulledQueue] | None = None) -> None:
        """Store how far the program is through with queues (rule 4).

        Raises MQError when some could not be stored.
        """
        chosen = [*(self.table.values() if queues is None else queues)]
        await asyncio.gather(*(self._settle(each) for each in chosen if not each.is_settled))
        due = [each for each in chosen if each.due_offset is not None]
        for pulled in due:
            self.store.update(pulled.queue, pulled.due_offset or 0)
        offsets = {pulled.queue: pulled.due_offset for pulled in due}
        if due:
            await self.store.persist(list(offsets))
        for pulled in due:
            pulled.committed = offsets[pulled.queue]

    async def _settle(self, pulled: PulledQueue) -> None:
        """Look what the store has now (rule 4)."""
        if pulled.done is None:
            return
        if self.is_shared:
            pulled.committed = await self.store.read(pulled.queue)
            pulled.floor = pulled.committed or 0
        pulled.is_settled = True

    async def store_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets that somebody has chosen, whatever was there before."""
        for queue, offset in offsets.items():
            self.store.update(queue, offset)
        await self.store.persist(list(offsets))
        for queue, offset in offsets.items():
            if queue in self.table:
                self.table[queue].committed = offset

    # --- pulling ---

    async def _pull_from_store(self, pulled: PulledQueue) -> None:
        """Find out where to begin, as often as it takes, and pull from there."""
        while True:
            try:
                offset = await first_offset(
                    self._instance,
                    self.store,
                    pulled.queue,
                    self._settings.from_where,
                    self._from_ms,
                )
                break
            except Exception as error:  # the store may be the program's own
                await self._pause_after(pulled, error)
        pulled.committed = self.store.cached(pulled.queue)
        pulled.begin(offset)
        await self._pull(pulled, offset)

    async def _pull(self, pulled: PulledQueue, offset: int) -> None:
        while True:
            await self.cache.wait_room(pulled)
            try:
                offset = await self._pull_once(pulled, offset)
            except MQError as error:
                await self._pause_after(pulled, error)
            except Exception:  # a filter hook of the program's own, or a bug: it is tried again
                log.exception("a pull of %s failed; it is made again", pulled.queue)
                await asyncio.sleep(RETRY_S)

    async def _pull_once(self, pulled: PulledQueue, offset: int) -> int:
        """Pull once; give where the next pull begins."""
        settings = self._settings
        result = await self._puller.pull(
            pulled.queue,
            pulled.subscription,
            offset,
            count_max=settings.pull_batch_size,
            suspend_s=settings.pull_wait_s,
            timeout_s=settings.pull_wait_s + ANSWER_S,
            sends_expression=True,
        )
        if self._troubled:
            self._worked(pulled.queue.broker_name)
            self._worked(str(pulled.queue))
        if result.status is PullStatus.OFFSET_ILLEGAL and result.next_offset != offset:
            log.warning(
                "%s has no offset %d (it has %d to %d); going on at %d",
                pulled.queue,
                offset,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
        self.cache.put(pulled, result.messages, result.next_offset)
        return result.next_offset

    async def _pause_after(self, pulled: PulledQueue, error: Exception) -> None:
        """Tell of a failure once, and wait a little (rule 3)."""
        if isinstance(error, ConnectFailed | OutcomeUnknown | BrokerNotFound):
            broker_name = pulled.queue.broker_name
            self._failed(broker_name, f"broker {broker_name} is not pulled for now: {error}")
            await self._refresh_route(pulled.queue.topic)
        else:
            self._failed(str(pulled.queue), f"{pulled.queue} is not pulled for now: {error}")
        await asyncio.sleep(RETRY_S)

    async def _refresh_route(self, topic: str) -> None:
        try:
            await self._instance.routes.refresh(topic)
        except MQError as error:
            log.debug("the route of topic %s stays as it is: %s", topic, error)

    def _failed(self, what: str, sentence: str) -> None:
        if what not in self._troubled:
            self._troubled.add(what)
            log.warning("%s", sentence)

    def _worked(self, what: str) -> None:
        if what in self._troubled:
            self._troubled.discard(what)
            log.info("%s: it works again", what)
