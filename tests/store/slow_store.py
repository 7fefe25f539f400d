"""The store once more, slow and obvious: what the queues and the index must be, from log bytes.

In: a store folder as a mapping of path inside it to bytes, or any `Files` with the folder's root.
Out: the records of the log, the queue entries and index files they demand, and the entries that
the folder's own files hold, in the same shapes, so that a test compares them with `==`.

Rules:
1. Nothing of orbitmq.store or orbitmq.core is used: records come from wire.record.decode_record,
   everything else is spelled out here.
2. Speed does not matter; every step is the shortest way to say what the format says.
3. Damage in the log is stepped over byte by byte and listed, like the torn tail behind its end.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from orbitmq.errors import CorruptRecord
from orbitmq.wire.java import index_hash, string_hash
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import BLANK_MAGIC, Record, decode_record
from orbitmq.world.files import Files

Blobs = Mapping[str, bytes]
"""Path inside the store folder, with slashes, to contents."""

HOLE_SIZE = 0x7FFFFFFF
DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

_ENTRY = struct.Struct(">qiq")
_EXT_UNIT = struct.Struct(">hqqh")
_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ENTRY = struct.Struct(">iqii")
_EXT_BASE = -(2**63)


class Stored(NamedTuple):
    """One record of the log and the bytes it takes."""

    record: Record
    size: int


class Gap(NamedTuple):
    """Bytes of the log that are no record: [start, end)."""

    start: int
    end: int


class SlowLog(NamedTuple):
    """Everything the log's files hold."""

    first_offset: int
    end_offset: int
    """Behind the last record, or behind the file that a blank record closes."""
    records: list[Stored]
    gaps: list[Gap]
    """Damage between records; what follows the last record is not in here."""


class Entry(NamedTuple):
    """One queue entry."""

    log_offset: int
    size: int
    code: int


Queues = dict[tuple[str, int], dict[int, Entry]]
"""(topic, queue id) to queue offset to entry."""


# --- the folder ---


def blobs_of(files: Files, root: Path) -> dict[str, bytes]:
    """Return every file below `root`; for small folders, everything is read."""
    blobs: dict[str, bytes] = {}
    pending = [""]
    while pending:
        inside = pending.pop()
        for name in files.names(root / inside):
            path = f"{inside}/{name}" if inside else name
            if files.is_folder(root / path):
                pending.append(path)
            else:
                blobs[path] = files.read(root / path) or b""
    return blobs


def files_in(blobs: Blobs, folder: str) -> list[tuple[int, bytes]]:
    """Return the files of a folder that are named by an offset, in order."""
    found = []
    for path, data in blobs.items():
        parent, _, name = path.rpartition("/")
        if parent == folder and len(name) == 20 and name.isdigit():
            found.append((int(name), data))
    return sorted(found)


# --- the log ---


def read_log(blobs: Blobs) -> SlowLog:
    """Return the records of the log in order, damage stepped over."""
    files = files_in(blobs, "commitlog")
    records: list[Stored] = []
    gaps: list[Gap] = []
    end = first = files[0][0] if files else 0
    for base, data in files:
        position = 0
        while position < len(data):
            stored = record_at(data, position, base)
            # A blank does not say where it lies: it counts in a file that the log has reached.
            is_closed = stored is None and end >= base and is_closing_blank(data, position)
            if stored is None and not is_closed:
                position += 1
                continue
            if base + position > end:
                gaps.append(Gap(end, base + position))
            if is_closed:
                position = len(data)
            if stored is not None:
                records.append(stored)
                position += stored.size
            end = base + position
    return SlowLog(first, end, records, gaps)


def record_at(data: bytes, position: int, base: int) -> Stored | None:
    """Return the whole record that begins at a position and says so itself."""
    size = int.from_bytes(data[position : position + 4], "big")
    if not 0 < size <= len(data) - position:
        return None
    try:
        record, size = decode_record(data[position : position + size])
    except CorruptRecord:
        return None
    return Stored(record, size) if record.log_offset == base + position else None


