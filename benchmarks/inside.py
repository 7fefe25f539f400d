"""OrbitMQ's command line with a look inside: stalls of its loop, or where its time goes.

In: `python -m benchmarks.inside stalls|samples FILE COMMAND ...`. Out: what the command does, and
at its end the file, in JSON. Rules:

1. `stalls` counts from the ready line on (see tests/stalls.py): every wait of the loop beyond the
   one that was asked for, and the part of it that was the loop's own.
2. `samples` begins with one SIGUSR1 and ends with another. In between the kernel's timer of CPU
   time stops the main thread at each of its ticks, and the function that runs is noted. What
   compiled code does counts for the Python function that called it.
"""

import json
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType
from unittest.mock import patch

from orbitmq.cli import up
from orbitmq.cli.main import main
from tests.stalls import StallWatch

SAMPLE_S = 0.001
"""The kernel's tick may be longer."""


class WatchedService(up.UpService):
    """What `orbitmq up` serves, its loop watched."""

    watch = StallWatch()
    stack = AsyncExitStack()

    async def start(self) -> str:
        """Begin to serve, then to watch."""
        ready = await super().start()
        await self.stack.enter_async_context(self.watch)
        return ready

    async def stop(self) -> None:
        """End the watch, then the service."""
        await self.stack.aclose()
        await super().stop()


class Sampler:
    """Notes which function runs, by the clock of CPU time."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._is_on = False

    def switch(self, _number: int, _frame: FrameType | None) -> None:
        """Begin or end."""
        self._is_on = not self._is_on
        signal.setitimer(signal.ITIMER_PROF, *((SAMPLE_S, SAMPLE_S) if self._is_on else (0.0,)))

    def note(self, _number: int, frame: FrameType | None) -> None:
        """Count the function that was stopped."""
        if frame is not None:
            code = frame.f_code
            self.counts[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1


def run_watched(file: Path, words: list[str]) -> int:
    """Run the command; write its stalls, the longest first, as [in all, by itself], in ms."""
    with patch.object(up, "UpService", WatchedService):
        code = main(words)
    stalls = WatchedService.watch.stalls_ms()
    file.write_text(json.dumps(sorted(stalls, reverse=True)[:100]), encoding="utf-8")
    return code


def run_sampled(file: Path, words: list[str]) -> int:
    """Run the command; write how often each function was met."""
    sampler = Sampler()
    signal.signal(signal.SIGPROF, sampler.note)
    signal.signal(signal.SIGUSR1, sampler.switch)
    code = main(words)
    file.write_text(json.dumps(sampler.counts.most_common()), encoding="utf-8")
    return code


if __name__ == "__main__":
    run = {"stalls": run_watched, "samples": run_sampled}[sys.argv[1]]
    sys.exit(run(Path(sys.argv[2]), sys.argv[3:]))
