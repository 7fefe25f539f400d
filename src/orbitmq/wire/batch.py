"""A batch body: several messages in one request.

In: the body of a batch send, or messages. Out: the other one.
Layout of each message, back to back: total size i32 | magic i32 = 0 | CRC i32 = 0 | flag i32 |
body size i32 | body | properties size i16 | properties.

Rules:
1. A batch is judged as a whole: one torn message and none counts (RemoteProtocolError).
2. Magic and CRC are written as 0 and not looked at when reading, as in the original's broker.
3. Reading stops at the number of messages that the reader allows: a body of the greatest size may
   hold so many that reading them takes seconds.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX

_HEAD = struct.Struct(">iiiii")  # total size, magic, CRC, flag, body size
_READ_HEAD = struct.Struct(">i8xii")  # the same without magic and CRC: rule 2
_PROPERTIES_SIZE = struct.Struct(">h")
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

    Above `count_max` reading ends, and what was read is given: one more than that.
    """
    if not data:
        raise RemoteProtocolError("batch", "the batch holds no message")
    bodies, properties, flags = batch = Batch([], [], [])
    start, end = 0, len(data)
    while start < end and (count_max is None or len(flags) <= count_max):
        left = end - start
        if left < MESSAGE_SIZE_MIN:
            raise _misfit(0, start, left)
        size, flag, body_size = _READ_HEAD.unpack_from(data, start)
        if not MESSAGE_SIZE_MIN <= size <= left:
            raise _misfit(size, start, left)
        body_start = start + _HEAD.size
        body_end = body_start + body_size
        properties_start = body_end + 2
        start += size
        if body_size < 0 or properties_start > start:
            raise RemoteProtocolError("batch", f"body of {body_size} bytes in a message of {size}")
        (properties_size,) = _PROPERTIES_SIZE.unpack_from(data, body_end)
        if properties_start + properties_size != start:
            raise RemoteProtocolError(
                "batch", f"properties of {properties_size} bytes at {properties_start} miss the end"
            )
        bodies.append(data[body_start:body_end])
        properties.append(data[properties_start:start])
        flags.append(flag)
    return batch


def _misfit(size: int, start: int, left: int) -> RemoteProtocolError:
    if left < MESSAGE_SIZE_MIN:
        return RemoteProtocolError("batch", f"{left} bytes at {start} are too few for a message")
    return RemoteProtocolError("batch", f"message of {size} bytes at {start}, {left} are left")
