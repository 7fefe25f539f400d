"""T6: a broker under load is killed again and again; then every promise is checked.

In: a folder, a seed, how many kills, how the broker flushes, and its build. Out: violations, and a
line that says what was done. The same seed draws the same faults.

Rules:
1. A kill comes 0.1 to 3 s after the broker is ready, or while it recovers, or while it rolls to a
   new log file. Name server and clients are killed in turn as well.
2. After the last kill the load goes on for a moment, ends, and everything that waits is delivered.
   Then each queue is read from its first message to its last, and the store's files are checked.
3. With `cuts_power` a kill also takes what the broker had not synced (synchronous flush only).
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orbitmq.wire.fastjson import read_json
from orbitmq.wire.record import scan_records
from tests.behaviour.consumers import join
from tests.behaviour.requests import pull_request
from tests.foreign.stores import DataFolder, check_store
from tests.reliability import audit
from tests.reliability.audit import SCHEDULE_TOPIC, History, Queue
from tests.reliability.builds import ROLL_POINTS, cut_power
from tests.reliability.kill_cluster import Cluster, Started
from tests.reliability.load_client import (
    DELAYED,
    GROUP,
    QUEUE_COUNT,
    RETRY_TOPIC,
    TOPICS,
    Log,
    hash_of,
    id_of,
)
from tests.reliability.load_consumer import QUEUES
from tests.reliability.load_producer import LEVELS
from tests.wire_client import WireClient

FORMAT = {
    "mappedFileSizeCommitLog": "524288",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "messageDelayLevel": "1s 2s 3s",
}
"""What the files depend on, so that whoever checks them must know it."""
SETTINGS = {
    **FORMAT,
    "flushConsumerOffsetInterval": "200",
    "flushDelayOffsetInterval": "300",
    "maxTransferCountOnMessageInMemory": "1000",
    "maxTransferCountOnMessageInDisk": "1000",
    "maxTransferBytesOnMessageInDisk": "1000000",
}
COMMITS_LOST_S = 4.0
"""Offsets are looked at every 0.2 s and saved every 0.5 s; the rest is for a busy machine."""
LAG_LIMIT_S = 30.0
"""A consumer that is slower than the producers is behind by seconds."""
ROLL_LIMIT_S = 20.0
LAST_LOAD_S = 0.5
LOOK_S = 0.1
FAULTS = ("broker", "broker", "rolling", "recovering", "namesrv", "producer", "consumer")
"""What is killed in a round, or when; the broker is killed in each, twice if it is in a phase."""
SCHEDULED: list[Queue] = [(SCHEDULE_TOPIC, level) for level in range(LEVELS)]
READER = "T6_Reader"
LOAD = ("producer", "producer", "consumer")


@dataclass(frozen=True)
class Plan:
    """What one run does."""

    seed: int
    kills: int
    is_sync_flush: bool = False
    builds: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    cuts_power: bool = False
    clients: tuple[str, ...] = (*LOAD, "hostile")
    delay_s_max: float = 3.0
    drain_limit_s: float = 30.0
    """How long everything may take to be delivered and consumed; then the audit says the rest."""


@dataclass
class Report:
    """What one run found."""

    plan: Plan
    violations: list[str]
    history: History
    seconds: float
    blotted_bytes: int = 0

    @property
    def faults(self) -> Counter[str]:
        """What was done, how often."""
        return Counter(event.topic for event in self.history.of("fault"))

    def line(self) -> str:
        """Return the figures of the run, and how to repeat it."""
        history = self.history
        kinds = [event.kind for event in history.events if event.op == "send"]
        times = sorted(audit.recoveries(history))
        lags = sorted(lag_s for lag_s, _ in audit.visible_lags(history))
        told = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        flush = "SYNC_FLUSH" if self.plan.is_sync_flush else "ASYNC_FLUSH"
        return (
            f"T6 {flush} seed={self.plan.seed}: {len(history.kills)} kills of the broker"
            f" ({told}), {kinds.count('ok')} sends acknowledged, {kinds.count('unknown')}"
            f" unknown, {kinds.count('fail')} refused, {len(history.reads)} read back, violations:"
            f" {len(self.violations)}; kill to ready {_at(times, 0.5)} s, most {_at(times, 1)} s;"
            f" acknowledged to consumed {_at(lags, 0.5)} s, 99 %: {_at(lags, 0.99)} s;"
            f" {self.seconds:.0f} s"
        )


def _at(values: list[float], share: float) -> str:
    return f"{values[int(share * (len(values) - 1))]:.2f}" if values else "-"


class KillProgramme:
    """One run."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._chance = random.Random(plan.seed)
        settings = {**SETTINGS, **dict(plan.settings)}
        settings["flushDiskType"] = "SYNC_FLUSH" if plan.is_sync_flush else "ASYNC_FLUSH"
        self._cluster = Cluster(folder, settings)
        self._life_count = 0
        self._client_count = 0
        self._kill_count = 0
        self._startup_s = 1.0
        self._blotted_bytes = 0
        self._violations: list[str] = []

    def run(self) -> Report:
        """Run, judge, and return the verdict; the folder stays."""
        begin_s = time.monotonic()
        with self._cluster as cluster:
            self._start_broker()
            with WireClient(cluster.broker_address) as client:
                make_topics(client)
            for kind in self._plan.clients:
                self._start_client(kind)
            for fault in self._faults():
                if self._kill_count >= self._plan.kills:
                    break
                self._live_and_die(fault)
                self._violations += cluster.bury_clients()
            self._finish()
        history = History.load(cluster.histories)
        found = audit.audit(history, window_s=COMMITS_LOST_S, lag_limit_s=LAG_LIMIT_S)
        found += where_lost(history, cluster.data)
        found += check_files(cluster.data)
        self._violations += found
        seconds = time.monotonic() - begin_s
        return Report(self._plan, self._violations, history, seconds, self._blotted_bytes)

    # --- Lives of the broker ---

    def _live_and_die(self, fault: str) -> None:
        """Let the broker live for a while, kill it, start it again."""
        if fault == "rolling":
            self._kill_while_rolling()
        else:
            self._cluster.note("fault", fault)
            if fault == "namesrv":
                self._cluster.restart_namesrv()
            elif fault in self._plan.clients:
                self._kill_client(fault)
            self._wait(self._delay_s())
            self._kill()
            if fault == "recovering":
                self._kill_while_recovering()
        self._start_broker()

    def _faults(self) -> Iterator[str]:
        """Return faults without end: all kinds come, in an order that the seed draws."""
        kinds = [kind for kind in FAULTS if kind != "rolling" or not self._plan.cuts_power]
        while True:
            yield from self._chance.sample(kinds, len(kinds))

    def _delay_s(self) -> float:
        """Early deaths are the more interesting ones, and cost less time."""
        share = self._chance.random()
        return 0.1 + (self._plan.delay_s_max - 0.1) * share * share

    def _wait(self, limit_s: float) -> None:
        broker = self._cluster.broker
        assert broker is not None
        broker.wait(limit_s)

    def _kill(self, *, may_be_gone: bool = False) -> None:
        broker = self._cluster.broker
        assert broker is not None
        if broker.is_gone and not may_be_gone:
            self._violations.append(f"broker: it ended by itself: {broker.tail()}")
        self._cluster.kill_broker()
        self._kill_count += 1
        if self._plan.cuts_power:
            self._blotted_bytes += cut_power(self._journal)
        note_saved(self._cluster.data, self._cluster.log)

    def _kill_while_rolling(self) -> None:
        """Let the broker end itself where it goes on with a new file."""
        self._kill()
        self._spawn(f"kill_at_roll:{self._chance.randrange(ROLL_POINTS)}")
        if self._cluster.await_broker():
            self._wait(ROLL_LIMIT_S)
        assert self._cluster.broker is not None
        if self._cluster.broker.is_gone:
            self._cluster.note("fault", "rolling")
        self._kill(may_be_gone=True)

    def _kill_while_recovering(self) -> None:
        """Kill a broker that is not ready yet, at any moment of its start."""
        self._spawn().wait(self._chance.random() * self._startup_s)
        self._kill()

    def _kill_client(self, kind: str) -> None:
        """Kill a client of this kind, if there still is one, and let another take its place."""
        for process in [name for name in self._cluster.clients if name.startswith(kind)][:1]:
            self._cluster.kill_client(process)
            self._start_client(kind)

    def _start_client(self, kind: str) -> None:
        self._client_count += 1
        options = ["--keeps-all"] if self._plan.cuts_power else []  # nobody waits for their sync
        seed = self._chance.randrange(1 << 30)
        self._cluster.start_client(kind, f"{kind}.{self._client_count}", seed, *options)

    def _start_broker(self) -> None:
        started = self._spawn()
        assert self._cluster.await_broker(), f"the broker did not start: {started.tail()}"
        self._startup_s = time.monotonic() - started.started_s

    def _spawn(self, *failpoints: str) -> Started:
        builds = (*self._plan.builds, *failpoints)
        if self._plan.cuts_power:
            self._life_count += 1
            builds = (f"forgets:{self._journal}", *builds)
        return self._cluster.spawn_broker(builds)

    @property
    def _journal(self) -> Path:
        return self._folder / f"disk.{self._life_count}"

    # --- The end ---

    def _finish(self) -> None:
        """End the load, let everything be delivered and consumed, and read all of it."""
        cluster = self._cluster
        self._wait(LAST_LOAD_S)
        for process in [name for name in cluster.clients if name.startswith("producer")]:
            cluster.stop_client(process)
        with WireClient(cluster.broker_address) as client:
            deadline_s = time.monotonic() + self._plan.drain_limit_s
            while not is_drained(client) and time.monotonic() < deadline_s:
                self._wait(LOOK_S)
        self._violations += cluster.bury_clients()
        for process in list(cluster.clients):
            cluster.stop_client(process)
        cluster.stop_broker()
        self._start_broker()
        with WireClient(cluster.broker_address) as client:
            read_all(client, cluster.log)
        cluster.stop_broker()


