"""Puts clients to work on one of our brokers and takes what their processes used.

In: a plan, a folder. Out: a `ClientRow` per kind and client. Rules:

1. All clients work with the same broker, `orbitmq up` in a process of its own on its own core.
   OrbitMQ's client has the other core; Java's uses all, as it is meant to. Bodies have 1 KB.
2. The clients are processes that stay: kinds go round them, several rounds. Of the rounds that
   nobody disturbed, the one with the median CPU counts. Java's client does each of its kinds for
   some seconds before: its compiler is then done.
3. Consumers find a topic that was filled before, each with a group of its own.
4. A client that fails ends the run, with the end of its standard error.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import orbitmq
from benchmarks import servers
from benchmarks.client_figures import ClientFigures, ClientRow, client_lines
from benchmarks.client_kinds import JAVA, WHOLE, ClientPlan, Kind
from benchmarks.java_classes import java_command
from benchmarks.loads import LoadFailed
from benchmarks.machine import cores, pin
from benchmarks.python_client import BODY, TIMEOUT_S
from benchmarks.rounds import Rounds, say, typical
from benchmarks.servers import ROOT, TAIL_CHARS, Server

SEND_TOPIC, FILLED_TOPIC = "BenchmarkClientSend", "BenchmarkClientFilled"
FILL_COUNT = 500
UNAIMED_SHARE = 0.5
STOP_LIMIT_S = 30.0


class Client:
    """A client program that waits for commands."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    def run(self, command: str, topic: str, amount: float, others_cores: float) -> ClientFigures:
        """Have one run done; raises LoadFailed when the client fails."""
        process = self._process
        assert process.stdin is not None
        process.stdin.write(f"{command} {topic} {amount}\n")
        process.stdin.flush()
        return self._read_figures(self.read_line(), others_cores)

    def _read_figures(self, line: str, others_cores: float) -> ClientFigures:
        try:
            count, clock_s, used_s = map(float, line.split())
            return ClientFigures(count / clock_s, used_s * 1e6 / count, others_cores)
        except (ValueError, ZeroDivisionError):
            raise LoadFailed(f"the client {self.name} said {line!r}") from None

    def read_line(self) -> str:
        """Return what it says next; raises LoadFailed when it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = self._log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARS:]
            raise LoadFailed(f"the client {self.name} ended; its standard error ends:\n{tail}")
        return line


def measure(plan: ClientPlan, folder: Path, rounds: Rounds, seconds: float) -> list[ClientRow]:
    """Measure what the plan names, in a folder that is not there yet."""
    broker_core, client_core = cores()
    found: list[ClientRow] = []
    with ExitStack() as stack:
        server = stack.enter_context(servers.ours(folder / "broker", broker_core))
        say(f"filling a topic with {plan.message_count:,} messages for consumers")
        fill(server.namesrv, plan.message_count)
        clients = [
            stack.enter_context(_python(name, server, folder, client_core)) for name in plan.loops
        ]
        if plan.has_java:
            clients.append(stack.enter_context(_java(server, folder)))
            _warm_up(clients[-1], plan)
        for kind in plan.kinds:
            share = UNAIMED_SHARE if kind.aim is None else 1.0
            amount = seconds * share if kind.is_send else plan.message_count
            found += _measure_kind(kind, clients, rounds, amount)
    return found


def _measure_kind(
    kind: Kind, clients: Sequence[Client], rounds: Rounds, amount: float
) -> list[ClientRow]:
    asked = [(client, kind.command_of(client.name)) for client in clients]
    figures: dict[str, list[ClientFigures]] = {}
    for round_ in range(rounds.each):
        for client, command in asked:
            if command is None:
                continue
            say(f"client, {kind.name}: {client.name}, round {round_ + 1} of {rounds.each}")
            used = rounds.prepare()
            one = client.run(command, _topic(kind), amount, used)
            figures.setdefault(client.name, []).append(one)
    return [ClientRow(kind.name, name, typical(several)) for name, several in figures.items()]


def _topic(kind: Kind) -> str:
    return SEND_TOPIC if kind.is_send else FILLED_TOPIC


def _warm_up(client: Client, plan: ClientPlan) -> None:
    """Have Java's compiler see all that is measured."""
    kinds = {kind.java_command: kind for kind in plan.kinds}
    say(f"warming up {client.name}, {len(kinds) * plan.warm_up_s:.0f} s")
    for command, kind in kinds.items():
        end_s = time.monotonic() + plan.warm_up_s
        is_first = True
        while is_first or time.monotonic() < end_s:
            is_first = False
            amount = plan.warm_up_s if kind.is_send else plan.message_count
            client.run(command, _topic(kind), amount, 0.0)


def fill(namesrv: str, count: int) -> None:
    """Put messages into the topic that consumers drain."""
    message = orbitmq.Message(FILLED_TOPIC, BODY)
    with orbitmq.Producer(namesrv, send_timeout_s=TIMEOUT_S) as producer:
        producer.send(message)
        for start in range(1, count, FILL_COUNT):
            producer.send_batch([message] * min(FILL_COUNT, count - start))


@contextmanager
def _python(name: str, server: Server, folder: Path, core: int | None) -> Iterator[Client]:
    command = [sys.executable, "-m", "benchmarks.python_client", server.namesrv, name]
    with _started(name, command, folder, core) as client:
        yield client


@contextmanager
def _java(server: Server, folder: Path) -> Iterator[Client]:
    command = [*java_command(folder / "home"), server.namesrv, str(os.sysconf("SC_CLK_TCK"))]
    with _started(JAVA, command, folder, None) as client:
        yield client


@contextmanager
def _started(name: str, command: Sequence[str], folder: Path, core: int | None) -> Iterator[Client]:
    log = folder / f"{name}.stderr"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=ROOT,
            text=True,
        )
    with process:
        try:
            pin(process.pid, core)
            client = Client(name, process, log)
            client.read_line()
            yield client
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """End it by the end of its input, and kill it only if it does not listen."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def main(arguments: Sequence[str]) -> None:
    """Print the rows of a whole run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_runs")
    parser.add_argument("rounds", type=int, nargs="?", default=3, help="of each kind (3)")
    rounds = parser.parse_args(arguments).rounds
    plan = replace(WHOLE, has_java=not servers.missing_for_original())
    with tempfile.TemporaryDirectory(prefix="orbitmq-clients-", ignore_cleanup_errors=True) as name:
        found = measure(plan, Path(name, "clients"), Rounds(rounds, 2.0), 2.0)
    print("\n".join(client_lines(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
