"""Bare loops beside the store: the least that plain Python can do for each of its tasks.

In: the same bytes, files and questions as the store gets. Out: how many of them were handled.

Rules:
1. Nothing is checked, looked up or kept beyond what the task itself is: to write a record is to
   pack its head, take the CRC of its body and write; to scan is to take sizes and CRCs.
2. Files are open, and positions are known or found as the format has it.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

HEAD = struct.Struct(">iIiiiqqiq8sq8siqi")
ENTRY = struct.Struct(">qiq")
SIZES = struct.Struct(">i80xi")
PIECE_SIZE = 8 << 20
STORE_MS_AT = 56
_HOST = bytes(8)
_MAGIC = 0xDAA320A7
_NOW_MS = 1_700_000_000_000


class BareLog:
    """A file that records are appended to, so many with one write."""

    def __init__(self, path: Path, size: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, size)
        self._end = self._count = 0

    def append(self, topic: bytes, body: bytes, properties: Sequence[bytes], turn: int) -> int:
        """Append one record for each of the properties."""
        for start in range(0, len(properties), turn):
            end = self._end
            parts: list[bytes] = []
            for one in properties[start : start + turn]:
                size = HEAD.size + len(body) + len(topic) + 2 + len(one)
                head = HEAD.pack(
                    *(size, _MAGIC, crc32(body) & 0x7FFFFFFF, 0, 0, self._count, end, 0, _NOW_MS),
                    *(_HOST, _NOW_MS, _HOST, 0, 0, len(body)),
                )
                parts += (head, body, topic, len(one).to_bytes(2, "big"), one)
                end += size
            os.pwrite(self._fd, b"".join(parts), self._end)
            self._count += turn
            self._end = end
        return len(properties)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def gather_hot(log: memoryview, entries: bytes) -> list[memoryview]:
    """Return the records of queue entries as views of the mapped log."""
    return [log[at : at + size] for at, size, _ in ENTRY.iter_unpack(entries)]


class BareFiles:
    """The files of a store, open: its first log file and index file, and one queue's first."""

    def __init__(self, log: Path, queue: Path, index: Path) -> None:
        self._log, self._queue, self._index = (
            os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (log, queue, index)
        )

    def close(self) -> None:
        """Close them."""
        for fd in (self._log, self._queue, self._index):
            os.close(fd)

    def gather_cold(self, queue_offset: int, count: int) -> list[bytes]:
        """Read queue entries and their records, and take the CRC of each body."""
        records = []
        entries = os.pread(self._queue, count * ENTRY.size, queue_offset * ENTRY.size)
        for log_offset, size, _ in ENTRY.iter_unpack(entries):
            record = os.pread(self._log, size, log_offset)
            _, body_size = SIZES.unpack_from(record)
            crc32(record[HEAD.size : HEAD.size + body_size])
            records.append(record)
        return records

    def lookup(self, slot_at: int, entries_at: int) -> int:
        """Return the log offset of the newest entry of a slot of the index."""
        number = int.from_bytes(os.pread(self._index, 4, slot_at), "big")
        entry = os.pread(self._index, 20, entries_at + 20 * number)
        return int.from_bytes(entry[4:12], "big")

    def record_by_offset(self, log_offset: int) -> bytes:
        """Read a record whose size is not known, and take the CRC of its body."""
        size = int.from_bytes(os.pread(self._log, 4, log_offset), "big")
        record = os.pread(self._log, size, log_offset)
        _, body_size = SIZES.unpack_from(record)
        crc32(record[HEAD.size : HEAD.size + body_size])
        return record

    def offset_by_time(self, count: int, time_ms: int) -> int:
        """Return the first of `count` messages of the queue that was not stored before a time."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            log_offset, _, _ = ENTRY.unpack(os.pread(self._queue, 20, 20 * middle))
            stored = os.pread(self._log, 8, log_offset + STORE_MS_AT)
            if int.from_bytes(stored, "big") < time_ms:
                low = middle + 1
            else:
                high = middle
        return low


def scan(log: Path, end: int) -> int:
    """Step from record to record up to `end` and take the CRC of each body; give their number."""
    count = position = 0
    with log.open("rb", buffering=0) as file:
        while position < end:
            piece = os.pread(file.fileno(), min(PIECE_SIZE, end - position), position)
            found, size = _scan_piece(memoryview(piece))
            count += found
            position += size
    return count


def _scan_piece(data: memoryview) -> tuple[int, int]:
    """Return how many whole records there are and how many bytes they have."""
    count = at = 0
    left = len(data)
    while left >= HEAD.size:
        size, body_size = SIZES.unpack_from(data, at)
        if size > left:
            break
        crc32(data[at + HEAD.size : at + HEAD.size + body_size])
        at += size
        left -= size
        count += 1
    return count, at
