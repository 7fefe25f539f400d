"""Calls of the program's handler, with hooks around them.

In: jobs. Out: for each None (consumed) or the exception that says what to do with the messages.

Rules:
1. A handler that is an `async def` runs on the loop; any other function runs in threads, so it may
   block. A plain function that gives a coroutine is a mistake, and told so.
2. Only an exception says that a message was not consumed; what a handler returns does not count.
3. Whatever a handler raises stays here: it becomes the outcome, and the worker goes on.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Any, Protocol, runtime_checkable

from orbitmq.client.consume_hooks import (
    ConsumeContext,
    ConsumeHook,
    ConsumeReturn,
    call_after,
    call_before,
)
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import DeadLetter, Retry
from orbitmq.client.process_queue import Job
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.errors import ArgumentError
from orbitmq.world.clock import Clock
from orbitmq.world.workers import Workers

Handler = Callable[[ReceivedMessage], Any] | Callable[[list[ReceivedMessage]], Any]
"""A function of one ReceivedMessage, or of a list of them with `consume_batch_size` above 1."""

WALL_S = 0.001
"""The wall clock is read again after so long."""

SERIES_S = 0.02
"""So long jobs of one queue are done in a thread without the loop hearing of them."""

Outcome = BaseException | None
Results = Callable[[list[tuple[Job, object]]], None]


class Handling(Protocol):
    """One way to have jobs handled."""

    async def outcome(self, job: Job) -> Outcome:
        """Have a job handled now; return what became of it."""
        ...


@runtime_checkable
class LineHandling(Protocol):
    """A way that takes jobs from a line of its own and tells of their outcomes later."""

    def put(self, jobs: list[Job]) -> None:
        """Have jobs handled."""
        ...

    def withdraw(self) -> None:
        """Begin no more of them."""
        ...

    async def wait_quiet(self) -> None:
        """Return when those that have begun are over."""
        ...


class Series:
    """Jobs of one queue that are to be done one after the other (orderly consumers)."""

    __slots__ = ("answer", "jobs", "until_s")

    def __init__(self, jobs: list[Job], until_s: float) -> None:
        self.jobs = jobs
        self.until_s = until_s
        """None is begun after this time: the lock ends then."""
        self.answer: asyncio.Future[list[Outcome]] | None = None


def check_handler(handler: Handler | None, *, is_batch: bool) -> None:
    """Raise ArgumentError for what cannot be called with one message, or one list of them."""
    if handler is None:
        return
    argument = "a list of messages" if is_batch else "a message"
    if not callable(handler):
        raise ArgumentError(
            f"handler is {handler!r:.60}; it must be a function of {argument}", "handler"
        )
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # some of those that are written in C do not say
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(handler, "__qualname__", repr(handler))
        raise ArgumentError(
            f"handler {name}{signature} cannot be called with one argument, {argument}: {error}",
            "handler",
        ) from None


def is_async_handler(handler: Handler) -> bool:
    """Whether a handler is to be awaited on the loop."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - the method itself is wanted
    )


def _no_handler(_messages: object) -> None:
    """Stand where a loop takes the handler's place."""


class Calling:
    """What both ways share: the handler's argument, its answer, the hooks."""

    def __init__(
        self,
        handler: Handler | None,
        settings: PushConsumerSettings,
        hooks: Sequence[ConsumeHook],
        clock: Clock,
    ) -> None:
        self.handler: Handler = handler if handler is not None else _no_handler
        self.is_batch = settings.consume_batch_size > 1
        self.hooks = hooks
        self.clock = clock
        self._settings = settings
        self._wall_ms = 0
        self._wall_until_s = -inf

    def begin(self, job: Job) -> Any:
        """Note the beginning of a call; return the handler's argument."""
        job.started_s = now_s = self.clock.monotonic_s()
        if now_s >= self._wall_until_s:  # one clock for most calls; in any thread
            self._wall_ms = self.clock.wall_ms()
            self._wall_until_s = now_s + WALL_S
        messages, now_ms = job.messages, self._wall_ms
        for message in messages:
            message.begin_consuming(now_ms)
        return messages if self.is_batch else messages[0]

    def context(self, job: Job) -> ConsumeContext:
        """Return what hooks see, and let them see it."""
        context = ConsumeContext(
            group=self._settings.group,
            namespace=self._settings.namespace,
            queue=job.process_queue.queue,
            messages=tuple(job.messages),
        )
        call_before(self.hooks, context)
        return context

    def end(self, job: Job, outcome: Outcome, context: ConsumeContext | None) -> Outcome:
        """Note the end of a call, and let the hooks see it."""
        job.ended_s = self.clock.monotonic_s()
        if context is not None:
            context.error = outcome
            context.is_success = outcome is None
            context.returned = self._returned(job, outcome)
            call_after(self.hooks, context)
        return outcome

    def _returned(self, job: Job, outcome: Outcome) -> ConsumeReturn:
        took_s = job.ended_s - (job.started_s or job.ended_s)
        if outcome is not None and not isinstance(outcome, Retry | DeadLetter):
            return ConsumeReturn.EXCEPTION
        if took_s >= self._settings.consume_timeout_s:
            return ConsumeReturn.TIME_OUT
        return ConsumeReturn.SUCCESS if outcome is None else ConsumeReturn.FAILED


