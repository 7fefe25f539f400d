"""T16: a pipeline whose driver, workers, executors and broker are killed, and what it left.

In: a folder, a seed, how many kills of each kind. Out: a Report; violations are sentences.

Rules:
1. A kill comes while a batch is under way: its offsets are in the checkpoint, its commit is not.
2. The driver's JVM and its Python end by SIGKILL; its Python workers are left to notice. A worker
   is one of the processes that run tasks. The broker comes back with its files, at its ports.
3. After each death of a driver the checkpoint is compared with the sink: what a committed batch has
   read is there. At the end every message of the source is in the sink exactly once.
4. An executor is a JVM of a cluster. It is killed when a part of a batch is in the sink; the kill
   counts when Spark lost a task by it. A batch write is killed when a part of it is in the sink.
5. Every process is ended by its own id.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orbitmq import Admin, Message, Producer
from orbitmq.errors import MQError
from tests.foreign.peers import free_port_with_neighbours
from tests.spark import processes
from tests.spark.pipeline_driver import BATCH_ROWS, FROM, LOCAL, SINK, SOURCE
from tests.spark.sinking import stored
from tests.spark.standalone import WORKER_COUNT, Cluster

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0
PAUSE_S = 0.02
KILL_DELAY_S = 0.25
BACKLOG = 4 * BATCH_ROWS
KINDS = ("driver", "worker", "broker")
LOST = "ExecutorLostFailure"
"""Spark's word in its log for a task that was lost with its executor."""
RESTART_LIMIT_S = 30.0
STARTS_MAX = 3
WRITE_ROWS = 25 * BATCH_ROWS

Offsets = dict[str, dict[str, int]]


@dataclass
class Report:
    """What happened, and what was wrong."""

    kills: Counter[str] = field(default_factory=Counter)
    restarts_s: list[float] = field(default_factory=list)
    """From a start, or a loss, until a batch is there; the first start is undisturbed."""
    message_count: int = 0
    violations: list[str] = field(default_factory=list)

    def line(self, seed: int) -> str:
        """One line for people."""
        kills = ", ".join(f"{count} {kind}" for kind, count in self.kills.items())
        slowest_s = max(self.restarts_s[1:], default=0.0)
        return (
            f"T16 seed {seed}: kills of {kills}; {self.message_count} messages,"
            f" {len(self.violations)} violations, slowest restart {slowest_s:.1f} s"
        )

    def restart_limit_s(self) -> float:
        """How long a restart may take: 30 s, or 3 undisturbed starts where these are slow."""
        return max(RESTART_LIMIT_S, STARTS_MAX * self.restarts_s[0])

    def late_restarts_s(self) -> list[float]:
        """Return the restarts that took longer than they may."""
        return [each for each in self.restarts_s[1:] if each > self.restart_limit_s()]


