"""A bare loop: the least that plain Python can do for a message, a floor to compare with.

In: remoting frames on loopback. Out: per read, one write to a file and one to the socket, and on
standard output `ready broker=HOST:PORT`. Rules:

1. A frame with a body is a send: an 88-byte record head is packed, the body's CRC-32 taken, and a
   constant answer given. A frame without is a pull: it gets the first 32 records, read once.
2. Nothing is parsed but the lengths, and nothing is looked up, checked or kept: what a broker costs
   above this is what being a broker costs.
3. The file grows as a broker's log does, so both pay for fresh pages.
"""

import asyncio
import json
import os
import struct
import sys
from pathlib import Path
from typing import cast
from zlib import crc32

_PREFIX = struct.Struct(">iI")
_HEAD = struct.Struct(">iIiiiqqiq8sq8siqi")
_HOST = bytes(8)
_MAGIC = 0xDAA320A7
_PULL_COUNT = 32


def _frame(body_size: int, **fields: str) -> bytes:
    """The beginning of an answer, up to its body."""
    header = {"code": 0, "extFields": fields, "flag": 1, "language": "JAVA", "opaque": 1000000000}
    text = json.dumps({**header, "version": 407}, separators=(",", ":")).encode()
    return _PREFIX.pack(4 + len(text) + body_size, len(text)) + text


_SENT = _frame(0, msgId="0" * 32, queueId="0", queueOffset="1000000", MSG_REGION="DefaultRegion")


class Log:
    """The file that all connections append to, and the answer to every pull."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.end = 0
        self._sizes: list[int] = []
        self._found: list[bytes] = []

    def write(self, parts: list[bytes]) -> None:
        """Append the records of one read: head, body, head, body."""
        data = b"".join(parts)
        os.pwrite(self._fd, data, self.end)
        self.end += len(data)
        if len(self._sizes) < _PULL_COUNT:
            self._sizes += (_HEAD.size + len(body) for body in parts[1::2])

    def found(self) -> list[bytes]:
        """The answer to a pull: its beginning and the first records."""
        if not self._found:
            body = os.pread(self._fd, sum(self._sizes[:_PULL_COUNT]), 0)
            offsets = {"nextBeginOffset": "32", "minOffset": "0", "maxOffset": "1000000"}
            self._found = [_frame(len(body), suggestWhichBrokerId="0", **offsets), body]
        return self._found


class Connection(asyncio.Protocol):
    """Cuts frames; one file write and one socket write a read."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Handle every whole frame of one read."""
        if self._rest:
            data = self._rest + data
        position, end, log_end = 0, len(data), self._log.end
        records: list[bytes] = []
        answers: list[bytes] = []
        while end - position >= 8:
            length, header_size = _PREFIX.unpack_from(data, position)
            frame_end = position + 4 + length
            if frame_end > end:
                break
            body = data[position + 8 + header_size : frame_end]
            if body:
                size = len(body)
                head = _HEAD.pack(
                    *(_HEAD.size + size, _MAGIC, crc32(body) & 0x7FFFFFFF, 0, 0, 0, log_end, 0, 0),
                    *(_HOST, 0, _HOST, 0, 0, size),
                )
                records += (head, body)
                answers.append(_SENT)
                log_end += _HEAD.size + size
            else:
                answers += self._log.found()
            position = frame_end
        self._rest = data[position:]
        if records:
            self._log.write(records)
        self._transport.writelines(answers)


async def _serve(path: Path) -> None:
    log = Log(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(log), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"ready broker={host}:{port}", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until killed; the argument is the file to write to."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(Path(sys.argv[1])))
    else:
        uvloop.run(_serve(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
