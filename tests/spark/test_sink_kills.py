"""Tasks of the sink and its broker, killed at any moment: each row is stored exactly once.

T16 without Spark, so that kills are cheap: `ORBITMQ_SINK_KILLS=500` makes it long. A failure names
the seed; `ORBITMQ_SINK_SEED=seed` repeats it.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from orbitmq import Admin
from tests.foreign.peers import free_port_with_neighbours
from tests.spark.sink_task import texts
from tests.spark.sinking import stored

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("ORBITMQ_SINK_KILLS", "8"))
SEED = int(os.environ.get("ORBITMQ_SINK_SEED", "0")) or int(time.time())
BATCHES = 2
TOPIC = "killed"
TASK_LIMIT_S = 120.0
BROKER_SHARE = 0.4


class Victims:
    """A broker and, one after the other, attempts of tasks."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._ports = free_port_with_neighbours(), free_port_with_neighbours()
        self.namesrv = f"127.0.0.1:{self._ports[0]}"
        self.kills: Counter[str] = Counter()
        self._broker = self._start_broker()

    def _start_broker(self) -> "subprocess.Popen[bytes]":
        namesrv_port, broker_port = map(str, self._ports)
        command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(self._folder / "data")]
        command += ["--namesrv-port", namesrv_port, "--broker-port", broker_port]
        return self._started([*command, "--dashboard-port", "0"])

    def _started(self, command: list[str]) -> "subprocess.Popen[bytes]":
        """Start a process, and wait for its first line."""
        with (self._folder / "said.log").open("ab") as said:
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        process.stdout.close()
        assert line.startswith(b"ready"), (self._folder / "said.log").read_text()[-3_000:]
        return process

    def run_attempt(self, batch: int, attempt: int, kill_count: int) -> bool:
        """Run an attempt, and kill it or the broker so many times at most; whether it ended."""
        arguments = [self.namesrv, TOPIC, str(batch), str(attempt)]
        task = self._started([sys.executable, "-m", "tests.spark.sink_task", *arguments])
        try:
            for _ in range(kill_count):
                if self._has_ended(task, self._chance.random()):
                    break
                if self._chance.random() < BROKER_SHARE:
                    self._kill_broker()
                else:
                    self.kills["task"] += 1
                    return False
            return self._has_ended(task, TASK_LIMIT_S) and task.returncode == 0
        finally:
            task.kill()
            task.wait()

    def _has_ended(self, task: "subprocess.Popen[bytes]", limit_s: float) -> bool:
        try:
            task.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _kill_broker(self) -> None:
        self._broker.kill()
        self._broker.wait()
        self.kills["broker"] += 1
        self._broker = self._start_broker()

    def close(self) -> None:
        """Stop the broker."""
        self._broker.terminate()
        self._broker.wait(60)


@pytest.mark.timeout(300 + 30 * KILLS)
def test_killed_tasks_and_brokers_leave_every_row_once(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    victims = Victims(tmp_path, chance)
    try:
        with Admin(victims.namesrv) as admin:
            admin.create_topic(TOPIC, queue_count=3)
        batch = 0
        while batch < BATCHES or victims.kills.total() < KILLS:
            attempt = 0
            while not victims.run_attempt(batch, attempt, KILLS - victims.kills.total()):
                attempt += 1
            batch += 1
        found = Counter(message.body.decode() for message in stored(victims.namesrv, TOPIC))
    finally:
        victims.close()
    expected = Counter(text for number in range(batch) for text in texts(number))
    wrong = (found - expected) + (expected - found)
    assert not wrong, f"seed {SEED}: {len(wrong)} rows are lost or doubled: {list(wrong)[:5]}"
    print(f"T16 sink alone, seed {SEED}: kills {dict(victims.kills)}, {len(expected)} rows")
