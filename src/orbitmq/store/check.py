"""`orbitmq store check`: every invariant of a store folder, verified without opening it.

In: a folder, ours or the original's: live, stopped, crashed or copied. Out: a verdict that names
each violation with file, position, what it is and what to do.

Rules:
1. Nothing is changed and no lock is taken; memory stays bounded however big the folder is.
2. The log is the truth: queues and index are compared with it in one pass.
3. A live folder grows while it is checked. Marks and offsets are read first, then the log, then
   what is derived from it; what lies behind the end seen in the log is not checked when a record
   stands there meanwhile. It also loses its oldest files: what was noted of them is dropped.
   Nothing is called damaged on the word of one read.
4. `abort` present: not stopped cleanly (or running). Then the newest queue and index entries may be
   missing, and the log may end in a torn record: information, not damage.
"""

from pathlib import Path
from typing import NamedTuple

from orbitmq.core import Walked
from orbitmq.store.check_index import IndexCheck
from orbitmq.store.check_queues import LogBounds, QueueCheck, Topics
from orbitmq.store.check_tables import (
    check_checkpoint,
    check_names,
    check_offsets,
    check_tables,
    read_offsets,
    read_topics,
)
from orbitmq.store.checkpoint import Checkpoint, Mark
from orbitmq.store.follow import entry_code
from orbitmq.store.index_shape import Shape
from orbitmq.store.layout import Folder
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_walk import Damage, LogWalk, first_nonzero
from orbitmq.store.options import StoreOptions
from orbitmq.store.places import ensure_log, folder_of
from orbitmq.store.topic_removal import read_notes
from orbitmq.store.verdict import (
    RECOVERS,
    REPAIR,
    RESTORE,
    SET_ASIDE,
    Progress,
    Verdict,
    no_progress,
)
from orbitmq.world.files import Files
from orbitmq.world.machine import UNKNOWN_BOOT

PROGRESS_RECORDS = 10_000
WARNED_TIMES_MAX = 20
STARTS_MAX = 3
"""How often a check begins again because a broker was started on the folder."""


class Circumstances(NamedTuple):
    """What decides how severely a folder is checked."""

    is_clean: bool
    boot_id: bytes
    checkpoint: Checkpoint | None

    @property
    def own(self) -> Mark | None:
        """Up to where our own block says that queues and index go; None without block."""
        if self.checkpoint is None:
            return None
        is_same_boot = self.boot_id == self.checkpoint.boot_id != UNKNOWN_BOOT
        return self.checkpoint.written if is_same_boot else self.checkpoint.synced

    @property
    def mark(self) -> int | None:
        """From which log offset on entries may be missing; None: none may."""
        if self.is_clean:
            return None
        return self.own.log_offset if self.own is not None else 0


def check(
    files: Files,
    root: Path,
    options: StoreOptions,
    boot_id: bytes = UNKNOWN_BOOT,
    progress: Progress = no_progress,
) -> Verdict:
    """Check a folder; raises StoreError when it is no store folder or cannot be read."""
    folder = folder_of(root, options)
    ensure_log(files, folder)
    for _ in range(STARTS_MAX):
        verdict = Verdict(root)
        is_clean = files.size(folder.abort) is None
        checkpoint = check_checkpoint(files, folder, verdict, is_clean=is_clean)
        circumstances = Circumstances(is_clean, boot_id, checkpoint)
        _Check(files, folder, options, circumstances, verdict).run(progress)
        if not is_clean or files.size(folder.abort) is None:
            break  # otherwise a broker was started meanwhile
    return verdict


