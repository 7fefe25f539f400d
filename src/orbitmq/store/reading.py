"""Reading what is cold: by path, with positioned reads, every record checked before it goes out.

In: a snapshot of a queue, taken on the loop. Out: records, offsets and times, from any thread.

Rules:
1. No descriptor is shared and no state of the store is touched: a file may be removed meanwhile.
2. A record goes out only when it is whole, carries its own log offset and has the right CRC and the
   size its entry says, and when it says itself that it is this number of this queue: an entry that
   leads elsewhere is damaged. A damaged one is passed over and counted; holes are passed over.
3. A read that the disk refuses is no damage: ReadFailed goes up, so that the asker tries again and
   no message is passed over for a moment's trouble.
4. A log file that is not there was removed: whoever asks goes on with the next one. Where none
   follows, the entry that leads there is damaged.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from orbitmq.core import Gathered, PullStatus, Queue, Walked, record_at
from orbitmq.core.state import ENTRY, ENTRY_SIZE, SCAN_COUNT_LEAST
from orbitmq.store.consume_queue import HOLE_SIZE, QueueFiles, QueueRange
from orbitmq.store.layout import Folder
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.queue_ext import ExtraUnits, UnitFilter
from orbitmq.wire.names import LIGHT_QUEUE_PREFIX
from orbitmq.wire.record import RECORD_SIZE_MAX, RECORD_SIZE_MIN
from orbitmq.world.files import Files

DAMAGED_MAX = 10_000
"""So many damaged records are told apart; the count stands still there."""

NO_TIME = -1
"""The store time of what cannot be read."""

_REMOVED = -2
_PREFIX_SIZE = 4
_PAGE_COUNT = 204


class QueueView(NamedTuple):
    """A queue as it stood when the loop looked: entries before `base_offset` are in its files."""

    topic: str
    queue_id: int
    min_offset: int
    readable_offset: int
    base_offset: int
    entries: bytes


def snapshot(queue: Queue, queue_offset: int = 0, count: int | None = None) -> QueueView:
    """Return a queue for the cold functions; called on the loop, where its state is at rest.

    Who reads at most `count` entries from `queue_offset` on spares copying the others.
    """
    base = max(queue.base_offset, queue.flushed_offset, queue_offset)
    end = queue.readable_offset if count is None else min(queue.readable_offset, base + count)
    entries = queue.read_entries(base, max(0, end - base))
    return QueueView(
        queue.topic, queue.queue_id, queue.min_offset, queue.readable_offset, base, entries
    )


class EntryFilter(NamedTuple):
    """Which messages to take: by the codes of entries, by extra units, by the record itself."""

    codes: frozenset[int] | None = None
    accepts: Callable[[memoryview], bool] | None = None
    may_accept: UnitFilter | None = None
    """Whether `accepts` may take a record, by its extra unit; what has none may be taken."""
    is_late: Callable[[], bool] | None = None
    """Whether a look has filtered for long enough; it then ends with what it has."""


class ColdLimits(NamedTuple):
    """How much one look takes from the disk; the first record always fits."""

    count_max: int = 8
    bytes_max: int = 65_536


class _Wanted(NamedTuple):
    """An entry chosen by a look: its place among those looked at, and its record's."""

    place: int
    log_offset: int
    size: int


_TAKE_ALL = EntryFilter()
_LIMITS = ColdLimits()


