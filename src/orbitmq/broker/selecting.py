"""Looking through a queue by more than tag codes: what a pull with a record filter gets.

In: a checked pull and where to begin. Out: the records that pass, as views of the log, and where to
go on.

Rules:
1. As in the core's gather, only memory is touched here, and nothing that may not be seen. What is
   not in memory is COLD.
2. A look takes at most LOOK_S, and as many entries as the original looks at. When it is over, what
   was found so far goes out, or "nothing matched, go on here": the client's next pull goes on.
3. An expression may be as expensive as `orbitmq.sql` allows, above all over long properties: the
   time is looked at before each record but the first.
"""

from collections.abc import Callable

from orbitmq.broker.pulls import Pull
from orbitmq.core import CoreState, Gathered, LogTail, PullStatus, RecordFilter, gather
from orbitmq.core.state import ENTRY, SCAN_COUNT_LEAST

LOOK_S = 0.002

Seconds = Callable[[], float]


class TimedFilter:
    """A record filter that says when it has taken its time."""

    def __init__(self, accepts: RecordFilter, now_s: Seconds) -> None:
        self._accepts = accepts
        self._now_s = now_s
        self._taken_s = 0.0

    def accepts(self, record: memoryview) -> bool:
        """Whether a record passes."""
        start_s = self._now_s()
        is_accepted = self._accepts(record)
        self._taken_s += self._now_s() - start_s
        return is_accepted

    def is_late(self) -> bool:
        """Whether its time is over."""
        return self._taken_s > LOOK_S


def look(core: CoreState, pull: Pull, queue_offset: int, now_s: Seconds) -> Gathered:
    """Collect what a pull asks for, from `queue_offset` of its queue on."""
    if pull.accepts is None and pull.bytes_max is None:
        count_max, codes = pull.count_max, pull.codes
        return gather(core, pull.queue, queue_offset, count_max, codes, is_bulk=pull.is_bulk)
    first = gather(core, pull.queue, queue_offset, 1, None)
    if first.status is not PullStatus.FOUND:
        return first  # the queue has no such offset, or not in memory
    return _Selection(core, pull).over(queue_offset, now_s)


class _Selection:
    """The records chosen by one look."""

    def __init__(self, core: CoreState, pull: Pull) -> None:
        self._pull = pull
        self._tail = core.tail
        count_limit, bytes_limit = core.pull_limits(is_bulk=pull.is_bulk)
        self._count_max = min(pull.count_max, count_limit)
        self._bytes_max = min(pull.bytes_max or bytes_limit, bytes_limit)
        self._parts: list[memoryview] = []
        self._size = 0

    def over(self, queue_offset: int, now_s: Seconds) -> Gathered:
        """Look over entries from `queue_offset` on."""
        entries = self._pull.queue.read_entries(
            queue_offset, max(SCAN_COUNT_LEAST, self._count_max)
        )
        deadline_s = now_s() + LOOK_S
        scanned = 0
        for log_offset, size, code in ENTRY.iter_unpack(entries):
            if scanned and now_s() > deadline_s:
                break
            if not self._take(log_offset, size, code):
                break
            scanned += 1
        status = PullStatus.FOUND if self._parts else PullStatus.NO_MATCHED_MESSAGE
        next_offset = queue_offset + scanned
        return Gathered(status, next_offset, self._parts, self._size, len(self._parts))

    def _take(self, log_offset: int, size: int, code: int) -> bool:
        """Take a record if it passes; false when there is no room for it."""
        codes, accepts = self._pull.codes, self._pull.accepts
        if codes is not None and code not in codes:
            return True
        if len(self._parts) == self._count_max:
            return False
        record = _record(self._tail, log_offset, size)
        if accepts is not None and not accepts(record):
            return True
        if self._parts and self._size + size > self._bytes_max:
            return False
        self._parts.append(record)
        self._size += size
        return True


def _record(tail: LogTail, log_offset: int, size: int) -> memoryview:
    number, position = divmod(log_offset, tail.file_size)
    return tail.views[number][position : position + size]
