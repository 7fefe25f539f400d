"""How a running stream goes on: what is there, what the limits let through, where to end.

In: where the stream is, and a limit of Spark's. Out: the next batch's ends, with the starts of
queues that begin in it and marks (topic_looks.py).

Rules:
1. `ReadAllAvailable` means all, whatever the options say; the end of the query stays its end.
2. A query that is to end (AvailableNow) takes what was there at its beginning, and never waits. It
   must learn of every queue that it goes on with where it ends: one that is silent is an error, one
   whose topic or broker is gone for good a loss.
3. Queues that appear begin where `newQueueStart` says; in the first batch all queues begin.
4. A queue whose broker is silent stays where it is; one that falls silent while a batch is planned
   has the batch planned again.
5. Before a queue is read on, its mark is compared: other messages are a loss. So is a topic that
   was deleted; without an error its queues stay where they are.
6. An end that is a time is reached with the first message that was stored then or later: until a
   queue has one, it is read on.
"""

import logging
from collections.abc import Collection
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from orbitmq.errors import BrokerNotFound, RouteNotFound
from orbitmq.spark.batch_limits import admitted, is_enough, read_duration
from orbitmq.spark.cluster import PASSING, Cluster, QueueFailed
from orbitmq.spark.data_loss import ends_earlier, messages_replaced, report_loss
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_choice import queues_there_now
from orbitmq.spark.topic_following import Follower
from orbitmq.spark.topic_looks import begin_again, marks_at, others, record_bytes
from orbitmq.spark.topic_offsets import Bounds
from orbitmq.spark.topic_options import LATEST, TopicOptions
from orbitmq.spark.topic_planning import Range
from orbitmq.wire.bodies_client import MessageQueue

log = logging.getLogger(__name__)

Ends = tuple[Offsets, Offsets, Offsets]
"""Where a batch ends, where the queues begin that begin in it, and the marks of its ends."""


