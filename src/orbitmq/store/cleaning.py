"""Removing what is old: log files by retention's word, then queue and index files behind them.

In: the moments to look. Out: jobs for a thread, and what became of them: the log begins later, and
queues with it.

Rules:
1. Deciding and unlinking happen in the thread; maps are let go and offsets moved on the loop.
2. Queues follow in slices, so that tens of thousands of them stop nobody.
3. A log file that was made ahead is not the log's last file: the one that is written to is.
4. What lies behind the synced mark stays, and the files of log and index in which it stands: after
   a power cut recovery begins there, and finds the queues' next numbers.
5. Of several folders of the log the one with most room counts, as in the original: the next files
   go there. Which ones are too full is said to log_folders.py. And a file goes only when those
   before it are gone from the disk, whatever folder they were in: a power cut leaves a row.
6. Paced, one log file goes at a time, and the files of one queue: whoever runs the jobs pauses in
   between. Queues begin later at once, before the first of their files goes.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orbitmq.core import LogTail, Queue
from orbitmq.ensure import ensure
from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import Mark
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.jobs import error_of
from orbitmq.store.key_index import KeyIndex
from orbitmq.store.layout import Folder
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.queue_ext import last_address, offset_of
from orbitmq.store.reading import ColdReader, QueueView, min_offsets, snapshot
from orbitmq.store.refusals import Refusals
from orbitmq.store.retention import Decision, Disk, Facts, LogFile, Retention, least_used
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

TRIM_COUNT_MAX = 1_000
"""Queues looked at by one job."""

LOOK_BACK_MAX = 1_000_000
"""Entries of a queue in which the last extra unit that goes is looked for."""

_NOTHING = Decision([], "", "")


class CleanJob:
    """Asks retention and unlinks the log files that go; paced, one of them at each `run`."""

    def __init__(
        self, cleaner: "Cleaner", last_number: int, file_size: int, *, is_paced: bool
    ) -> None:
        self._cleaner = cleaner
        self._last_number = last_number
        self._file_size = file_size
        self._is_paced = is_paced
        self._left: list[int] | None = None
        """What is still to go; None before it was decided."""
        self.disks: list[Disk] = []
        self.full: frozenset[Path] = frozenset()
        self.decision = _NOTHING
        self.removed: list[int] = []
        self.error: StoreError | None = None

    @property
    def is_decided(self) -> bool:
        """Whether it is known what goes and whether the disks have room; not what has gone."""
        return self._left is not None

    @property
    def is_over(self) -> bool:
        """Whether all that goes is gone, or something failed."""
        return not self._left or self.error is not None

    def run(self) -> None:
        """Look, decide, unlink; go on when it is called again. For a thread."""
        self.error = error_of(self._run)

    def _run(self) -> None:
        if self._left is None:
            self._decide()
            self._left = list(self.decision.remove)
        count = 1 if self._is_paced else len(self._left)
        self._remove(self._left[:count])
        del self._left[:count]

    def _remove(self, numbers: list[int]) -> None:
        files = self._cleaner.outside.files
        paths = [self._cleaner.path_of(number) for number in numbers]
        for at, number in enumerate(numbers):
            files.remove(paths[at])
            self.removed.append(number)
            if not any(path.parent == paths[at].parent for path in paths[at + 1 : at + 2]):
                files.sync([paths[at].parent])  # rule 5

    def _decide(self) -> None:
        outside, retention = self._cleaner.outside, self._cleaner.retention
        files, clock = outside.files, outside.clock
        log_disks, queue_disk = self._cleaner.look_at_disks()
        self.disks = [*log_disks, queue_disk]
        self.full = retention.full_folders(log_disks)
        wall_ms = clock.wall_ms()
        self.decision = retention.decide(
            Facts(
                log_files=self._log_files(files, self._cleaner.log_folders),
                disks=[least_used(log_disks), queue_disk],
                wall_ms=wall_ms,
                monotonic_s=clock.monotonic_s(),
                local_hour=clock.file_stamp(wall_ms) // 10**7 % 100,
            )
        )

    def _log_files(self, files: Files, log_folders: LogFolders) -> list[LogFile]:
        found = []
        for start in log_folders.starts():
            number = start // self._file_size
            modified_ms = files.modified_ms(log_folders.path(start))
            if number <= self._last_number and modified_ms is not None:
                found.append(LogFile(number, modified_ms))
        return found


class TrimJob:
    """Finds where some queues begin now and what they need no more, and removes old index files."""

    def __init__(
        self, cleaner: "Cleaner", views: list[QueueView], first_offset: int, *, is_last: bool
    ) -> None:
        self._cleaner = cleaner
        self._views = views
        self._first_offset = first_offset
        self._is_last = is_last
        self.moved: dict[tuple[str, int], int] = {}
        self.needless: dict[tuple[str, int], list[Path]] = {}
        """The files that only old records needed, by queue."""
        self.removed_indexes: list[Path] = []
        self.error: StoreError | None = None

    def run(self) -> None:
        """Look and unlink; for a thread."""
        self.error = error_of(self._run)

    def _run(self) -> None:
        cleaner, first = self._cleaner, self._first_offset
        self.moved = min_offsets(cleaner.reader, self._views, first)
        if cleaner.outside.files.is_folder(cleaner.folder.queue_extras):
            self._find_units()
        for key in self.moved:
            expired = cleaner.reader.queue_files.expired(*key, first)
            self.needless.setdefault(key, []).extend(expired)
        if self._is_last:
            indexes = cleaner.key_index.expired(first)
            for path in [path for path in indexes if path.name < cleaner.synced_index]:
                cleaner.outside.files.remove(path)
                self.removed_indexes.append(path)

    def _find_units(self) -> None:
        """Find files of extra units that no entry leads to any more."""
        reader = self._cleaner.reader
        for view in self._views:
            key = (view.topic, view.queue_id)
            end = self.moved.get(key, 0)
            first = max(view.min_offset, end - LOOK_BACK_MAX)
            address = last_address(partial(reader.queue_files.read_cold, *key), first, end)
            if address is not None:
                expired = reader.extras(view).expired(offset_of(address))
                self.needless.setdefault(key, []).extend(expired)


class RemoveJob:
    """Unlinks files that queues need no more."""

    def __init__(self, files: Files, queues: list[tuple[Queue, list[Path]]]) -> None:
        self._files = files
        self.queues = queues
        self.error: StoreError | None = None

    def run(self) -> None:
        """Unlink; for a thread."""
        self.error = error_of(self._run)

    def _run(self) -> None:
        for _, paths in self.queues:
            for path in paths:
                self._files.remove(path)


class CleanerParts(NamedTuple):
    """What a cleaner works on."""

    folder: Folder
    log_folders: LogFolders
    tail: LogTail
    log: CommitLog
    queues: dict[tuple[str, int], Queue]
    key_index: KeyIndex
    reader: ColdReader
    refusals: Refusals


class CleanerOutside(NamedTuple):
    """Where its facts come from."""

    files: Files
    clock: Clock


class Cleaner:
    """Looks after the age and the space of one store."""

    def __init__(self, outside: CleanerOutside, parts: CleanerParts, retention: Retention) -> None:
        self.outside = outside
        self.folder = parts.folder
        self.log_folders = parts.log_folders
        self.retention = retention
        self.reader = parts.reader
        self.key_index = parts.key_index
        self._synced_offset = parts.tail.end_offset
        self.synced_index = parts.key_index.state().index_name
        """The index file in which the synced mark stands."""
        self.disks: list[Disk] = []
        """The disks of log and queues as the last look found them."""
        self._parts = parts
        self.path_of: Callable[[int], Path] = parts.log.path
        self._is_asked = False
        self._needless: deque[tuple[Queue, list[Path]]] = deque()
        self._to_trim: list[Queue] = []
        self._trimming: list[Queue] = []
        if self.log_folders.is_spread:  # the first new file may be due before the first look
            self.log_folders.note_full(retention.full_folders(self.look_at_disks()[0]))

    def look_at_disks(self) -> tuple[list[Disk], Disk]:
        """Return the disks of the log's folders that get files, and of the queues; for a thread."""
        *log_disks, queue_disk = map(self._disk, (*self.log_folders.writable, self.folder.queues))
        return log_disks, queue_disk

    def look_at_others(self) -> list[Disk]:
        """Return those of folders that storePathCommitLog names and that get none; for a thread."""
        writable = self.log_folders.writable
        return [self._disk(path) for path in self.folder.named_logs if path not in writable]

    def _disk(self, path: Path) -> Disk:
        return Disk(path, self.outside.files.space(path))

    def note_synced(self, mark: Mark) -> None:
        """Take in where the synced mark stands now."""
        self._synced_offset = mark.log_offset
        self.synced_index = mark.index_name

    def ask_manual(self) -> None:
        """Let the next looks remove what is old, whatever the hour and the space."""
        self._is_asked = True

    def begin(self, *, is_paced: bool = False) -> CleanJob:
        """Return the job that looks for old files; paced, it is run until it is over (rule 6)."""
        if self._is_asked:  # not when asked: a job may be deciding in its thread
            self._is_asked = False
            self.retention.ask_manual()
        file_size = self._parts.tail.file_size
        last_number = max(0, self._synced_offset - 1) // file_size
        return CleanJob(self, last_number, file_size, is_paced=is_paced)

    def note_removed(self, job: CleanJob) -> None:
        """Take in what a look has removed so far."""
        if job.removed:
            self._parts.log.forget(job.removed)

    def finish(self, job: CleanJob) -> Decision:
        """Take in what a look found and removed; raises its error."""
        self.disks = job.disks
        self.note_removed(job)
        if job.disks:
            self.log_folders.note_full(job.full)
        if job.removed:
            self._to_trim = list(self._parts.queues.values())
        if job.is_decided:
            self._parts.refusals.note_disk(job.decision.refusal)
        if job.error is not None:
            raise job.error
        return job.decision

    @property
    def is_trimmed(self) -> bool:
        """Whether all queues begin where the log does."""
        return not self._to_trim

    def begin_trim(self) -> TrimJob | None:
        """Return the job for the next queues that must follow the log, or None when all have."""
        if not self._to_trim:
            return None
        chunk = self._trimming = self._to_trim[-TRIM_COUNT_MAX:]
        del self._to_trim[-TRIM_COUNT_MAX:]
        views = [snapshot(queue) for queue in chunk]
        first_offset = self._parts.log.first_offset
        return TrimJob(self, views, first_offset, is_last=not self._to_trim)

    def finish_trim(self, job: TrimJob) -> None:
        """Let queues begin where their first record is; raises the job's error.

        Then these queues are due again.
        """
        looked_at = {(queue.topic, queue.queue_id): queue for queue in self._trimming}
        for key, min_offset in job.moved.items():
            queue = looked_at[key]  # its topic may be gone, and another may have its name
            ensure(min_offset <= queue.readable_offset, "a queue begins before its end")
            queue.begin_at(min_offset)
        self._needless += [(looked_at[key], paths) for key, paths in job.needless.items() if paths]
        self.key_index.forget(job.removed_indexes)
        if job.error is not None:
            self._to_trim += self._trimming
            raise job.error

    def begin_remove(self, *, is_paced: bool = False) -> RemoveJob | None:
        """Return the job that removes files of queues, of one queue if paced; None: none are left.

        A queue whose topic was removed meanwhile has none any more: another may have its name.
        """
        queues = self._parts.queues
        count = 1 if is_paced else len(self._needless)
        chosen: list[tuple[Queue, list[Path]]] = []
        while self._needless and len(chosen) < count:
            queue, paths = self._needless.popleft()
            if queues.get((queue.topic, queue.queue_id)) is queue:
                chosen.append((queue, paths))
        return RemoveJob(self.outside.files, chosen) if chosen else None

    def finish_remove(self, job: RemoveJob) -> None:
        """Raise the job's error; then these files are due again."""
        if job.error is not None:
            self._needless.extendleft(reversed(job.queues))
            raise job.error
