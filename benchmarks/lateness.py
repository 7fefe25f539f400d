"""Delayed messages under load: how long after its time each one comes.

In: a server. Out: the lateness of some thousand messages: half of them, 99 % and the greatest.
`python -m benchmarks.lateness` measures this part alone. Rules:

1. While `loadgen` sends plain messages 4 x 64 as fast as they are answered, another connection
   sends delayed ones at a steady pace. Each level begins as much earlier as it waits longer, so all
   levels are due together, under load.
2. Lateness is by the records' own times: the store time of the delivered record, less that of the
   one that waited and the delay. A consumer that holds a pull on the topic notes when it gets each:
   that counts the write, the wake-up and the way to the consumer as well.
3. Each must come once and none early, or the run fails. What others do on the machine makes them
   late, too: how much of it they used meanwhile is part of the figures.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import servers
from benchmarks.client import Client
from benchmarks.frames import frame
from benchmarks.loads import (
    FIRST,
    LATE_TOPIC,
    WARM_UP_MAX_S,
    Generator,
    LoadFailed,
    make_generator,
)
from benchmarks.machine import OthersWatch, cores, touch_free_memory
from benchmarks.servers import Server
from orbitmq.wire.record import Record

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS_S = {1: 1, 2: 5, 3: 10}
BODY_SIZE = 1_024
PACE_S = 0.02
LEAD_S = 1.0
"""The load runs this long before the first message is sent, and after the last one is due."""
LIMIT_S = 30.0
WARM_JVM_S = 20.0


@dataclass(frozen=True, slots=True)
class LatePlan:
    """Which levels are due together, for how long, and how many of each a second."""

    levels: Sequence[int]
    due_s: float
    per_level_s: int

    @property
    def count(self) -> int:
        """How many messages are sent in all."""
        return len(self.levels) * self.per_level

    @property
    def per_level(self) -> int:
        """How many messages each level gets."""
        return int(self.due_s * self.per_level_s)

    @property
    def arrival_s(self) -> float:
        """From the first delayed message to the time at which the last one is due."""
        return max(DELAYS_S[level] for level in self.levels) + self.due_s


WHOLE = LatePlan((1, 2, 3), due_s=4.0, per_level_s=250)
QUICK = LatePlan((1,), due_s=0.4, per_level_s=250)


@dataclass(frozen=True, slots=True)
class Spread:
    """Half, 99 % and the greatest of some times, in ms."""

    half_ms: float
    most_ms: float
    greatest_ms: float


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late the delayed messages of one run were."""

    server: str
    count: int
    by_records: Spread
    by_consumer: Spread
    load_per_s: float
    others_cores: float
    """What other processes used meanwhile."""


