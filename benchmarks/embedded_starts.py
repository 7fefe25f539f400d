"""The broker for tests: how long its first start takes in a process, and every further one.

In: how many processes. Out: milliseconds by the clock, the middle of all. Rules:

1. Each first start is in a process of its own: imports, the loop's library and the first thread are
   new there. `with_imports_ms` begins at the import in a test's module.
2. Modules are compiled before, as they are on a machine that has run one test.
3. It is the clock's time, not CPU: who tests waits for the disk and for threads as well. A busy
   machine makes it longer.
"""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.servers import ROOT, TAIL_CHARS, ServerFailed

AGAIN_COUNT = 20
LIMIT_S = 120
PROGRAM = """
import json, sys, time
begun_s = time.perf_counter()
from orbitmq.testing import EmbeddedBroker
imports_ms, starts_ms = (time.perf_counter() - begun_s) * 1e3, []
for _ in range(int(sys.argv[1])):
    broker, begun_s = EmbeddedBroker(), time.perf_counter()
    broker.start()
    starts_ms.append((time.perf_counter() - begun_s) * 1e3)
    broker.stop()
print(json.dumps({"imports_ms": imports_ms, "starts_ms": starts_ms}))
"""


@dataclass(frozen=True, slots=True)
class EmbeddedStarts:
    """Times until a test can use its broker, each the middle of all that were measured."""

    with_imports_ms: float
    first_ms: float
    again_ms: float


def measure(folder: Path, count: int, again_count: int = AGAIN_COUNT) -> EmbeddedStarts:
    """Start test brokers in so many processes; raises ServerFailed when one does not start."""
    _starts(folder, 1)  # which compiles (rule 2)
    found = [_starts(folder, 1 + again_count) for _ in range(count)]
    return EmbeddedStarts(
        with_imports_ms=statistics.median(one["imports_ms"] + one["starts_ms"][0] for one in found),
        first_ms=statistics.median(one["starts_ms"][0] for one in found),
        again_ms=statistics.median(ms for one in found for ms in one["starts_ms"][1:]),
    )


def starts_line(starts: EmbeddedStarts) -> str:
    """Say it in one line."""
    return (
        f"broker for tests: up in {starts.again_ms:.0f} ms, the first of a process in "
        f"{starts.first_ms:.0f} ms, in {starts.with_imports_ms:.0f} ms with its imports"
    )


def _starts(folder: Path, count: int) -> dict[str, Any]:
    """Return what one process measured in so many starts."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(count)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ServerFailed(f"the broker for tests does not start: {done.stderr[-TAIL_CHARS:]}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured
