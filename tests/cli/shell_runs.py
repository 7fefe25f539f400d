"""The shell's commands as processes: in a pipe, or on a pseudo-terminal."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.cli.commands import environment

PATIENCE_S = 45.0
NOBODY = "127.0.0.1:1"


class Done(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def shell(folder: Path, *words: str, stdin: bytes = b"", **variables: str) -> Done:
    """Run `orbitmq` with these words, its output in pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq", *words],
        cwd=folder,
        env={**environment_of(folder), **variables},
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def on_terminal(folder: Path, *words: str, typed: bytes = b"", **variables: str) -> Done:
    """Run `orbitmq` on a terminal of its own; `out` is all it shows there."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "orbitmq", *words],
        cwd=folder,
        env={**environment_of(folder), "TERM": "xterm", **variables},
        stdin=side,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    os.write(main, typed)
    shown = _read_all(main)
    os.close(main)
    return Done(process.wait(PATIENCE_S), shown.decode().replace("\r\n", "\n"), "")


def environment_of(folder: Path) -> dict[str, str]:
    """The environment of somebody to whom no cluster was named."""
    hidden = ("NAMESRV_ADDR", "NAMESRV_LOOKUP", "NO_COLOR")
    return {name: value for name, value in environment(folder).items() if name not in hidden}


def _read_all(main: int) -> bytes:
    """Read what a terminal shows until its last user is gone."""
    shown = b""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        if not select.select([main], [], [], 0.5)[0]:
            continue
        try:
            data = os.read(main, 65_536)
        except OSError:  # so Linux says that nobody is at the other end any more
            return shown
        if not data:
            return shown
        shown += data
    raise AssertionError(f"the command did not end; it showed {shown!r}")
