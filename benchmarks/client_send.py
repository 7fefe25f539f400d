"""What our Python producer costs: CPU for a message of 1 KB, on asyncio's own loop and on uvloop.

In: the name server of a running broker. Out: one Sent for each way of sending and each loop.
`python -m benchmarks.client_send` starts a broker of its own and prints a table.

Rules:
1. The producer runs in a process of its own, and only that one's CPU is counted: user and system
   time of the process between two moments with the route known and the connection made.
2. Pipelined means `submit` with as many in flight as the producer allows; each result is looked at.
   One by one means `await send`, the next after the answer to the last.
3. The figure is the least of the rounds: others on the machine only ever add to it.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import servers
from benchmarks.machine import cores, pin
from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.send_result import SendResult, SendStatus

TOPIC = "ClientSend"
BODY = b"x" * 1024
ROUNDS = 5
COUNTS = {"pipelined": 20_000, "one by one": 2_000}
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Sent:
    """The best of the rounds of one way of sending on one loop."""

    way: str
    loop: str
    cpu_us: float
    """CPU of the producer's process for a message."""
    messages_per_s: float


def measure(namesrv: str, way: str, loop: str, core: int | None = None) -> Sent:
    """Run one producer in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.client_send", "--run", namesrv, way, loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=servers.ROOT) as process:
        pin(process.pid, core)
        out, _ = process.communicate(timeout=LIMIT_S)
    if process.returncode != 0:
        raise servers.ServerFailed(f"the producer ended with exit code {process.returncode}")
    return Sent(**json.loads(out))


# --- in the producer's process ---


async def _pipelined(producer: Producer, count: int) -> None:
    settled = 0

    def look(future: "asyncio.Future[SendResult]") -> None:
        nonlocal settled
        settled += future.result().status is SendStatus.SEND_OK

    for _ in range(count):
        await producer.room()
        producer.submit(Message(TOPIC, BODY)).add_done_callback(look)
    await producer.flush()
    await asyncio.sleep(0)  # the last callbacks
    if settled != count:
        raise servers.ServerFailed(f"{count - settled} of {count} messages were not stored")


async def _one_by_one(producer: Producer, count: int) -> None:
    for _ in range(count):
        await producer.send(Message(TOPIC, BODY))


WAYS: dict[str, Callable[[Producer, int], Coroutine[Any, Any, None]]] = {
    "pipelined": _pipelined,
    "one by one": _one_by_one,
}


async def _run(namesrv: str, way: str, loop: str) -> Sent:
    count, best = COUNTS[way], Sent(way, loop, float("inf"), 0.0)
    async with Producer(namesrv, group="benchmark_producer", send_timeout_s=60.0) as producer:
        await producer.send(Message(TOPIC, BODY))
        for _ in range(ROUNDS):
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            await WAYS[way](producer, count)
            cpu_us = (time.process_time() - cpu_s) / count * 1e6
            rate = count / (time.perf_counter() - wall_s)
            best = Sent(way, loop, min(best.cpu_us, cpu_us), max(best.messages_per_s, rate))
    return best


# --- the table ---


def measure_all(namesrv: str, core: int | None = None) -> list[Sent]:
    """Measure each way on each loop."""
    return [measure(namesrv, way, loop, core) for way in WAYS for loop in LOOPS]


def to_lines(all_sent: list[Sent]) -> list[str]:
    """Give the figures as lines for people."""
    return [
        f"{sent.way:10}  {sent.loop:7}  {sent.cpu_us:6.1f} us CPU a message  "
        f"{sent.messages_per_s:8.0f} messages a second"
        for sent in all_sent
    ]


def main(arguments: list[str]) -> None:
    """Measure against a broker of its own, or be the process that is measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_send")
    parser.add_argument("--run", nargs=3, metavar=("NAMESRV", "WAY", "LOOP"))
    run = parser.parse_args(arguments).run
    if run is not None:
        with asyncio.Runner(loop_factory=LOOPS[run[2]]) as runner:
            print(json.dumps(asdict(runner.run(_run(*run)))))
        return
    server_core, client_core = cores()
    with (
        tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder,
        servers.ours(Path(folder, "ours"), server_core) as server,
    ):
        print("\n".join(to_lines(measure_all(server.namesrv, client_core))))


if __name__ == "__main__":
    main(sys.argv[1:])
