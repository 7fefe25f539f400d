"""Held pulls: requests that found nothing yet and wait for their queue to grow.

In: pulls to hold, and the queues that grew in this turn of the loop. Out: answers, in that turn.

Rules:
1. A held pull is looked up again when its queue grows, and once more, without holding, at its end.
2. When what came does not pass its filter, it goes on waiting behind it: nothing is scanned twice.
3. Their number is bounded by net (see net.later); a closed connection takes its own along.
"""

from orbitmq.broker.pulls import Pull, found_parts
from orbitmq.core import CoreState, Gathered, PullStatus, Queue, gather
from orbitmq.net.connection import Parts
from orbitmq.net.later import Later

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

    def __init__(self, core: CoreState) -> None:
        self._core = core
        self._held: dict[Queue, dict[HeldPull, None]] = {}

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

    def wake(self, grown: set[Queue]) -> None:
        """Answer the pulls that can be answered now that `grown` have grown."""
        for queue in grown & self._held.keys():
            for held in list(self._held[queue]):
                found = self._look(held)
                is_behind = found.next_offset < queue.readable_offset  # more than one look takes in
                if found.status is PullStatus.FOUND or is_behind:
                    self._forget(held)
                    held.later.answer(found_parts(held.pull, found))

    def _look(self, held: HeldPull) -> Gathered:
        pull = held.pull
        found = gather(self._core, pull.queue, held.next_offset, pull.count_max, pull.codes)
        if found.status is PullStatus.NO_MATCHED_MESSAGE:
            held.next_offset = found.next_offset
        return found

    def _at_end(self, held: HeldPull) -> Parts:
        self._forget(held)
        return found_parts(held.pull, self._look(held))

    def _forget(self, held: HeldPull) -> None:
        waiting = self._held.get(held.pull.queue)
        if waiting is not None:
            waiting.pop(held, None)
            if not waiting:
                del self._held[held.pull.queue]
