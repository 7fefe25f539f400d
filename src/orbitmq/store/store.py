"""The one object the broker holds: log, queues, key index, and what was staged in this turn.

In: staged records (through `orbitmq.core`) and the moments at which to write, sync and flush.
Out: what is readable, the queues that grew, jobs for threads, and the reason when none are taken.

Rules:
1. `write_staged` is called once a turn. After it everything staged is in the kernel, or nothing of
   it is: then tail and queues stand where they stood, and StoreError says why.
2. What may be seen is the least of the marks that are required (`publishing`).
3. Jobs are made here, run in a thread and handed back to `finish_…`; one of each kind at a time.
   The thread touches files, this object is touched by the loop only.
4. After a failed sync nothing is taken, acknowledged or called durable any more: the kernel may
   have dropped what it could not write. Reading goes on; a restart reads back what the disk has.
5. One process per folder: the lock file is held while the store is open.
"""

from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

from orbitmq.core import Queue
from orbitmq.ensure import BrokenInvariant, ensure
from orbitmq.errors import StoreError, SyncFailed
from orbitmq.store.checkpoint import Mark
from orbitmq.store.cleaning import Cleaner, CleanerOutside, CleanerParts
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.flush import FlushJob, FlushTargets, LogSync
from orbitmq.store.key_index import IndexState, KeyQuery
from orbitmq.store.key_lookup import prepare_lookup
from orbitmq.store.log_reader import LogReader
from orbitmq.store.opening import Outside, Progress, open_folder
from orbitmq.store.options import StoreOptions
from orbitmq.store.publishing import Publisher, Written
from orbitmq.store.queue_ext_writing import BitMapOf
from orbitmq.store.raw_follow import RawFollower
from orbitmq.store.reading import ColdReader
from orbitmq.store.refusals import RefusalKind, Refusals
from orbitmq.store.retention import Retention, RetentionSettings
from orbitmq.store.stats import StoreStats
from orbitmq.store.topic_removal import RemovalJob, RemovalTargets, TopicRemovals
from orbitmq.store.write_behind import WriteBehind
from orbitmq.watermark import Watermark
from orbitmq.wire.record import AROUND_BODY_MAX, BLANK_SIZE

__all__ = ["KeyQuery", "Store", "largest_body"]

PAGE_SIZE = 4_096


def largest_body(log_file_size: int) -> int:
    """Return the largest body whose record surely fits a log file: records never span files."""
    return log_file_size - AROUND_BODY_MAX - BLANK_SIZE