class ColdReader:
    """Reads entries and records by path; holds nothing but a count of what was damaged."""

    def __init__(
        self,
        files: Files,
        folder: Folder,
        log_folders: LogFolders,
        log_file_size: int,
        queue_files: QueueFiles,
    ) -> None:
        self._files = files
        self._folder = folder
        self._log_folders = log_folders
        self._log_file_size = log_file_size
        self.queue_files = queue_files
        self._damaged: set[int] = set()

    @property
    def damaged(self) -> int:
        """How many places of the log were found damaged when a record was to be read."""
        return len(self._damaged)

    def entries(self, view: QueueView, queue_offset: int, count: int) -> bytes:
        """Give up to `count` readable entries; less where a file ends or is missing."""
        count = min(count, view.readable_offset - queue_offset)
        old_count = min(count, view.base_offset - queue_offset)
        if old_count <= 0:
            skip = (queue_offset - view.base_offset) * ENTRY_SIZE
            return view.entries[skip : skip + count * ENTRY_SIZE]
        old = self.queue_files.read_cold(view.topic, view.queue_id, queue_offset, old_count)
        if len(old) < old_count * ENTRY_SIZE:
            return old
        return old + view.entries[: (count - old_count) * ENTRY_SIZE]

    def log_bytes(self, log_offset: int, size: int) -> bytes | None:
        """Return bytes of one log file, short at its end; None when the file is not there."""
        number, position = divmod(log_offset, self._log_file_size)
        path = self._log_folders.path(number * self._log_file_size)
        return self._files.read_at(path, position, min(size, self._log_file_size - position))

    def log_starts(self) -> list[int]:
        """Return the first offsets of the log's files."""
        return self._log_folders.starts()

    def is_removed(self, log_offset: int) -> bool:
        """Whether the file that held a log offset was removed: the log has later ones."""
        starts = self.log_starts()
        return not starts or log_offset < max(starts)

    def extras(self, view: QueueView) -> ExtraUnits:
        """Return the extra units of a queue's entries."""
        folder = self._folder.queue_extras / view.topic / str(view.queue_id)
        return ExtraUnits(self._files, folder)

    def note_damaged(self, log_offset: int) -> None:
        """Count a place in the log as damaged, once."""
        if len(self._damaged) < DAMAGED_MAX:
            self._damaged.add(log_offset)

    def store_ms(self, log_offset: int, size: int) -> int:
        """Return a record's store time; NO_TIME when it is damaged, less when its file is gone."""
        if log_offset < 0 or not _is_record_size(size):
            self.note_damaged(log_offset)
            return NO_TIME
        data = self.log_bytes(log_offset, size)
        if data is None and self.is_removed(log_offset):
            return _REMOVED
        record = self.checked(memoryview(data or b""), log_offset, size)
        return NO_TIME if record is None else max(0, record.store_ms)

    def checked(self, data: memoryview, log_offset: int, size: int) -> Walked | None:
        """Return what a record says of itself, or None, counted, when these bytes are not it."""
        record = record_at(data, 0, log_offset)
        if record is None or record.size != size:
            self.note_damaged(log_offset)
            return None
        return record


# --- By queue offset ---


def gather_cold(
    reader: ColdReader,
    view: QueueView,
    queue_offset: int,
    count_max: int,
    chosen: EntryFilter = _TAKE_ALL,
    limits: ColdLimits = _LIMITS,
) -> Gathered:
    """Collect records from `queue_offset` on as the core's gather does, from the files."""
    outside = _outside(view, queue_offset)
    if outside is not None:
        return outside
    count_max = min(count_max, limits.count_max)
    entries = reader.entries(view, queue_offset, max(SCAN_COUNT_LEAST, count_max))
    if not entries:
        next_offset = behind_queue_file(reader, view, queue_offset)
        return Gathered(PullStatus.OFFSET_FOUND_NULL, next_offset, [], 0)
    look = _Look(reader, view, chosen, ColdLimits(count_max, limits.bytes_max))
    scanned, removed_at = look.over(entries, queue_offset)
    if look.parts:
        next_offset = queue_offset + scanned
        return Gathered(PullStatus.FOUND, next_offset, look.parts, look.size, look.count)
    if removed_at is not None:
        next_offset = _behind_removed(reader, view, queue_offset + scanned, removed_at)
        return Gathered(PullStatus.MESSAGE_WAS_REMOVING, next_offset, [], 0)
    return Gathered(PullStatus.NO_MATCHED_MESSAGE, queue_offset + scanned, [], 0)


def _outside(view: QueueView, queue_offset: int) -> Gathered | None:
    """Answer for an offset that the queue does not have."""
    readable = view.readable_offset
    if readable == 0:
        return Gathered(PullStatus.NO_MESSAGE_IN_QUEUE, 0, [], 0)
    if queue_offset == readable:
        return Gathered(PullStatus.OFFSET_OVERFLOW_ONE, readable, [], 0)
    if queue_offset > readable:
        return Gathered(PullStatus.OFFSET_OVERFLOW_BADLY, readable, [], 0)
    if queue_offset < view.min_offset:
        return Gathered(PullStatus.OFFSET_TOO_SMALL, view.min_offset, [], 0)
    return None


def behind_queue_file(reader: ColdReader, view: QueueView, queue_offset: int) -> int:
    """A queue's file is missing: go on with the next one, as the original does."""
    per_file = reader.queue_files.file_size // ENTRY_SIZE
    return max(queue_offset + 1, min((queue_offset // per_file + 1) * per_file, view.base_offset))


def _behind_removed(reader: ColdReader, view: QueueView, queue_offset: int, log_offset: int) -> int:
    """Return the first entry of the log file that comes after a removed one."""
    start = min((at for at in reader.log_starts() if at > log_offset), default=None)
    if start is None:
        return view.readable_offset
    return max(queue_offset + 1, _first_from(reader, view, queue_offset, start))


class _Look:
    """One look over entries: chooses, reads neighbours together, checks, collects."""

    def __init__(
        self, reader: ColdReader, view: QueueView, chosen: EntryFilter, limits: ColdLimits
    ) -> None:
        self._reader = reader
        self._view = view
        self._chosen = chosen
        self._limits = limits
        self._extras = reader.extras(view)
        self.count = 0
        self.parts: list[memoryview] = []
        self.size = 0

    def over(self, entries: bytes, queue_offset: int) -> tuple[int, int | None]:
        """Look over entries from `queue_offset` on.

        Gives how many were looked at, and the log offset that stopped it: removed.
        """
        rows = list(ENTRY.iter_unpack(entries))
        scanned = 0
        is_late = self._chosen.is_late or _never
        while True:
            wanted, scanned = self._choose(rows, scanned)
            if not wanted:
                return scanned, None
            for run in _runs(wanted):
                data = self._reader.log_bytes(run[0].log_offset, sum(one.size for one in run))
                if data is None and self._reader.is_removed(run[0].log_offset):
                    return run[0].place, run[0].log_offset
                self._take(memoryview(data or b""), run, queue_offset)
            if is_late():
                return scanned, None

    def _choose(self, rows: list[tuple[int, int, int]], start: int) -> tuple[list[_Wanted], int]:
        """Choose as many entries as there is room for; give where to go on."""
        wanted: list[_Wanted] = []
        count, size = self.count, self.size
        for place in range(start, len(rows)):
            log_offset, record_size, code = rows[place]
            if not self._may_pass(log_offset, record_size, code):
                continue
            is_over = count > 0 and size + record_size > self._limits.bytes_max
            if count >= self._limits.count_max or is_over:
                return wanted, place
            wanted.append(_Wanted(place, log_offset, record_size))
            count += 1
            size += record_size
        return wanted, len(rows)

    def _may_pass(self, log_offset: int, size: int, code: int) -> bool:
        if size == HOLE_SIZE:
            return False
        if log_offset < 0 or not _is_record_size(size):
            self._reader.note_damaged(log_offset)
            return False
        return self._extras.may_pass(code, self._chosen.codes, self._chosen.may_accept)

    def _take(self, data: memoryview, run: list[_Wanted], queue_offset: int) -> None:
        accepts = self._chosen.accepts
        start = run[0].log_offset
        for place, log_offset, size in run:
            record = data[log_offset - start : log_offset - start + size]
            walked = self._reader.checked(record, log_offset, size)
            if walked is None:
                continue
            if not _is_of(walked, self._view, queue_offset + place):
                self._reader.note_damaged(log_offset)
                continue
            if accepts is None or accepts(record):
                self.parts.append(record)
                self.size += size
                self.count += 1


def _never() -> bool:
    return False


def _runs(wanted: list[_Wanted]) -> Iterator[list[_Wanted]]:
    """Return neighbours together; no record is the neighbour of one in another file."""
    run: list[_Wanted] = []
    for one in wanted:
        if run and one.log_offset != run[-1].log_offset + run[-1].size:
            yield run
            run = []
        run.append(one)
    yield run


def _is_of(walked: Walked, view: QueueView, queue_offset: int) -> bool:
    """Whether a record says that it is this number of this queue.

    Light queues hold entries of records that belong to other topics.
    """
    own = (walked.topic, walked.queue_id, walked.queue_offset)
    return own == (view.topic, view.queue_id, queue_offset) or view.topic.startswith(
        LIGHT_QUEUE_PREFIX
    )


def _is_record_size(size: int) -> bool:
    return RECORD_SIZE_MIN <= size <= RECORD_SIZE_MAX


# --- By log offset ---


def record_by_offset(reader: ColdReader, log_offset: int, visible_offset: int) -> bytes | None:
    """Return the record that begins at a log offset, or None when none that may be seen does."""
    if not 0 <= log_offset <= visible_offset - RECORD_SIZE_MIN:
        return None
    head = reader.log_bytes(log_offset, _PREFIX_SIZE) or b""
    size = int.from_bytes(head, "big", signed=True)
    if not _is_record_size(size) or log_offset + size > visible_offset:
        return None
    data = reader.log_bytes(log_offset, size) or b""
    record = record_at(memoryview(data), 0, log_offset)  # anyone may ask for any place: no damage
    return data if record is not None and record.size == size else None


def min_offsets(
    reader: ColdReader, views: Iterable[QueueView], first_log_offset: int
) -> dict[tuple[str, int], int]:
    """Return the new min offset of each queue that has lost records before `first_log_offset`."""
    moved: dict[tuple[str, int], int] = {}
    for view in views:
        offset = _first_from(reader, view, view.min_offset, first_log_offset)
        if offset > view.min_offset:
            moved[view.topic, view.queue_id] = offset
    return moved


def _first_from(reader: ColdReader, view: QueueView, queue_offset: int, log_offset: int) -> int:
    """Return the first entry from `queue_offset` on whose record is not before `log_offset`.

    When there is none, it is the end of what the snapshot has.
    """
    base = view.base_offset
    if queue_offset < base:
        bounds = QueueRange(view.topic, view.queue_id, queue_offset, base)
        queue_offset = reader.queue_files.first_from(bounds, log_offset)
        if queue_offset < base:
            return queue_offset
    low, high = queue_offset, base + len(view.entries) // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        if ENTRY.unpack_from(view.entries, (middle - base) * ENTRY_SIZE)[0] < log_offset:
            low = middle + 1
        else:
            high = middle
    return low


# --- By time ---


def offset_by_time(reader: ColdReader, view: QueueView, timestamp_ms: int) -> int:
    """Return the offset of the message stored nearest to a time; of two as near, the older one.

    After all messages it is the last one, before all the first; 0 for a queue without any. The
    result never goes back as the time goes on, whatever the clock did when they were stored.
    """
    low, high = view.min_offset, view.readable_offset
    older = newer = None
    while low < high:
        middle = (low + high) // 2
        found, time_ms = _time_from(reader, view, middle, high)
        if time_ms == NO_TIME:
            high = middle
        elif time_ms == _REMOVED:
            low = found + 1
        elif time_ms < timestamp_ms:
            older = (found, time_ms)
            low = found + 1
        else:
            newer = (found, time_ms)
            high = middle
    if older is None:
        return view.min_offset if newer is None else newer[0]
    if newer is None or timestamp_ms - older[1] <= newer[1] - timestamp_ms:
        return older[0]
    return newer[0]


def entry_store_ms(reader: ColdReader, view: QueueView, queue_offset: int) -> int:
    """Return when one message of a queue was stored, NO_TIME when it is not there."""
    if not view.min_offset <= queue_offset < view.readable_offset:
        return NO_TIME
    entry = reader.entries(view, queue_offset, 1)
    if len(entry) != ENTRY_SIZE:
        return NO_TIME
    log_offset, size, _ = ENTRY.unpack(entry)
    return max(NO_TIME, reader.store_ms(log_offset, size))


def earliest_store_ms(reader: ColdReader, view: QueueView) -> int:
    """Return the store time of a queue's first message, NO_TIME when there is none."""
    starts = reader.log_starts()
    low = _first_from(reader, view, view.min_offset, min(starts, default=0))
    high = view.readable_offset
    while low < high:
        low, time_ms = _time_from(reader, view, low, high)
        if time_ms != _REMOVED:
            return time_ms
        low += 1
    return NO_TIME


def _time_from(
    reader: ColdReader, view: QueueView, queue_offset: int, end_offset: int
) -> tuple[int, int]:
    """Return the first message from `queue_offset` on that has a time, and that time.

    After SCAN_COUNT_LEAST damaged records it gives up: NO_TIME.
    """
    tries = SCAN_COUNT_LEAST
    for place, log_offset, size in _rows_from(reader, view, queue_offset, end_offset):
        time_ms = reader.store_ms(log_offset, size)
        tries -= 1
        if time_ms != NO_TIME or not tries:
            return place, time_ms
    return end_offset, NO_TIME


def _rows_from(
    reader: ColdReader, view: QueueView, queue_offset: int, end_offset: int
) -> Iterator[tuple[int, int, int]]:
    """Return queue offset, log offset and size of the entries that are no holes."""
    while queue_offset < end_offset:
        entries = reader.entries(view, queue_offset, min(_PAGE_COUNT, end_offset - queue_offset))
        if not entries:
            queue_offset = behind_queue_file(reader, view, queue_offset)
        for log_offset, size, _ in ENTRY.iter_unpack(entries):
            if size != HOLE_SIZE:
                yield queue_offset, log_offset, size
            queue_offset += 1
