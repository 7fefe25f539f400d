"""The store without a network: append, read, recover and look up, each beside a bare loop.

In: a folder for its files and how much to measure (`python -m benchmarks.store_bench`). Out: CPU
microseconds per message, record or look-up, of the store and of the bare loop.

Rules:
1. The store is the real one with the sizes a broker has by default. It does what a broker has it
   do: one write a turn, and after each 16 MiB a sync of the log and a flush of queues and index.
   Both count; in a broker they run in threads, on the same CPU time.
2. Store and bare loop take turns, so that a slow moment hits both; the least CPU time counts, which
   other processes disturb little.
3. Files are in the page cache: what is measured is the work, not the disk.
"""

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks import store_bare
from benchmarks.frames import NOW_MS
from benchmarks.in_process import ORIGIN
from benchmarks.machine import touch_free_memory
from benchmarks.many_queues import Watch, open_store, run_step
from benchmarks.store_bare import BareFiles, BareLog
from orbitmq.broker.flushing import FLUSH_BYTES
from orbitmq.core import CoreState, PullStatus, Queue, append, gather
from orbitmq.core.state import ENTRY_SIZE
from orbitmq.store.index_shape import HEADER_SIZE, SLOT_SIZE, Shape
from orbitmq.store.layout import file_name
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_source import LogFiles
from orbitmq.store.options import INDEX_ENTRY_COUNT, INDEX_SLOT_COUNT, LOG_FILE_SIZE
from orbitmq.store.reading import (
    ColdLimits,
    gather_cold,
    offset_by_time,
    record_by_offset,
    snapshot,
)
from orbitmq.store.scan import Scan
from orbitmq.store.store import KeyQuery, Store
from orbitmq.wire.java import index_hash
from orbitmq.world.files import SystemFiles

TOPIC = "BenchmarkTest"
QUEUE_COUNT = 4
TURNS = (16, 64)
SIZES = ((1024, "1 KB"), (100, "100 B"))
PULL_COUNT = 32
COLD_LIMITS = ColdLimits(PULL_COUNT, 262_144)
AROUND_BODY = 190
"""About what a record of the benchmark has besides its body."""
EVER_MS = 1 << 62
CLIENT_ID = 0x7F00000100002A139A55
MANY_CLIENTS = 100
_TOPIC_FIELD = bytes([len(TOPIC)]) + TOPIC.encode()
_TAG_CODE = 2_598_919
_STAMP = (0, 0, NOW_MS, 0, 0, _TAG_CODE)


@dataclass(frozen=True, slots=True)
class StorePlan:
    """How much is measured."""

    rounds: int
    append_bytes: int
    scan_bytes: int
    kills: int
    looks: int


WHOLE = StorePlan(6, FLUSH_BYTES, 64 << 20, 2, 2_000)
QUICK = StorePlan(1, 1 << 18, 1 << 18, 1, 20)


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """CPU of one task of the store, and of the bare loop in its place."""

    name: str
    us: float
    bare_us: float

    @property
    def ratio(self) -> float:
        """How many times the bare loop it takes."""
        return self.us / self.bare_us


def measure(folder: Path, plan: StorePlan) -> list[StoreFigures]:
    """Measure everything; `folder` must exist."""
    if plan.rounds > 1:
        touch_free_memory()
    figures: list[StoreFigures] = []
    for size, size_name in SIZES:
        for turn in TURNS:
            name = f"append, {turn} a turn, {size_name}"
            with _room(folder) as room:
                figures.append(_append(room, name, _Messages(size, turn), plan))
    with _room(folder) as room:
        messages = _Messages(1024, TURNS[1], MANY_CLIENTS)
        name = f"append, {TURNS[1]} a turn, 1 KB, {MANY_CLIENTS} clients"
        figures.append(_append(room, name, messages, plan))
    with _room(folder) as room:
        figures += _reads(room, plan)
    for size, size_name in SIZES:
        figures += _recovery(folder, size, size_name, plan)
    return figures


