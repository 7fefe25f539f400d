"""A store that is driven together with its model: each step is done to both.

In: files, options, the steps of a broker's loop and of its threads. Out: the real store, the model
that it must agree with, and `events`: what had been promised after how many operations of the disk.

Rule: what a step promises is noted when the store has answered, never before.
"""

from pathlib import Path
from typing import NamedTuple

from orbitmq.core import BatchColumns, BatchStamp, Stamp, append, append_batch
from orbitmq.errors import StoreError
from orbitmq.store.flush import FlushJob, LogSync
from orbitmq.store.opening import Outside
from orbitmq.store.options import StoreOptions
from orbitmq.store.retention import RetentionSettings
from orbitmq.store.store import Store
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import DELAY, TAGS, parse_properties
from orbitmq.world.files import Space
from tests.core.hot import ORIGIN
from tests.store.model import Model, Sent, demand
from tests.store.slow_store import DELAYS_S
from tests.world.memory_files import MemoryFiles

ROOT = Path("/store")
BOOT = b"the first start!"
FIRST_MS = 1_700_000_000_000
RETENTION = RetentionSettings(delete_hours="", least_free_bytes=0, batch_max=2)
ROOMY, CROWDED = Space(100, 90), Space(100, 13)


class HandClock:
    """A clock that is moved by hand; index files are called by its milliseconds."""

    def __init__(self) -> None:
        self.now_ms = FIRST_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def file_stamp(self, wall_ms: int) -> int:
        return 10**16 + wall_ms


class Event(NamedTuple):
    """What holds after `op_count` operations of the disk."""

    op_count: int
    written_offset: int
    visible_offset: int
    durable_offset: int
    first_offset: int


def stamp_of(sent: Sent, store_ms: int) -> Stamp:
    """Return the numbers of a record as a broker would."""
    properties = parse_properties(sent.properties)
    is_waiting = sent.place[0].startswith("SCHEDULE_TOPIC")
    level = min(int(properties.get(DELAY, "0")), len(DELAYS_S)) if is_waiting else 0
    code = store_ms + 1000 * DELAYS_S[level - 1] if level else tag_code(properties.get(TAGS, ""))
    return Stamp(0, sent.sys_flag, 1, 0, 0, code)


class Driven:
    """One run of a store, from opening to its end, clean or not."""

    def __init__(
        self,
        files: MemoryFiles,
        options: StoreOptions,
        model: Model | None = None,
        *,
        clock: HandClock | None = None,
        boot_id: bytes = BOOT,
    ) -> None:
        self.files = files
        self.options = options
        self.clock = clock or HandClock()
        self.boot_id = boot_id
        files.space_now = ROOMY
        self.store = Store(Outside(files, self.clock, boot_id), ROOT, options, RETENTION)
        self.model = model or Model(options.log_file_size)
        self.events: list[Event] = []
        self.removing_to = self.model.first_offset
        """Where the log may begin already, once a removal has begun."""
        self.marked_offset = self.store.tail.end_offset
        """Before it, queues and index are on the disk; what lies behind it is not removed."""
        self._note()

    def _note(self) -> None:
        store, tail = self.store, self.store.tail
        self.events.append(
            Event(
                len(self.files.ops),
                tail.written_offset,
                tail.visible_offset,
                store.durable_offset,
                self.removing_to,
            )
        )

    # --- The loop ---

    def stage(self, *batch: Sent) -> None:
        """Stage one message, or several as a batch; all of one queue."""
        store, tail = self.store, self.store.tail
        tail.store_ms = max(tail.store_ms, self.clock.now_ms)
        queue = store.queue(*batch[0].place)
        if len(batch) == 1:
            sent = batch[0]
            stamp = stamp_of(sent, tail.store_ms)
            offsets = [append(tail, queue, ORIGIN, stamp, sent.body, sent.properties)]
        else:
            columns = BatchColumns(
                [sent.body for sent in batch],
                [sent.properties for sent in batch],
                [0] * len(batch),
                [stamp_of(sent, tail.store_ms).tags_code for sent in batch],
            )
            offsets = append_batch(tail, queue, ORIGIN, BatchStamp(0, 1, 0), columns)
        wanted = [message.log_offset for message in self.model.add(tail.store_ms, *batch)]
        demand(offsets == wanted, "P3 a record stands where it was promised", offsets, wanted)
        next_offset = len(self.model.queues[batch[0].place])
        demand(
            queue.next_offset == next_offset,
            "P3 a queue goes on with its next number",
            batch[0].place,
            queue.next_offset,
            next_offset,
        )

    def write(self) -> None:
        """End a turn of the loop."""
        self.store.write_staged()
        self._note()

    def send(self, *batch: Sent) -> None:
        """Stage and write."""
        self.stage(*batch)
        self.write()

    # --- The threads ---

    def sync(self) -> None:
        """Sync the log."""
        job = self.store.begin_sync()
        if job is not None:
            job.run()
            self.finish_sync(job)

    def finish_sync(self, job: LogSync) -> None:
        """Take in a sync."""
        self.store.finish_sync(job)
        self._note()

    def flush(self, *, is_thorough: bool = False) -> None:
        """Write behind; the log is synced first when thorough."""
        job = self.store.begin_flush(is_thorough=is_thorough)
        if job is None:
            return
        try:
            if is_thorough:
                self.sync()
        except StoreError:
            self.store.cancel_flush(job)
            raise
        job.run()
        self.finish_flush(job)

    def finish_flush(self, job: FlushJob) -> None:
        """Take in a flush."""
        self.store.finish_flush(job)
        if job.is_thorough:
            self.marked_offset = job.mark.log_offset
        self._note()

    def reserve(self) -> None:
        """Make the next log file ahead when it is due."""
        number = self.store.begin_reserve()
        if number is None:
            return
        try:
            self.store.reserve(number)
        except StoreError as error:
            self.store.reserve_failed(number, error)
            raise

    def clean(self) -> None:
        """Remove the oldest log files, at most two, and what only they needed."""
        store, file_size = self.store, self.model.file_size
        last_start = max(0, self.marked_offset - 1) // file_size * file_size
        at_most = self.model.first_offset + RETENTION.batch_max * file_size
        self.removing_to = max(self.model.first_offset, min(last_start, at_most))
        self._note()
        self.files.space_now = CROWDED
        job = store.cleaner.begin()
        job.run()
        self.files.space_now = ROOMY
        store.cleaner.finish(job)
        while (trim := store.cleaner.begin_trim()) is not None:
            trim.run()
            store.cleaner.finish_trim(trim)
        while (remove := store.cleaner.begin_remove()) is not None:
            remove.run()
            store.cleaner.finish_remove(remove)
        self.model.first_offset = store.first_offset
        demand(store.first_offset == self.removing_to, "what is old goes", store.first_offset)
        self._note()

    def append_raw(self, data: bytes) -> None:
        """Take bytes of another broker's log; the model has them already."""
        self.store.append_raw(self.store.raw_offset, data)
        self._note()

    def close(self) -> None:
        """Stop cleanly."""
        self.store.close()
        self._note()
