"""Recovery: from the files that the last run left to a store that can go on.

In: the folder's parts, after the survey, under the lock. Out: where the log begins and ends, every
queue, findings; and files in which queues and index are what the log says, synced.

1. Log order is the truth; queues and index are derived. Where reading begins: plan.py. What counts
   as record, damage, torn tail and end, also after a power cut: scan.py.
2. What a mark says of queues (how many, how many entries) and index must agree with their files.
   If not, and at any disagreement while following (replay.py), all are made anew, in place.
3. A number once given is not given again: what damage swallowed becomes holes, a queue keeps the
   last entries it has of damaged bytes, and its next number when the log no longer mentions it.
4. Behind log and queues there are zeros. What is not understood goes to `aside/`: log_end.py,
   queue_survey.py. Queues without a log, or with one of others that holds no record, go there too.
5. What the disk cannot read is damage; at the log's end it is a reason not to start.
6. Recovering twice changes nothing; a recovery that was cut off is simply done again.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from orbitmq.core import Queue
from orbitmq.core.state import ENTRY
from orbitmq.errors import ReadFailed
from orbitmq.store.checkpoint import Checkpoint, Stamps
from orbitmq.store.consume_queue import Extent, QueueFiles, QueueRange
from orbitmq.store.entry_proof import EntryProof
from orbitmq.store.findings import Aside, Finding, FindingKind
from orbitmq.store.index_shape import is_index_name
from orbitmq.store.key_index import IndexState, KeyIndex
from orbitmq.store.layout import Folder
from orbitmq.store.log_end import fill_missing, tidy_end, write_again
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_source import Gap, LogFiles
from orbitmq.store.options import StoreOptions
from orbitmq.store.plan import Plan, choose_plan
from orbitmq.store.queue_survey import QueueSurvey
from orbitmq.store.replay import Disagreement, QueueKey, Replay
from orbitmq.store.scan import Scan
from orbitmq.store.survey import Survey
from orbitmq.store.topic_removal import OldLives, Removed
from orbitmq.wire.sysflag import enters_queue
from orbitmq.world.files import Files

__all__ = ["Finding", "FindingKind", "Parts", "Recovered", "recover"]

WRITE_OUT_BYTES = 64 << 20
PROGRESS_BYTES = 1 << 20
LOOK_COUNT = 4_096
"""Of entries behind a queue's end no more are counted."""
FINDINGS_MAX = 1_000
"""Of damage; the last one says how much more there is."""

