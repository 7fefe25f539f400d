"""Removing topics: their queues go now, their records with the age of the log.

In: topics that are gone, and where the log ended then. Out: a job for the flush thread that removes
the queues' files, and what recovery must know so that they do not come back.

Rules:
1. Order: topic and end are noted durably (`config/removedTopics.json`), the checkpoint's marks are
   lowered by its queues and synced, files are unlinked. Wherever a crash comes, the note says which
   entries are of a life that is over; the marks agree with or without, and the start goes on.
2. A record before a topic's end is in no queue, also when queues are made anew. A topic that is
   made again begins behind it, with number 0, so the two lives never mix.
3. No flush runs between the word and the end of the job: no mark is made of a half of it, and no
   entry of the new life is written into a file of the old one.
4. A note counts only beside marks of ours: when the original has run on the folder, or the log has
   lost its end, offsets may be given anew. One from before the log's beginning is dropped.
5. The original leaves no note. In a folder that it has closed, a topic that is neither in its table
   nor has a file of a queue was removed.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.core import Walked
from orbitmq.ensure import ensure
from orbitmq.errors import RemoteProtocolError, StoreError
from orbitmq.store.check_tables import read_topics
from orbitmq.store.checkpoint import Checkpoint, Mark
from orbitmq.store.consume_queue import Extent, QueueFiles
from orbitmq.store.flush import CheckpointFile
from orbitmq.store.jobs import error_of
from orbitmq.store.layout import Folder
from orbitmq.store.queue_ext_writing import UnitWriter
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.names import is_system_topic
from orbitmq.world.files import Files

REMOVED_COUNT_MAX = 100_000
"""Of notes; above it the oldest go, and with them the promise of rule 2."""

Notes = dict[str, int]
"""Topic to the log offset behind the last record of its life that is over."""


class Removed(msgspec.Struct, frozen=True):
    """Which topics were removed."""

    notes: Notes = {}
    known: frozenset[str] | None = None
    """If the original has closed the folder: the topics that it has (rule 5)."""

    def __bool__(self) -> bool:
        """Whether any record can be of a removed topic."""
        return bool(self.notes) or self.known is not None

    def has(self, walked: Walked) -> bool:
        """Whether a record is of a life that is over."""
        if self.known is not None and walked.topic not in self.known:
            return not is_system_topic(walked.topic)
        return walked.log_offset < self.notes.get(walked.topic, 0)


class _RemovedTable(msgspec.Struct, frozen=True, kw_only=True):
    removed_topics: Notes = msgspec.field(name="removedTopics", default={})


def find_removed(
    files: Files, folder: Folder, checkpoint: Checkpoint | None, *, is_clean: bool
) -> Removed:
    """Return what is known of removed topics when a folder is opened."""
    if checkpoint is not None and (checkpoint.written or checkpoint.synced):
        return Removed(read_notes(files, folder, checkpoint))
    topics = read_topics(files, folder) if is_clean else set()
    if not topics:
        return Removed()
    filed = {topic for topic in files.names(folder.queues) if _has_files(files, folder, topic)}
    return Removed(known=frozenset(topics | filed))


def _has_files(files: Files, folder: Folder, topic: str) -> bool:
    """Whether a queue of the topic has a file; the original leaves empty folders behind."""
    queues = files.listing(folder.queues / topic) or ()
    return any(files.listing(folder.queues / topic / name) for name, _ in queues)


def read_notes(files: Files, folder: Folder, checkpoint: Checkpoint | None) -> Notes:
    """Return the notes that count; a file that cannot be read is as good as none."""
    if checkpoint is None or not (checkpoint.written or checkpoint.synced):
        return {}
    try:
        data = files.read(folder.removed_topics)
        return dict(read_json(data, _RemovedTable).removed_topics) if data else {}
    except (OSError, RemoteProtocolError, StoreError):
        return {}


def save_notes(files: Files, path: Path, notes: Notes) -> None:
    """Bring the notes to the disk; the newest when there are too many."""
    newest = sorted(notes.items(), key=lambda note: note[1])[-REMOVED_COUNT_MAX:]
    table = _RemovedTable(removed_topics=dict(sorted(newest)))
    files.replace(path, write_json(table, standard=True))


def still_needed(notes: Notes, first_offset: int, end_offset: int) -> Notes:
    """Return the notes about records that the log has, none behind its end (rule 4)."""
    return {
        topic: min(offset, end_offset)
        for topic, offset in notes.items()
        if min(offset, end_offset) > first_offset
    }


def is_of_old_life(queue_files: QueueFiles, extent: Extent, notes: Notes) -> bool:
    """Whether a queue's files hold entries of a life that is over, or none at all."""
    end_offset = notes.get(extent.topic)
    if end_offset is None:
        return False
    if queue_files.end_before(extent, end_offset) > extent.first_offset:
        return True
    entry = queue_files.read_cold(extent.topic, extent.queue_id, extent.first_offset, 1)
    return not any(entry)


