"""Orderly consumption: the messages of a queue one after the other, in their order.

In: pulled messages. Out: calls of the handler, never two at a time for one queue.

Rules:
1. A queue is consumed only while its lock is ours (clustering), for RUN_S at most before others
   have a turn.
2. A failure stops the queue: after `suspend_queue_s` the same messages are handed out again. What
   has come more often than `max_reconsume_times` becomes a dead letter, and the queue goes on.
3. A queue that is given away waits for its handler; what that one has done still counts, because
   the lock is given back afterwards.
"""

import asyncio
import logging
import math
from collections.abc import Sequence

from orbitmq.client.figures import Figures
from orbitmq.client.handling import Handling, Outcome, Series, ThreadHandling
from orbitmq.client.iterating import NotBegun
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import DeadLetter, Retry, reason_of
from orbitmq.client.process_queue import Job, ProcessQueue
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.client.sending_back import DEAD_LETTER_LEVEL, SendingBack
from orbitmq.client.worker_tasks import WorkerTasks
from orbitmq.world.clock import Clock

log = logging.getLogger(__name__)

RUN_S = 60.0
UNLOCKED_S = 0.1
"""A queue whose lock has run out is looked at again after this time."""
SERIES_COUNT = 32
"""So many calls of a plain function are made by one thread before the loop looks at them."""
SUSPEND_MIN_S, SUSPEND_MAX_S = 0.01, 30.0


