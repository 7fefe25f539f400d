"""Concurrent consumption: messages of all queues side by side, in no order.

In: pulled messages. Out: calls of the handler; messages that failed go back to a broker.

Rules:
1. A message leaves the hand when it was consumed or a broker has it again; the group's offset
   follows the smallest one in hand.
2. What fails is sent back (clustering), or logged and dropped (broadcasting). What cannot be sent
   back is consumed again here after RETRY_HERE_S.
3. What is stuck in its handler at the head of a queue is sent back, so that the queue goes on; the
   handler's answer then no longer counts.
4. What belongs to a dropped queue is not begun any more, and its outcome does not count.
"""

import asyncio
import logging
from collections.abc import Sequence

from orbitmq.client.figures import Figures
from orbitmq.client.handling import Handling, LineHandling, Outcome
from orbitmq.client.iterating import NotBegun
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import DeadLetter, Retry, reason_of
from orbitmq.client.process_queue import Job, ProcessQueue
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.client.sending_back import DEAD_LETTER_LEVEL, FIRST_DELAY_LEVEL, SendingBack
from orbitmq.client.worker_tasks import WorkerTasks
from orbitmq.world.clock import Clock

log = logging.getLogger(__name__)

RETRY_HERE_S = 5.0
STUCK_COUNT_MAX = 16
"""So many messages of one queue are taken from stuck handlers at a time."""


