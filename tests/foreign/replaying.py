"""Tests that are written once, played against an original in the place of OrbitMQ.

In: a folder of tests and a version. Out: how many of them passed there; what fails is shown. A test
that needs what an original lacks, or that looks at a difference that is kept, says so and is
skipped there.

Rule: what failed is played once more, on a fresh original. An original answers a send before the
message can be read, and 4.9.7 may die of a segmentation fault when a topic is deleted in between:
a test can be too fast for it once.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.foreign.peers import require_tool

ROOT = Path(__file__).parents[2]
LIMIT_S = 1200
TESTS_FAILED = 1
"""How pytest ends then."""


def passed_on_original(folder: str, version: str, workers: int) -> int:
    """Run a folder's tests in a pytest of its own; each worker starts an original of its own."""
    require_tool("mvn")
    with tempfile.TemporaryDirectory(prefix="orbitmq-replay-") as cache:
        done = _play(folder, version, workers, cache)
        passed = _passed(done)
        if done.returncode == TESTS_FAILED:
            done = _play(folder, version, workers, cache, "--last-failed")
            passed += _passed(done)
    assert done.returncode == 0, done.stdout[-8_000:]
    return passed


def _play(
    folder: str, version: str, workers: int, cache: str, *options: str
) -> subprocess.CompletedProcess[str]:
    spread = ("-n", str(workers), "--dist", "loadfile") if workers > 1 else ()
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", *spread, *options),
            *("-o", f"cache_dir={cache}", "--timeout", "300", folder),
        ],
        cwd=ROOT,
        env={**os.environ, "ORBITMQ_JUDGE": f"original-{version}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def _passed(done: subprocess.CompletedProcess[str]) -> int:
    found = re.search(r"(\d+) passed", done.stdout)
    return int(found.group(1)) if found is not None else 0