def is_closing_blank(data: bytes, position: int) -> bool:
    """Whether a blank record that fills the file begins here."""
    left = len(data) - position
    return left >= 8 and data[position : position + 8] == struct.pack(">iI", left, BLANK_MAGIC)


# --- queues ---


def build_queues(records: Iterable[Stored], delays_s: tuple[int, ...] = DELAYS_S) -> Queues:
    """Return the entries that the records demand, by queue and number.

    A record numbered 0 in a queue that has entries begins the queue anew (the topic was deleted and
    made again). Numbers whose records are damaged are simply not there.
    """
    queues: Queues = {}
    for record, size in records:
        if record.sys_flag & 0x4:  # prepared and rolled back messages stand in no queue
            continue
        queue = queues.setdefault((record.topic, record.queue_id), {})
        if record.queue_offset == 0:
            queue.clear()
        queue[record.queue_offset] = Entry(record.log_offset, size, code_of(record, delays_s))
    return queues


def code_of(record: Record, delays_s: tuple[int, ...] = DELAYS_S) -> int:
    """Return the code of a record's queue entry: hash of its tag, or when it is due."""
    properties = parse_properties(record.properties)
    if record.topic == "SCHEDULE_TOPIC_" + "X" * 4 and "DELAY" in properties:
        level = min(int(properties["DELAY"]), len(delays_s))
        if level > 0:
            return record.store_ms + 1000 * delays_s[level - 1]
    return string_hash(properties.get("TAGS", ""))


def queue_entries(blobs: Blobs) -> Queues:
    """Return the entries that the queue files hold, holes and fillers left out, codes resolved.

    A queue ends at its first entry without a size.
    """
    queues: Queues = {}
    folders = {path.rpartition("/")[0] for path in blobs if path.startswith("consumequeue/")}
    for folder in sorted(folders):
        _, topic, queue_id = folder.split("/")
        entries = dict(_entries_in(blobs, folder))
        if entries:
            queues[topic, int(queue_id)] = entries
    return queues


def _entries_in(blobs: Blobs, folder: str) -> Iterator[tuple[int, Entry]]:
    for base, data in files_in(blobs, folder):
        for position in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
            entry = Entry(*_ENTRY.unpack_from(data, position))
            if entry.size <= 0:
                return
            if entry.size != HOLE_SIZE:
                code = _resolved(blobs, folder, entry.code)
                yield (base + position) // _ENTRY.size, entry._replace(code=code)


def _resolved(blobs: Blobs, folder: str, code: int) -> int:
    """Return the code behind an address into the queue's extra file, other codes as they are."""
    if code >= -(2**31):
        return code
    address = code - _EXT_BASE
    extras = folder.replace("consumequeue/", "consumequeue_ext/", 1)
    for base, data in files_in(blobs, extras):
        if base <= address < base + len(data):
            return int(_EXT_UNIT.unpack_from(data, address - base)[1])
    if files_in(blobs, extras):  # removed with its record; of no other record it is the code
        return code
    raise AssertionError(f"{folder}: address {address} is in no file of {extras}")


# --- the index ---


def keys_of(record: Record) -> list[str]:
    """Return the texts under which a record is indexed, in the order of its index entries."""
    if record.sys_flag & 0xC == 0xC:  # rolled back
        return []
    properties = parse_properties(record.properties)
    keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return [f"{record.topic}#{key}" for key in keys if key]


def build_lookups(records: Iterable[Stored]) -> dict[int, list[int]]:
    """Give, for each hash of a key text, the log offsets filed under it, newest first."""
    lookups: dict[int, list[int]] = {}
    for record, _ in records:
        for key in keys_of(record):
            lookups.setdefault(index_hash(key), []).insert(0, record.log_offset)
    return lookups


