"""Builds that are broken on purpose: each breaks one promise, and the programmes must notice.

In: pytest's monkeypatch. Out: a store that lies. A programme that stays green with one of these is
worth nothing (reliability-tests.md 2).
"""

from collections.abc import Callable

import pytest

from orbitmq.core import Queue
from orbitmq.core.state import ENTRY_SIZE
from orbitmq.store.commit_log import CommitLog, Unsynced
from orbitmq.store.flush import LogSync
from orbitmq.store.opening import Progress
from orbitmq.store.recovery import Parts, Recovered, recover
from orbitmq.store.store import Store

Build = Callable[[pytest.MonkeyPatch], None]

DROP_EVERY = 7


def acknowledge_before_writing(patch: pytest.MonkeyPatch) -> None:
    """Each write of the log is done when the next one comes, or a sync."""
    write, begin_sync = CommitLog.write, CommitLog.begin_sync
    waiting: list[tuple[int, bytes]] = []

    def write_waiting(log: CommitLog) -> None:
        while waiting:
            write(log, *waiting.pop())

    def write_late(log: CommitLog, log_offset: int, data: bytes) -> None:
        write_waiting(log)
        waiting.append((log_offset, data))

    def begin_sync_late(log: CommitLog) -> Unsynced:
        write_waiting(log)
        return begin_sync(log)

    patch.setattr(CommitLog, "write", write_late)
    patch.setattr(CommitLog, "begin_sync", begin_sync_late)


def skip_the_sync(patch: pytest.MonkeyPatch) -> None:
    """The log is never synced."""
    patch.setattr(Unsynced, "sync", lambda unsynced: None)


def drop_one_record(patch: pytest.MonkeyPatch) -> None:
    """Now and then what was to be written is not."""
    write_staged = Store.write_staged

    def write_most(store: Store) -> set[Queue]:
        staged = store.tail.staged
        if staged and store.tail.written_offset % DROP_EVERY == 1:
            staged[:] = bytes(len(staged))
        return write_staged(store)

    patch.setattr(Store, "write_staged", write_most)


def swap_two_records(patch: pytest.MonkeyPatch) -> None:
    """The last two entries of a turn's queues change places."""
    write_staged = Store.write_staged

    def write_swapped(store: Store) -> set[Queue]:
        for queue in store.tail.grown:
            entries = queue.entries
            if queue.next_offset - queue.readable_offset >= 2:
                last, before = entries[-ENTRY_SIZE:], entries[-2 * ENTRY_SIZE : -ENTRY_SIZE]
                entries[-2 * ENTRY_SIZE :] = last + before
        return write_staged(store)

    patch.setattr(Store, "write_staged", write_swapped)


def answer_a_failed_sync_as_success(patch: pytest.MonkeyPatch) -> None:
    """A sync that did not end well is answered as if it had."""
    run = LogSync.run

    def run_well(job: LogSync) -> None:
        run(job)
        job.error = None

    patch.setattr(LogSync, "run", run_well)


def believe_the_second_sync(patch: pytest.MonkeyPatch) -> None:
    """A failed sync is told, and the next one is believed."""
    patch.setattr(Store, "_halt", lambda store, cause: None)


def reuse_a_queue_offset(patch: pytest.MonkeyPatch) -> None:
    """After a recovery the last number of each queue is given again."""

    def recover_less(parts: Parts, progress: Progress | None = None) -> Recovered:
        recovered = recover(parts, progress)
        for queue in recovered.queues.values():
            last = max(queue.min_offset, queue.next_offset - 1)
            queue.next_offset = queue.readable_offset = last
            queue.base_offset = queue.flushed_offset = last
        return recovered

    patch.setattr("orbitmq.store.opening.recover", recover_less)
