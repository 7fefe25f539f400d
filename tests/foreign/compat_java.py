"""Runs of `java/Compat.java` with the clients 4.9.7 and 5.5.0, on OrbitMQ and on an original.

In: the two systems. Out: what a client's run stated on each. Rules:

1. A client's runs on both systems are made at once, and once for all tests: a JVM's start and the
   waiting are what they cost.
2. What the client 5.5.0 does only with brokers of 5.x (pulls by 361, heart beats with a
   fingerprint) is judged by an original 5.5.0, all else by 4.9.7.
3. The client 4.9.7 runs twice: with JSON headers, its default, and with binary ones.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from tests.foreign.compat import OURS, Played, original_system
from tests.foreign.judged import System, judged_original
from tests.foreign.peers import java_program, require_tool

ORIGINAL = "original"
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


def play(system: System, client: str, scenarios: Iterable[str]) -> Played:
    """Run scenarios with one client; a prefix of its own keeps a run's names apart."""
    prefix = f"J{os.getpid()}x{next(_numbers)}"
    args = (system.namesrv, system.broker, prefix, *scenarios)
    version, _, kind = client.partition(" ")
    lines = java_program(version, "Compat", *args, binary=bool(kind), limit_s=PLAY_LIMIT_S)
    return Played.read(lines)


def play_original(system: System, client: str, scenarios: Iterable[str]) -> Played:
    """Run scenarios on an original; what fails there is played once more.

    It is the judge, not the judged: on a busy machine it is sometimes too late for a scenario.
    """
    played = play(system, client, scenarios)
    return (
        played.replaced_by(play(system, client, list(played.errors))) if played.errors else played
    )


class JavaPlays:
    """What each client's run stated, on ours and on the original."""

    def __init__(self, ours: System, original: System) -> None:
        self._ours = ours
        self._original = original
        self._made: dict[str, dict[str, Played]] = {}

    def of(self, client: str) -> dict[str, Played]:
        """Return the runs of a client by system; they are made now if they were not yet."""
        if client not in self._made:
            self._made[client] = self._make(client)
        return self._made[client]

    def _make(self, client: str) -> dict[str, Played]:
        require_tool("javac")
        with ThreadPoolExecutor(2) as pool:
            theirs = pool.submit(self._on_originals, client)
            ours = pool.submit(self._on_ours, client)
            return {OURS: ours.result(), ORIGINAL: theirs.result()}

    def _on_ours(self, client: str) -> Played:
        if client == "5.5.0" and judged_original() == "4.9.7":
            return self._on_originals(client)
        return play(self._ours, client, (*CLASSIC, *NEWER))

    def _on_originals(self, client: str) -> Played:
        if client != "5.5.0":
            return play_original(self._original, client, (*CLASSIC, *NEWER))
        classic = play_original(self._original, client, CLASSIC)
        with original_system(client) as newest:
            newer = play_original(newest, client, NEWER)
        return Played(
            {**classic.facts, **newer.facts},
            {**classic.measures, **newer.measures},
            {**classic.errors, **newer.errors},
        )
