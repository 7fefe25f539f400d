"""What the clients of a kill loop share: their history, the way to the broker, and when to end.

In: a name server, the broker's usual address, a folder for histories, a seed. Out: events in
`PROCESS.history`, each in the kernel before anything that follows from it goes over the wire.

Rules:
1. A broker that is away is looked for until it is back or the load is to end (SIGTERM).
2. The name server says where the broker is; while it is away, the last address counts.
3. Message n of a process has a body that follows from both, so anybody can say whose it is.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from orbitmq.wire.bodies_namesrv import TopicRoute
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.record import Record
from tests.reliability.audit import Event, format_event
from tests.wire_client import WireClient

PLAIN, BATCHED, ORDERED, DELAYED = TOPICS = ("T6_Plain", "T6_Batched", "T6_Ordered", "T6_Delayed")
QUEUE_COUNT = 4
GROUP = "T6_Group"
RETRY_TOPIC = f"%RETRY%{GROUP}"
AGAIN_S = 0.02
GONE = (OSError, EOFError)
"""What a client sees of a broker or name server that was killed."""


class Log:
    """The history of one process."""

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._fd = os.open(
            folder / f"{process}.history", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )
        self._lines: list[str] = []

    def add(self, kind: str, op: str, *what: str | int) -> None:
        """Note an event; `what` are topic, queue, offset, id and hash, as far as there are any."""
        event = Event(time.monotonic(), self.process, kind, op, *what)  # type: ignore[arg-type] # as the docstring says
        self._lines.append(format_event(event))

    def flush(self) -> None:
        """Bring what was noted to the kernel, where a kill does not reach it."""
        if self._lines:
            data = "".join(self._lines).encode()
            self._lines.clear()
            assert os.write(self._fd, data) == len(data)


def hash_of(body: bytes) -> str:
    """Return what a history says of a body."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def body_of(name: str, number: int) -> bytes:
    """Return the body of a message."""
    return name.encode() + b" " + b"." * (number * 37 % 500)


def id_of(record: Record) -> str:
    """Return the id of what a queue holds: the sender's, and how often it was given back."""
    name = record.body.partition(b" ")[0].decode(errors="backslashreplace")
    return f"{name}#{record.reconsume_times}" if record.reconsume_times else name


class Client:
    """One process of a load."""

    def __init__(self, arguments: Namespace) -> None:
        self.log = Log(arguments.histories, arguments.process)
        self._namesrv: str = arguments.namesrv
        self.address: str = arguments.broker
        self.is_ending = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, _number: int, _frame: object) -> None:
        self.is_ending = True

    def connect(self) -> WireClient | None:
        """Return a connection to the broker; None when the load ends before there is one."""
        while not self.is_ending:
            try:
                return WireClient(self._find())
            except GONE:
                time.sleep(AGAIN_S)
        return None

    def pause(self, pause_s: float) -> None:
        """Do nothing for a while."""
        time.sleep(pause_s)

    def _find(self) -> str:
        """Ask the name server where the broker is."""
        try:
            with WireClient(self._namesrv) as client:
                answer = client.ask(105, topic=PLAIN)
            if answer.code == 0:
                route = read_json(answer.body, TopicRoute)
                self.address = route.broker_datas[0].broker_addrs[0]
        except GONE:
            pass  # it is away: the broker is where it was
        return self.address


def client_arguments(arguments: Sequence[str]) -> Namespace:
    """Read the command line of a client."""
    parser = ArgumentParser()
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--histories", required=True, type=Path)
    parser.add_argument("--process", required=True)
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--keeps-all", action="store_true", help="give no message back")
    return parser.parse_args(arguments)
