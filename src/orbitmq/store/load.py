"""Opening a folder: the log is read from its first record to its last.

In: the log's files as memory. Out: one value per record, and the end of the log.

Rules:
1. A record counts when its magic, its sizes, its own log offset and the CRC of its body are right.
2. A blank record sends the reader to the next file. The first bytes that are no record end the log.
3. Everything else (queues, their offsets) is made anew from these values.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.core import LogTail
from orbitmq.errors import CorruptRecord
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import TAGS, parse_properties
from orbitmq.wire.record import BLANK_MAGIC, decode_record
from orbitmq.wire.sysflag import enters_queue

_START = struct.Struct(">iI")


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
    """Give every record in order; afterwards `tail.end_offset` is the end of the log."""
    for number in file_numbers:
        log_offset = number * tail.file_size
        tail.end_offset = log_offset
        view = tail.views[number]
        for found in _scan_file(view, log_offset):
            tail.end_offset = found.log_offset + found.size
            yield found
        if not _ends_blank(view, tail.end_offset - log_offset):
            return
        tail.end_offset = log_offset + tail.file_size


def _ends_blank(view: memoryview, position: int) -> bool:
    if len(view) - position < _START.size:
        return False
    size, magic = _START.unpack_from(view, position)
    return bool(magic == BLANK_MAGIC and size == len(view) - position)


def _scan_file(view: memoryview, file_offset: int) -> Iterator[Found]:
    position = 0
    while position + _START.size <= len(view):
        size, magic = _START.unpack_from(view, position)
        if magic in (0, BLANK_MAGIC) or size <= 0 or position + size > len(view):
            return
        try:
            record, _ = decode_record(view[position : position + size])
        except CorruptRecord:
            return
        if record.log_offset != file_offset + position:
            return
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
