"""Where recovery begins to read the log, and what it may take for granted.

In: the log's files, the checkpoint, the boot id, whether the stop was clean. Out: a Plan.

There are two courses: to go on from a place up to which queues and index are proven to be complete,
or to read the whole log. Rules:
1. Our marks prove it: the written mark while the machine is the one that wrote it, else the synced
   one. When the two are near each other the synced one in any case: then entries whose sync failed
   are written again as well.
2. Without marks (the original's folder) a clean stop proves it: the third file from the end, as the
   original does, if its first record has its queue entry; otherwise an earlier file.
3. Everything else is read from the first file on. No clock is believed: the original compares store
   times with the stamps of its checkpoint.
"""

from itertools import islice
from typing import NamedTuple

from orbitmq.core import Walked
from orbitmq.core.state import ENTRY
from orbitmq.store.checkpoint import Checkpoint, Mark
from orbitmq.store.consume_queue import QueueFiles
from orbitmq.store.layout import can_hold_queue
from orbitmq.store.log_source import LogFiles, walk_file
from orbitmq.wire.sysflag import enters_queue
from orbitmq.world.machine import UNKNOWN_BOOT

NEAR_BYTES = 32 << 20
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
    start = _by_entries(log, queue_files) if is_clean else log.first_offset
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


def _by_entries(log: LogFiles, queue_files: QueueFiles) -> int:
    """Return the newest start of a file that the original's clean stop and its queues prove."""
    for number in reversed(log.numbers[: 1 - CLEAN_FILE_COUNT]):
        start = number * log.file_size
        if _is_followed(log, queue_files, start):
            return start
    return log.first_offset


def _is_followed(log: LogFiles, queue_files: QueueFiles, start: int) -> bool:
    """Whether the first record of this file that enters a queue has its entry there."""
    first = islice(walk_file(log, start), _LOOK_COUNT_MAX)
    walked = next((each for each in first if enters_queue(each.sys_flag)), None)
    return walked is not None and _has_entry(queue_files, walked)


def _has_entry(queue_files: QueueFiles, walked: Walked) -> bool:
    if not can_hold_queue(walked.topic, walked.queue_id):
        return False
    entry = queue_files.read_cold(walked.topic, walked.queue_id, walked.queue_offset, 1)
    return bool(entry) and ENTRY.unpack(entry)[:2] == (walked.log_offset, walked.size)
