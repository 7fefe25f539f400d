"""Whether the queues know a record that was found inside damage.

In: a whole record, found by searching where a bad one had been. Out: whether it is refuted: then it
is part of a message's body, and no message.

Rules:
1. A record whose number the queue's file gives to another whole record is refuted: an entry that
   points at a whole record is never replaced.
2. So is one without an entry where queues are complete: below a mark that they agree with.
3. What stands in no queue, and what queues do not tell about, is not refuted.
"""

from orbitmq.core import Walked
from orbitmq.core.state import ENTRY
from orbitmq.store.consume_queue import HOLE_SIZE, QueueFiles
from orbitmq.store.layout import can_hold_queue
from orbitmq.store.log_source import LogFiles
from orbitmq.store.topic_removal import Removed
from orbitmq.wire.sysflag import enters_queue


class EntryProof:
    """Asks the queues about records."""

    def __init__(
        self,
        queue_files: QueueFiles,
        log: LogFiles,
        complete_below: int = 0,
        removed: Removed | None = None,
    ) -> None:
        """Every record below `complete_below` that belongs into a queue has its entry.

        Except those of removed topics.
        """
        self._removed = removed or Removed()
        self._queue_files = queue_files
        self._log = log
        self._complete_below = complete_below

    def is_refuted(self, walked: Walked) -> bool:
        """Whether a record cannot be one of the log."""
        if not enters_queue(walked.sys_flag) or walked.queue_offset < 0:
            return False
        if self._removed.has(walked) or not can_hold_queue(walked.topic, walked.queue_id):
            return False
        key = (walked.topic, walked.queue_id)
        entry = self._queue_files.read_cold(*key, walked.queue_offset, 1)
        log_offset, size, _ = ENTRY.unpack(entry) if entry else (0, 0, 0)
        if size <= 0:
            return walked.log_offset < self._complete_below
        if (log_offset, size) == (walked.log_offset, walked.size) or size == HOLE_SIZE:
            return False
        return self._is_same_number(walked, log_offset)

    def _is_same_number(self, walked: Walked, log_offset: int) -> bool:
        """Whether a whole record with the number of this one lies elsewhere."""
        log = self._log
        if not log.first_offset <= log_offset < log.files_end:
            return False
        other = log.whole_at(log_offset)
        return other is not None and other[2:5] == walked[2:5]  # topic, queue id, number
