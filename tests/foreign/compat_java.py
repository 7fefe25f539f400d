"""Runs of `java/Compat.java` with the clients 4.9.7 and 5.5.0, on OrbitMQ and on an original.

In: a system. Out: what a client's run stated on it. Rules:

1. A client's run is made once for all tests: a JVM's start and the waiting are what it costs.
2. What the client 5.5.0 does only with brokers of 5.x (pulls by 361, heart beats with a
   fingerprint) is judged by an original 5.5.0, all else by 4.9.7.
3. The client 4.9.7 runs twice: with JSON headers, its default, and with binary ones.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable

from tests.foreign.compat import ORIGINAL, OURS, Played, original_system
from tests.foreign.judged import System, judged_original
from tests.foreign.peers import java_program, require_tool
from tests.foreign.records import recorded

BINARY = "4.9.7 binary"
CLIENTS = ("4.9.7", BINARY, "5.5.0")
PLAY_LIMIT_S = 240

NEWER = ("litesubscribe", "liteassign", "litefilter", "heartbeat")
"""The scenarios in which the client 5.5.0 needs a broker of 5.x."""
CLASSIC = (
    *("sync", "async", "oneway", "batch", "compressed", "selector", "delayed", "refused"),
    *("newtopic", "concurrent", "together", "orderly", "broadcast", "where", "tags", "sql"),
    *("wrongsql", "suspend", "retry", "ways", "dead", "deadnow", "orderlydead", "pull"),
    *("blocking", "offsets", "query", "resetrunning", "resetstopped", "rebalance"),
    *("namespace", "unit", "trace", "members"),
)
"""All the others."""

_numbers = itertools.count(1)


def record_name(client: str) -> str:
    """Return the name of a client's record."""
    return f"java-{client.replace(' ', '-')}"


def play(system: System, client: str, scenarios: Iterable[str]) -> Played:
    """Run scenarios with one client; a prefix of its own keeps a run's names apart."""
    prefix = f"J{os.getpid()}x{next(_numbers)}"
    args = (system.namesrv, system.broker, prefix, *scenarios)
    version, _, kind = client.partition(" ")
    lines = java_program(version, "Compat", *args, binary=bool(kind), limit_s=PLAY_LIMIT_S)
    return Played.read(lines)


def play_ours(system: System, client: str) -> Played:
    """Run all scenarios with one client on the system under test."""
    if client == "5.5.0" and judged_original() == "4.9.7":
        return play_originals(system, client)
    return play(system, client, (*CLASSIC, *NEWER))


def play_originals(original: System, client: str) -> Played:
    """Run all scenarios with one client on an original 4.9.7, or its newer ones on a 5.5.0."""
    if client != "5.5.0":
        return play(original, client, (*CLASSIC, *NEWER))
    classic = play(original, client, CLASSIC)
    with original_system(client) as newest:
        newer = play(newest, client, NEWER)
    return Played(
        {**classic.facts, **newer.facts},
        {**classic.measures, **newer.measures},
        {**classic.errors, **newer.errors},
    )


class JavaPlays:
    """What each client's run stated, on ours now and on originals when they were asked."""

    def __init__(self, ours: System) -> None:
        self._ours = ours
        self._made: dict[str, dict[str, Played]] = {}

    def of(self, client: str) -> dict[str, Played]:
        """Return the runs of a client by system; ours is made now if it was not yet."""
        if client not in self._made:
            require_tool("javac")
            theirs = recorded(record_name(client))
            self._made[client] = {OURS: play_ours(self._ours, client), ORIGINAL: theirs}
        return self._made[client]
