"""A store with many queues: what it costs to build, to open after each kind of stop, and to keep.

In: how many queues, eight to a topic (`python -m benchmarks.many_queues [count]`, 80,000 if not
told). Out: for each step seconds by the clock and of the CPU, and the memory of the process; at the
end the disk used. The folder is made by the real store and removed afterwards.

Rules:
1. Every step runs in a process of its own: memory of one is not counted for the next.
2. A kill is a real one, after a message to every tenth queue that no flush has seen. A power cut is
   the same, and the machine says that it was started anew.
3. Files are in the page cache: what is measured is the work, not the disk.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.in_process import ORIGIN
from benchmarks.machine import resident_mb
from orbitmq.core import Stamp, append
from orbitmq.store.opening import Outside
from orbitmq.store.store import Store
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles

QUEUE_COUNT = 80_000
QUEUES_PER_TOPIC = 8
SENDS_PER_WRITE = 256
KILLED_EVERY = 10
BOOT, OTHER_BOOT = b"this machine now", b"started once more"[:16]

Step = Callable[[Path, int, Connection], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one step took, and the memory its process had then."""

    name: str
    clock_s: float
    cpu_s: float
    memory_mb: float


class Watch:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._clock_s = time.monotonic()
        self._cpu_s = time.process_time()

    def cost(self, name: str) -> Cost:
        """Return what was used since then."""
        clock_s, cpu_s = time.monotonic() - self._clock_s, time.process_time() - self._cpu_s
        return Cost(name, clock_s, cpu_s, resident_mb(os.getpid()))


def open_store(folder: Path, boot_id: bytes = BOOT) -> Store:
    """Open the folder as a broker does, with the sizes it has by default."""
    return Store(Outside(SystemFiles(), SystemClock(), boot_id), folder)


def send(store: Store, count: int, every: int = 1) -> None:
    """Send one message to every n-th queue."""
    stamp = Stamp(0, 0, 1, 0, 0, 0)
    for number in range(0, count, every):
        topic, queue_id = divmod(number, QUEUES_PER_TOPIC)
        queue = store.queue(f"orders-of-shop-{topic:05d}", queue_id)
        key = b"UNIQ_KEY\x017F00000100002A139A550001E24%05X" % number
        append(store.tail, queue, ORIGIN, stamp, b"x" * 100, key)
        if not number // every % SENDS_PER_WRITE:
            store.write_staged()
    store.write_staged()


def build(folder: Path, count: int, answers: Connection) -> None:
    """Make the folder: one message in every queue, a clean stop."""
    watch = Watch()
    store = open_store(folder)
    send(store, count)
    store.close()
    answers.send(watch.cost("build and clean stop"))


def open_clean(folder: Path, count: int, answers: Connection) -> None:
    """Open after a clean stop, and be killed."""
    _open_and_die(folder, count, answers, "open after a clean stop", BOOT)


def open_killed(folder: Path, count: int, answers: Connection) -> None:
    """Open after a kill, and be killed once more."""
    _open_and_die(folder, count, answers, "open after a kill", BOOT)


def open_cut(folder: Path, count: int, answers: Connection) -> None:
    """Open after a power cut, and stop."""
    watch = Watch()
    store = open_store(folder, OTHER_BOOT)
    answers.send(watch.cost("open after a power cut"))
    _check(store, count)
    watch = Watch()
    store.close()
    answers.send(watch.cost("clean stop"))


def _open_and_die(folder: Path, count: int, answers: Connection, name: str, boot_id: bytes) -> None:
    watch = Watch()
    store = open_store(folder, boot_id)
    answers.send(watch.cost(name))
    _check(store, count)
    send(store, count, KILLED_EVERY)
    answers.close()
    os.kill(os.getpid(), signal.SIGKILL)


def _check(store: Store, count: int) -> None:
    """Raise when the store has not all queues, or found something wrong with them."""
    known = sum(store.queue_counts().values())
    if known < count or store.findings:
        raise RuntimeError(f"{known} of {count} queues, findings: {store.findings}")


def run_step(step: Step, folder: Path, count: int) -> list[Cost]:
    """Run a step in a new process; return what it measured."""
    context = multiprocessing.get_context("spawn")
    answers, theirs = context.Pipe(duplex=False)
    process = context.Process(target=step, args=(folder, count, theirs))
    process.start()
    theirs.close()
    costs: list[Cost] = []
    try:
        while True:
            costs.append(answers.recv())
    except EOFError:
        process.join()
    if process.exitcode not in (0, -signal.SIGKILL) or not costs:
        raise RuntimeError(f"{step.__name__} ended with {process.exitcode}")
    return costs


def disk_mb(folder: Path) -> float:
    """Return what the folder takes on the disk, in MB of 10**6 bytes."""
    paths = (folder, *folder.rglob("*"))
    return sum(path.stat().st_blocks for path in paths) * 512 / 1e6


def measure(folder: Path, count: int) -> list[Cost]:
    """Run all steps in a folder that is not there yet."""
    costs: list[Cost] = []
    for step in (build, open_clean, open_killed, open_cut):
        costs += run_step(step, folder, count)
    return costs


def main(arguments: list[str]) -> None:
    """Print the table."""
    count = int(arguments[0]) if arguments else QUEUE_COUNT
    room = Path(tempfile.mkdtemp(prefix="orbitmq-queues-"))
    try:
        print(f"{count} queues, {QUEUES_PER_TOPIC} a topic")
        for cost in measure(room / "store", count):
            print(
                f"{cost.name:<24} {cost.clock_s:7.2f} s  {cost.cpu_s:7.2f} s CPU "
                f"{cost.memory_mb:7.0f} MB"
            )
        print(f"disk used {disk_mb(room / 'store'):.0f} MB")
    finally:
        shutil.rmtree(room)


if __name__ == "__main__":
    main(sys.argv[1:])
