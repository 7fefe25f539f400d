"""Tests that are written once, played against an original in the place of OrbitMQ.

In: folders or files of tests and a version. Out: how many of them passed there; what fails is
shown. A test that needs what an original lacks, or that looks at a difference that is kept, says so
and is skipped there.

Rule: what failed is played once more, on a fresh original. An original answers a send before the
message can be read, and 4.9.7 may die of a segmentation fault when a topic is deleted in between:
a test can be too fast for it once.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.foreign.peers import require_tool

ROOT = Path(__file__).parents[2]
LIMIT_S = 1200
TESTS_FAILED = 1
"""How pytest ends then."""


def passed_on_original(
    paths: Sequence[str], version: str, workers: int, left_out: Sequence[str] = ()
) -> dict[str, int]:
    """Run tests in a pytest of its own, and count by path; each worker starts its own original."""
    require_tool("mvn")
    words = [*paths, *(f"--deselect={name}" for name in left_out)]
    with tempfile.TemporaryDirectory(prefix="orbitmq-replay-") as cache:
        done = _play(words, version, workers, cache)
        said = done.stdout
        if done.returncode == TESTS_FAILED:
            done = _play([*words, "--last-failed"], version, workers, cache)
            said += done.stdout
    assert done.returncode == 0, done.stdout[-8_000:]
    return {path: len(re.findall(rf"^PASSED {path}\b", said, re.MULTILINE)) for path in paths}


def _play(
    words: Sequence[str], version: str, workers: int, cache: str
) -> subprocess.CompletedProcess[str]:
    spread = ("-n", str(workers), "--dist", "loadfile") if workers > 1 else ()
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rp", *spread),
            *("-o", f"cache_dir={cache}", "--timeout", "300", *words),
        ],
        cwd=ROOT,
        env={**os.environ, "ORBITMQ_JUDGE": f"original-{version}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