class ConcurrentConsumption:
    """Consumes for one consumer."""

    def __init__(
        self,
        settings: PushConsumerSettings,
        sending_back: SendingBack,
        figures: Figures,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._batch_size = settings.consume_batch_size
        self._sending_back = sending_back
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self._handling: Handling | None = None
        self._line: LineHandling | None = None
        self._tasks: WorkerTasks[Job] = WorkerTasks(settings.consume_threads, self._run)
        self._failures: WorkerTasks[tuple[Job, BaseException]] = WorkerTasks(
            settings.consume_threads, self._fail
        )
        self._again: set[asyncio.TimerHandle] = set()
        self._is_stopped = False

    def use(self, handling: Handling) -> None:
        """Have jobs handled like that."""
        self._handling = handling
        self._line = handling if isinstance(handling, LineHandling) else None

    def take(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Have messages consumed that were pulled."""
        fresh = process_queue.take(messages)
        size = self._batch_size
        if size == 1:
            jobs = [Job(process_queue, [message]) for message in fresh]
        else:
            jobs = [
                Job(process_queue, fresh[start : start + size])
                for start in range(0, len(fresh), size)
            ]
        process_queue.assign(jobs)
        self._submit(jobs)

    def may_pull(self, process_queue: ProcessQueue) -> bool:
        """Whether more messages of the queue can be used now: always."""
        return not process_queue.is_dropped

    def _submit(self, jobs: list[Job]) -> None:
        if self._line is not None:
            self._line.put(jobs)
        else:
            self._tasks.put(jobs)

    # --- outcomes ---

    async def _run(self, job: Job) -> None:
        if job.process_queue.is_dropped or self._handling is None:
            return
        outcome = await self._handling.outcome(job)
        if outcome is None:
            self._succeed(job)
        else:
            await self._fail((job, outcome))

    def results(self, results: list[tuple[Job, object]]) -> None:
        """Take what became of jobs that were put into a line."""
        for job, outcome in results:
            if outcome is None:
                self._succeed(job)
            elif not isinstance(outcome, NotBegun):
                self._failures.put([(job, outcome)])  # type: ignore[list-item]  # an Outcome

    def _succeed(self, job: Job) -> None:
        process_queue = job.process_queue
        if process_queue.is_dropped:
            return
        removed = process_queue.remove(job.messages)
        process_queue.consumed_s = job.ended_s
        self._figures.consumed(job, removed, 0)

    async def _fail(self, failed: tuple[Job, BaseException]) -> None:
        job, outcome = failed
        process_queue = job.process_queue
        self._tell(job, outcome)
        consumed = outcome.consumed if isinstance(outcome, Retry) else 0
        rest = [message for message in job.messages[consumed:] if process_queue.has(message)]
        self._figures.consumed(job, consumed, len(rest))
        if process_queue.is_dropped:
            return
        kept = [] if self._settings.is_broadcasting else await self._return(rest, outcome)
        done = [message for message in job.messages if message not in kept]
        process_queue.remove(done)
        process_queue.consumed_s = job.ended_s
        if kept and not self._is_stopped:
            self._consume_again(Job(process_queue, kept))

    async def _return(
        self, messages: list[ReceivedMessage], outcome: BaseException
    ) -> list[ReceivedMessage]:
        """Send messages back; give those that no broker took."""
        level, reason = delay_level_of(outcome), reason_of(outcome)
        kept = []
        for message in messages:
            if not await self._sending_back.send_back(message, level, reason):
                message.reconsume_times += 1
                kept.append(message)
        return kept

    def _consume_again(self, job: Job) -> None:
        job.process_queue.assign([job])
        handle: asyncio.TimerHandle = self._loop.call_later(
            RETRY_HERE_S, lambda: self._go_again(handle, job)
        )
        self._again.add(handle)

    def _go_again(self, handle: asyncio.TimerHandle, job: Job) -> None:
        self._again.discard(handle)
        self._submit([job])

    def _tell(self, job: Job, outcome: BaseException) -> None:
        message = job.messages[0]
        is_dropped = self._settings.is_broadcasting
        if isinstance(outcome, Retry | DeadLetter):
            level = logging.WARNING if self._settings.is_broadcasting else logging.DEBUG
            log.log(
                level,
                "message %s of %s %s: %s",
                message.message_id,
                message.queue,
                "is dropped" if is_dropped else "will be redelivered",
                outcome,
            )
            return
        log.warning(
            "the handler failed; %s starting at %s of %s %s",
            "1 message" if len(job.messages) == 1 else f"{len(job.messages)} messages",
            message.message_id,
            message.queue,
            "dropped" if is_dropped else "will be redelivered",
            exc_info=outcome,
        )

    # --- what is stuck ---

    async def return_stuck(self, process_queues: Sequence[ProcessQueue]) -> None:
        """Send back what has been in its handler for too long (rule 3)."""
        if self._settings.is_broadcasting:
            return
        for process_queue in process_queues:
            for _ in range(STUCK_COUNT_MAX):
                since_s = self._clock.monotonic_s() - self._settings.consume_timeout_s
                job = process_queue.stuck_job(since_s)
                if job is None or process_queue.is_dropped:
                    break
                if not await self._take_from(job):
                    break

    async def _take_from(self, job: Job) -> bool:
        process_queue = job.process_queue
        stuck = [message for message in job.messages if process_queue.has(message)]
        for message in stuck:
            log.warning(
                "the handler has had message %s of %s for more than %g s; it is sent back, to come "
                "again (consume_timeout_s)",
                message.message_id,
                message.queue,
                self._settings.consume_timeout_s,
            )
            reason = f"its handler took more than {self._settings.consume_timeout_s:g} s"
            if not await self._sending_back.send_back(message, FIRST_DELAY_LEVEL, reason):
                return False
            process_queue.remove([message])
        return bool(stuck)

    # --- the end ---

    async def stop(self) -> None:
        """Begin nothing any more, and wait until what has begun is over."""
        self._is_stopped = True
        for handle in self._again:
            handle.cancel()
        self._again.clear()
        self._tasks.withdraw()
        if self._line is not None:
            self._line.withdraw()
            await self._line.wait_quiet()
        await self._tasks.wait_quiet()
        await self._failures.wait_empty()

    async def close(self) -> None:
        """End what is still at work."""
        self._is_stopped = True
        await self._tasks.close()
        await self._failures.close()


def delay_level_of(outcome: Outcome) -> int:
    """Return the delay level that an outcome asks for."""
    if isinstance(outcome, DeadLetter):
        return DEAD_LETTER_LEVEL
    return outcome.delay_level if isinstance(outcome, Retry) else 0
