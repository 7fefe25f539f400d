"""T16: a pipeline whose driver, workers and broker are killed again and again, and what it left.

In: a folder, a seed, how many kills of each kind. Out: a Report; violations are sentences.

Rules:
1. A kill comes while a batch is under way: its offsets are in the checkpoint, its commit is not.
2. The driver's JVM and its Python end by SIGKILL; its Python workers are left to notice. A worker
   is one of the processes that run tasks. The broker comes back with its files, at its ports.
3. After each death of a driver the checkpoint is compared with the sink: what a committed batch has
   read is there. At the end every message of the source is in the sink exactly once.
4. Every process is ended by its own id.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orbitmq import Admin, Message, Producer
from orbitmq.errors import MQError
from tests.foreign.peers import free_port_with_neighbours
from tests.spark.pipeline_driver import BATCH_ROWS, FROM, SINK, SOURCE
from tests.spark.sinking import stored

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0
PAUSE_S = 0.02
KILL_DELAY_S = 0.25
BACKLOG = 4 * BATCH_ROWS
KINDS = ("driver", "worker", "broker")

Offsets = dict[str, dict[str, int]]


@dataclass
class Report:
    """What happened, and what was wrong."""

    kills: Counter[str] = field(default_factory=Counter)
    restarts_s: list[float] = field(default_factory=list)
    message_count: int = 0
    violations: list[str] = field(default_factory=list)

    def line(self, seed: int) -> str:
        """One line for people."""
        kills = ", ".join(f"{self.kills[kind]} {kind}" for kind in KINDS)
        slowest_s = max(self.restarts_s, default=0.0)
        return (
            f"T16 seed {seed}: kills of {kills}; {self.message_count} messages,"
            f" {len(self.violations)} violations, slowest restart {slowest_s:.1f} s"
        )


def wait_for(what: str, claim: Callable[[], object]) -> None:
    """Look again and again until a claim holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not claim():
        assert time.monotonic() < end_s, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(PAUSE_S)


