"""The system under test: OrbitMQ as a process of its own, or an original in its place.

In: the environment variable ORBITMQ_JUDGE, or a version. Unset, the tests judge OrbitMQ;
`original-4.9.7` or `original-5.5.0` starts that original instead, which proves that the judge
itself is right: a test that an original fails is a wrong test. Out: addresses, for the length of a
block.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.foreign.peers import original_broker, original_namesrv
from tests.foreign.running import running

VERSIONS = ("4.9.7", "5.5.0")
"""The originals that stand in for OrbitMQ."""
PATIENT = ("-D", "waitTimeMillsInSendQueue=20000")
"""A machine that stands still for 200 ms makes a broker refuse sends; originals have this, too."""


@dataclass(frozen=True, slots=True)
class System:
    """Where a name server and its broker listen."""

    namesrv: str
    broker: str
    version: str | None = None
    """The original's; None is OrbitMQ."""


def judged_original() -> str | None:
    """The version of the original that stands in for OrbitMQ; None when OrbitMQ is judged."""
    judge = os.environ.get("ORBITMQ_JUDGE", "")
    if not judge:
        return None
    kind, _, version = judge.partition("-")
    if kind != "original" or not version:
        raise ValueError(f"ORBITMQ_JUDGE={judge}: unset it, or set it to original-VERSION")
    return version


@contextmanager
def system_under_test(data_dir: Path, *options: str) -> Iterator[System]:
    """A name server and a broker; stopped by SIGTERM, which must end with exit code 0.

    `options` are for OrbitMQ only.
    """
    with system_of(judged_original(), data_dir, *options) as system:
        yield system


@contextmanager
def system_of(version: str | None, data_dir: Path, *options: str) -> Iterator[System]:
    """The same of an original's version; None is OrbitMQ."""
    if version is not None:
        with original_broker(version) as original:
            yield System(original.namesrv, original.broker, version)
        return
    with running(up_command(data_dir, *PATIENT, *options)) as ready:
        yield System(ready["namesrv"], ready["broker"])


@contextmanager
def system_with(data_dir: Path, settings: Mapping[str, str]) -> Iterator[System]:
    """The system under test with other settings of the broker, ours or the original's."""
    version = judged_original()
    if version is not None:
        with original_broker(version, **settings) as original:
            yield System(original.namesrv, original.broker, version)
        return
    options = [word for pair in settings.items() for word in ("-D", "=".join(pair))]
    with system_of(None, data_dir, *options) as system:
        yield system


def up_command(data_dir: Path, *options: str) -> list[str]:
    """The command that starts OrbitMQ's name server and broker on free ports."""
    command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(data_dir)]
    command += ["--host", "127.0.0.1", "--namesrv-port", "0"]
    return [*command, "--broker-port", "0", "--dashboard-port", "0", *options]


@contextmanager
def namesrv_under_test(data_dir: Path) -> Iterator[str]:
    """A name server alone; its address."""
    version = judged_original()
    if version is not None:
        with original_namesrv(version) as original:
            yield original.namesrv
        return
    command = [sys.executable, "-m", "orbitmq", "namesrv", "--data-dir", str(data_dir)]
    with running([*command, "--host", "127.0.0.1", "--port", "0"]) as ready:
        yield ready["namesrv"]