# --- What is asked of a broker --------------------------------------------------------------------


def make_topics(client: WireClient) -> None:
    """Make the topics of the load, and the group with its retry topic."""
    for topic in TOPICS:
        answer = client.ask(
            17,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=QUEUE_COUNT,
            writeQueueNums=QUEUE_COUNT,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )
        assert answer.code == 0, answer.remark
    join(client, "maker", GROUP, *TOPICS)


def is_drained(client: WireClient) -> bool:
    """Whether the group has consumed everything, and nothing waits in the schedule topic."""
    ends = {queue: _end_offset(client, queue) for queue in (*QUEUES, *SCHEDULED)}
    stored = {queue: _stored_offset(client, queue) for queue in QUEUES}
    waited = sum(ends[queue] for queue in SCHEDULED)
    came = sum(ends[topic, number] for topic, number in QUEUES if topic in (DELAYED, RETRY_TOPIC))
    return waited == came and all(stored[queue] == ends[queue] for queue in QUEUES)


def _end_offset(client: WireClient, queue: Queue) -> int:
    answer = client.ask(30, topic=queue[0], queueId=queue[1])
    assert answer.code == 0, answer.remark
    return int(answer.fields["offset"])


def _stored_offset(client: WireClient, queue: Queue) -> int:
    answer = client.ask(14, consumerGroup=GROUP, topic=queue[0], queueId=queue[1])
    assert answer.code == 0, answer.remark
    return int(answer.fields["offset"])


