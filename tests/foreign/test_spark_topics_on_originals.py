"""Topics of original brokers in Spark: the tests that any broker must pass, played on them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.foreign.peers import require_tool

ROOT = Path(__file__).parents[2]
LIMIT_S = 600

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.timeout(LIMIT_S + 60),
]


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_topics_of_an_original_are_read_as_those_of_ours(version: str) -> None:
    require_tool("mvn")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "300"),
            "tests/spark/test_topic_judged.py",
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
    assert int(passed.group(1)) >= 16
