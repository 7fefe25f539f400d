"""`orbitmq store dump`: the records of a folder as plain values, without opening it.

In: a folder, live or not, and which records are wanted. Out: one mapping per record, and Damage for
ranges that are none.

Rules:
1. Nothing is changed and no lock is taken; memory stays bounded.
2. With a key the index leads to the records; those that it does not hold yet are looked for in the
   log behind its end. Each record's own keys are compared: hashes collide.
3. Without a key the log is read in order, so damage in between is met and reported.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from orbitmq.core import Walked, keys_of_record
from orbitmq.errors import CorruptRecord
from orbitmq.store.index_shape import (
    ENTRY,
    HEADER,
    HEADER_SIZE,
    SLOT_SIZE,
    Header,
    Shape,
    find_shape,
    is_index_name,
)
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_walk import Damage, LogWalk
from orbitmq.store.options import StoreOptions
from orbitmq.store.places import ensure_log, folder_of
from orbitmq.wire.java import index_hash
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record, decode_record
from orbitmq.world.files import Files

SHA_CHARS = 16
TIME_MS_MAX = 2**63 - 1


class Seen(NamedTuple):
    """A record and the bytes it takes."""

    record: Record
    size: int


class Wanted(NamedTuple):
    """Which records to give; None means any. With `key`, `topic` is needed."""

    topic: str | None = None
    queue_id: int | None = None
    from_offset: int = 0
    key: str | None = None
    from_ms: int = 0
    to_ms: int = TIME_MS_MAX

    def accepts(self, record: Walked) -> bool:
        """Whether a record is one of them."""
        if record.log_offset < self.from_offset:
            return False
        if self.topic is not None and record.topic != self.topic:
            return False
        if self.queue_id is not None and record.queue_id != self.queue_id:
            return False
        if not self.from_ms <= record.store_ms <= self.to_ms:
            return False
        return self.key is None or self.key in keys_of(record)


def keys_of(record: Record | Walked) -> list[str]:
    """Return the keys a record can be found by."""
    keys = keys_of_record(record.sys_flag, record.properties)
    return [*keys.filed, *keys.left_out]


def dump(
    files: Files, root: Path, wanted: Wanted, options: StoreOptions
) -> Iterator[Seen | Damage]:
    """Return the wanted records in log order; raises StoreError when this is no store folder."""
    folder = folder_of(root, options)
    ensure_log(files, folder)
    log = LogWalk(files, LogFolders.of(files, folder))
    from_offset = wanted.from_offset
    if wanted.key is not None:
        shape = Shape(options.index_slot_count, options.index_entry_count)
        look_up = _LookUp(files, folder.index, shape)
        for log_offset in look_up.log_offsets(wanted.topic or "", wanted.key):
            walked = log.whole_at(log_offset)
            if walked is not None and wanted.accepts(walked):
                yield from _seen(log, walked)
        from_offset = max(from_offset, look_up.end_offset + 1)
    for found in log.walk(from_offset):
        if isinstance(found, Walked):
            if found.log_offset >= from_offset and wanted.accepts(found):
                yield from _seen(log, found)
        elif found.start >= from_offset:
            yield found
    if log.tail_start is not None and files.size(folder.abort) is None:
        yield Damage(log.end_offset, log.tail_start + 1, f"{log.tail_text}, then other bytes")


def _seen(log: LogWalk, walked: Walked) -> Iterator[Seen]:
    """Return all of a record, or nothing when a live broker has removed its file meanwhile."""
    data = log.log.read(walked.log_offset, walked.size)
    with suppress(CorruptRecord):
        yield Seen(*decode_record(data, base_offset=walked.log_offset))


def describe(seen: Seen, *, is_body_wanted: bool = False) -> dict[str, Any]:
    """Return a record with the names of the recorded ones, alphabetically."""
    record = seen.record
    described = {
        "body_crc": record.crc,
        "body_sha256": hashlib.sha256(record.body).hexdigest()[:SHA_CHARS],
        "body_size": len(record.body),
        "born_host": str(record.born_host),
        "born_timestamp": record.born_ms,
        "flag": record.flag,
        "offset": record.log_offset,
        "prepared_transaction_offset": record.prepared_offset,
        "properties": dict(sorted(parse_properties(record.properties).items())),
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "reconsume_times": record.reconsume_times,
        "size": seen.size,
        "store_host": str(record.store_host),
        "store_timestamp": record.store_ms,
        "sys_flag": record.sys_flag,
        "topic": record.topic,
    }
    if is_body_wanted:
        described = {"body": b64encode(record.body).decode(), **described}
    return described


class _LookUp:
    """Reads the chains of index files."""

    def __init__(self, files: Files, folder: Path, shape: Shape) -> None:
        self._files = files
        names = files.names(folder)
        self._paths = [folder / name for name in names if is_index_name(name)]
        self._shape = find_shape(files, self._paths, shape)
        headers = [self._header(path) for path in self._paths]
        self._headers = [header for header in headers if header is not None]
        self.end_offset = max((header.end_offset for header in self._headers), default=-1)
        """The last record that the index holds."""

    def log_offsets(self, topic: str, key: str) -> list[int]:
        """Return the log offsets filed under a key's hash, in order."""
        key_hash = index_hash(f"{topic}#{key}")
        found = {at for path in self._paths for at in self._chain(path, key_hash)}
        return sorted(found)

    def _header(self, path: Path) -> Header | None:
        data = self._files.read_at(path, 0, HEADER_SIZE)
        is_whole = data is not None and self._files.size(path) == self._shape.file_size
        return Header(*HEADER.unpack(data)) if data is not None and is_whole else None

    def _chain(self, path: Path, key_hash: int) -> Iterator[int]:
        header = self._header(path)
        if header is None:
            return
        slot = HEADER_SIZE + SLOT_SIZE * (key_hash % self._shape.slot_count)
        data = self._files.read_at(path, slot, SLOT_SIZE)
        number = int.from_bytes(data or b"", "big", signed=True)
        while 0 < number < self._shape.entry_count:
            data = self._files.read_at(path, self._shape.entry_position(number), ENTRY.size)
            if data is None or len(data) < ENTRY.size:
                return
            own_hash, log_offset, _, previous = ENTRY.unpack(data)
            if own_hash == key_hash and number < header.next_number:
                yield log_offset
            if previous >= number:  # chains go back; anything else is damage and could be endless
                return
            number = previous
