"""The loads, and the generator that makes them.

In: a server's port and process ids. Out: a `Figures` per run, read from the one line that
`loadgen` prints. Rules:

1. The generator is C and bound to its own core: it costs about 1 us a request and must not be what
   is measured.
2. The first load of a server fills the queues that the pulls read, with bodies of 1 KiB.
3. Redis and NATS are asked in their own protocols for what comes nearest to a stored, acknowledged
   message: XADD and a JetStream publish.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.c_programs import build
from benchmarks.machine import pin
from benchmarks.servers import BARE, NATS, ORIGINAL, OURS, PLAIN, REDIS, Server

WARM_UP_MAX_S = 0.7
QUEUE_COUNT = 4
PULL_COUNT = 32
BATCH_COUNT = 32
TOPIC = "BenchmarkTest"
DELAY_TOPIC, LATE_TOPIC, SQL_TOPIC = "BenchmarkDelay", "BenchmarkLate", "BenchmarkSql"
PULL_OFFSET_MAX = 10_000
"""Pulls turn round in the first messages of a queue: the measure is the broker, not the disk."""


class LoadFailed(Exception):
    """A server answered the generator wrongly."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many connections with so many requests in flight on each, and the servers that get it."""

    mode: str
    connections: int
    window: int
    servers: tuple[str, ...]
    body_size: int = 1024
    is_sync: bool = False
    """Answered when the disk has it; the servers are started so."""
    share: float = 1.0
    """How long it lasts beside other loads."""
    topic: str = TOPIC
    topic_count: int = 1
    queue_count: int = QUEUE_COUNT

    @property
    def name(self) -> str:
        size = "1 KiB" if self.body_size == 1024 else f"{self.body_size} B"
        sync = ", SYNC_FLUSH" if self.is_sync else ""
        return f"{_NAMES[self.mode]}, {self.connections} x {self.window}, {size}{sync}"

    @property
    def is_pull(self) -> bool:
        """Whether it only reads."""
        return self.mode in ("pull", "sql")


_NAMES = {
    "send": "send",
    "batch": f"batch of {BATCH_COUNT}",
    "pull": f"pull of {PULL_COUNT}",
    "sql": f"SQL pull of {PULL_COUNT}",
    "delay": "delayed send",
}
_PEERS = (BARE, OURS, REDIS, NATS, ORIGINAL)
FIRST = Load("send", 4, 64, (BARE, OURS, PLAIN, REDIS, NATS, ORIGINAL))
PULL = Load("pull", 4, 4, (BARE, OURS, ORIGINAL))
SQL = Load("sql", 4, 4, (OURS, ORIGINAL), topic=SQL_TOPIC)
ONE_EACH = Load("send", 64, 1, _PEERS)
ALONE = Load("send", 1, 1, _PEERS)
SMALL = Load("send", 4, 64, _PEERS, body_size=100)
BATCH = Load("batch", 4, 4, (BARE, OURS, ORIGINAL), share=0.5)
LOADS = (FIRST, PULL, SQL, ONE_EACH, ALONE, SMALL, BATCH)
"""Pulls come early: later their messages are old, and how old ones are read is another measure."""
SYNC = Load("send", 4, 64, (OURS, REDIS, ORIGINAL), is_sync=True)
SYNC_EACH = Load("send", 64, 1, (OURS, REDIS, ORIGINAL), is_sync=True)
SYNC_LOADS = (SYNC, SYNC_EACH)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run measured; `others_cores` is what other processes used just before it."""

    requests_per_s: float
    messages_per_s: float
    server_us_per_message: float
    generator_us_per_request: float
    p50_us: float
    p99_us: float
    others_cores: float

    @property
    def cost_us(self) -> float:
        """What rounds are compared by."""
        return self.server_us_per_message


_LINE = re.compile(
    r"req/s +(\d+) msg/s +(\d+) +srvCPU/req +[\d.]+us /msg +([\d.]+)us .*"
    r"lgCPU/req +([\d.]+)us +lat us p50 (\d+) p99 (\d+) "
)


def read_figures(line: str, others_cores: float) -> Figures:
    """The figures of a line that loadgen printed; raises LoadFailed when it is another line."""
    found = _LINE.search(line)
    if found is None:
        raise LoadFailed(f"loadgen printed {line!r}")
    requests, messages, server_us, generator_us, p50_us, p99_us = map(float, found.groups())
    return Figures(requests, messages, server_us, generator_us, p50_us, p99_us, others_cores)


@dataclass(frozen=True, slots=True)
class Generator:
    """Runs loads for `seconds` each after a warm-up that is no longer."""

    program: Path
    core: int | None
    seconds: float

    @property
    def warm_up_s(self) -> float:
        """How long a load is on before it is measured."""
        return min(WARM_UP_MAX_S, self.seconds)

    def run(
        self, server: Server, load: Load, pull_end: int = 0, others_cores: float = 0.0
    ) -> Figures:
        """Put `load` on `server`. Pulls read the queue offsets below `pull_end`."""
        mode = server.send_mode if load.mode == "send" else load.mode
        command = [str(self.program), str(server.port), mode]
        command += [str(load.connections), str(load.window), str(self.seconds)]
        command += [str(load.body_size), str(BATCH_COUNT), ",".join(map(str, server.pids))]
        command += [str(pull_end), "0", load.topic, str(self.warm_up_s)]
        command += [str(load.topic_count), str(load.queue_count)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            pin(process.pid, self.core)
            try:
                out, err = process.communicate(timeout=self.seconds + self.warm_up_s + 30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise LoadFailed(f"{server.name}, {load.name}: the generator hangs") from None
        if process.returncode != 0:
            raise LoadFailed(f"{server.name}, {load.name}: {err.strip()}")
        return read_figures(out, others_cores)


def make_generator(core: int | None, seconds: float) -> Generator:
    """Return the generator, built if need be."""
    return Generator(build("loadgen"), core, seconds)


def pull_end_after(first: Figures, seconds: float) -> int:
    """How far every queue is filled for certain, after a first run of `seconds`."""
    filled = int(first.messages_per_s * seconds * 0.9) // QUEUE_COUNT
    return max(PULL_COUNT, min(PULL_OFFSET_MAX, filled))
