"""A store that takes many messages: the memory of its process before, then, and when opened again.

In: how many messages, of 100 bytes, in four queues (`python -m benchmarks.many_messages [count]`, a
million if not told). Out: for each step seconds by the clock and of the CPU, and the memory of the
process. The folder is made by the real store and removed afterwards.

Rules:
1. Every message has a key of its own: the index has as many entries as there are messages.
2. Flushes come as a broker has them, the thorough ones as well: memory holds what it holds then.
3. Every step runs in a process of its own. Making the messages counts, too: look at the memory.
"""

import shutil
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.many_queues import Cost, Watch, disk_mb, open_store, run_step
from benchmarks.store_bench import flush, make_properties, send
from orbitmq.broker.flushing import FLUSH_BYTES, THOROUGH_BYTES

MESSAGE_COUNT = 1_000_000
BODY = b"x" * 100
BATCH_COUNT = 8_192
TURN = 64


def fill(folder: Path, count: int, answers: Connection) -> None:
    """Send so many messages and stop cleanly."""
    watch = Watch()
    store = open_store(folder)
    answers.send(watch.cost("empty"))
    flushed = thorough = 0
    for first in range(0, count, BATCH_COUNT):
        send(store, BODY, make_properties(first, min(BATCH_COUNT, count - first)), TURN)
        end = store.tail.written_offset
        if end - thorough >= THOROUGH_BYTES:
            store.flush_all()
            flushed = thorough = end
        elif end - flushed >= FLUSH_BYTES:
            flush(store)
            flushed = end
    answers.send(watch.cost(f"after {count:,} messages"))
    store.close()


def reopen(folder: Path, count: int, answers: Connection) -> None:
    """Open what was filled."""
    watch = Watch()
    store = open_store(folder)
    answers.send(watch.cost("opened again"))
    found = sum(store.queue(topic, 0).readable_offset for topic in store.queue_counts())
    if found * 4 < count or store.findings:
        raise RuntimeError(f"{found} messages in the first queue, findings: {store.findings}")
    store.close()


def measure(folder: Path, count: int) -> list[Cost]:
    """Run both steps in a folder that is not there yet."""
    return [*run_step(fill, folder, count), *run_step(reopen, folder, count)]


def main(arguments: list[str]) -> None:
    """Print the table."""
    count = int(arguments[0]) if arguments else MESSAGE_COUNT
    room = Path(tempfile.mkdtemp(prefix="orbitmq-messages-"))
    try:
        for cost in measure(room / "store", count):
            print(cost)
        print(f"disk used {disk_mb(room / 'store'):.0f} MB")
    finally:
        shutil.rmtree(room)


if __name__ == "__main__":
    main(sys.argv[1:])
