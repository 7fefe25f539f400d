"""The recorded stores of this folder, in memory.

In: `store-clean.tar.gz`, `store-crashed.tar.gz` and `store-records.jsonl.gz`. Out: the bytes of
their files, their queue entries and what their log holds, record by record.
"""

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record

CLEAN, CRASHED = "store-clean", "store-crashed"
FOLDER = Path(__file__).parent
LOG_FILE_SIZE = 131_072
QUEUE_FILE_SIZE = 2_000
INDEX_SLOT_COUNT = 500
INDEX_ENTRY_COUNT = 200

_ENTRY = struct.Struct(">qiq")
_EXT_UNIT = struct.Struct(">hqqh")  # size, tag code, store time, bits
_EXT_ADDRESS_MAX = -(2**31) - 1
_EXT_BASE = -(2**63)


class QueueEntry(NamedTuple):
    """One entry of a consume queue; the tag code is taken from the ext file where it lies there."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    tag_code: int


@cache
def store_files(name: str = CLEAN) -> dict[str, bytes]:
    """Return the files of a recorded store by their path inside it."""
    packed = io.BytesIO(gzip.decompress((FOLDER / f"{name}.tar.gz").read_bytes()))
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=packed) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None:
                files[member.name.removeprefix("./").partition("/")[2]] = content.read()
    return files


def unpack_store(name: str, root: Path) -> None:
    """Write a recorded store into a folder."""
    for inside, data in store_files(name).items():
        path = root / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def log_files() -> list[tuple[int, bytes]]:
    """Return the log's files: offset of the first byte, and the bytes."""
    prefix = "commitlog/"
    return [
        (int(name.removeprefix(prefix)), data)
        for name, data in sorted(store_files().items())
        if name.startswith(prefix)
    ]


@cache
def stored_records() -> tuple[dict[str, Any], ...]:
    """Return what the log holds, as it was written down when the store was recorded."""
    with gzip.open(FOLDER / "store-records.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def described(record: Record, size: int) -> dict[str, Any]:
    """Return a record with the names of the recording."""
    return {
        "body_crc": record.crc,
        "body_sha256": hashlib.sha256(record.body).hexdigest()[:16],
        "body_size": len(record.body),
        "born_host": str(record.born_host),
        "born_timestamp": record.born_ms,
        "flag": record.flag,
        "offset": record.log_offset,
        "prepared_transaction_offset": record.prepared_offset,
        "properties": parse_properties(record.properties),
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "reconsume_times": record.reconsume_times,
        "size": size,
        "store_host": str(record.store_host),
        "store_timestamp": record.store_ms,
        "sys_flag": record.sys_flag,
        "topic": record.topic,
    }


def queue_entries() -> Iterator[QueueEntry]:
    """Return every entry of every queue."""
    for name, data in sorted(store_files().items()):
        folder, _, rest = name.partition("/")
        if folder != "consumequeue":
            continue
        topic, queue_id, first_byte = rest.split("/")
        for position in range(0, len(data), _ENTRY.size):
            log_offset, size, tag_code = _ENTRY.unpack_from(data, position)
            if size <= 0:
                break
            if tag_code <= _EXT_ADDRESS_MAX:
                tag_code = _ext_tag_code(topic, queue_id, tag_code - _EXT_BASE)
            queue_offset = (int(first_byte) + position) // _ENTRY.size
            yield QueueEntry(topic, int(queue_id), queue_offset, log_offset, size, tag_code)


def _ext_tag_code(topic: str, queue_id: str, ext_offset: int) -> int:
    prefix = f"consumequeue_ext/{topic}/{queue_id}/"
    files = store_files()
    file_size = len(files[f"{prefix}{0:020d}"])
    start = ext_offset // file_size * file_size
    unit = _EXT_UNIT.unpack_from(files[f"{prefix}{start:020d}"], ext_offset - start)
    return int(unit[1])
