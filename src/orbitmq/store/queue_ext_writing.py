"""Writing extra units of queue entries, when the store is told to.

In: runs of entries on their way into queue files, and who says which filters a message passes. Out:
units in their files, and the entries with addresses where their codes were.

Rules:
1. Units are in the kernel before the entries that lead to them, and on the disk before the synced
   mark. After a power cut recovery believes no bits behind that mark (replay.py).
2. A place that an entry leads to is never written again. A queue goes on behind the last unit that
   an entry leads to; when that is not found, with a new file. What lies behind goes.
3. A flush that failed is done again with the units it has: `confirm` says that its entries are in
   their files.
4. Entries of the schedule topic keep the time at which their message is due: whoever delivers reads
   it at a glance. The original understands that, as it does any entry without a unit.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from orbitmq.core import Queue
from orbitmq.core.state import ENTRY_SIZE
from orbitmq.store.consume_queue import QueueFiles
from orbitmq.store.jobs import UnwrittenEntries
from orbitmq.store.layout import can_hold_queue, file_name
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.queue_ext import (
    END_MARK,
    KEPT_SIZE,
    ExtraUnits,
    address_of,
    encode_unit,
    end_of_units,
    last_address,
    offset_of,
    unit_files,
)
from orbitmq.store.queue_ext_records import Entries, ReadLog, records_of
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.world.files import BigFile, Files

LOOK_BACK_COUNT = 65_536
"""Entries in which the last unit of a queue is looked for: more than a kill leaves without."""

PLACE_SIZE_MAX = 4_096
"""More than twice the largest unit: where its files are lost, a queue's units lie before this times
the number of its entries."""

_CODE = struct.Struct(">q")
_CODE_AT = ENTRY_SIZE - _CODE.size
"""Where an entry has its code: at its end."""

QueueKey = tuple[str, int]
BitMapOf = Callable[[str, bytes], bytes]
"""Gives the bit map of a message, by its topic and properties; empty when there are no filters."""


class _Line(msgspec.Struct):
    """Where the units of one queue go on."""

    file_start: int
    file_size: int
    offset: int


class UnitWriter:
    """Writes the units of all queues; for the flush job's thread."""

    def __init__(
        self, files: Files, folder: Path, file_size: int, queue_files: QueueFiles, read: ReadLog
    ) -> None:
        """`read` gives bytes of the log; `file_size` is that of new files."""
        self._files = files
        self._folder = folder
        self._file_size = file_size
        self._queue_files = queue_files
        self._read = read
        self._open = OpenFiles(files)
        self._lines: dict[QueueKey, _Line] = {}
        self._ready: dict[QueueKey, tuple[int, bytearray]] = {}
        """Queue offset and entries whose units are written, and which may not be in their file."""
        self._unsynced: dict[Path, None] = {}

    def addressed(
        self, runs: Sequence[UnwrittenEntries], bit_map_of: BitMapOf | None
    ) -> list[Entries]:
        """Write the units of runs (queue, queue offset, entries); return the entries to be written.

        Raises StoreError when a file refuses.
        """
        rest = [self._not_ready(*run) for run in runs]
        units: list[list[bytes | None]] = [[] for _ in runs]
        for number, code, record in records_of(self._read, rest):
            if record is None:
                units[number].append(None)
                continue
            bits = bit_map_of(record.topic, record.properties) if bit_map_of is not None else b""
            units[number].append(encode_unit(code, record.store_ms, bits))
        return [
            self._with_addresses(run, entries, found)
            for run, entries, found in zip(runs, rest, units, strict=True)
        ]

    def confirm(self) -> None:
        """Take in that the entries given last are in their files."""
        self._ready.clear()

    def sync(self) -> None:
        """Bring what was written, and its names, to the disk; SyncFailed forgets nothing."""
        if self._unsynced:
            self._files.sync(list(self._unsynced))
            self._unsynced.clear()

    def forget(self, topic: str) -> None:
        """Take in that a topic was removed, with all its files; nothing may be writing."""
        for key in [key for key in self._lines if key[0] == topic]:
            del self._lines[key]
            self._ready.pop(key, None)
            self._open.forget(*key)

    def close(self) -> None:
        """Close all files; nothing may be writing."""
        self._open.close()

    def _not_ready(self, queue: Queue, queue_offset: int, entries: Entries) -> Entries:
        """Return the entries that need a unit yet."""
        if queue.topic == SCHEDULE_TOPIC or not can_hold_queue(queue.topic, queue.queue_id):
            return b""
        return memoryview(entries)[len(self._ready_from(queue, queue_offset)) :]

    def _ready_from(self, queue: Queue, queue_offset: int) -> bytearray:
        offset, ready = self._ready.get((queue.topic, queue.queue_id), (-1, bytearray()))
        return ready if offset == queue_offset else bytearray()

    def _with_addresses(
        self, run: UnwrittenEntries, rest: Entries, units: list[bytes | None]
    ) -> Entries:
        queue, queue_offset, entries = run
        key = (queue.topic, queue.queue_id)
        ready = self._ready_from(queue, queue_offset)
        if not units:
            return ready or entries
        line = self._lines.get(key) or self._find(key, queue_offset)
        changed = bytearray(rest)
        addresses = self._write(key, line, units)
        places = range(_CODE_AT, len(changed), ENTRY_SIZE)
        for place, address in zip(places, addresses, strict=True):
            if address is not None:
                _CODE.pack_into(changed, place, address)
        self._ready[key] = (queue_offset, ready + changed)
        return ready + changed

    # --- Where units go ---

    def _write(self, key: QueueKey, line: _Line, units: list[bytes | None]) -> list[int | None]:
        """Write units behind each other; give their addresses. A refusal changes nothing."""
        addresses: list[int | None] = []
        start, offset, size = line.file_start, line.offset, line.file_size
        piece, piece_offset = bytearray(), line.offset
        for unit in units:
            if unit is None or len(unit) > self._file_size - KEPT_SIZE:
                addresses.append(None)
                continue
            if offset + len(unit) > start + size - KEPT_SIZE:
                self._write_piece(key, start, size, piece_offset, piece + END_MARK)
                start += size
                offset, size = start, self._file_size
                piece, piece_offset = bytearray(), start
            addresses.append(address_of(offset))
            piece += unit
            offset += len(unit)
        self._write_piece(key, start, size, piece_offset, piece)
        line.file_start, line.offset, line.file_size = start, offset, size
        self._lines[key] = line
        return addresses

    def _write_piece(
        self, key: QueueKey, start: int, size: int, offset: int, data: bytearray
    ) -> None:
        if data:
            self._writable(key, start, size).write_at(offset - start, data)

    def _writable(self, key: QueueKey, start: int, size: int) -> BigFile:
        path = self._path(key, start)
        file = self._open.get((*key, start))
        if file is None:
            self._files.make_folder(path.parent)
            for folder in (path.parent, *path.parent.parents[:3]):
                self._unsynced[folder] = None
            self._open.forget(*key)
            file = self._open.open((*key, start), path, size)
        self._unsynced[path] = None
        return file

    def _find(self, key: QueueKey, queue_offset: int) -> _Line:
        """Find where the units of a queue go on; what lies behind is taken away."""
        starts = unit_files(self._files, self._queue_folder(key))
        first_offset = self._queue_files.extent(*key).first_offset
        look_from = max(first_offset, queue_offset - LOOK_BACK_COUNT)
        read = partial(self._queue_files.read_cold, *key)
        address = last_address(read, look_from, queue_offset)
        if address is None:
            if look_from <= first_offset:
                return self._cut(key, starts, 0)
            return self._behind(key, starts, 0 if starts else queue_offset * PLACE_SIZE_MAX)
        unit = ExtraUnits(self._files, self._queue_folder(key)).unit(address)
        if unit is None:
            return self._behind(key, starts, offset_of(address) + 1)
        return self._cut(key, starts, offset_of(address) + len(encode_unit(*unit)))

    def _cut(self, key: QueueKey, starts: list[int], offset: int) -> _Line:
        """Let the units of a queue end at a place: zeros behind it, no later files."""
        start = max((start for start in starts if start < offset), default=0)
        for later in reversed(starts):
            path = self._path(key, later)
            if later > start or not offset:
                self._files.remove(path)
                self._unsynced[path.parent] = None
        if not offset:
            return _Line(0, self._file_size, 0)
        path, position = self._path(key, start), offset - start
        size = max(self._files.size(path) or 0, position + KEPT_SIZE)
        if not self._files.is_zeros(path, position, size - position):
            self._files.resize(path, position)
            self._files.resize(path, size)
            self._unsynced[path] = None
        return _Line(start, size, offset)

    def _behind(self, key: QueueKey, starts: list[int], least_offset: int) -> _Line:
        """Let the units of a queue go on in a new file; the last one is marked as over."""
        start = 0
        if starts:
            path = self._path(key, starts[-1])
            size = self._files.size(path) or self._file_size
            end = end_of_units(self._files, path)
            if end is not None:
                self._writable(key, starts[-1], size).write_at(end, END_MARK)
            start = starts[-1] + size
        missing = max(0, least_offset - start)
        start += -(-missing // self._file_size) * self._file_size
        return _Line(start, self._file_size, start)

    def _queue_folder(self, key: QueueKey) -> Path:
        return self._folder / key[0] / str(key[1])

    def _path(self, key: QueueKey, start: int) -> Path:
        return self._queue_folder(key) / file_name(start)