def read_all(client: WireClient, log: Log) -> None:
    """Note where the group stands and what each queue holds, from its first message on."""
    for queue in QUEUES:
        log.add("ok", "stored", *queue, _stored_offset(client, queue), GROUP)
    for queue in (*QUEUES, *SCHEDULED):
        offset, end = 0, _end_offset(client, queue)
        while offset < end:
            pull = pull_request(queue[0], READER, offset, queueId=queue[1], maxMsgNums=1000)
            answer = client.call(pull)
            for record in scan_records(answer.body):
                place = record.topic, record.queue_id, record.queue_offset
                log.add("ok", "read", *place, id_of(record), hash_of(record.body))
            offset = max(offset + 1, int(answer.fields["nextBeginOffset"]))
        log.flush()


# --- What is asked of the files -------------------------------------------------------------------


def note_saved(data: Path, log: Log) -> None:
    """Note the group's offsets as their file has them, which is never half of one."""
    path = data / "store" / "config" / "consumerOffset.json"
    if not path.exists():
        return
    table = read_json(path.read_bytes(), dict[str, dict[str, dict[str, int]]])["offsetTable"]
    for topic, queue_id in QUEUES:
        offset = table.get(f"{topic}@{GROUP}", {}).get(str(queue_id), 0)
        log.add("ok", "saved", topic, queue_id, offset, GROUP)
    log.flush()


def where_lost(history: History, data: Path) -> list[str]:
    """Say of lost messages whether the log has them: lost on the disk, or on the way out of it."""
    names = [found.split()[0] for found in itertools.islice(audit.lost(history), audit.SHOWN_MAX)]
    logs = [path.read_bytes() for path in sorted((data / "store" / "commitlog").iterdir())]
    bodies = {name: name.partition("#")[0].encode() + b" " for name in names}
    return [
        f"lost: {name} is in the log {sum(log.count(body) for log in logs)} times"
        for name, body in bodies.items()
    ]


def check_files(data: Path) -> list[str]:
    """Return what `orbitmq store check` complains of."""
    try:
        check_store(DataFolder(data, FORMAT))
    except AssertionError as error:
        return [f"store check: {error}"]
    return []
