"""The loads, and the generator that makes them.

In: a server's port and process ids. Out: a `Figures` per run, read from the one line that
`loadgen` prints. Rules:

1. The generator is C, built when missing or older than its source, and bound to its own core: it
   costs about 1 us a request and must not be what is measured.
2. The first load of a server fills the queues that the pulls read, with bodies of 1 KB.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import pin
from benchmarks.servers import Server

HERE = Path(__file__).parent
SOURCES = tuple(HERE / name for name in ("loadgen.c", "meter.h", "numbers.h", "peers.h"))
PROGRAM = HERE / "build" / "loadgen"
BUILD_LIMIT_S = 120
WARM_UP_S = 0.7
QUEUE_COUNT = 4
PULL_COUNT = 32
BATCH_COUNT = 32
DELAY_TOPIC, LATE_TOPIC, SQL_TOPIC = "BenchmarkDelay", "BenchmarkLate", "BenchmarkSql"
PULL_OFFSET_MAX = 10_000
"""Pulls turn round in the first messages of a queue: the measure is the broker, not the disk."""


class LoadFailed(Exception):
    """The generator could not be built, or a server answered it wrongly."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many connections with so many requests in flight on each."""

    mode: str
    connections: int
    window: int
    body_size: int = 1024
    is_sync: bool = False
    """Answered when the disk has it; only servers that were started so are asked."""
    aim: float | None = None
    """The share of the original's CPU per message that it may cost. Such loads get whole runs, and
    the bare loop runs beside them."""

    @property
    def name(self) -> str:
        size = "1 KB" if self.body_size == 1024 else f"{self.body_size} B"
        sync = ", SYNC_FLUSH" if self.is_sync else ""
        return f"{_NAMES[self.mode]}, {self.connections} x {self.window}, {size}{sync}"

    @property
    def is_pull(self) -> bool:
        """Whether it only reads."""
        return self.mode in ("pull", "sql")

    @property
    def topic(self) -> str:
        """The topic it is about. Delayed messages and filtered ones have one of their own."""
        return {"delay": DELAY_TOPIC, "sql": SQL_TOPIC}.get(self.mode, "BenchmarkTest")


_NAMES = {
    "send": "send",
    "batch": f"batch of {BATCH_COUNT}",
    "pull": f"pull of {PULL_COUNT}",
    "sql": f"SQL pull of {PULL_COUNT}",
    "delay": "delayed send",
}
FIRST = Load("send", 4, 64, aim=0.4)
ONE_EACH = Load("send", 64, 1, aim=0.5)
PULL = Load("pull", 4, 4, aim=0.6)
SQL = Load("sql", 4, 4)
LOADS = (
    FIRST,
    PULL,
    *(Load("pull", connections, 1) for connections in (1, 16, 64)),
    SQL,
    ONE_EACH,
    Load("send", 1, 64),
    Load("send", 1, 1),
    Load("send", 16, 1),
    Load("send", 4, 64, 100),
    Load("batch", 4, 4),
)
"""Pulls come early: later their messages are old, and how old ones are read is another measure."""
AIMED_LOADS = (FIRST, PULL, ONE_EACH)
SYNC_LOADS = (Load("send", 4, 64, is_sync=True), Load("send", 64, 1, is_sync=True))
QUICK_LOADS = (FIRST, PULL, SQL, Load("send", 16, 1), Load("batch", 4, 4))


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


def build_generator(program: Path = PROGRAM) -> Path:
    """Build loadgen if it is missing or older than its source; give its path."""
    newest = max(source.stat().st_mtime for source in SOURCES)
    if program.exists() and program.stat().st_mtime >= newest:
        return program
    compiler = shutil.which("gcc")
    if compiler is None:
        raise LoadFailed("gcc is not installed; the load generator is written in C and needs it")
    program.parent.mkdir(parents=True, exist_ok=True)
    part = program.with_name(f"{program.name}.{os.getpid()}")
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(part), str(SOURCES[0])]
    built = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False
    )
    if built.returncode != 0:
        raise LoadFailed(f"gcc refused loadgen.c:\n{built.stderr}")
    part.rename(program)
    return program


@dataclass(frozen=True, slots=True)
class Generator:
    """Runs loads for `seconds` each after the generator's own warm-up."""

    program: Path
    core: int | None
    seconds: float

    def run(self, server: Server, load: Load, pull_end: int, others_cores: float) -> Figures:
        """Put `load` on `server`. Pulls read the queue offsets below `pull_end`."""
        command = [str(self.program), str(server.port), load.mode]
        command += [str(load.connections), str(load.window), str(self.seconds)]
        command += [str(load.body_size), str(BATCH_COUNT), ",".join(map(str, server.pids))]
        command += [str(pull_end), "0", load.topic]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            pin(process.pid, self.core)
            try:
                out, err = process.communicate(timeout=self.seconds + WARM_UP_S + 30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise LoadFailed(f"{server.name}, {load.name}: the generator hangs") from None
        if process.returncode != 0:
            raise LoadFailed(f"{server.name}, {load.name}: {err.strip()}")
        return read_figures(out, others_cores)


def pull_end_after(first: Figures, seconds: float) -> int:
    """How far every queue is filled for certain, after a first run of `seconds`."""
    filled = int(first.messages_per_s * seconds * 0.9) // QUEUE_COUNT
    return max(PULL_COUNT, min(PULL_OFFSET_MAX, filled))
