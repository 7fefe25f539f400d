"""Stalls: how long the broker's loop is kept from its next turn under full load.

In: a folder, the generator. Out: the longest stall, and how many were long. Rules:

1. The broker runs as `orbitmq up` does, with a watch on its loop (inside.py). It is not bound to a
   core: its threads then stand in the way of its loop as little as they do in earnest.
2. A stall is the loop's own less what the machine took: time in which a process that only sleeps
   stood still, too, or in which the loop's thread was ready and had no core.
3. Old log files are removed meanwhile, as in any broker that runs for long.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import servers
from benchmarks.client import Client
from benchmarks.loads import FIRST, Generator
from benchmarks.servers import Server

LONG_MS = 5.0
REMOVAL_S = 10.0
DELETE_EXPIRED = 329


@dataclass(frozen=True, slots=True)
class Stalls:
    """The stalls of one run."""

    seconds: float
    messages_per_s: float
    longest_own_ms: float
    longest_ms: float
    """The machine's part included."""
    long_count: int
    """How many of the loop's own were longer than LONG_MS."""


def measure(folder: Path, generator: Generator, seconds: float) -> Stalls:
    """Put the first load on a broker for so long and ask its loop afterwards."""
    file = folder / "stalls.json"
    folder.mkdir()
    through = ("benchmarks.inside", "stalls", str(file))
    with (
        servers.ours(folder / "watched", None, through=through) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        over = threading.Event()
        removing = threads.submit(_remove_often, server, over)
        try:
            figures = replace(generator, seconds=seconds).run(server, FIRST)
        finally:
            over.set()
        removing.result()
    return read(file, seconds, figures.messages_per_s)


def read(file: Path, seconds: float, messages_per_s: float) -> Stalls:
    """Return what the file of a watched broker says."""
    found = [(in_all, own) for in_all, own in json.loads(file.read_text(encoding="utf-8"))]
    return Stalls(
        seconds,
        messages_per_s,
        longest_own_ms=max(own for _, own in found),
        longest_ms=max(in_all for in_all, _ in found),
        long_count=sum(own > LONG_MS for _, own in found),
    )


def remove_full_logs(server: Server) -> None:
    """Have a broker remove the log files that are full."""
    with Client(server.port) as client:
        client.ask(DELETE_EXPIRED)


def _remove_often(server: Server, over: threading.Event) -> None:
    while not over.wait(REMOVAL_S):
        remove_full_logs(server)
