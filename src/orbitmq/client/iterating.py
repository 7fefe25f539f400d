"""A consumer as an iterator: the body of the program's loop takes the place of the handler.

In: jobs, as for a handler. Out: their messages, one by one, to whoever iterates; and what became of
each.

Rules:
1. Asking for the next message says that the one before was consumed.
2. A loop that is left before that (break, return, an exception, cancellation) has its last message
   open. Closing the consumer without an exception under way, as at the normal end of `async with`,
   says that it was consumed; closing it because of an exception returns it for retry. Beginning
   another loop returns it, too: nobody can tell an exception that was caught from a break.
3. Messages that were handed to no loop stay unconsumed at the broker when the consumer closes.
"""

import asyncio
from collections import deque
from weakref import WeakSet

from orbitmq.client.consume_hooks import ConsumeContext
from orbitmq.client.handling import Calling, Outcome
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import Retry
from orbitmq.client.process_queue import Job


class NotBegun(Exception):
    """The outcome of a job that nobody has begun: it stays in hand."""


class Open:
    """A message that a loop has, until something is said of it."""

    __slots__ = ("context", "job")

    def __init__(self, job: Job, context: ConsumeContext | None) -> None:
        self.job = job
        self.context = context


class Iteration:
    """Hands messages to loops (it is a Handling)."""

    def __init__(self, calling: Calling) -> None:
        self._calling = calling
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Job] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._iterators: WeakSet[MessageIterator] = WeakSet()
        self._left: list[Open] = []
        self._is_closed = False

    async def outcome(self, job: Job) -> Outcome:
        """Offer a job to the loops; give what became of it."""
        if self._is_closed:
            return NotBegun()
        job.answer = self._loop.create_future()
        self._ready.append(job)
        self._wake()
        return await job.answer

    def iterator(self) -> "MessageIterator":
        """Begin a loop; what the loops before have left open is returned (rule 2)."""
        self._settle_left(Retry())
        iterator = MessageIterator(self)
        self._iterators.add(iterator)
        return iterator

    async def next(self) -> Open | None:
        """Give the next message, None when there will be none any more."""
        while not self._ready:
            if self._is_closed:
                return None
            waiting = self._loop.create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except BaseException:
                if waiting.done() and not waiting.cancelled():
                    self._wake()  # it was our turn, and we cannot take it
                raise
        job = self._ready.popleft()
        self._calling.begin(job)
        return Open(job, self._calling.context(job) if self._calling.hooks else None)

    def settle(self, opened: Open, outcome: Outcome) -> None:
        """Say what became of a message."""
        self._calling.end(opened.job, outcome, opened.context)
        answer = opened.job.answer
        if answer is not None and not answer.done():
            answer.set_result(outcome)

    def leave(self, opened: Open) -> None:
        """Remember what a loop that was left has had."""
        self._left.append(opened)

    def withdraw(self, *, is_failing: bool) -> None:
        """End all loops; `is_failing`: an exception is under way (rule 2)."""
        self._is_closed = True
        while self._ready:
            answer = self._ready.popleft().answer
            if answer is not None and not answer.done():
                answer.set_result(NotBegun())
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
        """Give the loop itself."""
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
