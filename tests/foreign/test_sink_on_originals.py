"""The Spark sink's tests of the system, played against original brokers.

They are written once, in tests/spark/test_sink_system.py; here a pytest of its own runs them with
an original in the place of OrbitMQ.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.foreign.peers import require_tool

ROOT = Path(__file__).parents[2]
VERSIONS = ("4.9.7", "5.5.0")
LIMIT_S = 900

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.timeout(LIMIT_S + 60),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_sink_passes_its_tests_on_an_original(version: str) -> None:
    require_tool("mvn")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--timeout", "300", "tests/spark/test_sink_system.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "ORBITMQ_JUDGE": f"original-{version}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    assert "13 passed" in done.stdout