class AsyncHandling:
    """A handler that is awaited on the loop."""

    def __init__(self, calling: Calling) -> None:
        self._calling = calling

    async def outcome(self, job: Job) -> Outcome:
        """Have a job handled now; return what became of it."""
        calling = self._calling
        argument = calling.begin(job)
        context = calling.context(job) if calling.hooks else None
        outcome: Outcome = None
        try:
            await calling.handler(argument)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            outcome = error  # something inside the handler was cancelled, not we
        except Exception as error:  # rule 3
            outcome = error
        return calling.end(job, outcome, context)


class ThreadHandling:
    """A handler that is called in threads; `results` hears of jobs that nobody waits for."""

    def __init__(self, calling: Calling, count: int, results: Results) -> None:
        self._calling = calling
        self._results = results
        self._workers: Workers[Job | Series] = Workers(count, "handler", self._work, self._done)

    def put(self, jobs: list[Job]) -> None:
        """Have jobs handled; `results` hears of them."""
        self._workers.put(jobs)

    def withdraw(self) -> None:
        """Begin no more of them."""
        self._workers.withdraw()

    async def wait_quiet(self) -> None:
        """Return when those that have begun are over."""
        await self._workers.wait_quiet()

    def close(self, wait_s: float) -> bool:
        """End the threads; give whether all ended in time."""
        return self._workers.close(wait_s)

    async def outcome(self, job: Job) -> Outcome:
        """Have a job handled now; return what became of it."""
        job.answer = asyncio.get_running_loop().create_future()
        self._workers.put([job])
        return await job.answer

    async def outcomes(self, series: Series) -> list[Outcome]:
        """Have jobs handled in order, by one thread, up to the first that fails.

        Fewer come back when they take long: the rest is not begun.
        """
        series.answer = asyncio.get_running_loop().create_future()
        self._workers.put([series])
        return await series.answer

    def _work(self, job: Job | Series) -> object:
        """Call the handler (in a thread)."""
        if isinstance(job, Job):
            is_wanted = job.answer is not None or not job.process_queue.is_dropped
            return self._call(job) if is_wanted else None
        outcomes: list[Outcome] = []
        now_s = self._calling.clock.monotonic_s
        ends_s = min(now_s() + SERIES_S, job.until_s)
        for each in job.jobs:
            if outcomes and (now_s() > ends_s or each.process_queue.is_dropped):
                break
            outcomes.append(self._call(each))
            if outcomes[-1] is not None:
                break
        return outcomes

    def _call(self, job: Job) -> Outcome:
        calling = self._calling
        argument = calling.begin(job)
        context = calling.context(job) if calling.hooks else None
        outcome: Outcome = None
        try:
            answer = calling.handler(argument)
            if isinstance(answer, Coroutine):
                answer.close()
                outcome = TypeError(
                    "the handler is a plain function that gives a coroutine; write it as async def"
                )
        except BaseException as error:  # rule 3; also sys.exit() of a handler
            outcome = error
        return calling.end(job, outcome, context)

    def _done(self, results: list[tuple[Job | Series, object]]) -> None:
        unasked: list[tuple[Job, object]] = []
        for job, outcome in results:
            if job.answer is not None:
                if not job.answer.done():
                    job.answer.set_result(outcome)  # type: ignore[arg-type]  # what _work gave
            elif isinstance(job, Job):
                unasked.append((job, outcome))
        if unasked:
            self._results(unasked)
