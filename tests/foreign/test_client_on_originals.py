"""The Python client's own tests, played against original brokers: what it does there is the same.

The tests of tests/client are written once. Here a pytest of its own runs those that ask the system
under test with an original in the place of OrbitMQ (tests/client/conftest.py); those that need what
an original lacks say so and are skipped there.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.foreign.judged import VERSIONS
from tests.foreign.peers import require_tool

ROOT = Path(__file__).parents[2]
WORKERS = "2"
"""Each starts an original of its own."""
LIMIT_S = 1200

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.timeout(LIMIT_S + 60),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_passes_its_tests_on_an_original(version: str) -> None:
    require_tool("mvn")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", WORKERS, "--dist", "loadfile"),
            *("-p", "no:cacheprovider", "--timeout", "300", "tests/client"),
        ],
        cwd=ROOT,
        env={**os.environ, "ORBITMQ_JUDGE": f"original-{version}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed.group(1)) > 250
