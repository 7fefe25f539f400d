"""Idle connections: what clients cost which only stay connected, alone and beside a load.

In: a server and how many connections. Out: memory each, CPU of a heartbeat, CPU while all are
silent, and a load's CPU per message with and without them. Rules:

1. Every connection is a client of its own: a producer that has sent one heartbeat.
2. Rounds with and without them take turns.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.client import HEARTBEAT, Client, producer_heartbeat
from benchmarks.loads import FIRST, Figures, Generator
from benchmarks.machine import cpu_s, resident_mb
from benchmarks.rounds import Rounds, say, typical
from benchmarks.servers import Server
from orbitmq.wire.command import Command, encode_command

CONNECTION_COUNT = 5_000
SILENCE_S = 3.0
SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Idle:
    """What so many connections cost a server."""

    count: int
    kb_each: float
    heartbeat_us: float
    silent_cores: float
    alone: Figures
    beside: Figures

    @property
    def ratio(self) -> float:
        """CPU per message of the load beside them, to that without them."""
        return self.beside.cost_us / self.alone.cost_us


def measure(
    server: Server, generator: Generator, rounds: Rounds, count: int, silence_s: float = SILENCE_S
) -> Idle:
    """Connect, send a heartbeat each, be silent; then put the load beside."""
    pid = server.pids[0]
    before_mb, begin_s = resident_mb(pid), cpu_s(pid)
    with _connected(server, count):
        heartbeat_us = (cpu_s(pid) - begin_s) * 1e6 / count
        time.sleep(SETTLE_S)
        begin_s = cpu_s(pid)
        time.sleep(silence_s)
        silent_cores = (cpu_s(pid) - begin_s) / silence_s
        kb_each = (resident_mb(pid) - before_mb) * 1e3 / count
    alone, beside = _beside(server, generator, rounds, count)
    return Idle(count, kb_each, heartbeat_us, silent_cores, alone, beside)


def _beside(
    server: Server, generator: Generator, rounds: Rounds, count: int
) -> tuple[Figures, Figures]:
    """Return what the load costs without the connections, and with them."""
    found: dict[int, list[Figures]] = {0: [], count: []}
    for round_ in range(rounds.each):
        for connections, figures in found.items():
            say(f"send, 4 x 64, and {connections:,} idle connections, round {round_ + 1}")
            used = rounds.prepare(generator.warm_up_s + generator.seconds)
            with _connected(server, connections):
                figures.append(generator.run(server, FIRST, 0, used))
    return typical(found[0]), typical(found[count])


@contextmanager
def _connected(server: Server, count: int) -> Iterator[None]:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(count)]
        _send_heartbeats(clients)
        yield


def _send_heartbeats(clients: Sequence[Client]) -> None:
    for number, client in enumerate(clients):
        body = producer_heartbeat(f"127.0.0.1@{number}")
        client.send(encode_command(Command(HEARTBEAT, opaque=1, body=body)))
    for client in clients:
        client.take_answers(1)
