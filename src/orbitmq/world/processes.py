"""Other processes of ours: started, listened to, ended; and the one that started us.

In: arguments of our own command. Out: a child with its lines and its exit code, and the moment at
which our parent is gone.

Rules:
1. A child is a session of its own: a Ctrl-C for the parent does not reach it.
2. A child's standard input is a pipe that nobody writes to. It ends with the parent, however that
   ended; a child that watches it never outlives its parent for long.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

STDIN = 0


class Child:
    """A process that runs a command of ours."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def line(self) -> str | None:
        """Return the next line of its standard output; None when there are no more."""
        output = self._process.stdout
        line = await output.readline() if output is not None else b""
        return line.decode(errors="replace").rstrip("\n") if line else None

    def terminate(self) -> None:
        """Ask it to stop; nothing when it has ended."""
        if self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        """End it at once; nothing when it has ended."""
        if self._process.returncode is None:
            self._process.kill()

    async def wait(self) -> int:
        """Return its exit code when it has ended; negative for a signal."""
        return await self._process.wait()


async def start_child(arguments: Sequence[str]) -> Child:
    """Run `python -m` with these arguments; standard error is ours."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, stdin=PIPE, stdout=PIPE, start_new_session=True
    )
    return Child(process)


def when_parent_is_gone(loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
    """Have `tell` called once when standard input ends."""

    def look() -> None:
        if not os.read(STDIN, 4_096):
            loop.remove_reader(STDIN)
            tell()

    loop.add_reader(STDIN, look)
