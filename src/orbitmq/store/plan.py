"""Where recovery begins to read the log, and what it may take for granted.

In: the log's files, the checkpoint, the boot id, whether the stop was clean. Out: a Plan.

Rules:
1. With marks of ours: at the written mark while the machine is the one that wrote it, else at the
   synced one. When the two are near each other at the synced one in any case: then entries whose
   sync failed are written again as well.
2. Without (the original's folder), after a clean stop: at the third file from the end. After a cut
   one: at the newest file whose first record is older, by its store time, than what the stamps say
   is on the disk.
3. Never by the clock alone: the first record of the chosen file must have its queue entry, which
   the original writes in log order. Otherwise an earlier file is taken.
4. Without a checkpoint: at the first file.
"""

from typing import NamedTuple

from orbitmq.core import Walked
from orbitmq.core.state import ENTRY
from orbitmq.store.checkpoint import Checkpoint, Mark, Stamps
from orbitmq.store.consume_queue import QueueFiles
from orbitmq.store.layout import can_hold_queue
from orbitmq.store.scan import LogFiles, walk_file
from orbitmq.wire.sysflag import enters_queue
from orbitmq.world.machine import UNKNOWN_BOOT

NEAR_BYTES = 32 << 20
STAMP_SLACK_MS = 3_000
"""By so much the original distrusts its own stamps."""
CLEAN_FILE_COUNT = 3
_LOOK_COUNT_MAX = 64


class Plan(NamedTuple):
    """How the log is read."""

    start: int
    floor: int
    """The log was written at least up to here."""
    is_prefix_only: bool
    """Behind the floor any sector may be lost: the log ends at the first bytes that are bad."""
    mark: Mark | None
    """What queues and index hold of the log before `start`, when we know."""
    unsynced_from: int
    """From here on nobody knows what the disk has."""


def choose_plan(
    log: LogFiles,
    queue_files: QueueFiles,
    checkpoint: Checkpoint | None,
    boot_id: bytes,
    *,
    is_clean: bool,
) -> Plan:
    """Decide where to begin; the log has at least one file."""
    if checkpoint is not None and (checkpoint.written or checkpoint.synced):
        plan = _by_marks(log, checkpoint, boot_id)
        if plan is not None:
            return plan
    stamps = checkpoint.stamps if checkpoint is not None else None
    start = _by_stamps(log, queue_files, stamps, is_clean=is_clean)
    return Plan(start, log.first_offset, is_prefix_only=False, mark=None, unsynced_from=start)


def _by_marks(log: LogFiles, checkpoint: Checkpoint, boot_id: bytes) -> Plan | None:
    """Return the plan that our marks make, or None when they cannot be of this log."""
    written, synced = checkpoint.written, checkpoint.synced
    is_same_boot = boot_id == checkpoint.boot_id != UNKNOWN_BOOT
    mark, floor = synced, synced.log_offset if synced else log.first_offset
    if is_same_boot and written is not None:
        is_near = synced is not None and written.log_offset - synced.log_offset <= NEAR_BYTES
        mark = synced if is_near else written
        floor = max(floor, written.log_offset)
    start = mark.log_offset if mark is not None else log.first_offset
    if start < log.first_offset:
        return None
    unsynced_from = synced.log_offset if synced is not None else log.first_offset
    return Plan(start, floor, not is_same_boot, mark, max(unsynced_from, log.first_offset))


def _by_stamps(
    log: LogFiles, queue_files: QueueFiles, stamps: Stamps | None, *, is_clean: bool
) -> int:
    if is_clean:
        candidates, before_ms = log.numbers[: max(1, len(log.numbers) - CLEAN_FILE_COUNT + 1)], None
    elif stamps is not None:
        candidates, before_ms = log.numbers, min(stamps[:2]) - STAMP_SLACK_MS
    else:
        return log.first_offset
    for number in reversed(candidates):
        start = number * log.file_size
        if _is_followed(log, queue_files, start, before_ms):
            return start
    return log.first_offset


def _is_followed(log: LogFiles, queue_files: QueueFiles, start: int, before_ms: int | None) -> bool:
    """Whether the records before this file surely have their queue entries."""
    is_first = True
    for count, walked in enumerate(walk_file(log, start)):
        if is_first and before_ms is not None and not 0 < walked.store_ms <= before_ms:
            return False
        is_first = False
        if enters_queue(walked.sys_flag):
            return _has_entry(queue_files, walked)
        if count >= _LOOK_COUNT_MAX:
            break
    return False


def _has_entry(queue_files: QueueFiles, walked: Walked) -> bool:
    if not can_hold_queue(walked.topic, walked.queue_id):
        return False
    entry = queue_files.read_cold(walked.topic, walked.queue_id, walked.queue_offset, 1)
    return bool(entry) and ENTRY.unpack(entry)[:2] == (walked.log_offset, walked.size)
