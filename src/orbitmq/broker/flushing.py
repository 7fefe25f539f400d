"""Bringing the store to the disk: when to sync, to write behind, to make the next log file.

In: the store and its settings. Out: its jobs, run in threads, and their outcome taken in on the
loop: queues that grew by a sync, and the word that one is over.

Rules:
1. One thread syncs the log, another does the rest: a sender that waits for the disk never waits for
   queue files.
2. Group commit: one sync serves everybody who waits when it begins; who comes meanwhile is served
   by the next, which begins at once.
3. A failed job is reported. After a failed sync the store takes nothing any more and says why; a
   failed write is tried again.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from orbitmq.broker.repeated_failures import RepeatedFailure
from orbitmq.config import BrokerSettings
from orbitmq.core import Queue
from orbitmq.errors import StoreError
from orbitmq.net.later import Arrival
from orbitmq.store.flush import FlushJob, LogSync
from orbitmq.store.store import Store
from orbitmq.store.topic_removal import RemovalJob
from orbitmq.watermark import Call, Watermark
from orbitmq.world.clock import Clock
from orbitmq.world.threads import Threads

log = logging.getLogger(__name__)

FLUSH_BYTES = 16 * 1_048_576
"""So much may the log grow before queue and index entries are written: after a kill, the start
reads back little more than this."""

THOROUGH_BYTES = 512 * 1_048_576
"""So much may the log grow before they are synced, too: what the start reads after a power cut."""

THOROUGH_FILES = 2
"""With small files it is so many: only files before the synced mark can be removed, and a small
disk would be full before the first one."""

LOOK_S = 0.05
REMOVAL_RETRY_S = 1.0


class Flusher:
    """Runs the store's jobs."""

    def __init__(
        self,
        store: Store,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self.on_synced: Callable[[set[Queue]], None] = lambda _grown: None
        """Called after each sync with the queues that grew by it."""
        self._sync_thread = Threads(1, "sync")
        self._flush_thread = Threads(1, "flush")
        self._under_way: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._drain: asyncio.Handle | None = None
        self._is_wanted = False
        self._waiting_flush: FlushJob | None = None
        self._removals = Watermark()
        """How often the files of all removed topics were gone."""
        self._removal_due_s = 0.0
        self._flush_failures = RepeatedFailure(log, clock)
        self._reserve_failures = RepeatedFailure(log, clock)
        self._synced_s = self._flushed_s = self._thorough_s = clock.monotonic_s()
        self._flushed_offset = self._thorough_offset = store.tail.visible_offset

    def change_settings(self, settings: BrokerSettings) -> None:
        """Keep other intervals from now on."""
        self._settings = settings

    def start(self) -> None:
        """Begin to look after the store, on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    async def stop(self) -> None:
        """Begin nothing more; what is under way is waited for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        while self._under_way:
            await asyncio.wait(self._under_way)
        self._log_synced(StoreError("the broker stops"))
        self._sync_thread.close()
        self._flush_thread.close()

    def want_sync(self) -> None:
        """Have the log synced at once: somebody waits for it."""
        self._is_wanted = True
        self._sync(0)

    @property
    def is_eager(self) -> bool:
        """Whether the log is synced as soon as there is enough of it (flushCommitLogTimed)."""
        return not self._settings.flush_commit_log_timed

    def note_written(self) -> None:
        """Sync what was written: at once if it may not be seen before, or else if it is enough."""
        if self._store.is_sync_flush:
            self.want_sync()
        elif not self._settings.flush_commit_log_timed:
            self._sync(self._settings.flush_commit_log_least_pages)

    async def finish_removals(self) -> None:
        """Return when the files of removed topics are gone; raises why they could not go."""
        if not self._store.is_removing:
            return
        gone = Arrival()
        self._removals.wait(self._removals.number + 1, gone)
        self._remove()
        await gone.future

    def _remove(self) -> None:
        """Begin the removal that is due; after a flush when one is under way."""
        job = self._store.begin_removal()
        if job is not None:
            self._run(self._flush_thread, job.run, lambda _: self._removal_done(job))
        elif self._store.is_halted:
            self._removals.refuse(StoreError(self._store.tail.refusal))

    def _removal_done(self, job: RemovalJob) -> None:
        error: StoreError | None = None
        try:
            self._store.finish_removal(job)
        except StoreError as failed:
            error = failed
            self._removal_due_s = self._clock.monotonic_s() + REMOVAL_RETRY_S
            log.error("files of removed topics could not be removed, will try again: %s", error)
        if error is None and self._store.is_removing:  # more were removed meanwhile
            self._remove()
        elif error is None:
            self._removals.advance(self._removals.number + 1)
            self._removals.wake()
        else:
            self._removals.refuse(error)

    def _look(self) -> None:
        """See what is due; called again and again."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        self._store.check_age()
        settings, now_s = self._settings, self._clock.monotonic_s()
        age_ms = (now_s - self._synced_s) * 1000
        if age_ms >= settings.flush_interval_commit_log:
            is_old = age_ms >= settings.flush_commit_log_thorough_interval
            is_old |= self._store.unsynced_ms * 2 >= settings.unsynced_millis_max
            self._sync(0 if is_old else settings.flush_commit_log_least_pages)
        if self._store.is_removing and now_s >= self._removal_due_s:
            self._remove()
        self._look_at_flush(now_s)
        number = self._store.begin_reserve()
        if number is not None:
            self._reserve(number)

    def _look_at_flush(self, now_s: float) -> None:
        settings, offset = self._settings, self._store.tail.visible_offset
        flushed_ms = (now_s - self._flushed_s) * 1000
        grown = offset - self._flushed_offset
        is_due = grown >= FLUSH_BYTES or (
            grown and flushed_ms >= settings.flush_interval_consume_queue
        )
        thorough_ms = (now_s - self._thorough_s) * 1000
        thorough_grown = offset - self._thorough_offset
        grown_max = min(THOROUGH_BYTES, THOROUGH_FILES * self._store.tail.file_size)
        is_thorough = thorough_grown >= grown_max or bool(
            thorough_grown and thorough_ms >= settings.flush_consume_queue_thorough_interval
        )
        if is_due or is_thorough:
            self._flush(now_s, is_thorough=is_thorough)

    # --- The log ---

    def _sync(self, least_pages: int) -> None:
        job = self._store.begin_sync(least_pages)
        if job is not None:
            self._is_wanted = False
            self._run(self._sync_thread, job.run, lambda _: self._sync_done(job))

    def _sync_done(self, job: LogSync) -> None:
        self._synced_s = self._clock.monotonic_s()
        grown: set[Queue] = set()
        try:
            grown = self._store.finish_sync(job)
        except StoreError as error:
            log.error("%s; no message is taken until the broker is restarted", error)
        self.on_synced(grown)
        if self._is_wanted:
            self._sync(0)
        elif self.is_eager:
            self._sync(self._settings.flush_commit_log_least_pages)

    # --- Queues and index ---

    def _flush(self, now_s: float, *, is_thorough: bool) -> None:
        if not self._store.drain_index():
            self._drain_on()  # a few milliseconds at a time; the flush stays due
            return
        job = self._store.begin_flush(is_thorough=is_thorough)
        if job is None:
            return
        self._flushed_s = now_s
        if is_thorough:
            self._thorough_s = now_s
        if is_thorough and self._store.durable_offset < job.mark.log_offset:
            self._waiting_flush = job
            self._store.durable.wait(job.mark.log_offset, Call(self._log_synced))
            self.want_sync()
        else:
            self._run_flush(job)

    def _log_synced(self, error: StoreError | None) -> None:
        """Go on with the flush that waits for the log; without, after a failed sync."""
        job, self._waiting_flush = self._waiting_flush, None
        if job is not None and error is None:
            self._run_flush(job)
        elif job is not None:
            self._store.cancel_flush(job)

    def _drain_on(self) -> None:
        """File what waits for the key index, slice after slice, others in between."""
        if self._drain is None:
            self._drain = asyncio.get_running_loop().call_soon(self._drain_some)

    def _drain_some(self) -> None:
        self._drain = None
        if not self._store.drain_index():
            self._drain_on()

    def _run_flush(self, job: FlushJob) -> None:
        self._run(self._flush_thread, job.run, lambda _: self._flush_done(job))

    def _flush_done(self, job: FlushJob) -> None:
        try:
            self._store.finish_flush(job)
        except StoreError as error:
            self._flush_failures.report(f"queue and index entries could not be written: {error}")
            return
        self._flushed_offset = job.mark.log_offset
        if job.is_thorough:
            self._thorough_offset = job.mark.log_offset

    # --- Threads ---

    def _reserve(self, number: int) -> None:
        done = partial(self._reserve_done, number)
        self._run(self._flush_thread, partial(self._store.reserve, number), done)

    def _reserve_done(self, number: int, error: BaseException | None) -> None:
        if error is not None:
            self._store.reserve_failed(number, error)
            self._reserve_failures.report(f"the next log file could not be made ahead: {error}")

    def _run(
        self,
        thread: Threads,
        action: Callable[[], None],
        done: Callable[[BaseException | None], None],
    ) -> None:
        """Run in a thread, then call `done` on the loop with what went wrong, if anything."""
        future = thread.run(action)
        self._under_way.add(future)

        def over(finished: asyncio.Future[None]) -> None:
            self._under_way.discard(finished)
            done(finished.exception())
            self._store.wake()  # it may have halted the store

        future.add_done_callback(over)
