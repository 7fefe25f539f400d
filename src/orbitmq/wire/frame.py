"""The frame around everything on the wire: length, header length, header, body.

In: bytes as they arrive, cut anywhere. Out: Frame values, or RemoteProtocolError.
Layout: length i32 (bytes that follow) | type u8, header length u24 | header | body.

Rules:
1. A frame is judged as soon as it can be: its length when four bytes are there, its header length
   (against the frame, and against the limit of who reads) and serialization when eight are, before
   anything more is stored for it.
2. The decoder holds at most one unfinished frame, never more than the limit. Its pieces are joined
   once, when it is whole; a peer that sends byte by byte makes no piece of each.
3. After an error the stream is lost; the connection must be closed.
"""

from typing import NamedTuple

from orbitmq.errors import LocalProtocolError, RemoteProtocolError

FRAME_SIZE_MAX = 16_777_216
"""RocketMQ's own limit (com.rocketmq.remoting.frameMaxLength), with the length field as there."""

COPY_BELOW_BYTES = 4_096
"""Pieces of a frame smaller than this on average are joined: copying them costs less than handing
on each of them."""

LENGTH_SIZE = 4
PREFIX_SIZE = 8
LONG_PIECE = 16_384
"""Shorter pieces of a frame are kept together: each by itself would take more room than it has."""
JSON = 0
BINARY = 1


class Frame(NamedTuple):
    """One whole frame: how its header is serialized, the header and the body."""

    serialization: int
    header: bytes
    body: bytes


def _frame_length(data: bytes, start: int, frame_size_max: int) -> int:
    length = int.from_bytes(data[start : start + 4], "big", signed=True)
    if length < 4:
        raise RemoteProtocolError("frame-length", f"length field {length}, the least is 4")
    if length + 4 > frame_size_max:
        raise RemoteProtocolError("frame-oversize", f"{length + 4} bytes, limit {frame_size_max}")
    return length


def frame_size(
    data: bytes,
    start: int,
    frame_size_max: int = FRAME_SIZE_MAX,
    header_size_max: int = FRAME_SIZE_MAX,
) -> int:
    """Return the whole size of the frame whose first eight bytes are at `start`.

    Raises RemoteProtocolError when these bytes cannot begin a frame.
    """
    length = _frame_length(data, start, frame_size_max)
    serialization = data[start + 4]
    if serialization > BINARY:
        raise RemoteProtocolError("frame-serialization", f"unknown header type {serialization}")
    header_size = int.from_bytes(data[start + 5 : start + 8], "big")
    if header_size > length - 4:
        raise RemoteProtocolError(
            "frame-header", f"header of {header_size} bytes in a frame of {length + 4}"
        )
    if header_size > header_size_max:
        raise RemoteProtocolError(
            "header-oversize", f"{header_size} bytes, limit {header_size_max}"
        )
    return length + 4


def cut_frame(data: bytes, start: int, frame_size_max: int = FRAME_SIZE_MAX) -> Frame | None:
    """Return the frame that starts at `start` of `data`, or None while it is not all there."""
    if len(data) - start < PREFIX_SIZE:
        return None
    end = start + frame_size(data, start, frame_size_max)
    if end > len(data):
        return None
    body_start = start + PREFIX_SIZE + int.from_bytes(data[start + 5 : start + 8], "big")
    return Frame(data[start + 4], data[start + PREFIX_SIZE : body_start], data[body_start:end])


def encode_frame(serialization: int, header: bytes, body: bytes) -> bytes:
    """Return the bytes of a frame; raises LocalProtocolError when it would pass the limit."""
    length = 4 + len(header) + len(body)
    if length + 4 > FRAME_SIZE_MAX:
        raise LocalProtocolError(f"frame of {length + 4} bytes, limit {FRAME_SIZE_MAX}")
    return b"".join(
        (
            length.to_bytes(4, "big"),
            serialization.to_bytes(1, "big"),
            len(header).to_bytes(3, "big"),
            header,
            body,
        )
    )


class FrameDecoder:
    """Turns a stream of bytes into frames; holds what is left of an unfinished one.

    >>> decoder = FrameDecoder()
    >>> decoder.feed(encode_frame(JSON, b"{}", b"body")[:7])
    []
    >>> decoder.held_bytes
    7
    """

    def __init__(
        self, frame_size_max: int = FRAME_SIZE_MAX, header_size_max: int = FRAME_SIZE_MAX
    ) -> None:
        self._frame_size_max = frame_size_max
        self._header_size_max = header_size_max
        self._held: list[bytes | bytearray] = []
        self._wanted = LENGTH_SIZE
        self.held_bytes = 0
        """How many bytes of an unfinished frame are held."""

    def take(self, data: bytes) -> bytes:
        """What is held followed by `data`, or nothing while there is nothing new to judge."""
        if not self._held:
            return data
        self._keep(data)
        if self.held_bytes < self._wanted:
            return b""
        whole = b"".join(self._held)
        self._held.clear()
        self.held_bytes = 0
        return whole

    def _keep(self, data: bytes) -> None:
        """Keep one more piece: a long one as it is, short ones together."""
        if len(data) >= LONG_PIECE:
            self._held.append(data)
        elif self._held and isinstance(self._held[-1], bytearray):
            self._held[-1].extend(data)
        else:
            self._held.append(bytearray(data))
        self.held_bytes += len(data)

    def hold(self, data: bytes, start: int) -> None:
        """Keep `data` from `start` on: the beginning of a frame that is not all there.

        Raises RemoteProtocolError as soon as the beginning is known to be wrong.
        """
        left = len(data) - start
        if left == 0:
            return
        if left >= PREFIX_SIZE:
            self._wanted = frame_size(data, start, self._frame_size_max, self._header_size_max)
        elif left >= LENGTH_SIZE:
            _frame_length(data, start, self._frame_size_max)
            self._wanted = PREFIX_SIZE
        else:
            self._wanted = LENGTH_SIZE
        self._keep(data[start:])

    def feed(self, data: bytes) -> list[Frame]:
        """Take one read and return the frames it completed, in order."""
        data = self.take(data)
        frames: list[Frame] = []
        start = 0
        while (frame := cut_frame(data, start, self._frame_size_max)) is not None:
            frames.append(frame)
            start += PREFIX_SIZE + len(frame.header) + len(frame.body)
        self.hold(data, start)
        return frames
