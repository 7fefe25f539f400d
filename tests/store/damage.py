"""Damage at rest (T5): a small healthy folder of ours, and everything that is done to it.

In: nothing, or a seed. Out: the folder (`Healthy`: its files and what its log says) after a clean
stop or after a kill, and damages: which files become what, and whom that may cost.

Rules:
1. The folder is made once, by the real store on files in memory, and is the same in each process;
   each damage works on a copy.
2. A damage names the records it may cost: those whose bytes it touches. Damage to what is derived
   from the log costs records only until queues and index are made anew, damage to names, sizes and
   whole files of queues and index none at all.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from orbitmq.core import Stamp, append, tag_code_in
from orbitmq.core.state import ENTRY
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import Store
from orbitmq.wire.record import FIELDS, Record
from tests.core.hot import ORIGIN
from tests.store.keyed import StillClock
from tests.store.made_folder import SCHEDULE_TOPIC, START_MS, TABLES, Sent
from tests.store.opened import flush, open_store
from tests.store.slow_store import Blobs, blobs_of, code_of, queue_entries, read_log
from tests.world.memory_files import MemoryFiles

ROOT = Path("/small")
OPTIONS = StoreOptions(
    log_file_size=4_096, queue_file_size=200, index_slot_count=11, index_entry_count=40
)
SECTOR = 512
MESSAGE_COUNT = 100
TOPICS = (
    f"""{{"topicConfigTable":{{"TopicA":{{}},"TopicB":{{}},"{SCHEDULE_TOPIC}":{{}}}}}}""".encode()
)
QueueKey = tuple[str, int]
Flip = tuple[str, int, int]
"""One bit: path, position, bit."""


class Truth(NamedTuple):
    """One record as it was written."""

    record: Record
    size: int
    data: bytes

    @property
    def queue(self) -> QueueKey:
        return self.record.topic, self.record.queue_id

    @property
    def is_queued(self) -> bool:
        return not self.record.sys_flag & 0x4


class Healthy(NamedTuple):
    """A folder before it is damaged."""

    files: MemoryFiles
    blobs: Blobs
    records: dict[int, Truth]
    """By log offset."""
    unfiled: frozenset[int]
    """Those whose queue entries were not written yet when the process was killed."""
    end_offset: int
    is_clean: bool

    def copy(self) -> MemoryFiles:
        """Return the same files to be changed."""
        return self.files.kill_image(0)


class Damage(NamedTuple):
    """What is done to a folder."""

    name: str
    path: str
    """What a check should name, or a folder of it."""
    changes: dict[str, bytes | None]
    """Files that become these bytes; None: removed."""
    cost: frozenset[int] = frozenset()
    """The log offsets of records that nobody can bring back."""
    cost_for_now: frozenset[int] = frozenset()
    """Of those that are back when queues and index were made anew."""
    field: str = ""
    """For one flipped bit: the field of a record, or `entry`, `header`, `unused` … it lies in."""


def put_damage(healthy: Healthy, damage: Damage) -> MemoryFiles:
    """Return the damaged folder."""
    files = healthy.copy()
    for path, data in damage.changes.items():
        if data is not None:
            files.put(ROOT / path, data)
            continue
        files.remove(ROOT / path)
        for folder in (ROOT / path).parents:
            if len(folder.parts) <= len(ROOT.parts) + 1 or files.names(folder):
                break
            files.remove_folder(folder)
    files.forget_ops()
    return files


# --- the healthy folder ---


def _sent(number: int) -> Sent:
    chance = Random(number)
    keys = f"UNIQ_KEY\x01U{number:04d}\x02KEYS\x01k{number % 7} every\x02"
    tag = f"TAGS\x01tag{number % 3}\x02" if number % 4 else ""
    body = chance.randbytes((0, 10, 40, 70, 130)[number % 5] if number != 50 else 1_500)
    match number % 10:
        case 3:
            return Sent("TopicB", 1, keys, 0, body)
        case 5:
            return Sent("TopicA", 0, keys, 0x8, body)
        case 7:
            return Sent("TopicB", 1, keys, (0x4, 0xC)[number % 20 > 10], body)
        case 8 if number % 20 == 8:
            delayed = f"DELAY\x013\x02REAL_TOPIC\x01TopicA\x02{keys}"
            return Sent(SCHEDULE_TOPIC, 2, delayed, 0, body)
    return Sent("TopicA", number % 3, tag + keys, 0, body)


def _stage(store: Store, number: int) -> None:
    sent = _sent(number)
    store.tail.store_ms = START_MS + 700 * number
    properties = sent.properties.encode()
    code = tag_code_in(properties)
    if sent.topic == SCHEDULE_TOPIC:
        code = store.tail.store_ms + 10_000
    stamp = Stamp(7, sent.sys_flag, START_MS - 3, 0, 0, code)
    append(store.tail, store.queue(sent.topic, sent.queue_id), ORIGIN, stamp, sent.body, properties)


@cache
def made() -> tuple[Healthy, Healthy]:
    """Return the folder after a clean stop, and as a kill a little earlier would leave it."""
    files = MemoryFiles(ROOT)
    files.make_folder(ROOT / "config")
    for name, data in {**TABLES, "topics.json": TOPICS}.items():
        files.replace(ROOT / "config" / name, data)
    store = open_store(ROOT, files, OPTIONS, clock=StillClock())
    for number in range(MESSAGE_COUNT):
        _stage(store, number)
        if number % 3 == 2:
            store.write_staged()
        if number % 16 == 15:
            flush(store, is_thorough=number % 32 == 15)
    store.write_staged()
    killed = files.kill_image(len(files.ops))
    store.close()
    files.forget_ops()
    return _healthy(files, is_clean=True), _healthy(killed, is_clean=False)


def _healthy(files: MemoryFiles, *, is_clean: bool) -> Healthy:
    blobs = blobs_of(files, ROOT)
    log = read_log(blobs)
    assert len(log.records) == MESSAGE_COUNT
    assert log.gaps == []
    records = {}
    for record, size in log.records:
        start = record.log_offset % OPTIONS.log_file_size
        data = blobs[log_path(record.log_offset)][start : start + size]
        records[record.log_offset] = Truth(record, size, data)
    filed = {
        entry.log_offset for queue in queue_entries(blobs).values() for entry in queue.values()
    }
    unfiled = frozenset(at for at, truth in records.items() if truth.is_queued) - filed
    return Healthy(files, blobs, records, unfiled, log.end_offset, is_clean)


def log_path(log_offset: int) -> str:
    """Return the log file that holds an offset."""
    return f"commitlog/{log_offset - log_offset % OPTIONS.log_file_size:020d}"


# --- whom it costs ---


def _log_cost(healthy: Healthy, path: str, start: int, end: int) -> frozenset[int]:
    """Return the records that lie in [start, end) of a log file."""
    base = int(path.rpartition("/")[2])
    return frozenset(
        offset
        for offset, truth in healthy.records.items()
        if offset < base + end and base + start < offset + truth.size
    )


def _entry_cost(healthy: Healthy, path: str, start: int, end: int) -> frozenset[int]:
    """Return the records whose queue entries lie in [start, end) of a queue file."""
    size = ENTRY.size
    cost = set()
    for at in range(start // size * size, end, size):
        log_offset, record_size, _ = ENTRY.unpack_from(healthy.blobs[path], at)
        if record_size:
            cost.add(log_offset)
    return frozenset(cost)


def costs(healthy: Healthy, path: str, start: int, end: int) -> tuple[frozenset[int], ...]:
    """Return what a change of [start, end) of a file may cost: for ever, and for now."""
    if path.startswith("commitlog/"):
        return _log_cost(healthy, path, start, end), frozenset()
    if path.startswith("consumequeue/"):
        return frozenset(), _entry_cost(healthy, path, start, end)
    return frozenset(), frozenset()


# --- one bit ---


def flip(healthy: Healthy, path: str, position: int, bit: int) -> Damage:
    """Turn one bit of one file."""
    data = bytearray(healthy.blobs[path])
    data[position] ^= 1 << bit
    cost, for_now = costs(healthy, path, position, position + 1)
    field = _field(healthy, path, position)
    name = f"bit {bit} of byte {position} of {path} ({field})"
    return Damage(name, path, {path: bytes(data)}, cost, for_now, field)


def _field(healthy: Healthy, path: str, position: int) -> str:
    """Name the part of a file that a byte belongs to."""
    match path.partition("/")[0]:
        case "commitlog":
            offset = int(path.rpartition("/")[2]) + position
            for at in _log_cost(healthy, path, position, position + 1):
                return record_field(healthy.records[at], offset - at)
            return "unused"
        case "checkpoint":
            return "stamps" if position < 24 else "block" if 64 <= position < 268 else "unused"
        case folder:
            return folder


def record_field(truth: Truth, place: int) -> str:
    """Name the field of a record that holds the byte at `place`."""
    for field in FIELDS:
        if field.position <= place < field.position + field.size:
            return field.name
    rest = place - 88 - len(truth.record.body)
    topic_end = 1 + len(truth.record.topic.encode())
    if rest < 0:
        return "body"
    if rest < topic_end:
        return "topic"
    return "properties_size" if rest < topic_end + 2 else "properties"


def all_flips(healthy: Healthy, folder: str) -> list[Flip]:
    """Name every bit of every file of a folder, for `flip`."""
    return [
        (path, position, bit)
        for path in sorted(healthy.blobs)
        if path.startswith(folder)
        for position in range(len(healthy.blobs[path]))
        for bit in range(8)
    ]


def some_flips(healthy: Healthy, seed: int, count: int) -> list[Flip]:
    """Name some bits: of each field of some records, and anywhere in each kind of file."""
    chance = Random(seed)
    flips: list[Flip] = []
    for offset in chance.sample(sorted(healthy.records), 4):
        truth = healthy.records[offset]
        places = {record_field(truth, place): place for place in range(truth.size)}
        for place in places.values():
            path, position = log_path(offset), offset % OPTIONS.log_file_size + place
            flips.append((path, position, chance.randrange(8)))
    for folder, share in (("commitlog", 2), ("consumequeue", 4), ("index", 4), ("checkpoint", 8)):
        flips += chance.sample(all_flips(healthy, folder), count // share)
    return flips


# --- sectors ---


def sector_damages(healthy: Healthy, seed: int = 1) -> Iterator[Damage]:
    """Zero, swap, repeat and lose the last write of sectors of log and index files."""
    chance = Random(seed)
    for path, data in sorted(healthy.blobs.items()):
        if not path.startswith(("commitlog/", "index/")):
            continue
        starts = range(0, len(data), SECTOR)
        for start in starts:
            other = chance.choice(starts)
            here, there = data[start : start + SECTOR], data[other : other + SECTOR]
            keep = chance.randrange(1, SECTOR)
            yield from _changed(healthy, "zeroed", path, [(start, bytes(len(here)))])
            yield from _changed(
                healthy, "lost its last write", path, [(start + keep, bytes(len(here[keep:])))]
            )
            if len(here) == len(there):
                yield from _changed(healthy, "repeated", path, [(start, there)])
                yield from _changed(healthy, "swapped", path, [(start, there), (other, here)])
    for path, data in sorted(healthy.blobs.items()):
        if path.startswith("consumequeue/"):
            yield from _changed(healthy, "zeroed", path, [(0, bytes(len(data)))])
            yield from _changed(healthy, "lost its last write", path, [(60, bytes(len(data) - 60))])


def _changed(
    healthy: Healthy, what: str, path: str, pieces: Iterable[tuple[int, bytes]]
) -> Iterator[Damage]:
    data = bytearray(healthy.blobs[path])
    cost: frozenset[int] = frozenset()
    for_now: frozenset[int] = frozenset()
    where = []
    for start, piece in pieces:
        before = bytes(data[start : start + len(piece)])
        if before == piece:
            continue
        first = next(at for at in range(len(piece)) if before[at] != piece[at])
        last = next(at for at in reversed(range(len(piece))) if before[at] != piece[at])
        more = costs(healthy, path, start + first, start + last + 1)
        cost, for_now = cost | more[0], for_now | more[1]
        data[start : start + len(piece)] = piece
        where.append(str(start))
    if where:
        name = f"sector {what} at {' and '.join(where)} of {path}"
        yield Damage(name, path, {path: bytes(data)}, cost, for_now)


# --- whole files ---


def file_damages(healthy: Healthy) -> Iterator[Damage]:
    """Cut, lengthen, remove and copy files; remove folders."""
    for path, data in sorted(healthy.blobs.items()):
        folder = path.partition("/")[0]
        if folder in ("config", "lock", "abort", "aside"):
            continue
        for size in sorted({0, 1, len(data) // 2, len(data) - 1}):
            cost = costs(healthy, path, size, len(data))[0]
            yield Damage(f"{path} cut to {size}", path, {path: data[:size]}, cost)
        for more in (bytes(1), bytes(SECTOR), data):
            name = f"{path} lengthened by {len(more)}"
            yield Damage(name, path, {path: data + more})
        cost = costs(healthy, path, 0, len(data))[0]
        yield Damage(f"{path} removed", path, {path: None}, cost)
        yield from _copies(path, data, folder)
    yield from _removed_folders(healthy)
    if not healthy.is_clean:
        yield Damage("abort removed", "", {"abort": None})


def _copies(path: str, data: bytes, folder: str) -> Iterator[Damage]:
    parent, _, name = path.rpartition("/")
    if not name.isdigit():
        return
    number, width = int(name), len(name)
    names = {f"{number + 1:0{width}d}", f"{number}", f"{name}.copy", "copy"}
    if folder != "index":
        names.add(f"{number + 40 * len(data):0{width}d}")
    for copy in sorted(names - {name}):
        target = f"{parent}/{copy}"
        yield Damage(f"{path} copied to {target}", target, {target: data})


def _removed_folders(healthy: Healthy) -> Iterator[Damage]:
    folders = {path.rpartition("/")[0] for path in healthy.blobs}
    folders |= {path.rpartition("/")[0] for path in folders}
    for folder in sorted(folders):
        if folder.partition("/")[0] in ("consumequeue", "index"):
            gone: dict[str, bytes | None] = {
                path: None for path in healthy.blobs if path.startswith(folder + "/")
            }
            yield Damage(f"folder {folder} removed", folder, gone)


def table_damages(healthy: Healthy) -> Iterator[Damage]:
    """Damage each JSON table."""
    for path, data in sorted(healthy.blobs.items()):
        if not path.startswith("config/") or not path.endswith(".json"):
            continue
        for kind, new in (
            ("empty", b""),
            ("zeros", bytes(len(data))),
            ("torn", data[: len(data) // 2]),
            ("zeros behind", data[:20].ljust(len(data), b"\0")),
            ("a list", b"[1]"),
            ("another table", b'{"other":{}}'),
        ):
            yield Damage(f"{path}: {kind}", path, {path: new})


def assert_as_sent(healthy: Healthy) -> None:
    """Assert that the folder is what was meant: entries of all queues, files of all kinds."""
    queues = queue_entries(healthy.blobs)
    for truth in healthy.records.values():
        if truth.is_queued:
            entry = queues[truth.queue][truth.record.queue_offset]
            assert entry == (truth.record.log_offset, truth.size, code_of(truth.record))