class Stream:
    """One running stream, in the process that plans it."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options
        self.follower = Follower(options)
        self.initial: Offsets | None = None
        """Where it began, if Spark has asked for that."""
        self.planned: dict[str, Any] | None = None
        """The end that Spark was given last."""
        self._target: Offsets | None = None
        self._left: set[MessageQueue] = set()
        self._first_seen: Offsets = {}
        """Where new queues ended when they appeared: their batch may have to wait."""
        self._ends_at: Offsets | None = None
        self._delay_s = read_duration("maxTriggerDelay", options.max_trigger_delay)
        self._planned_s = self.follower.clock.monotonic_s()

    @property
    def cluster(self) -> Cluster:
        """The connections it uses."""
        return self.follower.cluster

    @property
    def known_ends(self) -> Offsets:
        """The newest ends it knows: where a query that is to end will do so, or all there is."""
        return self._target if self._target is not None else self.follower.ends

    def aim(self) -> None:
        """Take what is there now as the query's end (rule 2)."""
        queues = queues_there_now(self.cluster, self._options)
        self._target = self.cluster.max_offsets(queues, self._options.retries)

    def tell_left(self, left: Collection[MessageQueue]) -> None:
        """Say once which queues of the checkpoint are not asked for any more."""
        for queue in sorted(set(left) - self._left):
            log.warning("queue %s is in the checkpoint, but no option asks for it now", queue)
        self._left |= set(left)

    def next_end(self, at: Offsets, marks: Offsets, limit: ReadLimit) -> Ends | None:
        """Return the next batch's ends; None when there is nothing, after a wait.

        Raises DataLoss for offsets that went back, for messages that are others than the marks say,
        and for a topic that was deleted.
        """
        clock = self.follower.clock
        deadline_s = clock.monotonic_s() + self._options.long_poll_ms / 1000
        while True:
            found = self._unless_silent(at, marks, limit)
            left_s = deadline_s - clock.monotonic_s()
            if found is not None or self._target is not None or left_s <= 0:
                return found
            self.follower.wait(left_s)

    def _unless_silent(self, at: Offsets, marks: Offsets, limit: ReadLimit) -> Ends | None:
        try:
            return self._now(at, marks, limit)
        except QueueFailed as error:
            if not isinstance(error.cause, PASSING) or self._target is not None:
                raise
            log.warning("the next batch waits: %s", error)
            return None

    def _now(self, at: Offsets, marks: Offsets, limit: ReadLimit) -> Ends | None:
        newest = self.follower.newest(at) if self._target is None else self._aimed(at)
        starts = self._starts(at, marks, newest)
        ends = self._ends(at | starts, newest, limit)
        if ends is None or (ends == at and not starts):
            return None
        if again := self._made_again(at, marks, ends, newest):
            starts |= again
            ends = self._ends(at | starts, newest, limit)
            if ends is None:
                return None
        if at == self.initial and any(ends[queue] > (at | starts)[queue] for queue in at):
            starts = {**at, **starts}
        self._planned_s = self.follower.clock.monotonic_s()
        return ends, starts, self._marks(at, marks, ends)

    def _aimed(self, at: Offsets) -> Offsets:
        """Return the query's end, with that of queues that nobody told of at its beginning."""
        target = self._target or {}
        for queue in sorted(at.keys() - target.keys()):
            target[queue] = at[queue]
            try:
                target |= self.cluster.max_offsets([queue], self._options.retries)
            except QueueFailed as error:
                if not isinstance(error.cause, (RouteNotFound, BrokerNotFound)):
                    raise
                report_loss(queue, str(error.cause), fails=self._options.fail_on_data_loss)
        return target

    def _ends(self, begins: Offsets, newest: Offsets, limit: ReadLimit) -> Offsets | None:
        """Return where a batch ends that begins there; None if it is to wait for more."""
        lasts = {queue: newest.get(queue, begin) for queue, begin in begins.items()}
        return self._admitted(begins, self._not_behind_end(begins, lasts), limit)

    def _marks(self, at: Offsets, marks: Offsets, ends: Offsets) -> Offsets:
        """Return the marks of a batch's ends; those of queues that stay where they are stay."""
        moved = {queue: end for queue, end in ends.items() if end != at.get(queue)}
        kept = {queue: mark for queue, mark in marks.items() if queue not in moved}
        return kept | marks_at(self.cluster, self._options, moved)

    def _starts(self, at: Offsets, marks: Offsets, newest: Offsets) -> Offsets:
        """Return where queues begin that do not go on where they were."""
        cluster, options = self.cluster, self._options
        starts: Offsets = {}
        for queue, offset in at.items():
            if newest.get(queue, offset) >= offset or not self._has_gone_back(queue, offset):
                continue
            if queue in marks:
                end, mark = newest[queue], marks[queue]
                starts[queue] = begin_again(cluster, options, queue, mark, end)
            else:
                starts |= cluster.min_offsets([queue], options.retries)
        new = [queue for queue in newest if queue not in at]
        if new and options.new_queue_start == LATEST:
            starts |= {queue: self._first_seen.setdefault(queue, newest[queue]) for queue in new}
        elif new:
            starts |= cluster.min_offsets(new, options.retries)
        return starts

    def _made_again(self, at: Offsets, marks: Offsets, ends: Offsets, newest: Offsets) -> Offsets:
        """Return where queues that are to be read on begin, if they hold others now (rule 5)."""
        cluster, options = self.cluster, self._options
        read = {queue: offset for queue, offset in at.items() if ends[queue] > offset}
        found: Offsets = {}
        for queue in others(cluster, options, read, marks):
            report_loss(queue, messages_replaced(at[queue]), fails=options.fail_on_data_loss)
            found[queue] = begin_again(cluster, options, queue, marks[queue], newest[queue])
        return found

    def _has_gone_back(self, queue: MessageQueue, offset: int) -> bool:
        """Look again whether a queue ends before `offset`; raises DataLoss if that may not be."""
        end = self.cluster.max_offsets([queue], self._options.retries)[queue]
        if end >= offset:
            return False
        report_loss(queue, ends_earlier(end, offset), fails=self._options.fail_on_data_loss)
        return True

    def _not_behind_end(self, begins: Offsets, lasts: Offsets) -> Offsets:
        """Keep to the end that the options give a stream (rule 6)."""
        options = self._options
        is_timed = bool(options.ending_timestamp or options.ending_offsets_by_timestamp)
        if not is_timed and not options.ending_offsets:
            return lasts
        if self._ends_at is None or (is_timed and begins.keys() - self._ends_at.keys()):
            bounds = Bounds(self.cluster, options, list(begins))
            found = bounds.ends()
            reached = {queue: end for queue, end in found.items() if queue not in bounds.unreached}
            self._ends_at = reached | (self._ends_at or {})
        ends_at = self._ends_at
        return {
            queue: max(begins[queue], min(last, ends_at.get(queue, last)))
            for queue, last in lasts.items()
        }

    def _admitted(self, begins: Offsets, lasts: Offsets, limit: ReadLimit) -> Offsets | None:
        """Return where the batch ends; None if it is to wait for more."""
        if isinstance(limit, ReadAllAvailable):
            return admitted(begins, lasts, None)
        options = self._options
        backlog = sum(max(0, lasts[queue] - begin) for queue, begin in begins.items())
        if self._target is None:
            waited_s = self.follower.clock.monotonic_s() - self._planned_s
            least = options.min_offsets_per_trigger
            if backlog and not is_enough(backlog, least, waited_s, self._delay_s):
                return None
        return admitted(begins, lasts, self._count_max(begins, lasts, limit))

    def _count_max(self, begins: Offsets, lasts: Offsets, limit: ReadLimit) -> int | None:
        options = self._options
        limits = [options.max_offsets_per_trigger]
        if isinstance(limit, ReadMaxRows):
            limits.append(limit.max_rows)
        if options.max_bytes_per_trigger is not None:
            ranges = [Range(queue, begin, lasts[queue]) for queue, begin in begins.items()]
            size = record_bytes(self.cluster, options, ranges)
            limits.append(max(1, options.max_bytes_per_trigger // size))
        return min((each for each in limits if each is not None), default=None)
