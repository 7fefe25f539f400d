"""Walking in plain Python: the records of a log file, one after the other, each checked.

In: a log file as memory, and a position in it. Out: of each record what following it needs.

Rules:
1. A record counts when it is whole: magic, sizes that add up to the byte, a topic in UTF-8, its own
   log offset, the CRC of its body. Anything else ends the walk; what it is, others find out.
2. Queues, index and recovery all learn of records through this one reader.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from orbitmq.core.checksum import crc32
from orbitmq.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    LAYOUTS,
    PREFIX,
    PROPERTIES_SIZE_CODE,
    RECORD_SIZE_MAX,
    RECORD_SIZE_MIN,
    TOPIC_SIZE_CODES,
    Layout,
    layout_of,
)


def _walk_head(layout: Layout) -> struct.Struct:
    """Return the fixed fields with those left out that nobody needs here."""
    kept = {"total_size", "magic", "crc", "queue_id", "queue_offset", "log_offset", "sys_flag"}
    kept |= {"store_ms", "body_size"}
    codes = (field.code if field.name in kept else f"{field.size}x" for field in layout.fields)
    return struct.Struct(">" + "".join(codes))


_HEADS = {layout: _walk_head(layout) for layout in LAYOUTS}
_PLAIN_HEAD = _HEADS[LAYOUTS[0]]
_TOPIC_SIZES = {magic: struct.Struct(">" + code) for magic, code in TOPIC_SIZE_CODES.items()}
_PROPERTIES_SIZE = struct.Struct(">" + PROPERTIES_SIZE_CODE)
_HOST_BITS = 0x30


class Walked(NamedTuple):
    """What following the log needs to know of one record."""

    log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_ms: int
    properties: bytes


def walk_records(view: memoryview, position: int, file_offset: int) -> Iterator[Walked]:
    """Return the records that lie back to back from `position` on, up to the first that is none."""
    while (walked := record_at(view, position, file_offset)) is not None:
        yield walked
        position += walked.size


def is_end_of_file(view: memoryview, position: int) -> bool:
    """Whether a blank record that fills the file begins here: the log goes on in the next one."""
    if len(view) - position < BLANK_SIZE:
        return False
    size, magic = PREFIX.unpack_from(view, position)
    return bool(magic == BLANK_MAGIC and size == len(view) - position)


def record_at(view: memoryview, position: int, file_offset: int) -> Walked | None:
    """Return the record at a position of a file, or None when no whole one of its own is there."""
    left = len(view) - position
    if left < RECORD_SIZE_MIN:
        return None
    head = _PLAIN_HEAD
    fields = head.unpack_from(view, position)
    if fields[6] & _HOST_BITS:
        head = _HEADS[layout_of(fields[6])]
        if left < head.size:
            return None
        fields = head.unpack_from(view, position)
    size, magic, crc, queue_id, queue_offset, log_offset, sys_flag, store_ms, body_size = fields
    topic_size_code = _TOPIC_SIZES.get(magic)
    if (
        topic_size_code is None
        or log_offset != file_offset + position
        or size > left
        or size > RECORD_SIZE_MAX
    ):
        return None
    body_start = position + head.size
    body_end = body_start + body_size
    topic_start = body_end + topic_size_code.size
    end = position + size
    if body_size < 0 or topic_start > end:
        return None
    topic_end = topic_start + topic_size_code.unpack_from(view, body_end)[0]
    properties_start = topic_end + _PROPERTIES_SIZE.size
    if topic_end <= topic_start or properties_start > end:
        return None
    if properties_start + _PROPERTIES_SIZE.unpack_from(view, topic_end)[0] != end:
        return None
    topic = _topic_text(view[topic_start:topic_end].tobytes())
    if topic is None or crc32(view[body_start:body_end]) & 0x7FFFFFFF != crc:
        return None
    properties = view[properties_start:end].tobytes()
    # Walked(…) would be a call of Python's more, a fifth of what all the rest costs.
    return tuple.__new__(
        Walked,
        (log_offset, size, topic, queue_id, queue_offset, sys_flag, store_ms, properties),
    )


@lru_cache(maxsize=4_096)
def _topic_text(topic: bytes) -> str | None:
    if b"\0" in topic:  # no topic has it, but the rest of a record that was cut off may
        return None
    try:
        return topic.decode()
    except UnicodeDecodeError:
        return None
