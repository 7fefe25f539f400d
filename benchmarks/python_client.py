"""OrbitMQ's client with the loop of the program's choice, as a process whose cost is measured.

In: a name server's address and a loop's name; then a line `kind topic amount` on standard input for
each run. Out: a line `messages clock_s cpu_s` for each. Rules:

1. `amount` is seconds for sends, and the number of messages in the topic for consumers.
2. Sends are counted from LEAD_S on, when the client is under way; a consumer from its first message
   to the last one of the topic. CPU is what the kernel counts for this process, all its threads.
3. A send that fails ends the program: what is not stored is not counted.
"""

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from math import inf
from typing import Any

import orbitmq
from benchmarks.machine import cpu_s
from orbitmq import aio
from orbitmq.world.net import new_loop

BODY = b"x" * 1024
IN_FLIGHT_MAX = 256
LEAD_S = 0.4
LIMIT_S = 60.0
TIMEOUT_S = 30.0
"""Of a send: a busy machine must not end a run."""
POLL_COUNT = 32
FIRST = aio.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

Loops = {"asyncio": asyncio.new_event_loop, "uvloop": new_loop}


@dataclass(frozen=True, slots=True)
class Task:
    """One run: which topic at which name server, and how much of it."""

    namesrv: str
    topic: str
    amount: float

    @property
    def group(self) -> str:
        """A consumer group that has not been there yet."""
        return f"benchmark-{uuid.uuid4().hex}"


class Meter:
    """What the process has used since `begin`."""

    def __init__(self) -> None:
        self._clock_s = self._cpu_s = 0.0
        self._count = 0
        self.line = ""

    def begin(self, count: int = 0) -> None:
        """Count from here on."""
        self._count, self._clock_s, self._cpu_s = count, time.monotonic(), cpu_s(os.getpid())

    def end(self, count: int) -> None:
        """Count up to here."""
        clock_s, used_s = time.monotonic() - self._clock_s, cpu_s(os.getpid()) - self._cpu_s
        self.line = f"{count - self._count} {clock_s:.4f} {used_s:.4f}"


class SendMeter(Meter):
    """Counts the sends of a loop that asks `goes_on` before each."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._begin_s = time.monotonic() + LEAD_S
        self._end_s = inf

    def goes_on(self, count: int) -> bool:
        """Whether there is time for one more send after `count` of them."""
        now_s = time.monotonic()
        if now_s >= self._begin_s:
            self._begin_s, self._end_s = inf, now_s + self._seconds
            self.begin(count)
        if now_s >= self._end_s:
            self.end(count)
            return False
        return True


class Drain(Meter):
    """Counts messages that a consumer gets, until it has all of a topic."""

    def __init__(self, count_max: int) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._count_max = count_max
        self._got = 0
        self._all = asyncio.Event()

    def note(self, _message: object) -> None:
        """Count a message; in any thread, for only one has the interpreter."""
        self._got += 1
        if self._got == 1:
            self.begin(1)
        elif self._got == self._count_max:
            self.end(self._got)
            self._loop.call_soon_threadsafe(self._all.set)

    async def note_async(self, message: object) -> None:
        """Count a message."""
        self.note(message)

    async def wait(self) -> str:
        """Return the line when all are there."""
        async with asyncio.timeout(LIMIT_S):
            await self._all.wait()
        return self.line


async def pipelined(task: Task) -> str:
    """Many sends in flight; a callback looks at each result."""
    failures: list[BaseException] = []
    count = 0

    def answered(future: asyncio.Future[aio.SendResult]) -> None:
        nonlocal count
        count += 1
        error = future.exception()
        if error is not None:
            failures.append(error)

    async with aio.Producer(
        task.namesrv, sends_in_flight_max=IN_FLIGHT_MAX, send_timeout_s=TIMEOUT_S
    ) as producer:
        meter = SendMeter(task.amount)
        while meter.goes_on(count) and not failures:
            await producer.room()
            producer.submit(aio.Message(task.topic, BODY)).add_done_callback(answered)
    if failures:
        raise failures[0]
    return meter.line


async def awaited(task: Task) -> str:
    """Sends one by one, each awaited."""
    async with aio.Producer(task.namesrv, send_timeout_s=TIMEOUT_S) as producer:
        meter = SendMeter(task.amount)
        count = 0
        while meter.goes_on(count):
            await producer.send(aio.Message(task.topic, BODY))
            count += 1
    return meter.line


def blocking(task: Task) -> str:
    """Sends one by one with the synchronous client."""
    with orbitmq.Producer(task.namesrv, send_timeout_s=TIMEOUT_S) as producer:
        meter = SendMeter(task.amount)
        count = 0
        while meter.goes_on(count):
            producer.send(orbitmq.Message(task.topic, BODY))
            count += 1
    return meter.line


async def push(task: Task) -> str:
    """A handler that is an `async def`."""
    drain = Drain(int(task.amount))
    return await _push(task, drain, drain.note_async)


async def push_plain(task: Task) -> str:
    """A handler that is a plain function, which is called in threads."""
    drain = Drain(int(task.amount))
    return await _push(task, drain, drain.note)


async def _push(task: Task, drain: Drain, handler: Callable[[Any], object]) -> str:
    consumer = aio.PushConsumer(task.namesrv, task.group, handler, from_where=FIRST)
    await consumer.subscribe(task.topic)
    async with consumer:
        return await drain.wait()


async def poll(task: Task) -> str:
    """A loop of polls."""
    drain, count = Drain(int(task.amount)), 0
    deadline_s = time.monotonic() + LIMIT_S
    consumer = aio.PullConsumer(
        task.namesrv, task.group, from_where=FIRST, pull_batch_size=POLL_COUNT
    )
    async with consumer:
        await consumer.subscribe(task.topic)
        while count < task.amount and time.monotonic() < deadline_s:
            for message in await consumer.poll():
                drain.note(message)
                count += 1
        return await drain.wait()


KINDS: dict[str, Callable[[Task], Coroutine[Any, Any, str]]] = {
    "pipelined": pipelined,
    "awaited": awaited,
    "push": push,
    "push-plain": push_plain,
    "poll": poll,
}


def main(namesrv: str, loop_name: str) -> None:
    """Do runs until standard input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        kind, topic, amount = line.split()
        task = Task(namesrv, topic, float(amount))
        if kind == "blocking":
            print(blocking(task), flush=True)
            continue
        with asyncio.Runner(loop_factory=Loops[loop_name]) as runner:
            print(runner.run(KINDS[kind](task)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
