"""Calls of the program's handler, with hooks around them, and what its answer means.

In: jobs. Out: for each None (consumed) or the exception that says what to do with the messages.

Rules:
1. A handler that is an `async def` runs on the loop; any other function runs in threads, so it may
   block. A plain function that gives a coroutine is a mistake, and told so.
2. None or something true is success, something false is `Retry()`; see `outcomes`.
3. Whatever a handler raises stays here: it becomes the outcome, and the worker goes on.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from orbitmq.client.consume_hooks import (
    ConsumeContext,
    ConsumeHook,
    ConsumeReturn,
    call_after,
    call_before,
)
from orbitmq.client.outcomes import DeadLetter, Retry
from orbitmq.client.process_queue import Job
from orbitmq.client.push_settings import PushConsumerSettings
from orbitmq.world.clock import Clock
from orbitmq.world.workers import Workers

Handler = Callable[..., Any]
"""A function of one ReceivedMessage, or of a list of them with `consume_batch_size` above 1."""

Outcome = BaseException | None
Results = Callable[[list[tuple[Job, object]]], None]


class Handling(Protocol):
    """One way to have jobs handled."""

    async def outcome(self, job: Job) -> Outcome:
        """Have a job handled now; give what became of it."""
        ...


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

    def begin(self, job: Job) -> Any:
        """Note the beginning of a call; give the handler's argument."""
        job.started_s = self.clock.monotonic_s()
        now_ms = self.clock.wall_ms()
        for message in job.messages:
            message.begin_consuming(now_ms)
        return job.messages if self.is_batch else job.messages[0]

    def context(self, job: Job) -> ConsumeContext:
        """Give what hooks see, and let them see it."""
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
        """Have a job handled now; give what became of it."""
        calling = self._calling
        argument = calling.begin(job)
        context = calling.context(job) if calling.hooks else None
        outcome: Outcome = None
        try:
            answer = await calling.handler(argument)
            if answer is not None and not answer:
                outcome = Retry()
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
        self.workers: Workers[Job] = Workers(count, "handler", self._work, self._done)

    async def outcome(self, job: Job) -> Outcome:
        """Have a job handled now; give what became of it."""
        job.answer = asyncio.get_running_loop().create_future()
        self.workers.put([job])
        return await job.answer

    def _work(self, job: Job) -> Outcome:
        """Call the handler (in a thread)."""
        if job.process_queue.is_dropped and job.answer is None:
            return None
        calling = self._calling
        argument = calling.begin(job)
        context = calling.context(job) if calling.hooks else None
        outcome: Outcome = None
        try:
            answer = calling.handler(argument)
            if answer is not None and not answer:
                outcome = Retry()
            elif isinstance(answer, Coroutine):
                answer.close()
                outcome = TypeError(
                    "the handler is a plain function that gives a coroutine; write it as async def"
                )
        except BaseException as error:  # rule 3; also sys.exit() of a handler
            outcome = error
        return calling.end(job, outcome, context)

    def _done(self, results: list[tuple[Job, object]]) -> None:
        unasked = []
        for job, outcome in results:
            if job.answer is None:
                unasked.append((job, outcome))
            elif not job.answer.done():
                job.answer.set_result(outcome)  # type: ignore[arg-type]  # what _work gave
        if unasked:
            self._results(unasked)
