"""A small store in memory for tests of reading: records made up, files as the store writes them.

In: what each message of a queue should be. Out: log and queue files in a MemoryFiles, a ColdReader
on them, and the queue as the loop would have it, its newest entries in memory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import CoreState, LogTail, Queue
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.store.consume_queue import HOLE_SIZE, QueueFiles
from orbitmq.store.layout import Folder, file_name
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.reading import ColdReader
from orbitmq.wire.host import Host
from orbitmq.wire.record import BLANK_SIZE, Record, encode_blank, encode_record
from orbitmq.world.files import Files
from tests.world.memory_files import MemoryFiles

LOG_SIZE = 1_000
QUEUE_FILE_SIZE = 200
ROOT = Path("/store")
HOST = Host("127.0.0.1", 10911)


class Message(NamedTuple):
    """One message; without a body it is a hole, a number whose record was lost."""

    body: bytes | None = b""
    store_ms: int = 0
    code: int = 0


def cold_reader(files: Files, folder: Folder, log_size: int, queue_files: QueueFiles) -> ColdReader:
    """Return a reader of a folder as it lies there."""
    return ColdReader(files, folder, LogFolders.of(files, folder), log_size, queue_files)


class ColdStore:
    """One queue, T 0, of made-up messages; the last `in_memory` entries are in memory only."""

    def __init__(
        self, messages: Sequence[Message], *, log_size: int = LOG_SIZE, in_memory: int = 0
    ) -> None:
        self.files = MemoryFiles(ROOT)
        self.folder = Folder(ROOT)
        self.log_size = log_size
        self.log = bytearray()
        self.records: list[bytes] = []
        """By queue offset; empty for holes."""
        self.places: list[int] = []
        entries = b"".join(self._append(message) for message in messages)
        self._put_log()
        self.queue_files = QueueFiles(self.files, self.folder.queues, QUEUE_FILE_SIZE)
        base = len(messages) - in_memory
        self.queue_files.write("T", 0, 0, entries[: base * ENTRY_SIZE])
        self.queue = Queue("T", 0, len(messages))
        self.queue.base_offset = 0
        self.queue.flushed_offset = base
        self.queue.entries += entries
        self.reader = cold_reader(self.files, self.folder, log_size, self.queue_files)

    def _append(self, message: Message) -> bytes:
        if message.body is None:
            self.records.append(b"")
            self.places.append(len(self.log))
            return ENTRY.pack(len(self.log), HOLE_SIZE, 0)
        record = self._record(message)
        left = self.log_size - len(self.log) % self.log_size
        if len(record) + BLANK_SIZE > left:
            self.log += encode_blank(left).ljust(left, b"\0")
            record = self._record(message)
        place = len(self.log)
        self.log += record
        self.records.append(record)
        self.places.append(place)
        return ENTRY.pack(place, len(record), message.code)

    def _record(self, message: Message) -> bytes:
        return encode_record(
            Record(
                topic="T",
                body=message.body or b"",
                queue_offset=len(self.records),
                log_offset=len(self.log),
                store_ms=message.store_ms,
                born_host=HOST,
                store_host=HOST,
            ),
        )

    def _put_log(self) -> None:
        for start in range(0, max(1, len(self.log)), self.log_size):
            data = bytes(self.log[start : start + self.log_size]).ljust(self.log_size, b"\0")
            self.files.put(self.folder.log_in_root / file_name(start), data)

    def log_path(self, log_offset: int) -> Path:
        """Return the log file that holds an offset."""
        return self.folder.log_in_root / file_name(log_offset - log_offset % self.log_size)

    def damage(self, log_offset: int) -> None:
        """Turn one bit of the log."""
        path = self.log_path(log_offset)
        data = bytearray(self.files.contents()[path])
        data[log_offset % self.log_size] ^= 0x10
        self.files.put(path, bytes(data))

    def hot_state(self) -> CoreState:
        """Return the same log as the hot path sees it: all of it mapped."""
        tail = LogTail(self.log_size, len(self.log))
        tail.hot_offset = 0
        contents = self.files.contents()
        for number in range(len(self.log) // self.log_size + 1):
            data = contents.get(self.folder.log_in_root / file_name(number * self.log_size))
            if data is not None:
                tail.views[number] = memoryview(data)
        return CoreState(tail, "c", "r")