class Pipeline:
    """A broker and a driver that runs a query over it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.report = Report()
        self._folder = folder
        self._checkpoint = folder / "checkpoint"
        self._chance = random.Random(seed)
        self._ports = free_port_with_neighbours(), free_port_with_neighbours()
        self.namesrv = f"127.0.0.1:{self._ports[0]}"
        self._broker: subprocess.Popen[bytes] | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self._sent = 0

    # --- processes ---

    def start_broker(self) -> None:
        """Start the broker, or start it again."""
        namesrv_port, broker_port = map(str, self._ports)
        command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(self._folder / "data")]
        command += ["--namesrv-port", namesrv_port, "--broker-port", broker_port]
        self._broker = self._started([*command, "--dashboard-port", "0"], "broker")
        self._wait_ready(self._broker, "broker")

    def start_driver(self) -> None:
        """Start the driver, or start it again after it died."""
        began_s = time.monotonic()
        before = self._newest("commits")
        self._run_driver()
        wait_for("a batch after a restart", lambda: self._has_gone_on(before))
        self.report.restarts_s.append(time.monotonic() - began_s)

    def _has_gone_on(self, before: int) -> bool:
        self._revive_driver()
        return self._newest("commits") > before

    def _run_driver(self) -> None:
        command = [sys.executable, "-m", "tests.spark.pipeline_driver"]
        self._driver = self._started([*command, self.namesrv, str(self._folder)], "driver")
        self._wait_ready(self._driver, "driver")

    def _revive_driver(self) -> None:
        """Start a driver again whose query has failed, as whoever runs it in earnest does."""
        if self._driver is not None and self._driver.poll() is not None:
            self._end_driver()
            self._run_driver()

    def _started(self, command: list[str], name: str) -> "subprocess.Popen[bytes]":
        with (self._folder / f"{name}.log").open("ab") as said:
            return subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
            )

    def _wait_ready(self, process: "subprocess.Popen[bytes]", name: str) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        tail = (self._folder / f"{name}.log").read_text(errors="replace")[-3000:]
        assert line.startswith(b"ready"), f"{name} said {line!r}: {tail}"

    def close(self) -> None:
        """End what still runs."""
        self._end_driver()
        if self._broker is not None:
            self._broker.terminate()
            self._broker.wait(60)
            assert self._broker.stdout is not None
            self._broker.stdout.close()

    def _end_driver(self) -> None:
        driver = self._driver
        if driver is None:
            return
        for pid in _children(driver.pid):
            if _name(pid) == "java":
                _kill(pid)
        driver.kill()
        driver.wait()
        assert driver.stdout is not None
        driver.stdout.close()
        self._driver = None

    # --- kills ---

    def kill(self, kind: str) -> None:
        """Kill something while a batch is under way (rules 1 and 2)."""
        wait_for("a batch under way", self._is_under_way)
        time.sleep(self._chance.random() * KILL_DELAY_S)
        if kind == "driver":
            self._end_driver()
            self.check_checkpoint()
            self.start_driver()
        elif kind == "broker":
            assert self._broker is not None
            self._broker.kill()
            self._broker.wait()
            assert self._broker.stdout is not None
            self._broker.stdout.close()
            self.start_broker()
        else:
            wait_for("a worker", self._kill_worker)
        self.report.kills[kind] += 1

    def _kill_worker(self) -> bool:
        """Kill a Python process that runs tasks; False when there is none now."""
        self._revive_driver()
        assert self._driver is not None
        daemons = [
            pid
            for java in _children(self._driver.pid)
            for pid in _children(java)
            if "pyspark.daemon" in _command(pid)
        ]
        workers = [pid for daemon in daemons for pid in _children(daemon)]
        return bool(workers) and _kill(self._chance.choice(workers))

    def _is_under_way(self) -> bool:
        self._revive_driver()
        return self._newest("offsets") > self._newest("commits")

    # --- messages ---

    def create_topics(self) -> None:
        """Make source and sink."""
        with Admin(self.namesrv) as admin:
            for topic in (SOURCE, SINK):
                admin.create_topic(topic, queue_count=4)

    def feed(self) -> None:
        """Have a backlog in the source; what is sent in doubt may be there twice."""
        while self._sent - self._newest("commits") * BATCH_ROWS < BACKLOG:
            first, self._sent = self._sent, self._sent + BATCH_ROWS
            messages = [
                Message(SOURCE, f"message {number}".encode(), tag="t")
                for number in range(first, self._sent)
            ]
            with Producer(self.namesrv, group="t16") as producer:
                wait_for("the source takes messages", partial(_has_sent, producer, messages))

    def wait_drained(self) -> None:
        """Return when the sink has as much as the source."""

        def has_all() -> bool:
            self._revive_driver()
            return self._count(SINK) >= self._count(SOURCE)

        wait_for("everything is in the sink", has_all)

    def _count(self, topic: str) -> int:
        with suppress(MQError), Admin(self.namesrv) as admin:
            return admin.topic_stats(topic).message_count
        return -1

    # --- judging ---

    def _newest(self, kind: str) -> int:
        numbers = [
            int(path.name)
            for path in (self._checkpoint / kind).glob("[0-9]*")
            if path.name.isdigit()
        ]
        return max(numbers, default=-1)

    def check_checkpoint(self) -> None:
        """Everything that a committed batch has read is in the sink (rule 3)."""
        newest = self._newest("commits")
        if newest < 0:
            return
        text = (self._checkpoint / "offsets" / str(newest)).read_text()
        ends: Offsets = json.loads(text.splitlines()[2])[SOURCE]
        there = self._places()
        missing = [
            place
            for broker, queues in ends.items()
            for queue_id, end in queues.items()
            for place in (f"{broker}:{queue_id}:{offset}" for offset in range(end))
            if place not in there
        ]
        if missing:
            self.report.violations.append(
                f"batch {newest} is committed, but {len(missing)} of its messages or of those"
                f" before are not in the sink, first {missing[0]}"
            )

    def _places(self) -> Counter[str]:
        """Where the messages of the sink came from."""
        return Counter(message.properties[FROM] for message in stored(self.namesrv, SINK))

    def check_sink(self) -> None:
        """Every message of the source is in the sink once (rule 3)."""
        source = {
            f"{message.queue.broker_name}:{message.queue.queue_id}:{message.queue_offset}"
            for message in stored(self.namesrv, SOURCE)
        }
        there = self._places()
        self.report.message_count = len(source)
        lost = sorted(source - set(there))
        doubled = {place: count for place, count in there.items() if count > 1}
        if lost:
            self.report.violations.append(f"{len(lost)} messages are lost: {lost[:5]}")
        if doubled:
            shown = list(doubled.items())[:5]
            self.report.violations.append(f"{len(doubled)} messages are doubled: {shown}")
        if set(there) - source:
            self.report.violations.append("the sink holds what the source never had")


def judge(folder: Path, seed: int, kills: int) -> Report:
    """Run the programme with so many kills of each kind."""
    folder.mkdir()
    pipeline = Pipeline(folder, seed)
    try:
        pipeline.start_broker()
        pipeline.create_topics()
        pipeline.feed()
        pipeline.start_driver()
        for _ in range(kills):
            for kind in KINDS:
                pipeline.feed()
                pipeline.kill(kind)
        pipeline.wait_drained()
        pipeline.check_checkpoint()
        pipeline.check_sink()
    finally:
        pipeline.close()
    return pipeline.report


def _has_sent(producer: Producer, messages: list[Message]) -> bool:
    try:
        producer.send_batch(messages)
    except MQError:
        return False
    return True


# --- processes, as the system shows them ---


def _children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                words = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(words[1]) == parent and words[0] != "Z":
                    found.append(int(folder.name))
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    return ""


def _name(pid: int) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "comm").read_text().strip()
    return ""


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
