"""Held pulls: requests that found nothing yet and wait for their queue to grow.

In: pulls to hold, and the queues that grew in this turn of the loop. Out: answers, in that turn.

Rules:
1. A held pull is looked up again when its queue grows, and once more, without holding, at its end.
2. When what came does not pass its filter, it goes on waiting behind it: nothing is scanned twice.
3. One look takes no longer than `selecting.LOOK_S`; what it did not get to is left to the client's
   next pull. Looks for many held pulls are made in slices: others get their turn (`turn_share`).
4. Their number is bounded by net (see net.later); a closed connection takes its own along.
5. When the group's expression changes, its held pulls are answered: the next ones ask by the new.
6. Without longPollingEnable a pull waits shortPollingTimeMills and is looked up at its end only.
"""

import asyncio

from orbitmq.broker.pulls import Note, Pull, found_parts
from orbitmq.broker.selecting import look
from orbitmq.broker.turn_share import share_s
from orbitmq.core import CoreState, Gathered, PullStatus, Queue
from orbitmq.net.connection import Parts
from orbitmq.net.later import Later
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import reply_to
from orbitmq.world.clock import Clock

HELD_PER_QUEUE_MAX = 4_096


class HeldPull:
    """One held pull: what it asks for, and how far its queue was looked through."""

    __slots__ = ("later", "next_offset", "pull")

    def __init__(self, pull: Pull, next_offset: int) -> None:
        self.pull = pull
        self.next_offset = next_offset
        self.later: Later


class LongPolls:
    """All held pulls of one broker, by queue."""

    def __init__(self, core: CoreState, clock: Clock, note: Note) -> None:
        """`note` is told of every outcome that is answered."""
        self._core = core
        self._clock = clock
        self._note = note
        self._held: dict[Queue, dict[HeldPull, None]] = {}
        self._due: dict[HeldPull, None] = {}
        self._is_slicing = False
        self._sliced_s = 0.0
        """When the last slice was left unfinished."""

    def __len__(self) -> int:
        """How many pulls are held."""
        return sum(map(len, self._held.values()))

    def hold(self, pull: Pull, timeout_s: float) -> Later:
        """Keep a pull until its queue has something for it, at most `timeout_s`.

        Above HELD_PER_QUEUE_MAX it is answered at once: every growth looks at every one of them.
        """
        if len(self._held.get(pull.queue, ())) >= HELD_PER_QUEUE_MAX:
            timeout_s = 0.0
        held = HeldPull(pull, pull.queue_offset)
        self._held.setdefault(pull.queue, {})[held] = None
        held.later = Later(
            timeout_s, lambda: self._at_end(held), on_cancel=lambda: self._forget(held)
        )
        return held.later

    def postpone(self, pull: Pull, timeout_s: float) -> Later:
        """Answer a pull after `timeout_s`, whatever comes meanwhile (rule 6)."""
        held = HeldPull(pull, pull.queue_offset)
        return Later(timeout_s, lambda: self._at_end(held))

    def wake(self, grown: set[Queue]) -> None:
        """Answer the pulls that can be answered now that `grown` have grown."""
        for queue in grown & self._held.keys():
            self._due.update(self._held[queue])
        if self._due and not self._is_slicing:
            self._look_at_due()

    def renew(self, group: str, topic: str) -> None:
        """Answer what a group holds of a topic by an expression that is no longer its own."""
        queues = [queue for queue in self._held if queue.topic == topic]
        for held in [held for queue in queues for held in self._held[queue]]:
            if held.pull.group == group:
                held.later.answer(self._at_end(held))

    def end(self, queue: Queue, remark: str) -> None:
        """Answer all pulls of a queue that is gone: there is no such topic any more."""
        for held in list(self._held.get(queue, ())):
            self._forget(held)
            reply = reply_to(held.pull.request, ResponseCode.TOPIC_NOT_EXIST, remark)
            held.later.answer(reply)

    def _look_at_due(self) -> None:
        """Look for those that are due, for a while; the others come in the loop's next turn."""
        now_s = self._clock.monotonic_s()
        deadline_s = now_s + share_s(now_s - self._sliced_s if self._is_slicing else 0.0)
        self._is_slicing = False
        while self._due:
            held = next(iter(self._due))
            del self._due[held]
            self._look_for(held)
            if self._due and (now_s := self._clock.monotonic_s()) > deadline_s:
                self._is_slicing, self._sliced_s = True, now_s
                asyncio.get_running_loop().call_soon(self._look_at_due)
                return

    def _look_for(self, held: HeldPull) -> None:
        begin_s = self._clock.monotonic_s()
        found = self._look(held)
        is_behind = found.next_offset < held.pull.queue.readable_offset  # more than a look takes in
        if found.status is PullStatus.FOUND or is_behind:
            self._forget(held)
            held.later.answer(self._answer(held, found, begin_s))

    def _look(self, held: HeldPull) -> Gathered:
        found = look(self._core, held.pull, held.next_offset, self._clock.monotonic_s)
        if found.status is PullStatus.NO_MATCHED_MESSAGE:
            held.next_offset = found.next_offset
        return found

    def _at_end(self, held: HeldPull) -> Parts:
        self._forget(held)
        begin_s = self._clock.monotonic_s()
        return self._answer(held, self._look(held), begin_s)

    def _answer(self, held: HeldPull, found: Gathered, begin_s: float) -> Parts:
        self._note(held.pull, found, self._clock.monotonic_s() - begin_s)
        return found_parts(held.pull, found)

    def _forget(self, held: HeldPull) -> None:
        self._due.pop(held, None)
        waiting = self._held.get(held.pull.queue)
        if waiting is not None:
            waiting.pop(held, None)
            if not waiting:
                del self._held[held.pull.queue]
