"""Idle connections: the memory and the CPU that clients cost which only stay connected.

In: a server and how many connections. Out: memory each, CPU of a heartbeat, CPU while all are
silent. Rules:

1. Every connection is a client of its own: a producer that has sent one heartbeat.
2. The silence is a few seconds; clients send a heartbeat every 30 s, so CPU for one is told apart.
3. The memory of a JVM with a fixed heap says little; it is shown, not compared.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.client import HEARTBEAT, Client, producer_heartbeat
from benchmarks.machine import cpu_s, resident_mb
from benchmarks.servers import Server
from orbitmq.wire.command import Command, encode_command

CONNECTION_COUNT = 5_000
SILENCE_S = 5.0
SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Idle:
    """What so many connections cost a server."""

    server: str
    count: int
    before_mb: float
    after_mb: float
    heartbeat_us: float
    silent_cores: float

    @property
    def kb_each(self) -> float:
        """Memory of one connection, in KB of 1,000 bytes."""
        return (self.after_mb - self.before_mb) * 1e3 / self.count


def measure(server: Server, count: int, silence_s: float = SILENCE_S) -> Idle:
    """Connect, send a heartbeat each, be silent, leave."""
    pid = server.pids[0]
    before_mb = resident_mb(pid)
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(count)]
        begin_s = cpu_s(pid)
        _send_heartbeats(clients)
        heartbeats_s = cpu_s(pid) - begin_s
        time.sleep(SETTLE_S)
        begin_s = cpu_s(pid)
        time.sleep(silence_s)
        silent_cores = (cpu_s(pid) - begin_s) / silence_s
        after_mb = resident_mb(pid)
    return Idle(server.name, count, before_mb, after_mb, heartbeats_s * 1e6 / count, silent_cores)


def _send_heartbeats(clients: Sequence[Client]) -> None:
    for number, client in enumerate(clients):
        body = producer_heartbeat(f"127.0.0.1@{number}")
        client.send(encode_command(Command(HEARTBEAT, opaque=1, body=body)))
    for client in clients:
        client.take_answers(1)
