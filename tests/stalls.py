"""By how much the machine kept a loop from its work: the only thing that may excuse a late answer.

In: a running loop. Out: the longest stall that was the machine's, and how much of each stall was
the loop's own.

Rules:
1. A stall counts by as much as others saw of it: a process that only sleeps and looks at the clock
   (the machine stood still), or the system, which counts how long this thread was ready to run
   and had no processor. The larger of the two.
2. What the loop did itself is no excuse: working, waiting for a disk, a lock or another thread. The
   watcher goes on meanwhile, and a thread that is blocked is not ready to run.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

STEP_S = 0.002
_SCHEDULE = Path("/proc/thread-self/schedstat")
_WATCHER = f"""
import sys, threading, time
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
print("ready", flush=True)
before_s = time.monotonic()
while not over.is_set():
    time.sleep({STEP_S})
    now_s = time.monotonic()
    if now_s - before_s > 3 * {STEP_S}:
        print(before_s + {STEP_S}, now_s)
    before_s = now_s
"""
"""Prints from when to when it was kept waiting. The clock is the same in all processes."""

Span = tuple[float, float]


class StallWatch:
    """Watches the running loop inside an `async with`."""

    def __init__(self) -> None:
        self._stalls: list[tuple[Span, float]] = []
        """When the loop was late, and how long the system says that it waited for a processor."""
        self._seen: list[Span] = []

    async def __aenter__(self) -> "StallWatch":
        pipe = asyncio.subprocess.PIPE
        self._watcher = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _WATCHER, stdin=pipe, stdout=pipe
        )
        assert self._watcher.stdout is not None
        assert await self._watcher.stdout.readline() == b"ready\n"
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()
        out, _ = await self._watcher.communicate(b"")
        for line in out.decode().splitlines():
            begin, end = line.split()
            self._seen.append((float(begin), float(end)))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begin_s, waited_s = loop.time(), _waited_s()
            await asyncio.sleep(STEP_S)
            span = begin_s + STEP_S, loop.time()
            self._stalls.append((span, _waited_s() - waited_s))

    def longest_ms(self) -> float:
        """Return the longest stall of the loop that was the machine's."""
        return max(self._excused_ms(), default=0.0)

    def stalls_ms(self) -> list[tuple[float, float]]:
        """Return every stall: how long it was, and how much of that was the loop's own."""
        late_ms = (max(0.0, end - begin) * 1_000 for (begin, end), _ in self._stalls)
        return [(ms, ms - excused) for ms, excused in zip(late_ms, self._excused_ms(), strict=True)]

    def _excused_ms(self) -> Iterator[float]:
        for span, waited_s in self._stalls:
            seen_s = sum(_overlap_s(span, other) for other in self._seen)
            late_s = max(0.0, span[1] - span[0])
            yield min(late_s, max(seen_s, waited_s)) * 1_000


def _overlap_s(one: Span, other: Span) -> float:
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def _waited_s() -> float:
    """Return how long this thread was ready to run and did not; 0 where the system does not say."""
    try:
        return int(_SCHEDULE.read_bytes().split()[1]) / 1e9
    except OSError:
        return 0.0