Progress = Callable[[int, int], None]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What recovery works on."""

    files: Files
    folder: Folder
    log_folders: LogFolders
    options: StoreOptions
    survey: Survey
    queue_files: QueueFiles
    index: KeyIndex
    checkpoint: Checkpoint | None
    is_clean: bool
    """Whether there was no `abort`."""
    boot_id: bytes
    is_full_rebuild: bool = False
    removed: Removed = Removed()
    """Topics that were removed: topic_removal.py."""


class Recovered(NamedTuple):
    """A store that can go on."""

    first_offset: int
    end_offset: int
    checked_from: int
    """From here on every byte of the log was checked, and there is no damage."""
    store_ms: int
    queues: dict[QueueKey, Queue]
    findings: list[Finding]
    stamps: Stamps


def recover(parts: Parts, progress: Progress | None = None) -> Recovered:
    """Bring a folder in order; raises StoreError when the disk refuses.

    `progress` is told how many bytes of the log were read, and how many there may be.
    """
    recovery = _Recovery(parts, progress or _no_progress)
    if not parts.survey.log_numbers:
        return recovery.without_log()
    return recovery.run()


def _totals(counts: Collection[int]) -> tuple[int, int]:
    """Return what a mark says of queues: how many have entries, and the sum of their numbers."""
    return sum(map(bool, counts)), sum(counts)


def _no_progress(_done: int, _total: int) -> None:
    pass


class _Recovery:
    """One recovery."""

    def __init__(self, parts: Parts, progress: Progress) -> None:
        self._parts = parts
        self._progress = progress
        survey, folder = parts.survey, parts.folder
        numbers = [*survey.log_numbers]
        self._log = LogFiles(parts.files, parts.log_folders, survey.log_file_size, numbers)
        self._aside = Aside(parts.files, folder)
        synced = parts.checkpoint.synced if parts.checkpoint is not None else None
        self._queues = QueueSurvey(
            parts.files,
            folder.queues,
            parts.queue_files,
            self._aside,
            synced.log_offset if synced is not None else None,
        )
        self._old_lives = OldLives(parts.files, folder, parts.queue_files, parts.removed.notes)
        self._findings: list[Finding] = []
        self._damage: list[Gap] = []

    # --- The course of it ---

    def run(self) -> Recovered:
        """Recover a log that has files."""
        parts = self._parts
        plan = choose_plan(
            self._log, parts.queue_files, parts.checkpoint, parts.boot_id, is_clean=parts.is_clean
        )
        fault = "it was asked for" if parts.is_full_rebuild else self._queues.fault
        if not fault:
            try:
                return self._from_plan(plan)
            except Disagreement as disagreement:
                fault = str(disagreement)
        return self._anew(plan, fault)

    def without_log(self) -> Recovered:
        """No log file at all: nothing that is derived from one can be right."""
        checkpoint = self._parts.checkpoint
        mark = checkpoint.synced if checkpoint is not None else None
        if mark is not None and mark.log_offset:
            place, size = self._log.folders.writable[0], mark.log_offset
            text = f"{place} holds no log file, where {size} bytes were written"
            finding = Finding(FindingKind.MISSING_FILE, place, 0, size, text)
            self._findings.append(finding)
        if self._parts.options.is_indexed:
            self._parts.index.clear()
            self._set_indexes_aside()
        self._queues.set_all_aside("there is no log file")
        findings = [*self._findings, *self._queues.findings]
        return Recovered(0, 0, 0, 0, {}, findings, Stamps(0, 0, 0))

    def _from_plan(self, plan: Plan) -> Recovered:
        """Go on from what queues and index hold; raises Disagreement when they cannot be right."""
        index_start = self._take_index(plan)  # kept, also while no index is wanted
        start = index_start if self._parts.options.is_indexed else plan.start
        replay = self._replay(is_full=False, is_compared=plan.mark is None)
        for extent in self._queues.extents.values():
            if extent.first_offset and not self._log.first_offset:
                self._ensure_first_files(extent)
        self._old_lives.take(self._queues.extents)
        counts = self._counts_before(start)
        for key, next_offset in counts.items():
            replay.know(self._queues.extents[key], next_offset)
        found, with_old = (
            _totals([*counts.values(), *old]) for old in ([], self._old_lives.counts_before(start))
        )
        mark = plan.mark
        written = found if mark is None else (mark.queue_count, mark.entry_total)
        if written not in (found, with_old):
            raise Disagreement(
                f"of the log before {start} there are {found[0]} queues with {found[1]} entries,"
                f" where {written[0]} with {written[1]} were written"
            )
        self._old_lives.remove(self._parts.checkpoint if written != found else None)
        return self._follow(plan, start, replay)

    def _ensure_first_files(self, extent: Extent) -> None:
        """Raise Disagreement when a log that was never shortened has more of a queue than files."""
        for item in Scan(self._log, 0, 0, is_prefix_only=False).walk():
            if isinstance(item, Gap) or not enters_queue(item.sys_flag):
                continue
            if (item.topic, item.queue_id) != (extent.topic, extent.queue_id):
                continue
            if item.queue_offset < extent.first_offset:
                raise Disagreement(
                    f"the first files of topic {extent.topic}, queue {extent.queue_id} are missing:"
                    f" they begin with number {extent.first_offset}"
                )
            return

    def _anew(self, plan: Plan, fault: str) -> Recovered:
        """Make queues and index anew from the whole log."""
        parts, first = self._parts, self._log.first_offset
        text = f"queues and index were made anew from the whole log: {fault}"
        finding = Finding(FindingKind.QUEUE_REBUILT, parts.folder.queues, first, 0, text)
        self._findings.append(finding)
        self._damage.clear()
        self._old_lives.take(self._queues.extents)
        self._old_lives.remove(None)
        self._queues.set_broken_aside()
        if parts.options.is_indexed:
            self._set_indexes_aside()
            parts.index.clear()
            self._set_indexes_aside()  # what does not belong there by its name
        replay = self._replay(is_full=True, is_compared=False)
        if first:
            for extent in self._queues.extents.values():
                replay.know(extent, parts.queue_files.end_before(extent, first))
        return self._follow(plan, first, replay)

    def _replay(self, *, is_full: bool, is_compared: bool) -> Replay:
        parts = self._parts
        replay = Replay(
            parts.queue_files,
            parts.index,
            parts.options.delays_ms,
            self._queues.set_aside,
            is_full=is_full,
            is_compared=is_compared,
        )
        if parts.removed:
            replay.is_removed = parts.removed.has
        return replay

    def _follow(self, plan: Plan, start: int, replay: Replay) -> Recovered:
        """Read the log from `start` on into queues and index, and put everything in order."""
        is_kill = plan.mark is not None and not plan.is_prefix_only
        replay.trusts_bits = self._parts.is_clean or is_kill
        if plan.mark is not None:
            self._log.unsure_from = plan.floor
            self._log.is_power_cut = plan.is_prefix_only
        is_closed = self._parts.is_clean and plan.mark is not None
        is_by_mark = plan.mark is not None and not replay.is_full
        self._log.is_killed_only = is_by_mark and not plan.is_prefix_only
        scan = Scan(
            self._log,
            start,
            plan.floor,
            is_prefix_only=plan.is_prefix_only,
            sure_end=plan.start if is_closed else -1,
            is_refuted=self._proof(plan, replay).is_refuted,
        )
        self._read(scan, start, replay)
        replay.settle_doubts()
        replay.write_out()
        self._cut_index(plan, scan.end_offset)
        self._report_damage(replay, scan.end_offset)
        end, missing = fill_missing(self._parts.files, self._log, scan.end_offset)
        self._findings += missing
        ahead_end = self._log.file_end(end) + self._log.file_size
        is_untouched = is_closed and end == start and self._log.files_end <= ahead_end
        if not is_untouched:
            self._tidy_log(plan, end, scan.following)
        is_empty = end == self._log.first_offset and not self._damage
        if is_empty and plan.mark is None:
            self._queues.set_all_aside("the log holds no record")
        queues = self._all_queues(replay, end)
        if not is_untouched:
            self._report_entries_behind(plan, queues, end)
            self._cut_queues(plan, replay, queues)
            self._parts.index.zero_rest()
            replay.sync()
        return self._recovered(plan, start, end, replay, queues)

    def _proof(self, plan: Plan, replay: Replay) -> EntryProof:
        """Let queues say what they know, before anything is written to them."""
        parts, mark = self._parts, plan.mark
        queue_files, complete_below = parts.queue_files, 0
        if mark is not None and replay.is_full and not self._queues.fault:
            total = _totals(self._counts_before(mark.log_offset).values())
            if total == (mark.queue_count, mark.entry_total):
                complete_below = mark.log_offset
        return EntryProof(queue_files, self._log, complete_below, parts.removed)

    def _counts_before(self, log_offset: int) -> dict[QueueKey, int]:
        """Return each queue's next number behind the records before a log offset, by its files."""
        extents = self._queues.extents.items()
        return {
            key: self._parts.queue_files.end_before(extent, log_offset) for key, extent in extents
        }

    def _recovered(
        self, plan: Plan, start: int, end: int, replay: Replay, queues: dict[QueueKey, Queue]
    ) -> Recovered:
        store_ms = replay.store_ms
        if plan.mark is not None and self._parts.checkpoint is not None:
            store_ms = max(store_ms, self._parts.checkpoint.stamps.physic_ms)
        checked_from = max([start, *(gap.end for gap in self._damage)])
        return Recovered(
            self._log.first_offset,
            end,
            min(checked_from, end),
            store_ms,
            queues,
            [*self._findings, *self._queues.findings],
            Stamps(store_ms, store_ms, self._parts.index.state()[4]),
        )

    # --- The log ---

    def _read(self, scan: Scan, start: int, replay: Replay) -> None:
        total = max(0, self._log.files_end - start)
        written = reported = start
        for item in scan.walk():
            if isinstance(item, Gap):
                self._damage.append(item)
                replay.add_gap(item)
                continue
            replay.add(item)
            if item.log_offset - reported >= PROGRESS_BYTES:
                reported = item.log_offset
                self._progress(reported - start, total)
            if item.log_offset - written >= WRITE_OUT_BYTES:
                written = item.log_offset
                replay.write_out()
        self._progress(total, total)

    def _report_damage(self, replay: Replay, end: int) -> None:
        """Make findings of what was passed over; refuse when the log's end cannot be read."""
        log = self._log
        found = []
        for start, stop in self._damage:
            text = (
                f"{stop - start} bytes at log offset {start} in {log.path(start)} are no record and"
                " were passed over; bring them back from a copy or a replica"
            )
            found.append(Finding(FindingKind.DAMAGE, log.path(start), start, stop - start, text))
        for walked, why in replay.misplaced:
            path, offset = log.path(walked.log_offset), walked.log_offset
            text = (
                f"the record at log offset {offset} says it is number {walked.queue_offset} of"
                f" topic {walked.topic}, queue {walked.queue_id}, but {why}; it was left out there"
            )
            found.append(Finding(FindingKind.DAMAGE, path, offset, walked.size, text))
        for start, stop in log.unreadable:
            text = f"the disk cannot read {log.path(start)} at log offset {start}; replace the disk"
            if stop > end:
                raise ReadFailed(f"{text}, and start on a copy of the folder", log.path(start))
            found.append(
                Finding(FindingKind.UNREADABLE, log.path(start), start, stop - start, text)
            )
        self._findings += found[:FINDINGS_MAX]
        if len(found) > FINDINGS_MAX:
            text = f"{len(found) - FINDINGS_MAX} more; `orbitmq store check` lists them"
            self._findings.append(Finding(FindingKind.DAMAGE, log.path(end), -1, 0, text))

    def _tidy_log(self, plan: Plan, end: int, following: int | None) -> None:
        parts = self._parts
        self._findings += tidy_end(parts.files, self._log, self._aside, end, following)
        if not parts.is_clean or plan.mark is not None:
            write_again(parts.files, self._log, plan.unsynced_from, end)

    # --- The index ---

    def _take_index(self, plan: Plan) -> int:
        """Let the index stand where the plan begins; give where to begin for its sake."""
        index, start = self._parts.index, plan.start
        if plan.mark is not None:
            index.restore(IndexState(*plan.mark[3:]))
        else:
            index.load()
            known = max(index.end_offset, self._log.first_offset)
            start = min(start, known - known % self._log.file_size)
        for path, reason in index.bad_files():
            if is_index_name(path.name):
                raise Disagreement(f"index file {path}: {reason}")
        self._set_indexes_aside()
        return start

    def _cut_index(self, plan: Plan, end: int) -> None:
        """Forget what an index of others knows of records that the log has lost."""
        if plan.mark is not None:
            return
        index = self._parts.index
        known_count = len(index.bad_files())
        index.cut(end)
        for path, reason in index.bad_files()[known_count:]:
            raise Disagreement(f"index file {path}: {reason}")

    def _set_indexes_aside(self) -> None:
        for path, reason in self._parts.index.bad_files():
            if not self._parts.files.is_folder(path) and self._parts.files.size(path) is None:
                continue
            text = f"index file {path}: {reason}; it was moved to {self._aside.move(path)}"
            is_index = is_index_name(path.name)
            kind = FindingKind.INDEX_REBUILT if is_index else FindingKind.STRAY_FILE
            self._findings.append(Finding(kind, path, -1, 0, text))

    # --- The queues ---

    def _all_queues(self, replay: Replay, end: int) -> dict[QueueKey, Queue]:
        """Return every queue that has files or was met in the log."""
        for key, number in self._queues.last_numbers.items():
            if key not in replay.lanes and number:
                replay.begin(key, number)
            elif number:
                replay.go_on_at(key, number)
        replay.write_out()
        keys = [*self._queues.extents, *(replay.lanes.keys() - self._queues.extents.keys())]
        misplaced = (
            Gap(walked.log_offset, walked.log_offset + 1) for walked, _ in replay.misplaced
        )
        damaged = [*self._damage, *misplaced]
        return {key: self._queue(key, replay, end, damaged) for key in keys}

    def _queue(self, key: QueueKey, replay: Replay, end: int, damaged: list[Gap]) -> Queue:
        queue_files, first_log = self._parts.queue_files, self._log.first_offset
        extent, lane = self._queues.extents.get(key), replay.lanes.get(key)
        first = extent.first_offset if extent is not None else 0
        if lane is not None:
            next_offset = lane.next_offset
            first = lane.begin_offset if lane.is_begun else min(first, lane.first_number)
        else:
            known = replay.known(key)
            if known is None and extent is not None:
                known = queue_files.end_before(extent, end)
            next_offset = known or 0
        if damaged and not (lane is not None and lane.is_anew):
            next_offset = max(next_offset, self._end_with_damaged(key, next_offset, end, damaged))
        queue = Queue(*key, next_offset)
        min_offset = min(first, next_offset)
        if first_log:
            where = QueueRange(*key, min_offset, next_offset)
            min_offset = queue_files.first_from(where, first_log)
        queue.begin_at(min_offset)
        return queue

    def _end_with_damaged(
        self, key: QueueKey, next_offset: int, end: int, damaged: list[Gap]
    ) -> int:
        """Count a queue's last entries whose records were damaged: their numbers are given."""
        while entry := self._parts.queue_files.read_cold(*key, next_offset, 1):
            log_offset, size, _ = ENTRY.unpack(entry)
            is_damaged = any(gap.start <= log_offset < gap.end for gap in damaged)
            if size <= 0 or log_offset >= end or not is_damaged:
                break
            next_offset += 1
        return next_offset

    def _report_entries_behind(self, plan: Plan, queues: dict[QueueKey, Queue], end: int) -> None:
        """Say that queues of others know of records that the log no longer has."""
        if plan.mark is not None:
            return
        read = self._parts.queue_files.read_cold
        behind = {key: read(*key, queue.next_offset, LOOK_COUNT) for key, queue in queues.items()}
        counts = [
            sum(size > 0 and at >= end for at, size, _ in ENTRY.iter_unpack(entries))
            for entries in behind.values()
        ]
        if any(counts):
            text = (
                f"the log ends at {end}, but {sum(map(bool, counts))} queues go on behind it: at"
                f" least {sum(counts)} records are lost, to a power cut or with a log file; the"
                " entries were removed. Bring the log back from a copy or a replica"
            )
            path = self._parts.folder.queues
            self._findings.append(Finding(FindingKind.CUT_BEHIND, path, end, 0, text))

    def _cut_queues(self, plan: Plan, replay: Replay, queues: dict[QueueKey, Queue]) -> None:
        """Leave nothing behind the ends of queues: after a power cut anything may lie there.

        After a kill only queues with records behind the mark can have been written to.
        """
        is_any_changed = plan.is_prefix_only or plan.mark is None
        keys = queues if is_any_changed or replay.is_full else replay.lanes
        is_thorough = is_any_changed and not self._parts.is_clean
        for key in keys:
            self._parts.queue_files.cut(
                *key,
                queues[key].next_offset,
                known=None if key in replay.lanes else self._queues.extents.get(key),
                is_thorough=is_thorough,
            )
