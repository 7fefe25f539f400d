"""Threads that share one line of jobs: the handlers of consumers that are plain functions.

In: jobs. Out: what became of them, on the loop, many at a time.

Rules:
1. What runs in the threads touches no state of the loop.
2. A thread that is quick takes job after job, and the others sleep; one that blocks lets the next
   one go on. So short jobs cost little, and long ones run side by side.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

RESULTS_WITHIN_S = 0.02
"""So late at most the loop hears of a worker's result while there are more jobs."""
RESULTS_COUNT = 64
"""So many results are told of at once, however quick the workers are."""


class Workers(Generic[T]):
    """Threads that take jobs from one line; more of them wake up only while jobs are waiting.

    `work` runs in the threads, one job after the other; what it gives is put, with its job, where
    `results` gives them out on the loop.
    """

    def __init__(
        self,
        count: int,
        name: str,
        work: Callable[[T], object],
        results: Callable[[list[tuple[T, object]]], None],
    ) -> None:
        self._count_max = count
        self._name = name
        self._work = work
        self._results = results
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[T] = deque()
        self._done: deque[tuple[T, object]] = deque()
        self._lock = threading.Lock()
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._idle = 0
        self._is_waking = False
        self._threads: list[threading.Thread] = []
        self._is_told = False
        self._is_closed = False
        self._looking: asyncio.TimerHandle | None = None
        self._quiet: asyncio.Future[None] | None = None
        self.busy = 0
        """How many jobs are given and not over, as the loop sees it."""

    def put(self, jobs: Sequence[T]) -> None:
        """Have jobs done, in about this order."""
        self.busy += len(jobs)
        self._jobs.extend(jobs)
        self._wake_one()
        if self._looking is None:
            self._looking = self._loop.call_later(RESULTS_WITHIN_S, self._look)

    def withdraw(self) -> list[T]:
        """Take back the jobs that no thread has begun."""
        withdrawn = []
        while self._jobs:
            try:
                withdrawn.append(self._jobs.popleft())
            except IndexError:
                break
        self.busy -= len(withdrawn)
        return withdrawn

    async def wait_quiet(self) -> None:
        """Return when all jobs are over and their results are given out."""
        while self.busy > 0:
            self._quiet = self._loop.create_future()
            await asyncio.shield(self._quiet)

    def close(self, wait_s: float) -> bool:
        """End the threads when their jobs are over; give whether all ended within `wait_s`."""
        with self._lock:
            self._is_closed = True
            for _ in self._threads:
                self._wakes.put(None)
        if self._looking is not None:
            self._looking.cancel()
        deadline_s = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _wake_one(self) -> None:
        """Have one more thread look, unless one is about to: it will wake the next."""
        with self._lock:
            if self._is_waking or self._is_closed:
                return
            if self._idle:
                self._idle -= 1
                self._is_waking = True
                self._wakes.put(None)
            elif len(self._threads) < self._count_max:
                self._is_waking = True
                name = f"orbitmq-{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        self._is_waking = False
        while self._wait_jobs():
            while self._jobs:
                try:
                    job = self._jobs.popleft()
                except IndexError:
                    break
                if self._jobs and not self._is_waking:
                    self._wake_one()
                self._do(job)

    def _wait_jobs(self) -> bool:
        """Return when there may be jobs; False: there will be none any more."""
        with self._lock:
            if self._is_closed or self._jobs:
                return not self._is_closed
            self._idle += 1
        self._wakes.get()
        self._is_waking = False
        return not self._is_closed

    def _do(self, job: T) -> None:
        begun_s = time.monotonic()
        outcome = self._work(job)
        self._done.append((job, outcome))
        if self._is_told:
            return
        # One word to the loop for many results: a thread that goes on at once need not tell.
        is_slow = time.monotonic() - begun_s > RESULTS_WITHIN_S / 10
        if is_slow or not self._jobs or len(self._done) >= RESULTS_COUNT:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
                self._loop.call_soon_threadsafe(self._give_out)

    def _look(self) -> None:
        """Yield what no thread has told of yet, again and again while jobs are under way."""
        self._looking = None
        self._give_out()
        if self.busy and not self._is_closed:
            self._looking = self._loop.call_later(RESULTS_WITHIN_S, self._look)

    def _give_out(self) -> None:
        self._is_told = False
        results = []
        while self._done:
            results.append(self._done.popleft())
        self.busy -= len(results)
        if results:
            self._results(results)
        if self.busy <= 0 and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)
