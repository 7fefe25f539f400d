"""A batch body: several messages in one request.

In: the body of a batch send, or messages. Out: the other one.
Layout of each message, back to back: total size i32 | magic i32 = 0 | CRC i32 = 0 | flag i32 |
body size i32 | body | properties size i16 | properties.

Rules:
1. A batch is judged as a whole: one torn message and none counts (RemoteProtocolError).
2. Magic and CRC are written as 0 and not looked at when reading, as in the original's broker.
3. Reading stops at the number of messages that the reader allows: a body of the greatest size may
   hold so many that reading them takes seconds.
4. Messages of one sender are mostly alike in size. Those in a row that are are cut by one built-in
   function, the others one by one.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX

_HEAD = struct.Struct(">iiiii")  # total size, magic, CRC, flag, body size
_READ_HEAD = struct.Struct(">i8xii")  # the same without magic and CRC: rule 2
_PROPERTIES_SIZE = struct.Struct(">h")
_SIZES = struct.Struct(">ii")
_SIZE_PLACES = (0, 1, 2, 3, 16, 17, 18, 19)
"""Where a message has its own size and its body's."""
MESSAGE_SIZE_MIN = _HEAD.size + _PROPERTIES_SIZE.size


class BatchMessage(NamedTuple):
    """One message of a batch; `properties` is the encoded properties string."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


class Batch(NamedTuple):
    """The messages of a batch by columns: one of each is a message, in the order they came."""

    bodies: list[bytes]
    properties: list[bytes]
    flags: list[int]

    def messages(self) -> Iterator[BatchMessage]:
        """Yield them one by one."""
        return map(BatchMessage, self.bodies, self.properties, self.flags)


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """Return the body of a batch; raises LocalProtocolError when it cannot be one."""
    parts: list[bytes] = []
    for body, properties, flag in messages:
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise LocalProtocolError(
                f"properties of {len(properties)} bytes, limit {PROPERTIES_SIZE_MAX}"
            )
        size = MESSAGE_SIZE_MIN + len(body) + len(properties)
        try:
            head = _HEAD.pack(size, 0, 0, flag, len(body))
        except struct.error:
            raise LocalProtocolError(
                f"flag {flag} or a body of {len(body)} bytes does not fit 32 bits"
            ) from None
        parts += (head, body, _PROPERTIES_SIZE.pack(len(properties)), properties)
    if not parts:
        raise LocalProtocolError("a batch needs at least one message")
    return b"".join(parts)


def decode_batch(data: bytes, count_max: int | None = None) -> Batch:
    """Return the messages of a batch body; raises RemoteProtocolError when one is torn.

    Soon above `count_max` reading ends, and what was read is given: more than that. A batch has
    thousands of messages: an object for each would cost as much as all else.
    """
    if not data:
        raise RemoteProtocolError("batch", "the batch holds no message")
    batch = Batch([], [], [])
    start, end = 0, len(data)
    while start < end and (count_max is None or len(batch.flags) <= count_max):
        start = _take_some(data, start, batch)
        start = _take_alike(data, start, batch, count_max)
    return batch


def _take_some(data: bytes, start: int, batch: Batch) -> int:
    """Take a few messages one by one; give where they end."""
    bodies, properties, flags = batch
    read_head, read_size, head_size = (
        _READ_HEAD.unpack_from,
        _PROPERTIES_SIZE.unpack_from,
        _HEAD.size,
    )
    end, enough = len(data), len(flags) + ALIKE_MIN
    while start < end and len(flags) < enough:
        left = end - start
        if left < MESSAGE_SIZE_MIN:
            raise _misfit(0, start, left)
        size, flag, body_size = read_head(data, start)
        if not MESSAGE_SIZE_MIN <= size <= left:
            raise _misfit(size, start, left)
        body_start = start + head_size
        body_end = body_start + body_size
        properties_start = body_end + 2
        start += size
        if body_size < 0 or properties_start > start:
            raise RemoteProtocolError("batch", f"body of {body_size} bytes in a message of {size}")
        (properties_size,) = read_size(data, body_end)
        if properties_start + properties_size != start:
            raise RemoteProtocolError(
                "batch", f"properties of {properties_size} bytes at {properties_start} miss the end"
            )
        bodies.append(data[body_start:body_end])
        properties.append(data[properties_start:start])
        flags.append(flag)
    return start


def _misfit(size: int, start: int, left: int) -> RemoteProtocolError:
    if left < MESSAGE_SIZE_MIN:
        return RemoteProtocolError("batch", f"{left} bytes at {start} are too few for a message")
    return RemoteProtocolError("batch", f"message of {size} bytes at {start}, {left} are left")


# --- Messages alike in size (rule 4) ---

ALIKE_MIN = 8
"""So many messages, at least, are cut together; and so many are taken one by one before it is tried
again."""
_WINDOW_MIN, _WINDOW_GROWTH, _WINDOW_MAX = 128, 8, 8_192
"""How many are compared at once: few at first, for where sizes differ it was in vain."""


def _take_alike(data: bytes, start: int, batch: Batch, count_max: int | None) -> int:
    """Take the messages that have the sizes of the last one taken; give where they end.

    The first window above `count_max` in all is the last.
    """
    body_size, properties_size = len(batch.bodies[-1]), len(batch.properties[-1])
    size = MESSAGE_SIZE_MIN + body_size + properties_size
    window, is_going_on = _WINDOW_MIN, True
    while is_going_on and (count_max is None or len(batch.flags) <= count_max):
        count = _count_alike(data, start, (body_size, properties_size), window)
        is_going_on = count == window
        window = min(window * _WINDOW_GROWTH, _WINDOW_MAX)
        if count < ALIKE_MIN:
            break
        end = start + count * size
        rows = _row(body_size, properties_size).iter_unpack(memoryview(data)[start:end])
        flags, bodies, properties = zip(*rows, strict=True)
        batch.flags.extend(flags)
        batch.bodies.extend(bodies)
        batch.properties.extend(properties)
        start = end
    return start


def _count_alike(data: bytes, start: int, sizes: tuple[int, int], count: int) -> int:
    """Return how many messages from `start` on have these sizes, at most `count`."""
    body_size, properties_size = sizes
    size = MESSAGE_SIZE_MIN + body_size + properties_size
    body_end = _HEAD.size + body_size
    count = min(count, (len(data) - start) // size)
    expected = (
        *zip(_SIZE_PLACES, _SIZES.pack(size, body_size), strict=True),
        *zip((body_end, body_end + 1), _PROPERTIES_SIZE.pack(properties_size), strict=True),
    )
    for place, value in reversed(expected):  # low bytes differ more often than high ones
        if count < ALIKE_MIN:
            break
        column = data[start + place : start + count * size : size]
        count -= len(column.lstrip(bytes((value,))))
    return count


@lru_cache(maxsize=1_024)
def _row(body_size: int, properties_size: int) -> struct.Struct:
    """Return how a message of these sizes is cut: flag, body, properties."""
    return struct.Struct(f">12xi4x{body_size}s2x{properties_size}s")