class OrderlyConsumption:
    """Consumes for one consumer."""

    def __init__(
        self,
        settings: PushConsumerSettings,
        sending_back: SendingBack,
        figures: Figures,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._sending_back = sending_back
        self._figures = figures
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._handling: Handling | None = None
        self._tasks: WorkerTasks[ProcessQueue] = WorkerTasks(settings.consume_threads, self._run)
        self._later: set[asyncio.TimerHandle] = set()
        self._is_stopped = False

    def use(self, handling: Handling) -> None:
        """Have jobs handled like that."""
        self._handling = handling

    def take(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Have messages consumed that were pulled."""
        process_queue.waiting.extend(process_queue.take(messages))
        if not process_queue.is_running:
            process_queue.is_running = True
            self._tasks.put([process_queue])

    def may_consume(self, process_queue: ProcessQueue) -> bool:
        """Whether the queue is ours alone for now."""
        until_s = process_queue.locked_until_s
        return self._settings.is_broadcasting or (
            until_s is not None and self._clock.monotonic_s() < until_s
        )

    def may_pull(self, process_queue: ProcessQueue) -> bool:
        """Whether more messages of the queue can be used now."""
        return self.may_consume(process_queue)

    async def _run(self, process_queue: ProcessQueue) -> None:
        """Consume one queue until nothing is waiting, or something stops it."""
        ends_s = self._clock.monotonic_s() + RUN_S
        pause_s: float | None = 0.0
        while not process_queue.is_dropped and not self._is_stopped:
            if not self.may_consume(process_queue):
                pause_s = UNLOCKED_S
                break
            if self._clock.monotonic_s() > ends_s:
                break
            if not process_queue.waiting:
                pause_s = None
                break
            failure_pause_s = await self._consume(process_queue)
            if failure_pause_s is not None:
                pause_s = failure_pause_s
                break
        if pause_s is None or process_queue.is_dropped or self._is_stopped:
            process_queue.is_running = False
        else:
            self._go_on_later(process_queue, pause_s)

    def _next_job(self, process_queue: ProcessQueue) -> Job:
        waiting = process_queue.waiting
        count = min(self._settings.consume_batch_size, len(waiting))
        return Job(process_queue, [waiting.popleft() for _ in range(count)])

    def results(self, _results: object) -> None:
        """Take nothing: the outcome of each job is waited for."""

    def _go_on_later(self, process_queue: ProcessQueue, pause_s: float) -> None:
        handle: asyncio.TimerHandle = self._loop.call_later(
            pause_s, lambda: self._go_on(handle, process_queue)
        )
        self._later.add(handle)

    def _go_on(self, handle: asyncio.TimerHandle, process_queue: ProcessQueue) -> None:
        self._later.discard(handle)
        self._tasks.put([process_queue])

    # --- one call ---

    async def _consume(self, process_queue: ProcessQueue) -> float | None:
        """Have the next jobs handled; return how long the queue must pause, None for not at all."""
        handling = self._handling
        process_queue.is_handling = True
        try:
            if isinstance(handling, ThreadHandling):
                return await self._consume_series(process_queue, handling)
            job = self._next_job(process_queue)
            outcome = await handling.outcome(job) if handling is not None else NotBegun()
            return await self._settle(job, outcome)
        finally:
            process_queue.handled()

    async def _consume_series(
        self, process_queue: ProcessQueue, handling: ThreadHandling
    ) -> float | None:
        """Have several jobs done by one thread: to wait for each would cost more than to do it."""
        count = min(len(process_queue.waiting), SERIES_COUNT * self._settings.consume_batch_size)
        jobs = []
        while count > 0:
            jobs.append(self._next_job(process_queue))
            count -= len(jobs[-1].messages)
        until_s = process_queue.locked_until_s
        outcomes = await handling.outcomes(Series(jobs, math.inf if until_s is None else until_s))
        for job in reversed(jobs[len(outcomes) :]):
            process_queue.waiting.extendleft(reversed(job.messages))
        pause_s = None
        for job, outcome in zip(jobs, outcomes, strict=False):
            pause_s = await self._settle(job, outcome)
        return pause_s

    async def _settle(self, job: Job, outcome: Outcome) -> float | None:
        """Do what an outcome asks for; return how long the queue must pause."""
        process_queue = job.process_queue
        if isinstance(outcome, NotBegun):
            process_queue.waiting.extendleft(reversed(job.messages))
            return SUSPEND_MIN_S
        process_queue.consumed_s = job.ended_s
        if outcome is None:
            process_queue.remove(job.messages)
            self._figures.consumed(job, len(job.messages), 0)
            return None
        return await self._failed(job, outcome)

    async def _failed(self, job: Job, outcome: BaseException) -> float | None:
        consumed = outcome.consumed if isinstance(outcome, Retry) else 0
        done, rest = job.messages[:consumed], job.messages[consumed:]
        self._figures.consumed(job, len(done), len(rest))
        self._tell(job, outcome)
        given_up = await self._give_up(rest, outcome)
        again = [message for message in rest if message not in given_up]
        job.process_queue.remove([*done, *given_up])
        if not again:
            return None
        for message in again:
            message.reconsume_times += 1
        job.process_queue.waiting.extendleft(reversed(again))
        wanted_s = outcome.suspend_s if isinstance(outcome, Retry) else None
        pause_s = self._settings.suspend_queue_s if wanted_s is None else wanted_s
        return min(max(pause_s, SUSPEND_MIN_S), SUSPEND_MAX_S)

    async def _give_up(
        self, messages: list[ReceivedMessage], outcome: BaseException
    ) -> list[ReceivedMessage]:
        """Make dead letters of what came too often, or is to be one; give those that are."""
        is_dead, reason = isinstance(outcome, DeadLetter), reason_of(outcome)
        times_max = self._settings.reconsume_times_max
        given_up = []
        for message in messages:
            if not is_dead and message.reconsume_times < times_max:
                continue
            if self._settings.is_broadcasting:
                log.warning(
                    "message %s of %s is dropped: %s", message.message_id, message.queue, reason
                )
                given_up.append(message)
            elif await self._sending_back.send_back(message, DEAD_LETTER_LEVEL, reason):
                given_up.append(message)
        return given_up

    def _tell(self, job: Job, outcome: BaseException) -> None:
        message = job.messages[0]
        if isinstance(outcome, Retry | DeadLetter):
            log.debug("message %s of %s: %s", message.message_id, message.queue, outcome)
            return
        log.warning(
            "the handler failed on message %s of %s; the queue stops for a moment",
            message.message_id,
            message.queue,
            exc_info=outcome,
        )

    # --- the end ---

    async def return_stuck(self, _process_queues: Sequence[ProcessQueue]) -> None:
        """Do nothing: a stuck message stops its queue, that is what order means."""

    async def stop(self) -> None:
        """Begin nothing any more, and wait until what has begun is over."""
        self._is_stopped = True
        for handle in self._later:
            handle.cancel()
        self._later.clear()
        self._tasks.withdraw()
        await self._tasks.wait_quiet()

    async def close(self) -> None:
        """End what is still at work."""
        await self._tasks.close()
