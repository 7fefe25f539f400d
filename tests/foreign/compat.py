"""The brokers that the compatibility programs are played on, and what a run of one stated.

In: a program's lines on standard output. Out: its facts (outcomes that are the same wherever
brokers behave the same), its measures (numbers of this run), and how each scenario ended.

Rules:
1. Ours and the original get the same settings: short delay levels, so that retries take seconds.
2. A fact is compared as a whole. A difference that we keep has its own row, with its reason, in a
   table of the test file; a row that no run needs any more is an error, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.foreign.judged import System, judged_original, up_command
from tests.foreign.peers import BROKER_NAME, Line, original_broker
from tests.foreign.running import running

OURS = "ours"
ORIGINAL = "original"
DELAY_S = (1, 2, 1, 2, *[3] * 14)
"""Seconds of the delay levels 1 to 18; retries begin with level 3."""

SETTINGS: Mapping[str, str] = {
    "brokerName": BROKER_NAME,
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in DELAY_S),
    "enablePropertyFilter": "true",
    # Two JVMs and two brokers share the machine: a send may wait.
    "waitTimeMillsInSendQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
}

Key = tuple[str, str]
"""A scenario and the name of its fact."""


@contextmanager
def our_system(data_dir: Path) -> Iterator[System]:
    """OrbitMQ, or the original that ORBITMQ_JUDGE names in its place."""
    version = judged_original()
    if version is not None:
        with original_system(version) as system:
            yield system
        return
    options = [word for key, value in SETTINGS.items() for word in ("-D", f"{key}={value}")]
    with running(up_command(data_dir, *options)) as ready:
        yield System(ready["namesrv"], ready["broker"])


@contextmanager
def original_system(version: str) -> Iterator[System]:
    """An original that the programs are compared on."""
    with original_broker(version, **SETTINGS) as original:
        yield System(original.namesrv, original.broker)


@dataclass(frozen=True)
class Played:
    """What one run of a program stated."""

    facts: dict[Key, Any] = field(default_factory=dict)
    measures: dict[Key, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, lines: Sequence[Line]) -> Played:
        """Sort the lines of a run."""
        played = cls()
        for line in lines:
            scenario = line["scenario"]
            if line["event"] == "fact":
                played.facts[scenario, line["name"]] = line["value"]
            elif line["event"] == "measure":
                played.measures[scenario, line["name"]] = line["value"]
            elif line["event"] == "error":
                played.errors[scenario] = line["error"]
        return played

    def of(self, scenario: str) -> dict[str, Any]:
        """Return the facts of one scenario, which must have ended well."""
        assert scenario not in self.errors, self.errors[scenario]
        return {name: value for (own, name), value in self.facts.items() if own == scenario}

    def measure(self, scenario: str, name: str) -> float:
        """Return a number of one scenario, which must have ended well."""
        assert scenario not in self.errors, self.errors[scenario]
        return self.measures[scenario, name]


def differences(ours: Played, theirs: Played) -> dict[Key, tuple[Any, Any]]:
    """Return the facts that are not the same: ours and theirs."""
    keys = ours.facts.keys() | theirs.facts.keys()
    pairs = {key: (ours.facts.get(key), theirs.facts.get(key)) for key in sorted(keys)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
