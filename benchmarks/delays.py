"""Delayed messages: how many a second are delivered when many are due, and what that costs.

In: a server. Out: messages delivered a second and CPU per delivered message. Rules:

1. A burst of messages with delay level 2 is taken in before the first of them is due, and the
   server's process is halted (SIGSTOP) until the last is. So all are due at once, and the figure is
   not how fast they were sent. Time and CPU count from the moment the process goes on.
2. Delivered is what a consumer could pull: the end of the topic's queues is asked for, twenty times
   a second, until all are there.
"""

import os
import signal
import time
from dataclasses import dataclass, replace

from benchmarks.client import Client
from benchmarks.loads import DELAY_TOPIC, QUEUE_COUNT, Generator, Load, LoadFailed
from benchmarks.machine import cpu_s
from benchmarks.servers import ORIGINAL, OURS, Server

LOAD = Load("delay", 4, 64, (OURS, ORIGINAL), topic=DELAY_TOPIC)
SCHEDULE_TOPIC, LEVEL, DELAY_S = "SCHEDULE_TOPIC_XXXX", 2, 5.0
BURST_S = 0.6
MARGIN_S = 0.5
LOOK_S = 0.05
LIMIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one burst of delayed messages was delivered like."""

    server: str
    count: int
    per_s: float
    us_per_message: float
    others_cores: float


def measure(
    server: Server, generator: Generator, others_cores: float, burst_s: float = BURST_S
) -> Delivery:
    """Send a burst, and wait until the last of it is delivered."""
    pid = server.pids[0]
    with Client(server.port) as client:
        waited, delivered = _waiting(client), _delivered(client)
        begin_s = time.monotonic()
        replace(generator, seconds=burst_s).run(server, LOAD, 0, others_cores)
        sent_s = time.monotonic()
        _sleep_until(begin_s + DELAY_S - MARGIN_S)
        count = _waiting(client) - waited
        if sent_s - begin_s > DELAY_S - MARGIN_S or _delivered(client) > delivered:
            raise LoadFailed(f"{server.name}: some were due before all were sent; send for less")
        _halt(pid, sent_s + DELAY_S + MARGIN_S)
        begin_s, begin_cpu_s = time.monotonic(), cpu_s(pid)
        while _delivered(client) < delivered + count:
            if time.monotonic() > begin_s + LIMIT_S:
                raise LoadFailed(f"{server.name}: delayed messages not there after {LIMIT_S} s")
            time.sleep(LOOK_S)
        clock_s, used_s = time.monotonic() - begin_s, cpu_s(pid) - begin_cpu_s
    return Delivery(server.name, count, count / clock_s, used_s * 1e6 / count, others_cores)


def _halt(pid: int, until_s: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        _sleep_until(until_s)
    finally:
        os.kill(pid, signal.SIGCONT)


def _sleep_until(until_s: float) -> None:
    time.sleep(max(0.0, until_s - time.monotonic()))


def _waiting(client: Client) -> int:
    return client.max_offset(SCHEDULE_TOPIC, LEVEL - 1)


def _delivered(client: Client) -> int:
    return sum(client.max_offset(DELAY_TOPIC, queue_id) for queue_id in range(QUEUE_COUNT))
