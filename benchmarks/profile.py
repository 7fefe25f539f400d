"""Where a broker's time goes under a load: Python functions, and compiled ones with `perf`.

    python -m benchmarks.profile 4x64     connections x requests in flight, sends of 1 KiB

In: a load, a folder. Out: shares of the CPU time, the greatest first. Rules:

1. The load runs twice on the same broker: once the broker samples itself (inside.py), once `perf`
   looks at all its threads, the kernel's work for it included. Neither pays for the other.
2. A Python function's share counts what compiled code it called directly; time that no Python
   function called is the event loop's.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import servers
from benchmarks.loads import FIRST, Generator, Load, LoadFailed, make_generator
from benchmarks.machine import cores
from benchmarks.rounds import say
from benchmarks.servers import CORE_SETTING

SHOWN_MAX = 15
SECONDS = 5.0
PERF_HZ = 997
Shares = list[tuple[str, float]]
_CYTHON = re.compile(r"__pyx_[a-z]+_(?=\d)")
_SYMBOL = re.compile(r"^ *([\d.]+)% +(\S+) +\[.\] (.+?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Profile:
    """Shares of the CPU time by function, the greatest first, in percent."""

    load: str
    us_per_message: float
    """While nobody looked on from inside."""
    python: Shares
    compiled: Shares = field(default_factory=list)
    """Empty where `perf` is not to be had."""


def measure(load: Load, folder: Path, cpu: int | None, generator: Generator) -> Profile:
    """Put the load on a broker and say where its time went."""
    file = folder / "samples.json"
    folder.mkdir()
    through = ("benchmarks.inside", "samples", str(file))
    with servers.ours(folder / "sampled", cpu, through=through) as server:
        say(f"profile: {load.name}")
        replace(generator, seconds=generator.seconds / 5).run(server, load)
        with _switched(server.pids[0]):
            generator.run(server, load)
        with _perf(server.pids[0], folder / "perf.data"):
            figures = generator.run(server, load)
    samples: Shares = [(name, count) for name, count in json.loads(file.read_text("utf-8"))]
    compiled = _perf_shares(folder / "perf.data")
    return Profile(load.name, figures.server_us_per_message, shares(samples), compiled)


def shares(counts: Shares) -> Shares:
    """Return the greatest counts as percent of all."""
    whole = sum(count for _, count in counts) or 1.0
    return [(name, 100 * count / whole) for name, count in counts[:SHOWN_MAX]]


@contextmanager
def _switched(pid: int) -> Iterator[None]:
    """Have the broker sample itself."""
    os.kill(pid, signal.SIGUSR1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGUSR1)


@contextmanager
def _perf(pid: int, file: Path) -> Iterator[None]:
    """Have `perf` look on, if it is there."""
    if shutil.which("perf") is None:
        yield
        return
    control, acknowledged = os.pipe(), os.pipe()
    command = ["perf", "record", "-q", "-F", str(PERF_HZ), "-p", str(pid), "-o", str(file)]
    command += ["--delay", "-1", "--control", f"fd:{control[0]},{acknowledged[1]}"]
    theirs = (control[0], acknowledged[1])
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, pass_fds=theirs) as process:
        for fd in theirs:
            os.close(fd)
        try:
            with suppress(BrokenPipeError):
                os.write(control[1], b"enable\n")
            os.read(acknowledged[0], 64)  # it looks on, or has ended
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
            os.close(control[1])
            os.close(acknowledged[0])


def _perf_shares(file: Path) -> Shares:
    if not file.exists():
        say("no profile of compiled functions: perf is not installed, or not allowed here")
        return []
    command = ["perf", "report", "-i", str(file), "--stdio", "--no-children"]
    command += ["-F", "overhead,dso,symbol", "--percent-limit", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return read_perf(done.stdout)


def read_perf(text: str) -> Shares:
    """Return the functions of a report by perf, each with the file that has it."""
    found = _SYMBOL.findall(text)[:SHOWN_MAX]
    return [(f"{_function(name)} ({_library(file)})", float(share)) for share, file, name in found]


def _function(symbol: str) -> str:
    """Return a function's name as its source has it: Cython puts `__pyx_f_` and modules before."""
    name = symbol.partition(".")[0]
    prefix = _CYTHON.match(name)
    if prefix is None:
        return name
    name = name[prefix.end() :]
    while length := re.match(r"\d+", name):  # of a module's name, which follows it
        name = name[length.end() + int(length[0]) + 1 :]
    return name


def _library(file: str) -> str:
    return "kernel" if file.startswith("[kernel") else file.partition(".")[0]


def lines(profile: Profile) -> list[str]:
    """Return it to read."""
    text = [f"{profile.load}: {profile.us_per_message:.2f} us of CPU a message"]
    for head, found in (("Python", profile.python), ("compiled", profile.compiled)):
        text += ["", f"  %  {head} functions", *(f"{share:5.1f}  {name}" for name, share in found)]
    return text


def read_load(text: str) -> Load:
    """Return the load of words like `4x64`."""
    try:
        connections, window = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write it as 4x64") from None
    return replace(FIRST, connections=connections, window=window)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile")
    parser.add_argument("load", type=read_load, help="4x64: connections x requests in flight")
    parser.add_argument("--mode", choices=("send", "batch"), default="send")
    parser.add_argument("--body", type=int, default=1024, help="bytes (1024)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"({SECONDS:g})")
    parser.add_argument("--plain", action="store_true", help="the plain core")
    options = parser.parse_args(arguments)
    if options.plain:
        os.environ[CORE_SETTING] = "plain"
    load = replace(options.load, mode=options.mode, body_size=options.body)
    cpu, generator_cpu = cores()
    generator = make_generator(generator_cpu, options.seconds)
    try:
        with tempfile.TemporaryDirectory(prefix="orbitmq-profile-") as name:
            print("\n".join(lines(measure(load, Path(name, "p"), cpu, generator))))
    except LoadFailed as failed:
        raise SystemExit(str(failed)) from None


if __name__ == "__main__":
    main()