def wait_for(what: str, claim: Callable[[], object]) -> None:
    """Look again and again until a claim holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not claim():
        assert time.monotonic() < end_s, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(PAUSE_S)


class Pipeline:
    """A broker and a driver that runs a query over it, here or on a cluster."""

    def __init__(self, folder: Path, seed: int, cluster: Cluster | None = None) -> None:
        self.report = Report()
        self._folder = folder
        self._cluster = cluster
        self._application = ""
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

    def _run_driver(self, *write: str) -> None:
        command = [sys.executable, "-m", "tests.spark.pipeline_driver", self.namesrv]
        master = self._cluster.address if self._cluster else LOCAL
        self._driver = self._started([*command, str(self._folder), master, *write], "driver")
        self._application = self._wait_ready(self._driver, "driver")

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

    def _wait_ready(self, process: "subprocess.Popen[bytes]", name: str) -> str:
        """Wait for the word, and return what comes after it."""
        assert process.stdout is not None
        line = process.stdout.readline()
        tail = (self._folder / f"{name}.log").read_text(errors="replace")[-3000:]
        assert line.startswith(b"ready"), f"{name} said {line!r}: {tail}"
        return line.decode().removeprefix("ready").strip()

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
        for pid in processes.children(driver.pid):
            if processes.name(pid) == "java":
                processes.kill(pid)
        driver.kill()
        driver.wait()
        assert driver.stdout is not None
        driver.stdout.close()
        self._driver = None

    # --- kills ---

    def kill(self, kind: str) -> None:
        """Kill something while a batch is under way (rules 1, 2 and 4)."""
        if kind == "executor":
            self._kill_executors_until_one_counts()
            return
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
            for java in processes.children(self._driver.pid)
            for pid in processes.children(java)
            if "pyspark.daemon" in processes.command(pid)
        ]
        workers = [pid for daemon in daemons for pid in processes.children(daemon)]
        return bool(workers) and processes.kill(self._chance.choice(workers))

    def _kill_executors_until_one_counts(self) -> None:
        lost = self._lost_tasks()
        while self._lost_tasks() == lost:
            wait_for("every executor is there", self._has_all_executors)
            wait_for("a part of a batch is in the sink", self._is_begun)
            before, began_s = self._newest("commits"), time.monotonic()
            wait_for("an executor with tasks", self._kill_executor)
            wait_for("a batch after a kill", partial(self._has_gone_on, before))
            self.report.restarts_s.append(time.monotonic() - began_s)
        self.report.kills["executor"] += 1

    def _executors(self) -> list[int]:
        assert self._cluster is not None
        every = self._cluster.executors()
        return [pid for pid in every if self._application in processes.command(pid)]

    def _has_all_executors(self) -> bool:
        self._revive_driver()
        return len(self._executors()) == WORKER_COUNT

    def _kill_executor(self) -> bool:
        """Kill an executor that has run Python; False when there is none now."""
        self._revive_driver()
        busy = [pid for pid in self._executors() if processes.children(pid)]
        return bool(busy) and processes.kill(self._chance.choice(busy))

    def _lost_tasks(self) -> int:
        return (self._folder / "driver.log").read_text(errors="replace").count(LOST)

    def _is_begun(self) -> bool:
        """Whether some of a batch is in the sink, but not more than half: tasks are at work."""
        self._revive_driver()
        self.feed()
        done = self._read_rows(self._newest("commits"))
        half = (done + self._read_rows(self._newest("offsets"))) // 2
        return done < self._count(SINK) <= half

    def _is_under_way(self) -> bool:
        self._revive_driver()
        return self._newest("offsets") > self._newest("commits")

    # --- batch writes ---

    def kill_write(self, write: str) -> None:
        """Kill a batch write when a part of it is in the sink, run it again, and judge it."""
        self._create(write)
        self._run_driver(write)
        wait_for("a part of a write is in the sink", lambda: self._count(write) > 0)
        self._end_driver()
        if self._count(write) < self._sent:
            self.report.kills["write"] += 1
        self.run_write(write)

    def run_write(self, write: str) -> None:
        """Run a batch write to its end, and judge it."""
        began_s = time.monotonic()
        self._run_driver(write)
        assert self._driver is not None
        assert self._driver.wait(PATIENCE_S) == 0, f"{write} failed"
        self.report.restarts_s.append(time.monotonic() - began_s)
        self._end_driver()
        self.check_sink(write)

    # --- messages ---

    def create_topics(self) -> None:
        """Make source and sink."""
        for topic in (SOURCE, SINK):
            self._create(topic)

    def _create(self, topic: str) -> None:
        with Admin(self.namesrv) as admin:
            admin.create_topic(topic, queue_count=4)

    def feed(self, rows: int = BACKLOG) -> None:
        """Have a backlog in the source; what is sent in doubt may be there twice."""
        while self._sent - self._newest("commits") * BATCH_ROWS < rows:
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
        ends = self._ends(newest)
        there = self._places(SINK)
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

    def _ends(self, batch: int) -> Offsets:
        """Return the offsets at which a batch ends."""
        text = (self._checkpoint / "offsets" / str(batch)).read_text()
        ends: Offsets = json.loads(text.splitlines()[2])[SOURCE]
        return ends

    def _read_rows(self, batch: int) -> int:
        """Return how many messages a batch and those before it read."""
        if batch < 0:
            return 0
        return sum(end for queues in self._ends(batch).values() for end in queues.values())

    def _places(self, sink: str) -> Counter[str]:
        """Where the messages of the sink came from."""
        return Counter(message.properties[FROM] for message in stored(self.namesrv, sink))

    def check_sink(self, sink: str = SINK) -> None:
        """Every message of the source is in the sink once (rule 3)."""
        source = {
            f"{message.queue.broker_name}:{message.queue.queue_id}:{message.queue_offset}"
            for message in stored(self.namesrv, SOURCE)
        }
        there = self._places(sink)
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


def judge(folder: Path, seed: int, kills: int, cluster: Cluster | None = None) -> Report:
    """Run the programme with so many kills of each kind; on a cluster, of executors."""
    with _running(folder, seed, cluster) as pipeline:
        pipeline.feed()
        pipeline.start_driver()
        for _ in range(kills):
            for kind in ("executor",) if cluster else KINDS:
                pipeline.feed()
                pipeline.kill(kind)
        pipeline.wait_drained()
        pipeline.check_checkpoint()
        pipeline.check_sink()
    return pipeline.report


def judge_writes(folder: Path, seed: int, kills: int) -> Report:
    """Run batch writes until so many were cut short; each is run again and judged."""
    with _running(folder, seed) as pipeline:
        pipeline.feed(WRITE_ROWS)
        pipeline.run_write("t16-write")
        while pipeline.report.kills["write"] < kills:
            pipeline.kill_write(f"t16-write-{len(pipeline.report.restarts_s)}")
    return pipeline.report


@contextmanager
def _running(folder: Path, seed: int, cluster: Cluster | None = None) -> Iterator[Pipeline]:
    """A broker with both topics; what runs is ended."""
    folder.mkdir()
    pipeline = Pipeline(folder, seed, cluster)
    try:
        pipeline.start_broker()
        pipeline.create_topics()
        yield pipeline
    finally:
        pipeline.close()


def _has_sent(producer: Producer, messages: list[Message]) -> bool:
    try:
        producer.send_batch(messages)
    except MQError:
        return False
    return True
