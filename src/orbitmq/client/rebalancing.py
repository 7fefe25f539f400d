"""Which queues are this member's: shared by the group's strategy, looked at again and again.

In: routes, the ids of the group's members, a nudge when something has changed. Out: a process queue
for each queue that is ours, dropped as soon as it is not.

Rules:
1. Looked at on start, every `rebalance_interval_s`, when a broker says that members changed, when a
   route or a subscription changes; and soon again while something could not be done.
2. What is lost goes first: dropped, its offset stored, its lock given back. Only then queues are
   taken. A member that does not find itself in the list keeps what it has and says so to brokers.
3. A queue of an orderly consumer is taken with its lock or not at all, and given away when no
   handler is at it. While it is on its way it is in `leaving` and is not taken again.
   A lock that was lost is begun again at the stored offset; a warning says which messages come
   again then.
4. A change renews the subscription's version and is told to brokers at once.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from orbitmq.client.committing import Commits
from orbitmq.client.consumer_settings import from_ms
from orbitmq.client.instance import Instance
from orbitmq.client.offset_stores import first_offset
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.client.queue_locks import VALID_S, QueueLocks
from orbitmq.client.shares import Shares
from orbitmq.client.subscriptions import Subscription
from orbitmq.errors import MQError, RouteNotFound
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.names import is_retry_topic

log = logging.getLogger(__name__)

SOON_S = 0.5
"""So long after something could not be done it is tried again; twice as long each time."""
RELEASE_S = 3.0
"""So long a close waits for queues that are being given away."""

Changed = Callable[[str, list[MessageQueue], list[MessageQueue]], None]


class Rebalancing:
    """The queues of one consumer."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        settings: PushConsumerSettings,
        subscriptions: Mapping[str, Subscription],
        commits: Commits,
    ) -> None:
        self.table: dict[MessageQueue, ProcessQueue] = {}
        """The queues that are ours."""
        self.leaving: dict[MessageQueue, ProcessQueue] = {}
        """Queues that are not ours any more, but still being put in order."""
        self.locks = QueueLocks(instance, group) if is_locking(settings) else None
        self.begin: Callable[[ProcessQueue], None] = lambda _queue: None
        """Called with a queue that has become ours."""
        self.changed: Changed = lambda _topic, _all, _mine: None
        """Called with a topic, all its queues and ours, when ours have changed."""
        self.dropped: Callable[[], None] = lambda: None
        """Called when queues were dropped."""
        self.forget: Callable[[MessageQueue], None] = lambda _queue: None
        """Called with a queue that is not ours any more."""
        self._instance = instance
        self._group = group
        self._shares = Shares(
            instance, group, None if settings.is_broadcasting else settings.strategy
        )
        self._settings = settings
        self._subscriptions = subscriptions
        self._commits = commits
        self._clock = instance.clock
        self._wanted = asyncio.Event()
        self._troubled: set[str] = set()
        self._unlocked: dict[MessageQueue, int] = {}
        """How far we were in queues whose lock was lost."""
        self._from_ms = from_ms(settings.from_time_s, instance.clock.wall_ms())
        self._releases: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # --- when ---

    def soon(self) -> None:
        """Look at once."""
        self._wanted.set()

    async def run(self) -> None:
        """Look whenever it is time, until cancelled."""
        pause_s = SOON_S
        while True:
            self._wanted.clear()
            if await self.balance():
                pause_s, wait_s = SOON_S, self._settings.rebalance_interval_s
            else:
                wait_s = min(pause_s, self._settings.rebalance_interval_s)
                pause_s *= 2
            try:
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()
                pause_s = SOON_S
            except TimeoutError:
                pass

    async def balance(self) -> bool:
        """Look once; give whether everything could be done."""
        is_complete = True
        for topic in list(self._subscriptions):
            try:
                is_complete &= await self._balance_topic(topic)
                self._troubled.discard(topic)
            except MQError as error:
                is_complete = False
                self._tell(topic, error)
            except Exception:  # a strategy of the program's own, or a bug: other topics go on
                is_complete = False
                log.exception("sharing the queues of topic %s failed; they stay", topic)
        for topic in {queue.topic for queue in self.table} - set(self._subscriptions):
            await self._leave_topic(topic)
        return is_complete

    async def _leave_topic(self, topic: str) -> None:
        """Give away the queues of a topic that is not subscribed any more."""
        lost = {queue: each for queue, each in self.table.items() if queue.topic == topic}
        await self._lose(list(lost.values()))
        share = await self._shares.left(topic, lost)
        self._tell_changed(topic, share.queues, [])

    def _tell(self, topic: str, error: MQError) -> None:
        if topic in self._troubled or (is_retry_topic(topic) and isinstance(error, RouteNotFound)):
            log.debug("queues of topic %s stay as they are: %s", topic, error)
            return
        self._troubled.add(topic)
        log.warning("queues of topic %s stay as they are for now: %s", topic, error)

    # --- one topic ---

    async def _balance_topic(self, topic: str) -> bool:
        share = await self._shares.find(topic)
        if share is None:
            return False
        queues, mine = share.queues, share.mine
        kept = set(mine)
        lost = [
            each
            for queue, each in self.table.items()
            if queue.topic == topic and (queue not in kept or _has_ended(each))
        ]
        await self._lose(lost)
        wanted = [queue for queue in mine if queue not in self.table]
        gained = await self._gain(wanted)
        if lost or gained:
            self._tell_changed(topic, queues, mine)
        return gained == len(wanted)

    def _tell_changed(
        self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]
    ) -> None:
        ours = [queue for queue in mine if queue in self.table]
        log.info("group %s: %d of %d queues of %s are ours", *self._count(topic, queues, ours))
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            subscription.renew(self._clock.wall_ms())
        self.changed(topic, queues, ours)

    def _count(
        self, topic: str, queues: list[MessageQueue], ours: list[MessageQueue]
    ) -> tuple[str, int, int, str]:
        return self._group, len(ours), len(queues), topic

    # --- taking ---

    async def _gain(self, queues: list[MessageQueue]) -> int:
        """Take queues; return how many could be taken."""
        free = [queue for queue in queues if queue not in self.leaving]
        asked_s = self._clock.monotonic_s()
        if self.locks is not None and free:
            held = await self.locks.lock(free)
            free = [queue for queue in free if held.get(queue)]
        outcomes = await asyncio.gather(*(self._take(queue, asked_s) for queue in free))
        return sum(outcomes)

    async def _take(self, queue: MessageQueue, asked_s: float) -> bool:
        store = self._commits.store
        store.remove(queue)
        try:
            offset = await first_offset(
                self._instance, store, queue, self._settings.from_where, self._from_ms
            )
        except MQError as error:
            self._tell(queue.topic, error)
            return False
        if self._is_closed or queue.topic not in self._subscriptions or queue in self.table:
            return False
        self._warn_behind(queue, offset)
        process_queue = ProcessQueue(queue, offset, asked_s)
        if self.locks is not None:
            process_queue.locked_s = asked_s
            process_queue.locked_until_s = asked_s + VALID_S
        self.table[queue] = process_queue
        self.begin(process_queue)
        return True

    def _warn_behind(self, queue: MessageQueue, offset: int) -> None:
        known = self._unlocked.pop(queue, offset)
        if offset < known:
            log.warning(
                "%s begins again at %d, the stored offset, behind %d where this member was when it "
                "lost the lock: what lies between comes again",
                queue,
                offset,
                known,
            )

    # --- giving away ---

    async def _lose(self, process_queues: Collection[ProcessQueue]) -> None:
        """Drop queues; their offsets are stored when this returns, orderly ones' soon after."""
        for each in process_queues:
            self._drop(each)
        if not process_queues:
            return
        self.dropped()
        if self.locks is not None:
            for each in process_queues:
                self._begin_release(self._release(each))
            return
        # A close in between waits for it as well.
        await asyncio.shield(self._begin_release(self._release_all(process_queues)))

    def _drop(self, process_queue: ProcessQueue) -> None:
        process_queue.drop()
        self.table.pop(process_queue.queue, None)
        self.leaving[process_queue.queue] = process_queue

    def _left(self, process_queue: ProcessQueue) -> None:
        self.leaving.pop(process_queue.queue, None)
        self._commits.store.remove(process_queue.queue)
        self.forget(process_queue.queue)

    def _begin_release(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        release = self._instance.spawn(work)
        self._releases.add(release)
        release.add_done_callback(self._releases.discard)
        return release

    async def _release_all(self, process_queues: Collection[ProcessQueue]) -> None:
        try:
            await self._commits.commit(process_queues, is_last=True)
        finally:
            for each in process_queues:
                self._left(each)

    async def _release(self, process_queue: ProcessQueue) -> None:
        """Give an orderly queue away when its handler has come to an end (rule 3)."""
        try:
            await process_queue.wait_unhandled()
            if process_queue.locked_until_s is not None:
                await self._commits.commit([process_queue], is_last=True)
                process_queue.locked_until_s = None  # a renewal now would take it again
                if self.locks is not None:
                    await self.locks.unlock([process_queue.queue])
        finally:
            self._left(process_queue)

    # --- going on elsewhere ---

    async def go_on_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Leave off what is in hand of these queues and go on at other offsets."""
        hit = [each for queue, each in self.table.items() if queue in offsets]
        for each in hit:
            self._drop(each)
        self.dropped()
        await asyncio.gather(*(self._move(each, offsets[each.queue]) for each in hit))
        self.soon()

    async def _move(self, process_queue: ProcessQueue, offset: int) -> None:
        try:
            if self.locks is not None:
                await process_queue.wait_unhandled()
            await self._commits.set_to(process_queue, offset)
        finally:
            self._left(process_queue)

    # --- locks ---

    async def renew_locks(self) -> bool:
        """Renew the locks of all queues; give whether all brokers answered (orderly)."""
        ours = [*self.table.values(), *self.leaving.values()]
        held = [each for each in ours if each.locked_until_s is not None]
        if self.locks is None or not held:
            return True
        asked_s = self._clock.monotonic_s()
        found = await self.locks.lock([each.queue for each in held])
        for each in held:
            if each.queue in found:
                self._renewed(each, asked_s, is_ours=found[each.queue])
        return len(found) == len(held)

    def _renewed(self, process_queue: ProcessQueue, asked_s: float, *, is_ours: bool) -> None:
        until_s = process_queue.locked_until_s
        if is_ours and until_s is not None and asked_s < until_s:
            process_queue.locked_s = asked_s
            process_queue.locked_until_s = asked_s + VALID_S
        elif until_s is not None:
            # Somebody else may have consumed meanwhile: begin again from the stored offset.
            log.warning("the lock of %s was lost", process_queue.queue)
            process_queue.locked_until_s = None
            if process_queue.progress is not None:
                self._unlocked[process_queue.queue] = process_queue.progress
            if self.table.get(process_queue.queue) is process_queue:
                self._drop(process_queue)
                self.dropped()
                self._begin_release(self._release(process_queue))
            self.soon()

    # --- the end ---

    async def stop(self) -> None:
        """Pull and take nothing any more."""
        self._is_closed = True
        pullers = []
        for each in self.table.values():
            each.stop_pulling()
            pullers += [each.puller] if each.puller is not None else []
        await asyncio.gather(*pullers, return_exceptions=True)

    async def close(self) -> None:
        """Store all offsets and return all locks back."""
        if self._releases:
            await asyncio.wait(self._releases, timeout=RELEASE_S)
        ours = list(self.table.values())
        await self._commits.commit(ours, is_last=True)
        for each in ours:
            each.drop()
        self.table.clear()
        if self.locks is not None:
            await self.locks.unlock([each.queue for each in ours])


def is_locking(settings: PushConsumerSettings) -> bool:
    """Whether queues need a lock."""
    return settings.is_orderly and not settings.is_broadcasting


def _has_ended(process_queue: ProcessQueue) -> bool:
    """Whether nobody pulls a queue any more that is ours: it is to be begun again."""
    return process_queue.puller is not None and process_queue.puller.done()
