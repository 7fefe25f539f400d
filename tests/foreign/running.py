"""Start a program, wait for its ready line, stop it again.

In: a command that prints one line `ready name=value name=value ...` on standard output when it
can be used. Out: those names and values, while the program runs. Rules:

1. The program has a time limit to become ready; if it ends or stays silent, the error shows the
   end of what it wrote to standard error.
2. It is stopped by SIGTERM to its process id and must then end with exit code 0 within the limit;
   only after that it is killed, and that is an error.
3. Whoever started it may kill it instead (`Program.kill`); then nothing is asked of its end.
4. Its standard input is a pipe that closes with this process. Programs that watch it
   (`tests/originals/original`) end even when the tests are killed.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

TAIL_CHARS = 4000


class ProgramFailed(AssertionError):
    """A program did not become ready, or did not stop cleanly."""


class Program:
    """A program that is ready, and what its ready line said."""

    def __init__(self, process: subprocess.Popen[bytes], ready: dict[str, str], log: Path) -> None:
        self._process = process
        self.ready = ready
        self.log = log
        """What it writes to standard error; gone with the program."""
        self.is_killed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would; afterwards it is gone."""
        self.is_killed = True
        self._process.kill()
        self._process.wait()


@contextmanager
def running(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    ready_limit_s: float = 30,
    stop_limit_s: float = 30,
) -> Iterator[dict[str, str]]:
    """Run `command` for the length of the block; yields what its ready line says."""
    limits = {"ready_limit_s": ready_limit_s, "stop_limit_s": stop_limit_s}
    with started(command, env=env, **limits) as program:
        yield program.ready


@contextmanager
def started(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    ready_limit_s: float = 30,
    stop_limit_s: float = 30,
) -> Iterator[Program]:
    """Run `command` for the length of the block, or until it is killed."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-running-") as folder:
        log = Path(folder, "stderr")
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(env or {})},
            )
        with process:
            try:
                ready = _await_ready(process, command, log, ready_limit_s)
                program = Program(process, ready, log)
            except ProgramFailed:
                _end(process, stop_limit_s)
                raise
            try:
                yield program
            finally:
                if not program.is_killed:
                    _stop(process, command, log, stop_limit_s)


def _await_ready(
    process: subprocess.Popen[bytes], command: Sequence[str], log: Path, limit_s: float
) -> dict[str, str]:
    assert process.stdout is not None
    deadline = time.monotonic() + limit_s
    line = b""
    while not line.endswith(b"\n"):
        wait_s = deadline - time.monotonic()
        if wait_s <= 0 or not select.select([process.stdout], [], [], wait_s)[0]:
            raise ProgramFailed(
                _report(command, log, f"not ready after {limit_s} s; said {line!r}")
            )
        chunk = os.read(process.stdout.fileno(), 4096)
        if not chunk:
            raise ProgramFailed(_report(command, log, f"ended before it was ready; said {line!r}"))
        line += chunk
    words = line.decode().split()
    if words[:1] != ["ready"]:
        raise ProgramFailed(_report(command, log, f"said {line!r} instead of a ready line"))
    return dict(word.split("=", 1) for word in words[1:])


def _stop(
    process: subprocess.Popen[bytes], command: Sequence[str], log: Path, limit_s: float
) -> None:
    early = process.poll()
    if early is not None:
        raise ProgramFailed(_report(command, log, f"ended by itself with exit code {early}"))
    if not _end(process, limit_s):
        raise ProgramFailed(_report(command, log, f"still there {limit_s} s after SIGTERM; killed"))
    if process.returncode != 0:
        what = f"ended with exit code {process.returncode} after SIGTERM"
        raise ProgramFailed(_report(command, log, what))


def _end(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether SIGTERM was enough; afterwards the process is gone in either case."""
    assert process.stdin is not None
    process.terminate()
    # A shell that was just about to read again would see the signal only after a line: rule 4.
    process.stdin.close()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def _report(command: Sequence[str], log: Path, what: str) -> str:
    tail = log.read_text(errors="replace")[-TAIL_CHARS:]
    return f"{' '.join(map(str, command))}: {what}\n--- its standard error ends ---\n{tail}"
