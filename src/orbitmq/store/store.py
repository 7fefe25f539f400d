"""The one object the broker holds: log, queues, and what was staged in this turn of the loop.

In: staged records (through `orbitmq.core`) and the moments at which to write and to sync.
Out: what is readable, and the queues that grew.

Rules:
1. `write_staged` is called once a turn. After it everything staged is in the kernel and readable,
   or nothing of it is: then tail and queues stand where they stood, and StoreError says why.
2. Queue entries are written behind (`write_queues`); until then they are served from memory.
3. One process per folder: the lock file is held while the store is open.

Recovery near a checkpoint, retention, the key index and synchronous flush come with the next issue;
opening a folder reads the whole log.
"""

from contextlib import ExitStack
from pathlib import Path

from orbitmq.core import LogTail, Queue
from orbitmq.core.state import ENTRY
from orbitmq.ensure import ensure
from orbitmq.errors import StoreError
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import OpenFiles, QueueFiles
from orbitmq.store.load import Found, scan
from orbitmq.wire.record import BLANK_SIZE
from orbitmq.world.files import Files

LOG_FILE_SIZE = 1_073_741_824
QUEUE_FILE_SIZE = 6_000_000


AROUND_BODY_MAX = 65_536 + BLANK_SIZE
"""More than what a record and the end of its file need besides the body."""


def largest_body(log_file_size: int) -> int:
    """Give the largest body whose record surely fits a log file: records never span files."""
    return log_file_size - AROUND_BODY_MAX


class Store:
    """A RocketMQ store folder, open for reading and writing."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        *,
        log_file_size: int = LOG_FILE_SIZE,
        queue_file_size: int = QUEUE_FILE_SIZE,
    ) -> None:
        self._folder = folder
        self._open_files = OpenFiles(files, -(-queue_file_size // ENTRY.size) * ENTRY.size)
        self._queues: dict[tuple[str, int], Queue] = {}
        self._queue_files: dict[tuple[str, int], QueueFiles] = {}
        self._unwritten: set[Queue] = set()
        self.message_count = 0
        """Messages published since the store was opened."""
        files.make_folder(folder)
        self._lock = files.lock(folder / "lock")
        self.tail = LogTail(log_file_size, 0)
        try:
            self._log = CommitLog(files, folder / "commitlog", self.tail)
            for found in scan(self.tail, self._log.file_numbers):
                self._follow(found)
            self.tail.written_offset = self.tail.end_offset
            self.write_queues()
        except BaseException:
            self._lock.release()
            raise

    def queue(self, topic: str, queue_id: int) -> Queue:
        """Give the queue, made empty when nothing was ever in it."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            folder = self._folder / "consumequeue" / topic / str(queue_id)
            queue_files = QueueFiles(self._open_files, folder)
            queue = self._queues[key] = Queue(topic, queue_id, 0, queue_files)
            self._queue_files[key] = queue_files
        return queue

    def find_queue(self, topic: str, queue_id: int) -> Queue | None:
        """Give the queue if anything was ever in it or it was asked for."""
        return self._queues.get((topic, queue_id))

    def queue_counts(self) -> dict[str, int]:
        """Give, for each topic that has a queue here, how many queues it must have had."""
        counts: dict[str, int] = {}
        for topic, queue_id in self._queues:
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        return counts

    def write_staged(self) -> set[Queue]:
        """Write everything staged with one positioned write and give the queues that grew.

        Raises StoreError when the disk refuses; then nothing of this turn was stored.
        """
        tail = self.tail
        data = b"".join(tail.parts)
        ensure(
            tail.written_offset + len(data) == tail.end_offset,
            "staged bytes and log end disagree",
        )
        grown, tail.grown = tail.grown, set()
        try:
            self._log.write(tail.written_offset, data)
        except BaseException:
            self._take_back(grown)
            raise
        tail.parts.clear()
        tail.written_offset = tail.end_offset
        for queue in grown:
            self.message_count += queue.next_offset - queue.readable_offset
            queue.readable_offset = queue.next_offset
        self._unwritten |= grown
        return grown

    def write_queues(self) -> None:
        """Write the entries that are only in memory; raises StoreError, keeping what is left."""
        for queue in list(self._unwritten):
            count = queue.readable_offset - queue.base_offset
            size = count * ENTRY.size
            written = bytes(queue.entries[:size])
            self._queue_files[queue.topic, queue.queue_id].write(queue.base_offset, written)
            del queue.entries[:size]
            queue.base_offset += count
            self._unwritten.discard(queue)

    def sync(self) -> None:
        """Bring the log to the disk. Blocks: call it from a thread."""
        self._log.sync()

    def close(self) -> None:
        """Write, sync and close everything and let the folder go, whatever of it fails."""
        with ExitStack() as steps:
            steps.callback(self._lock.release)
            steps.callback(self._open_files.close)
            steps.callback(self._log.close)
            self.write_queues()

    def _follow(self, found: Found) -> None:
        """Add a record that was read from the log to its queue."""
        self.tail.store_ms = max(self.tail.store_ms, found.store_ms)
        if not found.takes_place:
            return
        queue = self.queue(found.topic, found.queue_id)
        is_first = queue.next_offset == 0  # the older part may have been removed
        is_anew = found.queue_offset == 0  # the topic may have been deleted and made again
        if is_first or is_anew:
            queue.entries.clear()
            queue.base_offset = queue.min_offset = queue.next_offset = found.queue_offset
        if found.queue_offset != queue.next_offset:
            raise StoreError(
                f"damage in the log: the record at log offset {found.log_offset} is number "
                f"{found.queue_offset} of topic {found.topic}, queue {found.queue_id}, where "
                f"{queue.next_offset} is due; nothing was changed. Bring the log back from a copy"
            )
        queue.entries += ENTRY.pack(found.log_offset, found.size, found.tags_code)
        queue.next_offset = queue.readable_offset = found.queue_offset + 1
        self._unwritten.add(queue)

    def _take_back(self, grown: set[Queue]) -> None:
        tail = self.tail
        tail.parts.clear()
        tail.end_offset = tail.written_offset
        for queue in grown:
            del queue.entries[(queue.readable_offset - queue.base_offset) * ENTRY.size :]
            queue.next_offset = queue.readable_offset
