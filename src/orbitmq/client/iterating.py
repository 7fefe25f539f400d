"""A consumer as an iterator: the body of the program's loop takes the place of the handler.

In: jobs, as for a handler. Out: their messages, one by one, to whoever iterates; and what became of
each.

Rules:
1. Asking for the next message says that the one before was consumed.
2. A loop that is left before that (break, return, an exception, cancellation) has its last message
   open. Closing the consumer without an exception under way, as at the normal end of `async with`,
   says that it was consumed; closing it because of an exception returns it for retry. Beginning
   another loop returns it, too: nobody can tell an exception that was caught from a break.
3. Messages that were handed to no loop stay unconsumed at the broker when the consumer closes. Of a
   queue that has become another member's none is handed out: that one gets them, and at once, even
   if no loop asks any more.
"""

import asyncio
from collections import deque
from weakref import WeakSet

from orbitmq.client.consume_hooks import ConsumeContext
from orbitmq.client.handling import Calling, Outcome, Results
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import Retry
from orbitmq.client.process_queue import Job
from orbitmq.client.worker_tasks import TURN_COUNT


class NotBegun(Exception):
    """The outcome of a job that nobody has begun: it stays in hand."""


class Open:
    """A message that a loop has, until something is said of it."""

    __slots__ = ("context", "job")

    def __init__(self, job: Job, context: ConsumeContext | None) -> None:
        self.job = job
        self.context = context


class Iteration:
    """Hands messages to loops; `results` hears of jobs that nobody waits for."""

    def __init__(self, calling: Calling, results: Results) -> None:
        self._calling = calling
        self._results = results
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Job] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._iterators: WeakSet[MessageIterator] = WeakSet()
        self._left: list[Open] = []
        self._given_count = 0
        self._is_closed = False

    async def outcome(self, job: Job) -> Outcome:
        """Offer a job to the loops; return what became of it."""
        if self._is_closed:
            return NotBegun()
        job.answer = self._loop.create_future()
        self.put([job])
        return await job.answer

    def put(self, jobs: list[Job]) -> None:
        """Offer jobs to the loops."""
        self._ready.extend(jobs)
        self._wake()

    def withdraw(self) -> None:
        """Offer nothing any more."""
        ready, self._ready = self._ready, deque()
        for job in ready:
            self._tell(job, NotBegun())

    def withdraw_dropped(self) -> None:
        """Offer nothing of queues that are not ours any more: no loop may ever ask again."""
        dropped = [job for job in self._ready if job.process_queue.is_dropped]
        if dropped:
            self._ready = deque(job for job in self._ready if not job.process_queue.is_dropped)
        for job in dropped:
            self._tell(job, NotBegun())

    async def wait_quiet(self) -> None:
        """Return at once: what loops have open was settled when they were ended."""

    def iterator(self) -> "MessageIterator":
        """Begin a loop; what the loops before have left open is returned (rule 2)."""
        self._settle_left(Retry())
        iterator = MessageIterator(self)
        self._iterators.add(iterator)
        return iterator

    async def next(self) -> Open | None:
        """Return the next message, None when there will be none any more."""
        self._given_count += 1
        if self._given_count % TURN_COUNT == 0:
            await asyncio.sleep(0)  # a loop whose body never waits lets others have a turn
        while (job := self._first_ready()) is None:
            if self._is_closed:
                return None
            await self._wait_ready()
        if self._ready and self._waiting:
            self._wake()
        self._calling.begin(job)
        return Open(job, self._calling.context(job) if self._calling.hooks else None)

    def _first_ready(self) -> Job | None:
        """The first job whose queue is still ours; nobody begins those before it (rule 3)."""
        while self._ready:
            job = self._ready.popleft()
            if not job.process_queue.is_dropped:
                return job
            self._tell(job, NotBegun())
        return None

    async def _wait_ready(self) -> None:
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except BaseException:
            if waiting.done() and not waiting.cancelled():
                self._wake()  # it was our turn, and we cannot take it
            raise

    def settle(self, opened: Open, outcome: Outcome) -> None:
        """Say what became of a message."""
        self._tell(opened.job, self._calling.end(opened.job, outcome, opened.context))

    def _tell(self, job: Job, outcome: Outcome) -> None:
        if job.answer is None:
            self._results([(job, outcome)])
        elif not job.answer.done():
            job.answer.set_result(outcome)

    def leave(self, opened: Open) -> None:
        """Remember what a loop that was left has had."""
        self._left.append(opened)

    def end(self, *, is_failing: bool) -> None:
        """End all loops; `is_failing`: an exception is under way (rule 2)."""
        self._is_closed = True
        self.withdraw()
        self._settle_left(Retry() if is_failing else None)
        for each in list(self._iterators):
            each.end(Retry() if is_failing else None)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _settle_left(self, outcome: Outcome) -> None:
        left, self._left = self._left, []
        for opened in left:
            self.settle(opened, outcome)

    def _wake(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return


class MessageIterator:
    """One loop over a consumer's messages; see the rules of this module."""

    def __init__(self, iteration: Iteration) -> None:
        self._iteration = iteration
        self._open: Open | None = None

    def __aiter__(self) -> "MessageIterator":
        """Return the loop itself."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Say that the last message was consumed, and wait for the next."""
        self.end(None)
        opened = await self._iteration.next()
        if opened is None:
            raise StopAsyncIteration
        self._open = opened
        return opened.job.messages[0]

    def end(self, outcome: Outcome) -> None:
        """Settle the message that is open, if one is."""
        opened, self._open = self._open, None
        if opened is not None:
            self._iteration.settle(opened, outcome)

    def __del__(self) -> None:
        """Leave what is open to those who come after."""
        if self._open is not None:
            self._iteration.leave(self._open)
