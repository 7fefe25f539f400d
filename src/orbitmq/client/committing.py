"""How far the group is: from the queues in hand to the store of offsets, and never backwards.

In: process queues. Out: offsets in the store, at times and with pulls.

Rules:
1. The progress of a queue is copied when it is wanted (a pull, the timer, the end), not with every
   message.
2. A queue that has just become ours may still be committed once more by its last owner. So our own
   first commit comes after a while, and not below what the store has by then: offsets that one
   group's members commit do not go back.
3. What has not changed is not stored again by the timer; pulls carry it anyway.
4. A queue has one commit under way at a time: brokers may handle two at once in either order.
"""

import asyncio
import logging
from collections.abc import Collection

from orbitmq.client.offset_stores import OffsetStore
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.errors import MQError

log = logging.getLogger(__name__)

SETTLE_S = 1.0
"""So long after a queue became ours its last owner may still commit."""


class Commits:
    """Commits for one consumer. `is_shared`: other members may own the queues before and after."""

    def __init__(self, store: OffsetStore, *, is_shared: bool) -> None:
        self.store = store
        self._is_shared = is_shared
        self._loop = asyncio.get_running_loop()
        self._is_failing = False

    def with_pull(self, process_queue: ProcessQueue) -> int | None:
        """Return the offset that a pull takes along; None when it takes none."""
        if not self._is_shared or not process_queue.is_settled:
            return None
        offset = self._note(process_queue)
        return offset if offset is not None and offset > 0 else None

    def _note(self, process_queue: ProcessQueue) -> int | None:
        """Copy the progress into the store's memory; return what it has then."""
        progress = process_queue.progress
        if progress is not None:
            self.store.update(process_queue.queue, progress, increases_only=True)
        return self.store.cached(process_queue.queue)

    async def commit(
        self, process_queues: Collection[ProcessQueue], *, is_last: bool = False
    ) -> None:
        """Store what has changed; what fails is logged and tried again the next time.

        `is_last`: these queues are given away, so also those are stored that came just now.
        """
        if is_last:
            await self._wait_uncommitted(process_queues)
        changed = []
        for each in await self._settled(process_queues, is_last=is_last):
            # Somebody else may have dropped or begun to commit it while the store was asked.
            if each.committing is not None or (each.is_dropped and not is_last):
                continue
            offset = self._note(each)
            if offset is not None and offset != each.committed:
                changed.append((each, offset))
        if changed:
            await self._persist(changed)

    async def _persist(self, changed: list[tuple[ProcessQueue, int]]) -> None:
        done = self._loop.create_future()
        for each, _ in changed:
            each.committing = done
        try:
            await self.store.persist([each.queue for each, _ in changed])
            self._is_failing = False
            for each, offset in changed:
                each.committed = offset
        except Exception as error:  # the store may be the program's own
            self._failed(error)
        finally:
            done.set_result(None)
            for each, _ in changed:
                each.committing = None

    async def _wait_uncommitted(self, process_queues: Collection[ProcessQueue]) -> None:
        """Return when no commit of these is under way (rule 4)."""
        while under_way := {each.committing for each in process_queues} - {None}:
            await asyncio.wait([each for each in under_way if each is not None])

    async def _settled(
        self, process_queues: Collection[ProcessQueue], *, is_last: bool
    ) -> list[ProcessQueue]:
        """Return those that may be committed, after a look at what the store has (rule 2)."""
        known = [each for each in process_queues if each.progress is not None]
        now_s = self._loop.time()
        due = [
            each
            for each in known
            if not each.is_settled and (is_last or now_s - each.began_s >= SETTLE_S)
        ]
        await asyncio.gather(*map(self._settle, due))
        return [each for each in known if each.is_settled]

    async def _settle(self, process_queue: ProcessQueue) -> None:
        if self._is_shared:
            try:
                stored = await self.store.read(process_queue.queue)
            except Exception as error:  # the store may be the program's own
                self._failed(error)
                return
            if stored is not None:
                self.store.update(process_queue.queue, stored, increases_only=True)
        process_queue.is_settled = True

    async def set_to(self, process_queue: ProcessQueue, offset: int) -> None:
        """Store another offset than the progress, also a smaller one (of a dropped queue)."""
        await self._wait_uncommitted([process_queue])
        self.store.update(process_queue.queue, offset)
        await self._persist([(process_queue, offset)])

    def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            is_bug = not isinstance(error, MQError)
            log.warning("offsets could not be stored for now: %s", error, exc_info=is_bug)