def build_index(records: Iterable[Stored], slot_count: int, entry_count: int) -> list[bytes]:
    """Return the index files, byte for byte, that the records fill one after the other."""
    files: list[bytearray] = []
    for record, _ in records:
        for key in keys_of(record):
            if not files or _INDEX_HEADER.unpack_from(files[-1])[5] >= entry_count:
                files.append(bytearray(40 + 4 * slot_count + 20 * entry_count))
                _INDEX_HEADER.pack_into(files[-1], 0, 0, 0, 0, 0, 0, 1)
            _insert(files[-1], slot_count, index_hash(key), record)
    return [bytes(file) for file in files]


def _insert(file: bytearray, slot_count: int, key_hash: int, record: Record) -> None:
    begin_ms, _, begin_offset, _, used, number = _INDEX_HEADER.unpack_from(file)
    if number == 1:
        begin_ms, begin_offset = record.store_ms, record.log_offset
    slot = 40 + 4 * (key_hash % slot_count)
    (previous,) = struct.unpack_from(">i", file, slot)
    seconds = min(max((record.store_ms - begin_ms) // 1000, 0), 2**31 - 1)
    entry = 40 + 4 * slot_count + 20 * number
    _INDEX_ENTRY.pack_into(file, entry, key_hash, record.log_offset, seconds, previous)
    struct.pack_into(">i", file, slot, number)
    used += previous == 0
    header = (begin_ms, record.store_ms, begin_offset, record.log_offset, used, number + 1)
    _INDEX_HEADER.pack_into(file, 0, *header)


def index_files(blobs: Blobs) -> list[bytes]:
    """Return the folder's index files in the order of their names."""
    return [data for path, data in sorted(blobs.items()) if path.startswith("index/")]


def read_lookups(files: Iterable[bytes], slot_count: int) -> dict[int, list[int]]:
    """Give, for each hash, the log offsets that the chains of index files lead to, newest first.

    Entries that a header does not count yet are passed over: after a crash slots may lead to them.
    """
    lookups: dict[int, list[int]] = {}
    for file in reversed(list(files)):
        count = _INDEX_HEADER.unpack_from(file)[5]
        for slot in range(slot_count):
            (number,) = struct.unpack_from(">i", file, 40 + 4 * slot)
            while number > 0:
                position = 40 + 4 * slot_count + 20 * number
                assert position + 20 <= len(file), "a chain leads out of its file"
                key_hash, log_offset, _, previous = _INDEX_ENTRY.unpack_from(file, position)
                if number < count:
                    lookups.setdefault(key_hash, []).append(log_offset)
                assert previous < number, "a chain goes back"
                number = previous
    return lookups


# --- all of it ---


def assert_derived(blobs: Blobs, slot_count: int, *, may_repeat: bool = False) -> SlowLog:
    """Assert that queues and index are exactly what the log demands; return the log.

    Entries of records whose log file is gone are not judged, nor are files that lie aside.
    `may_repeat`: the original indexes the last message of a kept index file twice after a kill.
    """
    log = read_log(blobs)
    demanded = {key: queue for key, queue in build_queues(log.records).items() if queue}
    assert _within(queue_entries(blobs), log.first_offset) == demanded
    found = _pairs(read_lookups(index_files(blobs), slot_count), log.first_offset)
    wanted = _pairs(build_lookups(log.records), log.first_offset)
    assert set(found) == set(wanted)
    assert may_repeat or found == wanted
    return log


def _pairs(lookups: dict[int, list[int]], first_offset: int) -> Counter[tuple[int, int]]:
    """Count (hash, log offset)."""
    return Counter(
        (key_hash, log_offset)
        for key_hash, log_offsets in lookups.items()
        for log_offset in log_offsets
        if log_offset >= first_offset
    )


def _within(queues: Queues, first_offset: int) -> Queues:
    kept = {
        key: {number: entry for number, entry in queue.items() if entry.log_offset >= first_offset}
        for key, queue in queues.items()
    }
    return {key: queue for key, queue in kept.items() if queue}