class RemovalTargets(NamedTuple):
    """What a removal works on."""

    files: Files
    folder: Folder
    queue_files: QueueFiles
    checkpoint: CheckpointFile
    units: UnitWriter | None


class RemovalJob:
    """Removes the files of some topics' queues."""

    def __init__(self, targets: RemovalTargets, topics: list[str], notes: Notes) -> None:
        self._targets = targets
        self.topics = topics
        self._notes = notes
        self._is_uncounted = False
        self.error: StoreError | None = None

    def run(self) -> None:
        """Note, lower the marks, unlink; for a thread. May be run again after a failure."""
        self.error = error_of(self._run)

    def _run(self) -> None:
        files, folder, queue_files, checkpoint, units = self._targets
        save_notes(files, folder.removed_topics, self._notes)
        if not self._is_uncounted:
            extents = [extent for topic in self.topics for extent in queue_files.of_topic(topic)]
            checkpoint.save(_without(checkpoint.value, queue_files, extents))
            self._is_uncounted = True
        checkpoint.sync()
        for topic in self.topics:
            if units is not None:
                units.forget(topic)
            queue_files.remove_topic(topic)
        files.sync([folder.queues, folder.queue_extras])


def _without(checkpoint: Checkpoint, queue_files: QueueFiles, extents: list[Extent]) -> Checkpoint:
    """Return a checkpoint whose marks know nothing of some queues."""

    def lowered(mark: Mark | None) -> Mark | None:
        if mark is None:
            return None
        before = [queue_files.end_before(extent, mark.log_offset) for extent in extents]
        return mark._replace(
            queue_count=mark.queue_count - sum(map(bool, before)),
            entry_total=mark.entry_total - sum(before),
        )

    return msgspec.structs.replace(
        checkpoint, written=lowered(checkpoint.written), synced=lowered(checkpoint.synced)
    )


class OldLives:
    """Queues of removed topics whose removal a crash cut off; for recovery, which finishes it."""

    def __init__(self, files: Files, folder: Folder, queue_files: QueueFiles, notes: Notes) -> None:
        self._files = files
        self._folder = folder
        self._queue_files = queue_files
        self._notes = notes
        self._extents: list[Extent] = []

    def take(self, extents: dict[tuple[str, int], Extent]) -> None:
        """Take the queues of lives that are over out of what a survey has found."""
        for key, extent in list(extents.items()):
            if is_of_old_life(self._queue_files, extent, self._notes):
                self._extents.append(extents.pop(key))

    def counts_before(self, log_offset: int) -> list[int]:
        """Return each queue's next number behind the records before a log offset."""
        return [self._queue_files.end_before(extent, log_offset) for extent in self._extents]

    def remove(self, checkpoint: Checkpoint | None) -> None:
        """Unlink their files, after lowering the marks of a checkpoint that still counts them."""
        if not self._extents:
            return
        if checkpoint is not None:
            value = _without(checkpoint, self._queue_files, self._extents)
            file = CheckpointFile(self._files, self._folder.checkpoint, value)
            file.save(value)
            file.sync()
            file.close()
        for extent in self._extents:
            self._queue_files.remove_queue(extent.topic, extent.queue_id)
        topics = sorted({extent.topic for extent in self._extents})
        self._files.sync([*(self._folder.queues / topic for topic in topics), self._folder.queues])
        self._extents.clear()


class TopicRemovals:
    """The removals of one open store: what is due, and the one that is under way."""

    def __init__(self, targets: RemovalTargets, notes: Notes) -> None:
        self._targets = targets
        self._notes = notes
        self._due: list[str] = []
        self._job: RemovalJob | None = None
        self._is_running = False
        self._is_lowered = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return not self._due and self._job is None and not self._is_lowered

    def end_of(self, topic: str) -> int:
        """Return where the log ended when a topic was removed; 0 when nobody knows of that."""
        return self._notes.get(topic, 0)

    def note(self, topics: Iterable[str], end_offset: int) -> None:
        """Take in that topics are gone; the log ends there, with what is staged."""
        for topic in topics:
            self._notes[topic] = end_offset
            self._due.append(topic)

    def lower(self, end_offset: int) -> None:
        """Take in that what was staged behind `end_offset` was refused: others come there."""
        for topic, offset in self._notes.items():
            if offset > end_offset:
                self._notes[topic] = end_offset
                self._is_lowered = True

    def begin(self, first_offset: int) -> RemovalJob | None:
        """Return the job that is due, or None: nothing is, or one is running."""
        if self._is_running or self.is_over:
            return None
        if self._job is None:
            topics, self._due, self._is_lowered = list(dict.fromkeys(self._due)), [], False
            needed = {
                topic: offset
                for topic, offset in self._notes.items()
                if offset > first_offset or topic in topics
            }
            self._notes = needed
            self._job = RemovalJob(self._targets, topics, dict(needed))
        self._is_running = True
        return self._job

    def finish(self, job: RemovalJob) -> None:
        """Take in the outcome; raises the job's error: then it is due again."""
        ensure(job is self._job and self._is_running, "one removal at a time")
        self._is_running = False
        if job.error is not None:
            raise job.error
        self._job = None
