"""Opening a folder: the log is read from its first record to its last.

In: the log's files as memory. Out: one value per record, and the end of the log; or StoreError.

Rules:
1. A record counts when its magic, its sizes, its own log offset and the CRC of its body are right.
2. A blank record sends the reader to the next file. The first bytes that are no record end the log.
3. What ends the log is a torn tail only if no record follows it. Otherwise it is damage inside, and
   opening is refused with file and offset: going on would write over messages that are there.
4. Everything else (queues, their offsets) is made anew from these values.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.core import LogTail
from orbitmq.errors import CorruptRecord, StoreError
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import TAGS, parse_properties
from orbitmq.wire.record import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, Record, decode_record
from orbitmq.wire.sysflag import enters_queue

_START = struct.Struct(">iI")
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))

LOOK_AHEAD_BYTES = 16 * 1024 * 1024
"""How far behind the end of the log a further record is looked for: more than any record takes."""


class Found(NamedTuple):
    """What following the log needs to know of one record."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    tags_code: int
    store_ms: int
    takes_place: bool


def scan(tail: LogTail, file_numbers: list[int]) -> Iterator[Found]:
    """Give every record in order; afterwards `tail.end_offset` is the end of the log.

    Raises StoreError when records follow what ends the log.
    """
    for index, number in enumerate(file_numbers):
        log_offset = number * tail.file_size
        if index and number != file_numbers[index - 1] + 1:
            raise _damage(tail, log_offset, "the file before it is missing")
        tail.end_offset = log_offset
        view = tail.views[number]
        for found in _scan_file(view, log_offset):
            tail.end_offset = found.log_offset + found.size
            yield found
        if not _ends_blank(view, tail.end_offset - log_offset):
            _check_nothing_follows(tail, file_numbers[index + 1 :])
            return
        tail.end_offset = log_offset + tail.file_size


def _ends_blank(view: memoryview, position: int) -> bool:
    if len(view) - position < _START.size:
        return False
    size, magic = _START.unpack_from(view, position)
    return bool(magic == BLANK_MAGIC and size == len(view) - position)


def _scan_file(view: memoryview, file_offset: int) -> Iterator[Found]:
    position = 0
    while (whole := _record_at(view, position, file_offset)) is not None:
        record, size = whole
        tag = parse_properties(record.properties).get(TAGS)
        yield Found(
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.log_offset,
            size,
            tag_code(tag) if tag else 0,
            record.store_ms,
            takes_place=enters_queue(record.sys_flag),
        )
        position += size


def _record_at(view: memoryview, position: int, file_offset: int) -> tuple[Record, int] | None:
    """Give the record at a position of a file, or None when there is no whole one of its own."""
    if position + _START.size > len(view):
        return None
    size, magic = _START.unpack_from(view, position)
    if magic in (0, BLANK_MAGIC) or not 0 < size <= len(view) - position:
        return None
    try:
        record, size = decode_record(view[position : position + size], size_max=size)
    except CorruptRecord:
        return None
    return (record, size) if record.log_offset == file_offset + position else None


def _check_nothing_follows(tail: LogTail, later_numbers: list[int]) -> None:
    """Refuse to take damage inside the log for its end."""
    end = tail.end_offset
    number, position = divmod(end, tail.file_size)
    ahead = bytes(tail.views[number][position : position + LOOK_AHEAD_BYTES])
    for magic in _MAGICS:
        at = ahead.find(magic)
        while at >= 0:
            if at >= 4 and _record_at(
                tail.views[number], position + at - 4, number * tail.file_size
            ):
                raise _damage(tail, end, f"a whole record follows at {end + at - 4}")
            at = ahead.find(magic, at + 1)
    for later in later_numbers:
        if _record_at(tail.views[later], 0, later * tail.file_size):
            raise _damage(tail, end, f"records follow at {later * tail.file_size}")


def _damage(tail: LogTail, log_offset: int, why: str) -> StoreError:
    name = f"{log_offset // tail.file_size * tail.file_size:020d}"
    return StoreError(
        f"damage in the log: commitlog/{name} at log offset {log_offset}: {why}; nothing was "
        "changed. Bring the file back from a copy; this version cannot skip damage"
    )