def spread(times_ms: Sequence[float]) -> Spread:
    """Return half, 99 % and the greatest."""
    ordered = sorted(times_ms)
    last = len(ordered) - 1
    return Spread(ordered[last // 2], ordered[-(-last * 99 // 100)], ordered[-1])


def measure(server: Server, generator: Generator, plan: LatePlan = WHOLE) -> Lateness:
    """Put the load on, let delayed messages come due under it, and say how late they were."""
    load_s = LEAD_S + plan.arrival_s + LEAD_S
    load = replace(generator, seconds=load_s - WARM_UP_MAX_S)
    with (
        Client(server.port) as producer,
        Client(server.port) as consumer,
        ThreadPoolExecutor(2) as threads,
        _on_core(generator.core),
    ):
        begin = _Begin(producer, plan)
        begin_s, watch = time.monotonic(), OthersWatch(server.pids)
        loaded = threads.submit(load.run, server, FIRST, 0, 0.0)
        got = threads.submit(_consume, consumer, begin.offset, plan.count)
        _send(producer, plan, begin_s + LEAD_S)
        figures, arrivals = loaded.result(), got.result()
        others_cores = watch.cores()
        due_ms = begin.due_ms(producer, plan)
    by_records = late_ms(server, due_ms, [(one.body, one.store_ms) for one, _ in arrivals])
    by_consumer = late_ms(server, due_ms, [(one.body, at_ms) for one, at_ms in arrivals])
    return Lateness(
        server.name,
        plan.count,
        spread(by_records),
        spread(by_consumer),
        figures.messages_per_s,
        others_cores,
    )


class _Begin:
    """Where the queues stood before the first message."""

    def __init__(self, client: Client, plan: LatePlan) -> None:
        client.send(_message(0, 0))  # makes the topic
        client.take_answers(1)
        deadline_s = time.monotonic() + LIMIT_S
        while not client.max_offset(LATE_TOPIC, 0):  # an original fills its queues a moment later
            if time.monotonic() > deadline_s:
                raise LoadFailed(f"{LATE_TOPIC} is not there after {LIMIT_S} s")
            time.sleep(PACE_S)
        self.offset = client.max_offset(LATE_TOPIC, 0)
        self.waiting = {
            level: client.max_offset(SCHEDULE_TOPIC, level - 1) for level in plan.levels
        }

    def due_ms(self, client: Client, plan: LatePlan) -> dict[bytes, int]:
        """Return when each message was due, by the records that waited."""
        found: dict[bytes, int] = {}
        for level, first in self.waiting.items():
            records = _pull_all(client, SCHEDULE_TOPIC, level - 1, first, plan.per_level)
            found |= {one.body: one.store_ms + DELAYS_S[level] * 1_000 for one, _ in records}
        return found


def _send(client: Client, plan: LatePlan, begin_s: float) -> None:
    """Send every message at its time; a tick's messages together."""
    longest_s = max(DELAYS_S[level] for level in plan.levels)
    due = sorted(
        (begin_s + longest_s - DELAYS_S[level] + number / plan.per_level_s, level)
        for level in plan.levels
        for number in range(plan.per_level)
    )
    sent = 0
    while sent < len(due):
        time.sleep(max(PACE_S, due[sent][0] - time.monotonic()))
        now_s, first = time.monotonic(), sent
        while sent < len(due) and due[sent][0] <= now_s:
            sent += 1
        client.send(b"".join(_message(at + 1, due[at][1]) for at in range(first, sent)))
        client.take_answers(sent - first)


def _message(number: int, level: int) -> bytes:
    properties = f"UNIQ_KEY\x017F00000100002A139A5500{number:010X}\x02TAGS\x01TagA\x02"
    if level:
        properties += f"DELAY\x01{level}\x02"
    fields = {"a": "benchmark_producer", "b": LATE_TOPIC, "c": "TBW102", "d": "1", "e": "0"}
    fields |= {"f": "0", "g": str(int(time.time() * 1_000)), "h": "0", "i": properties}
    fields |= {"j": "0", "k": "false", "l": "0", "m": "false", "n": "broker-a"}
    return frame(310, fields, b"%0*d" % (BODY_SIZE, number), 1_000_000_000 + number)


def _consume(client: Client, offset: int, count: int) -> list[tuple[Record, float]]:
    return list(_pull_all(client, LATE_TOPIC, 0, offset, count))


def _pull_all(
    client: Client, topic: str, queue_id: int, offset: int, count: int
) -> Iterator[tuple[Record, float]]:
    """Return so many records from an offset on, each with the time at which it came."""
    end = offset + count
    arrived_s = time.monotonic()
    while offset < end:
        records = client.pull(topic, queue_id, offset, end - offset)
        now_ms = time.time() * 1_000
        if records:
            offset, arrived_s = records[-1].queue_offset + 1, time.monotonic()
        elif time.monotonic() > arrived_s + LIMIT_S:
            raise LoadFailed(f"{topic}, queue {queue_id}: nothing came for {LIMIT_S} s")
        yield from ((record, now_ms) for record in records)


def late_ms(
    server: Server, due_ms: dict[bytes, int], came: Sequence[tuple[bytes, float]]
) -> list[float]:
    """Return how late each came; raises LoadFailed unless all came, once and not early."""
    counts = Counter(body for body, _ in came)
    if set(counts) != set(due_ms) or max(counts.values()) > 1:
        raise LoadFailed(f"{server.name}: not every delayed message came once")
    times_ms = [at_ms - due_ms[body] for body, at_ms in came]
    if min(times_ms) < 0:
        raise LoadFailed(f"{server.name}: a delayed message came {-min(times_ms):.0f} ms early")
    return times_ms


def line(one: Lateness) -> str:
    """Return the figures of a server in words."""
    words = (
        f"{name} half {of.half_ms:.0f}, 99 % {of.most_ms:.0f}, greatest {of.greatest_ms:.0f} ms"
        for name, of in (("records:", one.by_records), ("consumer:", one.by_consumer))
    )
    return (
        f"  {one.server:<16} {'; '.join(words)}   of {one.count:,} beside {one.load_per_s:,.0f}/s,"
        f" others {one.others_cores:.2f}"
    )


@contextmanager
def _on_core(core: int | None) -> Iterator[None]:
    """Stay away from the server's core."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure this part alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lateness")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--original", action="store_true", help="beside an original")
    options = parser.parse_args(arguments)
    server_core, generator_core = cores()
    generator = make_generator(generator_core, 0.0)
    with (
        tempfile.TemporaryDirectory(prefix="orbitmq-late-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        folder = Path(name)
        running = [stack.enter_context(servers.ours(folder / "ours", server_core))]
        if options.original:
            running.append(stack.enter_context(servers.original(folder / "original")))
            replace(generator, seconds=WARM_JVM_S).run(running[-1], FIRST, 0, 0.0)
        for _ in range(options.rounds):
            for server in running:
                touch_free_memory(WHOLE.arrival_s / 3)
                print(line(measure(server, generator)), flush=True)


if __name__ == "__main__":
    main()