@contextmanager
def _room(folder: Path) -> Iterator[Path]:
    """A new folder that is removed afterwards."""
    room = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield room
    finally:
        shutil.rmtree(room)


def beside(ours: Callable[[], int], bare: Callable[[], int], rounds: int) -> tuple[float, float]:
    """Let two loops take turns; return the least CPU microseconds that each took for one."""
    return _least([(_us(ours), _us(bare)) for _ in range(rounds)])


def _us(loop: Callable[[], int]) -> float:
    begin = time.process_time()
    count = loop()
    return max(time.process_time() - begin, 1e-6) * 1e6 / count


def _least(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(us for us, _ in pairs), min(bare_us for _, bare_us in pairs)


# --- Appending ---


def unique_key(number: int, clients: int = 1) -> str:
    """An id as a client makes it: address, process and loader, time in ms, counter.

    The clients take turns and send a hundred messages a millisecond together.
    """
    counter, client = divmod(number, clients)
    sender = CLIENT_ID + client * 0x9E3779B97F4A7C15
    return f"{sender:020X}{number // 100:08X}{counter & 0xFFFF:04X}"


def make_properties(first: int, count: int, clients: int = 1) -> list[bytes]:
    """Properties as records hold them, each with an id of its own."""
    return [
        f"UNIQ_KEY\x01{unique_key(number, clients)}\x02TAGS\x01TagA\x02"
        "CLUSTER\x01DefaultCluster\x02".encode()
        for number in range(first, first + count)
    ]


def send(store: Store, body: bytes, properties: Sequence[bytes], turn: int) -> None:
    """Append a message for each of the properties, to the queues in turn; one write a turn."""
    tail = store.tail
    queues = [store.queue(TOPIC, queue_id) for queue_id in range(QUEUE_COUNT)]
    for start in range(0, len(properties), turn):
        tail.store_ms += 1
        for number, one in enumerate(properties[start : start + turn]):
            append(tail, queues[number % QUEUE_COUNT], ORIGIN, _STAMP, body, one)
        store.write_staged()


def flush(store: Store) -> None:
    """Sync the log and write queues and index, as a broker's threads do."""
    sync = store.begin_sync()
    if sync is not None:
        sync.run()
        store.finish_sync(sync)
    job = store.begin_flush(is_thorough=False)
    if job is not None:
        job.run()
        store.finish_flush(job)


@dataclass(frozen=True, slots=True)
class _Messages:
    """What is sent: bodies of so many bytes, so many a turn of the loop, from so many clients."""

    body_size: int
    turn: int
    clients: int = 1


def _append(folder: Path, name: str, messages: _Messages, plan: StorePlan) -> StoreFigures:
    body, turn, sent = b"x" * messages.body_size, messages.turn, 0
    count = _count(messages.body_size, plan.append_bytes, turn)
    store, bare = open_store(folder / "store"), BareLog(folder / "bare", LOG_FILE_SIZE)
    store.tail.store_ms = NOW_MS

    def ours() -> int:
        send(store, body, properties, turn)
        flush(store)
        return count

    def beside_it() -> int:
        return bare.append(_TOPIC_FIELD, body, properties, turn)

    pairs = []
    for _ in range(plan.rounds):
        properties = make_properties(sent, count, messages.clients)
        pairs.append((_us(ours), _us(beside_it)))
        sent += count
    bare.close()
    store.close()
    return StoreFigures(name, *_least(pairs))


def _count(body_size: int, size: int, turn: int) -> int:
    """How many messages take about `size` bytes, in whole turns."""
    return max(1, size // (body_size + AROUND_BODY) // turn) * turn


# --- Reading ---


@dataclass(frozen=True, slots=True)
class _Filled:
    """A store with messages of 1 KB in four queues, everything flushed, and questions to ask."""

    store: Store
    bare: BareFiles
    count: int
    places: Sequence[int]
    """Numbers of messages, at random."""

    @property
    def queue(self) -> Queue:
        return self.store.queue(TOPIC, 0)

    @property
    def offsets(self) -> list[int]:
        """Queue offsets with enough messages behind them."""
        return [place // QUEUE_COUNT for place in self.places]


def _reads(folder: Path, plan: StorePlan) -> list[StoreFigures]:
    store = open_store(folder / "store")
    store.tail.store_ms = NOW_MS
    count = max(_count(1024, 4 * plan.append_bytes, TURNS[1]), 4 * QUEUE_COUNT * PULL_COUNT)
    send(store, b"x" * 1024, make_properties(0, count), TURNS[1])
    flush(store)
    bare = BareFiles(
        store.folder.log_in_root / file_name(0),
        store.folder.queues / TOPIC / "0" / file_name(0),
        next(store.folder.index.iterdir()),
    )
    chance = random.Random(0)
    last = count - QUEUE_COUNT * PULL_COUNT
    places = [chance.randrange(last) for _ in range(plan.looks)]
    filled = _Filled(store, bare, count, places)
    tasks = (_hot, _cold, _by_key, _by_log_offset, _by_time)
    figures = [
        StoreFigures(name, *beside(ours, beside_it, plan.rounds))
        for name, ours, beside_it in (task(filled) for task in tasks)
    ]
    bare.close()
    store.close()
    return figures


_Task = tuple[str, Callable[[], int], Callable[[], int]]


def _hot(filled: _Filled) -> _Task:
    state, queue = CoreState(filled.store.tail, "c", "r"), filled.queue
    view = filled.store.tail.views[0]
    path = filled.store.folder.queues / TOPIC / "0" / file_name(0)
    with path.open("rb") as file:
        entries = file.read(queue.readable_offset * ENTRY_SIZE)

    def ours() -> int:
        for offset in filled.offsets:
            found = gather(state, queue, offset, PULL_COUNT, None)
            _expect(found.status is PullStatus.FOUND, "a hot read finds messages")
        return PULL_COUNT * len(filled.places)

    def bare() -> int:
        for offset in filled.offsets:
            start = offset * ENTRY_SIZE
            store_bare.gather_hot(view, entries[start : start + PULL_COUNT * ENTRY_SIZE])
        return PULL_COUNT * len(filled.places)

    return f"read {PULL_COUNT}, hot, 1 KB", ours, bare


def _cold(filled: _Filled) -> _Task:
    reader, queue = filled.store.reader, filled.queue

    def ours() -> int:
        for offset in filled.offsets:
            view = snapshot(queue, offset, PULL_COUNT)
            found = gather_cold(reader, view, offset, PULL_COUNT, limits=COLD_LIMITS)
            _expect(len(found.parts) == PULL_COUNT, "a cold read finds messages")
        return PULL_COUNT * len(filled.places)

    def bare() -> int:
        for offset in filled.offsets:
            filled.bare.gather_cold(offset, PULL_COUNT)
        return PULL_COUNT * len(filled.places)

    return f"read {PULL_COUNT}, cold, 1 KB", ours, bare


def _by_key(filled: _Filled) -> _Task:
    keys = [unique_key(place) for place in filled.places]
    slots = [
        HEADER_SIZE + SLOT_SIZE * (index_hash(f"{TOPIC}#{key}") % INDEX_SLOT_COUNT) for key in keys
    ]
    entries_at = Shape(INDEX_SLOT_COUNT, INDEX_ENTRY_COUNT).entry_position(0)

    def ours() -> int:
        for key in keys:
            found = filled.store.lookup(KeyQuery(TOPIC, key, 0, EVER_MS, PULL_COUNT))()
            _expect(bool(found), "a key is found")
        return len(keys)

    def bare() -> int:
        for slot_at in slots:
            filled.bare.lookup(slot_at, entries_at)
        return len(keys)

    return "look up by key", ours, bare


def _by_log_offset(filled: _Filled) -> _Task:
    reader, end = filled.store.reader, filled.store.tail.visible_offset
    size = end // filled.count
    log_offsets = [place * size for place in filled.places]

    def ours() -> int:
        for log_offset in log_offsets:
            _expect(record_by_offset(reader, log_offset, end) is not None, "a record is there")
        return len(log_offsets)

    def bare() -> int:
        for log_offset in log_offsets:
            filled.bare.record_by_offset(log_offset)
        return len(log_offsets)

    return "look up by log offset, 1 KB", ours, bare


def _by_time(filled: _Filled) -> _Task:
    queue, reader = filled.queue, filled.store.reader
    times = [NOW_MS + place // TURNS[1] for place in filled.places]

    def ours() -> int:
        for time_ms in times:
            offset_by_time(reader, snapshot(queue, queue.readable_offset), time_ms)
        return len(times)

    def bare() -> int:
        for time_ms in times:
            filled.bare.offset_by_time(queue.readable_offset, time_ms)
        return len(times)

    return f"look up by time, {filled.count // QUEUE_COUNT:,} messages", ours, bare


def _expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise RuntimeError(f"the benchmark is stale: {what}")


# --- Recovering ---


def _recovery(folder: Path, size: int, size_name: str, plan: StorePlan) -> list[StoreFigures]:
    """Scan a log, and open it after a kill; nothing of it was flushed."""
    found = []
    for _ in range(plan.kills):
        with _room(folder) as room:
            run_step(_FILLS[size], room / "store", plan.scan_bytes)
            found.append(_recover(room / "store"))
    scan_us, open_us, bare_us = (min(column) for column in zip(*found, strict=True))
    return [
        StoreFigures(f"scan, {size_name}", scan_us, bare_us),
        StoreFigures(f"open after a kill, {size_name}", open_us, bare_us),
    ]


def _fill_1_kb(folder: Path, size: int, answers: Connection) -> None:
    _fill_and_die(folder, 1024, size, answers)


def _fill_100_b(folder: Path, size: int, answers: Connection) -> None:
    _fill_and_die(folder, 100, size, answers)


_FILLS = {1024: _fill_1_kb, 100: _fill_100_b}


def _fill_and_die(folder: Path, body_size: int, size: int, answers: Connection) -> None:
    """Write `size` bytes of messages, and be killed before a flush."""
    watch = Watch()
    store = open_store(folder)
    count = _count(body_size, size, TURNS[1])
    send(store, b"x" * body_size, make_properties(0, count), TURNS[1])
    answers.send(watch.cost("filled"))
    answers.close()
    os.kill(os.getpid(), signal.SIGKILL)


def _recover(folder: Path) -> tuple[float, float, float]:
    """Return CPU microseconds per record: of the scan, of opening, of the bare scan."""
    path = folder / "commitlog" / file_name(0)
    log = LogFiles(SystemFiles(), LogFolders(SystemFiles(), (path.parent,)), LOG_FILE_SIZE, [0])
    log.is_killed_only = True
    scan = Scan(log, 0, 0, is_prefix_only=False)
    stores: list[Store] = []

    def walk() -> int:
        return sum(1 for _ in scan.walk())

    def bare() -> int:
        return store_bare.scan(path, scan.end_offset)

    def opening() -> int:
        stores.append(open_store(folder))
        return count

    scan_us, bare_us = _us(walk), _us(bare)
    count = bare()
    open_us = _us(opening)
    _expect(stores[0].tail.end_offset == scan.end_offset, "a kill loses nothing that was written")
    stores[0].close()
    return scan_us, open_us, bare_us


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as name:
        for found in measure(Path(name), WHOLE):
            print(
                f"{found.name:<36} {found.us:9.3f} us  bare {found.bare_us:8.3f} us"
                f"  {found.ratio:6.2f}"
            )