class Store:
    """A RocketMQ store folder, open for reading and writing."""

    def __init__(
        self,
        outside: Outside,
        root: Path,
        options: StoreOptions | None = None,
        retention: RetentionSettings | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Open a folder, made when it is not there; what a crash left is put in order first."""
        self._options = options = options or StoreOptions()
        self._clock = outside.clock
        self._opened = opened = open_folder(outside, root, options, progress=progress)
        self.folder = opened.folder
        self.findings = opened.findings
        """What recovery found and did."""
        self.was_clean = opened.was_clean
        """Whether the last run had closed the folder."""
        self.stats = StoreStats()
        self._queues = opened.queues
        self.tail = tail = opened.tail
        self._log = CommitLog(outside.files, opened.log_folders, tail, opened.first_offset)
        self.log = LogReader(outside.files, opened.log_folders, tail)
        self._publisher = Publisher(tail, self._queues)
        self.durable = Watermark(tail.end_offset)
        """The end of what is surely on the disk."""
        if options.is_sync_flush:
            self.require(self.durable)
        self._refusals = Refusals(tail, options)
        self._files = outside.files
        self._raw = RawFollower(tail, self.queue, options.delays_ms)
        self.reader = ColdReader(
            outside.files, opened.folder, opened.log_folders, tail.file_size, opened.queue_files
        )
        """For threads that read what is not in memory."""
        self.cleaner = Cleaner(
            CleanerOutside(outside.files, outside.clock),
            CleanerParts(
                folder=opened.folder,
                log_folders=opened.log_folders,
                tail=tail,
                log=self._log,
                queues=self._queues,
                key_index=opened.index,
                reader=self.reader,
                refusals=self._refusals,
            ),
            Retention(retention or RetentionSettings()),
        )
        self._behind = WriteBehind(options.kept_bytes_max)
        self._marked_offset = tail.end_offset
        self._sync_job: LogSync | None = None
        self._flush_job: FlushJob | None = None
        targets = RemovalTargets(
            outside.files, opened.folder, opened.queue_files, opened.checkpoint, opened.units
        )
        self.removals = TopicRemovals(targets, opened.removed)
        self.bit_maps: Callable[[], BitMapOf | None] | None = None
        """Gives, on the loop, what extra units say of filters."""

    # --- What is there ---

    def queue(self, topic: str, queue_id: int, made: Queue | None = None) -> Queue:
        """Return the queue, empty when nothing was ever in it; `made` is such a one of its own."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = made or Queue(topic, queue_id, 0)
        return queue

    def find_queue(self, topic: str, queue_id: int) -> Queue | None:
        """Return the queue if anything was ever in it or it was asked for."""
        return self._queues.get((topic, queue_id))

    def queue_counts(self) -> dict[str, int]:
        """Give, for each topic that has a queue here, how many queues it must have had."""
        counts: dict[str, int] = {}
        for topic, queue_id in self._queues:
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        return counts

    @property
    def durable_offset(self) -> int:
        """The end of what is surely on the disk."""
        return self.durable.number

    def require(self, mark: Watermark) -> None:
        """Let nothing be seen, nor acknowledged, that this mark has not passed, too.

        Nobody else compares settings: whoever promises something waits for `tail.visible`.
        """
        self._publisher.required.append(mark)

    @property
    def is_sync_flush(self) -> bool:
        """Whether what is written may be seen, and answered, only when it is on the disk."""
        return self.durable in self._publisher.required

    def wake(self) -> None:
        """Tell those whose wait for one of the marks is over; call it between turns and jobs."""
        self.durable.wake()
        self.tail.visible.wake()

    @property
    def message_count(self) -> int:
        """Messages that became readable since the store was opened."""
        return self._publisher.message_count

    @property
    def first_offset(self) -> int:
        """Where the log begins."""
        return self._log.first_offset

    @property
    def refusal_kind(self) -> RefusalKind | None:
        """Why no records are taken now; the text is in `tail.refusal`."""
        return self._refusals.kind

    @property
    def unsynced_bytes(self) -> int:
        """How much of the log is not surely on the disk."""
        return self.tail.written_offset - self.durable.number

    @property
    def unsynced_ms(self) -> int:
        """How long the oldest of it has waited."""
        return self._refusals.unsynced_ms(self._clock.monotonic_s())

    @property
    def unwritten_bytes(self) -> int:
        """Queue and index entries that only memory holds, and what they are still to be made of."""
        return self._behind.entry_bytes + self._opened.index.memory_bytes

    @property
    def dispatch_lag_bytes(self) -> int:
        """How much of the log is in no queue, or not in the key index, not even in memory."""
        filed_offset = self._opened.index.filed_offset
        reached = self.tail.visible_offset if filed_offset is None else filed_offset
        return self.tail.written_offset - reached

    @property
    def unindexed_keys(self) -> int:
        """Keys that cannot be looked up: their messages have more than are filed."""
        return self._opened.index.left_out

    @property
    def flush_lag_bytes(self) -> int:
        """How much of the log is not yet in queue and index files: what a start reads back."""
        return self.tail.written_offset - self._marked_offset

    def lookup(self, query: KeyQuery) -> Callable[[], list[int]]:
        """Return the function, for a thread, that finds messages by key: log offsets, newest first.

        Others may have the same hash: whoever reads the records compares the keys.
        """
        return prepare_lookup(self._opened.index, query, self.tail.visible_offset)

    def index_state(self) -> IndexState:
        """Return how far the key index has come."""
        return self._opened.index.filed_state()

    def drain_index(self) -> bool:
        """File some of what waits for the key index, a few milliseconds' work; True: all is."""
        return self._opened.index.drain_some()

    # --- Writing ---

    def write_staged(self) -> set[Queue]:
        """Write everything staged with one positioned write and return the queues that grew.

        With synchronous flush they grow when the sync is done: see `finish_sync`. Raises StoreError
        when the disk refuses or a sync has failed; then nothing of this turn was stored.
        """
        tail = self.tail
        begin_s = self._clock.monotonic_s()
        staged = tail.take()
        size = self._write(staged.data, staged.grown)
        if size:
            self._raw.forget()  # this log has gone its own way
        written = Written(tail.end_offset, *staged[1:])
        return self._note_written(written, size, begin_s)

    def append_raw(self, log_offset: int, data: bytes) -> set[Queue]:
        """Write bytes of another broker's log at the end of this one; return the queues that grew.

        A record may come in pieces: it is written when its last byte has come. Raises StoreError
        when `log_offset` is not `raw_offset`, when the bytes are no records or the disk refuses;
        then nothing of them was taken, or what comes before `raw_offset`.
        """
        tail = self.tail
        if log_offset != self.raw_offset or tail.staged:
            raise StoreError(
                f"bytes for log offset {log_offset}, but the log goes on at {self.raw_offset}: both"
                " logs must go on at the same place"
            )
        grown, is_over = self._append_raw(data)
        while not is_over:
            more, is_over = self._append_raw(b"")
            grown |= more
        return grown

    def _append_raw(self, data: bytes) -> tuple[set[Queue], bool]:
        """Write what is whole, up to a file that is left out; say whether nothing is left to do."""
        begin_s = self._clock.monotonic_s()
        try:
            batch = self._raw.cut(data)
        except StoreError:
            if not data:
                self._raw.forget()
            raise
        self.tail.skip(len(batch.data))
        size = self._write(batch.data)
        self.tail.skip(batch.jump_size)
        grown = self._note_written(self._raw.take(batch), size, begin_s)
        return grown, not batch.jump_size

    @property
    def raw_offset(self) -> int:
        """Where `append_raw` goes on: behind the log and what waits for the end of its record."""
        return self.tail.end_offset + self._raw.waiting_size

    def _write(
        self, data: bytes | bytearray | memoryview, grown: Collection[tuple[Queue, int]] = ()
    ) -> int:
        tail = self.tail
        start = tail.written_offset
        if start + len(data) != tail.end_offset:
            raise BrokenInvariant("staged bytes and log end disagree")
        try:
            if tail.refusal:
                self._refusals.check_not_halted()
            self._log.write(start, data)
        except BaseException:
            self._take_back(grown)
            raise
        return len(data)

    def _note_written(self, written: Written, size: int, begin_s: float) -> set[Queue]:
        """Move the ends on; return the queues that grew."""
        tail, hot_bytes = self.tail, self._options.hot_bytes
        end_offset = tail.end_offset
        tail.written.advance(end_offset)
        self._publisher.add(written)
        now_s = self._clock.monotonic_s()
        if self._sync_job is not None and self._sync_job.later_since_s is None and size:
            self._sync_job.later_since_s = now_s
        unwritten_bytes = self._behind.entry_bytes + self._opened.index.memory_bytes
        self._refusals.note_behind(end_offset - self.durable.number, unwritten_bytes, now_s)
        if end_offset - tail.hot_offset > hot_bytes:
            tail.cool(end_offset - hot_bytes)
            self._log.keep_hot(tail.hot_offset)
        self.stats.count_puts(written.message_count, size, now_s - begin_s)
        return self.publish()

    def _take_back(self, grown: Collection[tuple[Queue, int]]) -> None:
        """Put tail and queues back to what is written."""
        self.stats.put_failures += 1
        written_offset = self._publisher.written_offset
        self.tail.take_back([(queue, written_offset(queue)) for queue, _ in grown])
        self.removals.lower(self.tail.end_offset)
        if self._log.is_spoiled:
            self._halt("a refused write could not be taken back")

    def publish(self) -> set[Queue]:
        """Let be seen what may be, when a required mark has risen; return the queues that grew."""
        total = self._publisher.entry_total
        grown, published = self._publisher.publish()
        for written in published:
            self._opened.index.add(written.rows, written.left_out)
        self._behind.add(grown, self._publisher.entry_total - total)
        return grown

    # --- Syncing the log ---

    def begin_sync(self, least_pages: int = 0) -> LogSync | None:
        """Return the job that syncs the log, or None: nothing to do, one is under way, or halted.

        With `least_pages` fewer dirty pages are left for later.
        """
        is_little = self.unsynced_bytes < max(1, least_pages * PAGE_SIZE)
        if is_little or self._sync_job is not None or self.is_halted:
            return None
        self._sync_job = LogSync(self._log.begin_sync(), self.tail.written_offset)
        return self._sync_job

    def finish_sync(self, job: LogSync) -> set[Queue]:
        """Take in the outcome of a sync; return the queues that grew by it.

        Raises its error after halting the store: nothing is durable on the word of a later sync.
        """
        ensure(job is self._sync_job, "one sync of the log at a time")
        self._sync_job = None
        self._log.end_sync()
        if job.error is not None:
            self._halt(str(job.error))
            raise job.error
        self.durable.advance(job.target)
        now_s = self._clock.monotonic_s()
        self._refusals.restart_age(job.later_since_s)
        self._refusals.note_behind(self.unsynced_bytes, self.unwritten_bytes, now_s)
        return self.publish()

    def _halt(self, cause: str) -> None:
        """Take nothing any more, and call nothing durable (rule 4)."""
        self._refusals.halt(cause)
        error = StoreError(self.tail.refusal)
        self.durable.fail(error)
        self.tail.visible.fail(error)

    @property
    def is_halted(self) -> bool:
        """Whether a sync has failed: nothing is taken any more."""
        return self._refusals.kind is RefusalKind.HALTED

    def note_busy(self, refusal: str) -> None:
        """Take nothing while the broker is overloaded, for this reason; empty: it is not."""
        self._refusals.note_busy(refusal)

    def check_age(self) -> None:
        """Look how long the unsynced part has waited; call it every second or so."""
        now_s = self._clock.monotonic_s()
        self._refusals.note_behind(self.unsynced_bytes, self.unwritten_bytes, now_s)

    # --- Writing behind ---

    def begin_flush(self, *, is_thorough: bool) -> FlushJob | None:
        """Return the job that writes queue and index entries; None: one is under way, or halted.

        A thorough one may run only when `durable_offset` has reached its `mark.log_offset`. What
        `drain_index` has left is filed here, however long it takes: call that one before.
        """
        is_busy = self._flush_job is not None or not self.removals.is_over
        if is_busy or self.is_halted:
            return None
        opened = self._opened
        runs = self._behind.runs()
        index_job = opened.index.freeze()
        mark = Mark(
            self.tail.visible_offset,
            self._publisher.queue_count,
            self._publisher.entry_total,
            *opened.index.state(),
        )
        targets = FlushTargets(
            opened.queue_files,
            opened.index,
            opened.checkpoint,
            opened.units,
            self.bit_maps() if self.bit_maps is not None else None,
        )
        self._flush_job = FlushJob(
            targets, runs, index_job, mark, self.tail.store_ms, is_thorough=is_thorough
        )
        return self._flush_job

    def finish_flush(self, job: FlushJob) -> None:
        """Take in the outcome of a flush; raises its error, after halting when a sync failed."""
        ensure(job is self._flush_job, "one flush at a time")
        self._flush_job = None
        if job.error is not None:
            if isinstance(job.error, SyncFailed):
                self._halt(str(job.error))
            raise job.error
        self._marked_offset = job.mark.log_offset
        if job.is_thorough:
            self.cleaner.note_synced(job.mark)
        if job.index_job is not None:
            self._opened.index.finish(job.index_job)
        self._behind.written(job.runs)

    def cancel_flush(self, job: FlushJob) -> None:
        """Give up a flush that has not begun to run."""
        ensure(job is self._flush_job, "one flush at a time")
        self._flush_job = None

    # --- Removing topics ---

    def remove_topics(self, topics: Collection[str]) -> None:
        """Forget all queues of topics, now; their files go with the next `begin_removal`."""
        gone = [queue for queue in self._queues.values() if queue.topic in topics]
        for queue in gone:
            del self._queues[queue.topic, queue.queue_id]
            self._publisher.forget(queue)
            self._behind.forget(queue)
            self.tail.forget(queue)
        self.removals.note(sorted(topics), self.tail.end_offset)

    @property
    def is_removing(self) -> bool:
        """Whether files of removed topics are still there."""
        return not self.removals.is_over

    def begin_removal(self) -> RemovalJob | None:
        """Return the job that removes topics' files; None: none is due, or a flush is under way."""
        is_free = self._flush_job is None and not self.is_halted
        return self.removals.begin(self.first_offset) if is_free else None

    def finish_removal(self, job: RemovalJob) -> None:
        """Take in the outcome of a removal; raises its error, after halting when a sync failed."""
        if isinstance(job.error, SyncFailed):
            self._halt(str(job.error))
        self.removals.finish(job)

    # --- Making the next log file ---

    def begin_reserve(self) -> int | None:
        """Return the number of the log file to make ahead, or None when none is due."""
        return None if self.is_halted else self._log.number_to_reserve()

    def reserve(self, number: int) -> None:
        """Make a log file ahead; for a thread. Raises StoreError when there is no room."""
        self._log.reserve(number)

    def reserve_failed(self, number: int, error: BaseException) -> None:
        """Say that it failed: it is due again, and the writer can do without.

        A failed sync halts the store, here as everywhere.
        """
        self._log.reserve_failed(number, error)
        if isinstance(error, SyncFailed):
            self._halt(str(error))

    # --- Closing ---

    def flush_all(self) -> None:
        """Bring everything to the disk, here and now. Raises the first failure."""
        sync = self.begin_sync()
        if sync is not None:
            sync.run()
            self.finish_sync(sync)
        while (removal := self.begin_removal()) is not None:
            removal.run()
            self.finish_removal(removal)
        flush = self.begin_flush(is_thorough=True)
        if flush is not None:
            flush.run()
            self.finish_flush(flush)

    def close(self, *, is_flushed: bool = True) -> None:
        """Flush and close everything and let the folder go, whatever of it fails.

        The mark of an unclean stop stays unless everything is on the disk. Without the flush it is
        as if the process was killed.
        """
        ensure(self._sync_job is None and self._flush_job is None, "no job is under way")
        with ExitStack() as steps:
            steps.callback(self._opened.lock.release)
            steps.callback(self._log.close)
            steps.callback(self._opened.close)
            if is_flushed:
                self.flush_all()
            if is_flushed and not self.is_halted:
                self._files.remove(self.folder.abort)
                self._files.sync([self.folder.root])
