"""Bodies with queues as keys, as clients and tools read them.

In: the bytes of an answer whose maps have MessageQueues as keys. Out: maps by MessageQueue.
Rule: whoever writes such bodies uses the types of bodies_consume and bodies_topics; these have the
same names on the wire, with keys as `fastjson` leaves them.
"""

from typing import TypeVar

import msgspec

from orbitmq.wire.bodies_client import MessageQueue, read_queue_key
from orbitmq.wire.bodies_consume import ResetOffsetList
from orbitmq.wire.fastjson import read_json

T = TypeVar("T")


class _OffsetTable(msgspec.Struct, rename="camel", frozen=True):
    """The body of 220 and the answer to 222."""

    offset_table: dict[str, int] = {}


def by_queue(table: dict[str, T]) -> dict[MessageQueue, T]:
    """Give a map whose keys are texts of queues as a map by queue."""
    return {read_queue_key(key): value for key, value in table.items()}


def read_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Read offsets by queue: a map, or the list that C++ clients are sent (220)."""
    if b'"offsetTable":[' in body[:64]:
        rows = read_json(body, ResetOffsetList).offset_table
        return {MessageQueue(row.topic, row.broker_name, row.queue_id): row.offset for row in rows}
    return by_queue(read_json(body, _OffsetTable).offset_table)
