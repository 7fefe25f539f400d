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
SOURCES = tuple(HERE / name for name in ("loadgen.c", "meter.h", "peers.h"))
PROGRAM = HERE / "build" / "loadgen"
BUILD_LIMIT_S = 120
WARM_UP_S = 0.7
QUEUE_COUNT = 4
PULL_COUNT = 32
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
    body_size: int

    @property
    def name(self) -> str:
        size = "1 KB" if self.body_size == 1024 else f"{self.body_size} B"
        count = f" of {PULL_COUNT}" if self.mode == "pull" else ""
        return f"{self.mode}{count}, {self.connections} x {self.window}, {size}"


FIRST = Load("send", 4, 64, 1024)
PULL = Load("pull", 4, 4, 1024)
LOADS = (
    FIRST,
    PULL,
    Load("pull", 4, 1, 1024),
    Load("send", 1, 64, 1024),
    Load("send", 16, 1, 1024),
    Load("send", 4, 64, 100),
)
"""Pulls come early: later their messages are old, and how old ones are read is another measure."""
QUICK_LOADS = (FIRST, PULL, Load("send", 16, 1, 1024))


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
        command += [str(load.body_size), "1", ",".join(map(str, server.pids)), str(pull_end)]
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
