"""The examples of the documentation, run as a reader would run them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.foreign.judged import System
from tests.foreign.peers import require_tool

ROOT = Path(__file__).parents[2]
RECEIVED = [f"received Hello OrbitMQ {number}" for number in (1, 2, 3)]

pytestmark = pytest.mark.foreign


def run_example(command: list[str], folder: Path) -> list[str]:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_java_example_sends_and_receives(system: System, tmp_path: Path) -> None:
    maven = require_tool("mvn")
    project = shutil.copytree(ROOT / "examples" / "java", tmp_path / "java")
    command = [maven, "-q", "-B", "compile", "exec:java", f"-Dexec.args={system.namesrv}"]
    lines = run_example(command, project)
    assert sum(line.endswith("sent SEND_OK") for line in lines) == 3  # Maven colours the first
    assert sorted(line for line in lines if line.startswith("received")) == RECEIVED


def test_the_go_example_sends_and_receives(system: System) -> None:
    go = require_tool("go")
    lines = run_example([go, "run", ".", system.namesrv], ROOT / "examples" / "go")
    assert lines.count("sent") == 3
    assert sorted(line for line in lines if line.startswith("received")) == RECEIVED
