"""Reading what waits in the schedule topic: from memory, or from the files in a thread.

In: a level's queue and the offset to go on at. Out: records with the times at which they are due,
and each as the message that is delivered for it.

Rules:
1. A record counts only when it says itself that it is this number of this queue: what is damaged
   is passed over, as a pull passes over it.
2. Passing over is decided by the record alone, so a start after a crash decides the same. Only
   that a topic was removed comes from elsewhere; `delay_recovery` allows for it.
3. The entry says when a message is due. An entry that points to an extra unit does not: then it is
   the record.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from orbitmq.broker.puts import NewMessage, again
from orbitmq.core import LogTail, Queue, record_at
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.store.consume_queue import HOLE_SIZE
from orbitmq.store.follow import due_code
from orbitmq.store.reading import ColdLimits, ColdReader, QueueView, gather_cold
from orbitmq.wire import properties as names
from orbitmq.wire.names import HALF_TOPIC, RETRY_TOPIC_LENGTH_MAX, topic_fault
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import (
    LAYOUTS,
    RECORD_SIZE_MIN,
    Layout,
    Record,
    decode_record,
    layout_of,
)

COLD_COUNT = 64
COLD_BYTES = 1_048_576
"""What one look into the files brings."""

_QUEUE_ID_MAX = 2**31 - 1


class Entry(NamedTuple):
    """A queue entry of the schedule topic; `code` is when the message is due."""

    log_offset: int
    size: int
    code: int


class Waiting(NamedTuple):
    """A record that waits, and the code of its entry: when it is due."""

    code: int
    record: Record


class HotRecord(NamedTuple):
    """What delivering needs of a record in memory: reading all of it would take twice as long."""

    body: bytes
    properties: bytes
    queue_offset: int
    log_offset: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    """Packed, as it lies there."""
    store_ms: int
    reconsume_times: int


def _hot_head(layout: Layout) -> struct.Struct:
    """Return the fixed fields with those left out that walking has found or nobody needs."""
    kept = {"flag", "born_ms", "reconsume_times", "body_size"}
    codes = []
    for field in layout.fields:
        if field.name == "born_ip":
            codes.append(f"{field.size + _PORT_SIZE}s")
        elif field.name != "born_port":
            codes.append(field.code if field.name in kept else f"{field.size}x")
    return struct.Struct(">" + "".join(codes))


_PORT_SIZE = 4
_HEADS = {layout: _hot_head(layout) for layout in LAYOUTS}


class ColdLook(NamedTuple):
    """What a look into the files found; offsets before `next_offset` that it lacks are lost."""

    found: list[Waiting]
    next_offset: int
    due_ms: int | None = None
    """When the first one is due, if it is not yet: then nothing was read."""


def hot_entry(queue: Queue, queue_offset: int) -> Entry | None:
    """Return an entry that memory holds, None when it is in the files."""
    position = (queue_offset - queue.base_offset) * ENTRY_SIZE
    if position < 0:
        return None
    # Entry(…) would be a call of Python's more, twice as long as all this.
    return tuple.__new__(Entry, ENTRY.unpack_from(queue.entries, position))


def hot_record(tail: LogTail, queue: Queue, queue_offset: int, entry: Entry) -> HotRecord | None:
    """Return the record of an entry whose part of the log is in memory; None when it is damaged."""
    number, position = divmod(entry.log_offset, tail.file_size)
    view = tail.views.get(number)
    if view is None or entry.size < RECORD_SIZE_MIN:
        return None
    walked = record_at(view, position, number * tail.file_size)
    if walked is None:
        return None
    log_offset, size, topic, queue_id, own_offset, sys_flag, store_ms, properties = walked
    own = (topic, queue_id, own_offset, log_offset, size)
    if own != (queue.topic, queue.queue_id, queue_offset, entry.log_offset, entry.size):
        return None
    head = _HEADS[layout_of(sys_flag)]
    flag, born_ms, born_host, reconsume_times, body_size = head.unpack_from(view, position)
    body_start = position + head.size
    body = view[body_start : body_start + body_size].tobytes()
    fields = (body, properties, queue_offset, log_offset, flag, sys_flag, born_ms, born_host)
    # HotRecord(…) would be a call of Python's more.
    return tuple.__new__(HotRecord, (*fields, store_ms, reconsume_times))


def is_due(due_ms: int, now_ms: int, delay_ms: int) -> bool:
    """Whether a message of a level is due.

    So is one that lies further ahead than the level's delay: the clock was set back.
    """
    return not now_ms < due_ms <= now_ms + delay_ms


def read_cold(
    reader: ColdReader, view: QueueView, queue_offset: int, due: tuple[int, int] | None
) -> ColdLook:
    """Return what is due from `queue_offset` on; for a thread.

    `due` is the time and the level's delay; without it everything is given. Raises ReadFailed when
    the disk refuses.
    """
    entries = reader.entries(view, queue_offset, COLD_COUNT)
    codes = [code for _, _, code in ENTRY.iter_unpack(entries)]
    count = len(codes)
    if due is not None:
        waiting = (place for place, code in enumerate(codes) if not is_due(code, *due))
        count = next(waiting, len(codes))
        if codes and not count:
            return ColdLook([], queue_offset, codes[0])
    limits = ColdLimits(max(1, count), COLD_BYTES)
    gathered = gather_cold(reader, view, queue_offset, limits.count_max, limits=limits)
    found: list[Waiting] = []
    for part in gathered.parts:
        record, _ = decode_record(part)
        place = record.queue_offset - queue_offset
        found.append(Waiting(codes[place] if place < len(codes) else -1, record))
    return ColdLook(found, gathered.next_offset)


def due_ms_of(code: int, record: Record | HotRecord, delays_ms: Sequence[int]) -> int:
    """Return when a record is due, by its entry's code or by itself."""
    if code >= 0:
        return code
    by_record = due_code(record.properties, record.store_ms, delays_ms)
    return record.store_ms if by_record is None else by_record


def is_hole(entry: Entry) -> bool:
    """Whether no message belongs to an entry."""
    return entry.size == HOLE_SIZE


def delivered_place(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return topic and queue that a message belongs to by its properties; None when they name none.

    Half messages are not delivered, as in the original: only the end of a transaction does that.
    """
    topic = properties.get(names.REAL_TOPIC, "")
    queue_id = properties.get(names.REAL_QID, "")
    is_number = queue_id.isascii() and queue_id.isdigit() and len(queue_id) <= 10
    if not is_number or int(queue_id) > _QUEUE_ID_MAX or topic == HALF_TOPIC:
        return None
    if topic_fault(topic, RETRY_TOPIC_LENGTH_MAX) is not None:
        return None
    return topic, int(queue_id)


def delivered_message(record: Record | HotRecord) -> NewMessage | None:
    """Return the message that is delivered for a record that waits; None when it names no place."""
    text = record.properties.decode(errors="replace")
    properties = parse_properties(text)
    place = delivered_place(properties)
    return None if place is None else again(record, *place, text, properties.get(names.TAGS))
