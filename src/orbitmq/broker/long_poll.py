"""Held pulls: what a pull that found nothing gets when its queue grows, and at its end.

In: pulls to hold. Out: their answers, given by `held_reads`.

Rules:
1. When what came does not pass its filter, it goes on waiting behind it: nothing is scanned twice.
2. One look takes no longer than `selecting.LOOK_S`; what it did not get to is left to the client's
   next pull.
3. When the group's expression changes, its held pulls are answered: the next ones ask by the new.
4. Without longPollingEnable a pull waits shortPollingTimeMills and is looked up at its end only.
"""

from collections.abc import Collection

from orbitmq.broker.held_reads import HeldRead, HeldReads
from orbitmq.broker.pulls import Note, Pull, found_parts
from orbitmq.broker.selecting import look
from orbitmq.core import CoreState, Gathered, PullStatus, Queue
from orbitmq.net.connection import Parts
from orbitmq.net.later import Later
from orbitmq.world.clock import Clock


class LongPolls:
    """Holds the pulls of one broker."""

    def __init__(self, core: CoreState, clock: Clock, held: HeldReads, note: Note) -> None:
        """`note` is told of every outcome that is answered."""
        self.core = core
        self.now_s = clock.monotonic_s
        self.note = note
        self.held = held

    def hold(self, pull: Pull, timeout_s: float) -> Later:
        """Keep a pull until its queue has something for it, at most `timeout_s`."""
        return self.held.hold(HeldPull(self, pull, (pull.queue,)), timeout_s)

    def postpone(self, pull: Pull, timeout_s: float) -> Later:
        """Answer a pull after `timeout_s`, whatever comes meanwhile (rule 4)."""
        return self.held.hold(HeldPull(self, pull, ()), timeout_s)

    def renew(self, group: str, topic: str) -> None:
        """Answer what a group holds of a topic by an expression that is no longer its own."""
        for queue in self.held.queues(topic):
            for read in self.held.of(queue):
                if isinstance(read, HeldPull) and read.pull.group == group:
                    self.held.end(read)


class HeldPull(HeldRead):
    """One held pull, and how far its queue was looked through."""

    __slots__ = ("_polls", "next_offset", "pull")

    def __init__(self, polls: LongPolls, pull: Pull, queues: Collection[Queue]) -> None:
        super().__init__(pull.request, queues)
        self.pull = pull
        self._polls = polls
        self.next_offset = pull.queue_offset

    def look(self) -> Parts | None:
        """Answer when something passes, or when there is more than one look takes in."""
        begin_s = self._polls.now_s()
        found = self._look()
        is_behind = found.next_offset < self.pull.queue.readable_offset
        if found.status is PullStatus.FOUND or is_behind:
            return self._answer(found, begin_s)
        return None

    def answer_at_end(self) -> Parts:
        """Answer with what there is."""
        begin_s = self._polls.now_s()
        return self._answer(self._look(), begin_s)

    def _look(self) -> Gathered:
        found = look(self._polls.core, self.pull, self.next_offset, self._polls.now_s)
        if found.status is PullStatus.NO_MATCHED_MESSAGE:
            self.next_offset = found.next_offset
        return found

    def _answer(self, found: Gathered, begin_s: float) -> Parts:
        self._polls.note(self.pull, found, self._polls.now_s() - begin_s)
        return found_parts(self.pull, found)
