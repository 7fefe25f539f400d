"""Held reads: requests that found nothing and wait until one of their queues grows.

In: reads to hold, of any kind and on any number of queues; the queues that grew in this turn of the
loop, and those that are removed. Out: answers, in that turn.

Rules:
1. A read says by itself what there is for it: whenever one of its queues has grown (`look`), and
   once more at its end (`answer_at_end`). It is answered once, whichever of its queues grew.
2. Looks for many held reads are made in slices: others get their turn (`turn_share`).
3. Their number is bounded, for each queue here and in all by net (see net.later); a closed
   connection takes its own along.
4. A read that fails is answered with the failure and holds up no other.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection

from orbitmq.broker.turn_share import share_s
from orbitmq.core import Queue
from orbitmq.net.connection import Parts
from orbitmq.net.later import Later
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.world.clock import Clock

log = logging.getLogger(__name__)

HELD_PER_QUEUE_MAX = 4_096

Answer = Command | Parts


class HeldRead(ABC):
    """One read that may be held: what it asks for, and how far it has come."""

    __slots__ = ("later", "queues", "request")

    def __init__(self, request: Command, queues: Collection[Queue]) -> None:
        self.request = request
        self.queues = queues
        """Those that may bring news for it; none: it is only answered at its end."""
        self.later: Later
        """Set when it is held."""

    @abstractmethod
    def look(self) -> Answer | None:
        """Return the answer, if there is one now that a queue has grown."""

    @abstractmethod
    def answer_at_end(self) -> Answer:
        """Return the answer, whatever there is: it has waited long enough."""


class HeldReads:
    """All held reads of one broker, by queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reads: set[HeldRead] = set()
        self._by_queue: dict[Queue, dict[HeldRead, None]] = {}
        self._due: dict[HeldRead, None] = {}
        self._is_slicing = False
        self._sliced_s = 0.0
        """When the last slice was left unfinished."""

    def __len__(self) -> int:
        """How many reads are held."""
        return len(self._reads)

    def of(self, queue: Queue) -> list[HeldRead]:
        """Return the reads that wait for a queue."""
        return list(self._by_queue.get(queue, ()))

    def queues(self, topic: str) -> list[Queue]:
        """Return the queues of a topic that reads wait for."""
        return [queue for queue in self._by_queue if queue.topic == topic]

    def hold(self, read: HeldRead, timeout_s: float) -> Later:
        """Keep a read until one of its queues has something for it, at most `timeout_s`.

        Above HELD_PER_QUEUE_MAX it is answered at once: every growth looks at every one of them.
        """
        if any(len(self._by_queue.get(queue, ())) >= HELD_PER_QUEUE_MAX for queue in read.queues):
            timeout_s = 0.0
        self._reads.add(read)
        for queue in read.queues:
            self._by_queue.setdefault(queue, {})[read] = None
        read.later = Later(
            timeout_s, lambda: self._at_end(read), on_cancel=lambda: self._forget(read)
        )
        return read.later

    def wake(self, grown: set[Queue]) -> None:
        """Answer the reads that can be answered now that `grown` have grown."""
        if self._by_queue:
            for queue in grown & self._by_queue.keys():
                self._due.update(self._by_queue[queue])
        if self._due and not self._is_slicing:
            self._look_at_due()

    def end(self, read: HeldRead) -> None:
        """Answer a read before its time, with what there is."""
        read.later.answer(self._at_end(read))

    def end_queue(self, queue: Queue, remark: str) -> None:
        """Answer all reads of a queue that is removed: there is no such topic any more."""
        for read in self.of(queue):
            self._forget(read)
            read.later.answer(reply_to(read.request, ResponseCode.TOPIC_NOT_EXIST, remark))

    def _look_at_due(self) -> None:
        """Look for those that are due, for a while; the others come in the loop's next turn."""
        now_s = self._clock.monotonic_s()
        deadline_s = now_s + share_s(now_s - self._sliced_s if self._is_slicing else 0.0)
        self._is_slicing = False
        while self._due:
            read = next(iter(self._due))
            del self._due[read]
            self._look_for(read)
            if self._due and (now_s := self._clock.monotonic_s()) > deadline_s:
                self._is_slicing, self._sliced_s = True, now_s
                asyncio.get_running_loop().call_soon(self._look_at_due)
                return

    def _look_for(self, read: HeldRead) -> None:
        try:
            answer = read.look()
        except Exception:  # a bug of ours: the records are written, and others wait for them, too
            log.exception("a held read of %s failed", [queue.topic for queue in read.queues][:1])
            remark = "the held request failed; the broker's log says why"
            answer = reply_to(read.request, ResponseCode.SYSTEM_ERROR, remark)
        if answer is not None:
            self._forget(read)
            read.later.answer(answer)

    def _at_end(self, read: HeldRead) -> Answer:
        self._forget(read)
        return read.answer_at_end()

    def _forget(self, read: HeldRead) -> None:
        self._reads.discard(read)
        self._due.pop(read, None)
        for queue in read.queues:
            waiting = self._by_queue.get(queue)
            if waiting is not None:
                waiting.pop(read, None)
                if not waiting:
                    del self._by_queue[queue]