class _Check:
    """One check of one folder."""

    def __init__(
        self,
        files: Files,
        folder: Folder,
        options: StoreOptions,
        circumstances: Circumstances,
        verdict: Verdict,
    ) -> None:
        self._files = files
        self._folder = folder
        self._options = options
        self._facts = circumstances
        self._verdict = verdict
        shape = Shape(options.index_slot_count, options.index_entry_count)
        removed = read_notes(files, folder, circumstances.checkpoint)
        topics = Topics(read_topics(files, folder), removed)
        mark = circumstances.mark
        self._queues = QueueCheck(files, folder, verdict, mark, topics)
        self._offsets = read_offsets(files, folder)
        self._log = LogWalk(files, LogFolders.of(files, folder))
        self._index = IndexCheck(files, folder.index, verdict, mark, shape, self._log_start)
        self._damages: list[tuple[int, int]] = []
        self._store_ms = 0
        self._back_count = 0

    def _log_start(self) -> int:
        """Return where the log begins now: a live broker removes its oldest files."""
        if self._facts.is_clean:
            return self._log.first_offset
        return max(self._log.first_offset, min(self._log.folders.starts(), default=0))

    def run(self, progress: Progress) -> None:
        """Check everything."""
        if not self._facts.is_clean:
            text = "the store runs, or was not stopped cleanly"
            self._verdict.info(self._folder.abort, -1, text, RECOVERS)
        check_names(self._files, self._folder, self._verdict)
        self._check_files()
        self._walk(progress)
        progress("queues and index", 0, 0)
        log = self._log
        bounds = LogBounds(log.first_offset, log.end_offset, [*self._damages, *self._missing_end()])
        ends = self._queues.finish(bounds)
        if self._options.is_indexed:
            self._index.finish(bounds)
        check_tables(self._files, self._folder, self._verdict)
        check_offsets(self._folder, self._verdict, self._offsets, ends)
        self._check_tail()
        self._check_checkpoint()

    def _missing_end(self) -> list[tuple[int, int]]:
        """What the log had behind its end when the checkpoint was written; none when sound."""
        own, end = self._facts.own, self._log.end_offset
        return [(end, own.log_offset)] if own is not None and own.log_offset > end else []

    def _check_files(self) -> None:
        log, verdict = self._log, self._verdict
        for path in log.found.strays:
            if not self._facts.is_clean and path.name.endswith(".tmp"):
                verdict.info(path, -1, "a log file that was being made", RECOVERS)
            else:
                verdict.damage(path, -1, "this does not belong into the log", SET_ASIDE)
        for path, size in log.sizes.items():
            if not self._facts.is_clean and size == 0:
                verdict.info(path, -1, "a log file that was being made", RECOVERS)
            elif log.file_size and int(path.name) % log.file_size:
                text = (
                    f"a log file with this name cannot be: names are multiples of {log.file_size}"
                )
                verdict.damage(path, -1, text, SET_ASIDE)
            elif size != log.file_size:
                text = f"has {size} bytes, the log files of this folder {log.file_size}"
                verdict.damage(path, -1, text, RESTORE)
        for path in log.found.empty:
            verdict.info(path, -1, "an empty log file that was made ahead and is passed over")
        for path in log.found.doubles:
            text = (
                f"{log.path(int(path.name))} is the same file of the log, and both hold something"
            )
            verdict.damage(path, -1, text, "move the one that is not this log's out of there")
        verdict.counts["log files"] = len(log.starts)

    # --- the log ---

    def _walk(self, progress: Progress) -> None:
        log = self._log
        total = len(log.starts) * log.file_size
        first_offset = log.first_offset
        part_start = 0
        for number, found in enumerate(log.walk()):
            if number % PROGRESS_RECORDS == 0:
                progress("log", log.end_offset - log.first_offset, total)
            if log.first_offset > first_offset:
                first_offset = log.first_offset
                self._queues.see_removal()
            start = found.start if isinstance(found, Damage) else found.log_offset
            self._check_filler(part_start, start)
            if isinstance(found, Damage):
                self._see_damage(found)
                part_start = found.end
            else:
                self._see(found)
                part_start = start + found.size
        if log.first_offset > first_offset:
            self._queues.see_removal()
        self._check_filler(part_start, log.end_offset)
        self._check_unreadable()
        progress("log", log.end_offset - log.first_offset, log.end_offset - log.first_offset)
        self._verdict.counts["log bytes"] = log.end_offset - log.first_offset

    def _see(self, record: Walked) -> None:
        self._verdict.counts["records"] += 1
        self._queues.see(record, entry_code(record, self._options.delays_ms))
        if self._options.is_indexed:
            self._index.see(record)
        if record.store_ms < self._store_ms:
            self._note_time(record.log_offset, record.store_ms)
        self._store_ms = max(self._store_ms, record.store_ms)

    def _note_time(self, log_offset: int, store_ms: int) -> None:
        self._back_count += 1
        if self._back_count <= WARNED_TIMES_MAX:
            text = f"the record at log offset {log_offset} has store time {store_ms}, one before it"
            text += f" {self._store_ms}: times went back"
            path = self._log.path(log_offset)
            self._verdict.warning(path, log_offset % self._log.file_size, text)

    def _see_damage(self, damage: Damage) -> None:
        self._damages.append((damage.start, damage.end))
        self._queues.see_damage(damage.start, damage.end)
        self._index.see_damage(damage.start, damage.end)
        text = f"log offsets {damage.start} to {damage.end} ({damage.end - damage.start} bytes) "
        text += f"are damaged: {damage.text}"
        path = self._log.path(damage.start)
        self._verdict.damage(path, damage.start % self._log.file_size, text, RESTORE)

    def _check_filler(self, start: int, end: int) -> None:
        """Check what lies between two parts of the log: a blank record, then zeros."""
        if start >= end or start % self._log.file_size == 0:
            return
        path, position = self._log.path(start), start % self._log.file_size
        at = first_nonzero(self._files, path, position + 8, self._log.file_size)
        if at is None:
            return
        text = "bytes that are not zero in the unused end of a log file; no record is touched"
        if self._facts.own is not None:
            self._verdict.damage(path, at, text, "nothing is lost; look at the disk")
        else:
            self._verdict.warning(path, at, text)

    def _check_unreadable(self) -> None:
        for start, end in self._log.log.unreadable:
            text = f"the disk cannot read log offsets {start} to {end}"
            advice = f"replace the disk; {RESTORE}"
            path, position = self._log.path(start), start % self._log.file_size
            self._verdict.damage(path, position, text, advice)

    def _check_tail(self) -> None:
        """Check what lies behind the log's end, unless the log has grown meanwhile."""
        log = self._log
        at = log.tail_start
        if at is None or log.whole_at(log.end_offset) is not None:
            return
        text = f"the log ends at {log.end_offset} ({log.tail_text}); behind it, from {at} on, are "
        text += "bytes that are not zero"
        path, position = log.path(at), at % log.file_size
        if self._facts.is_clean:
            self._verdict.damage(path, position, text, RESTORE)
        else:
            self._verdict.info(path, position, f"{text}: a torn write", RECOVERS)

    # --- the checkpoint against the log ---

    def _check_checkpoint(self) -> None:
        path, log = self._folder.checkpoint, self._log
        checkpoint, own = self._facts.checkpoint, self._facts.own
        if checkpoint is None:
            text = "is missing: the next start reads the whole log"
            if self._facts.is_clean and self._verdict.counts["records"]:
                self._verdict.damage(path, -1, text, REPAIR)
            else:
                self._verdict.info(path, -1, text, RECOVERS)
            return
        late = max(checkpoint.stamps)  # ours says by its mark how long the log was
        if own is None and self._facts.is_clean and log.starts and late > self._store_ms:
            text = f"has time {late}, the newest record {self._store_ms}"
            self._verdict.warning(path, 0, text)
        if own is not None and own.log_offset > log.end_offset:
            text = f"the log ends at {log.end_offset}, but the checkpoint says that it was written"
            text += f" up to {own.log_offset}: a log file is missing or damaged"
            self._verdict.damage(log.folders.writable[0], -1, text, RESTORE)
