"""Following a queue: entries and records from a position on, from memory or from the files.

In: a queue, and how far it is dealt with (`Progress`). Out: the next entry, its record, and a call
whenever there may be more. Delayed messages are delivered by one follower for each level.

Rules:
1. Nothing waits for the disk: what memory holds is given at once; the rest is read in a thread, and
   until it is there a follower has no next entry. Any number of followers may be at one queue.
2. A record counts only when it is whole and says itself that it is this number of this queue; its
   size is limited by nothing but the file it is in. What is damaged or was removed is passed over,
   counted and logged as an error. Holes are passed over: no message belongs to them. All of this is
   decided by the files alone, so a start after a crash decides the same.
3. A disk that refuses to read is no damage: it is asked again after RETRY_S.
4. A follower moves when its owner says so (`advance`). A refused write sets it back to where the
   last write left it, and its owner is told.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from orbitmq.broker.progress import Progress
from orbitmq.core import Queue, Walked, record_at
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import StoreError
from orbitmq.store.consume_queue import HOLE_SIZE
from orbitmq.store.reading import (
    ColdLimits,
    ColdReader,
    QueueView,
    behind_queue_file,
    gather_cold,
    snapshot,
)
from orbitmq.wire.record import LAYOUTS, Layout, layout_of, log_offset_of

if TYPE_CHECKING:
    from orbitmq.broker.context import Context

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S = 1.0
"""How long a follower waits after the disk has refused to read."""

COLD_ENTRIES = 1_024
COLD_LIMITS = ColdLimits(count_max=256, bytes_max=1_048_576)
"""What one look into the files brings: so many entries, or so much of their records."""

LOGGED_MAX = 100
"""So many times a follower logs that it passes over something."""


class GrownQueues:
    """Who is to be told when a queue has grown."""

    def __init__(self) -> None:
        self._callbacks: dict[Queue, list[Callable[[], None]]] = {}

    def add(self, queue: Queue, tell: Callable[[], None]) -> None:
        """Have `tell` called whenever there is more to see of a queue."""
        self._callbacks.setdefault(queue, []).append(tell)

    def remove(self, queue: Queue, tell: Callable[[], None]) -> None:
        """Call it no more."""
        callbacks = self._callbacks.get(queue, [])
        if tell in callbacks:
            callbacks.remove(tell)
        if not callbacks:
            self._callbacks.pop(queue, None)

    def tell(self, grown: set[Queue]) -> None:
        """Say which queues have grown."""
        if not self._callbacks or self._callbacks.keys().isdisjoint(grown):
            return
        for queue in [queue for queue in self._callbacks if queue in grown]:
            for tell in list(self._callbacks[queue]):
                tell()


class QueueEntry(NamedTuple):
    """An entry of a queue. `code` is that of the tag, or what the topic's entries hold instead.

    One that lies in the files may point to an extra unit instead: it is negative then.
    """

    queue_offset: int
    log_offset: int
    size: int
    code: int


class FollowedRecord(NamedTuple):
    """What dealing with a message needs of its record: reading all takes twice as long."""

    body: bytes
    properties: bytes
    queue_offset: int
    log_offset: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    """Packed, as it lies there."""
    store_ms: int
    reconsume_times: int


class FollowerOwner(Protocol):
    """Whose follower it is. All of it is called on the loop."""

    def note_news(self) -> None:
        """There may be an entry where there was none: the queue has grown, or was read."""

    def note_lost(self, count: int) -> None:
        """So many entries were passed over: nothing can be read of their messages."""

    def note_written(self, error: StoreError | None) -> None:
        """The turn in which the follower has moved was written, or not: then it was set back."""


def _head(layout: Layout) -> struct.Struct:
    """Return the fixed fields that FollowedRecord has and walking has not found."""
    kept = {"flag", "born_ms", "reconsume_times", "body_size"}
    codes = []
    for field in layout.fields:
        if field.name == "born_ip":
            codes.append(f"{field.size + _PORT_SIZE}s")
        elif field.name != "born_port":
            codes.append(field.code if field.name in kept else f"{field.size}x")
    return struct.Struct(">" + "".join(codes))


_PORT_SIZE = 4
_HEADS = {layout: _head(layout) for layout in LAYOUTS}


def _record(walked: Walked, view: memoryview, position: int) -> FollowedRecord:
    """Return the record that was found whole at a position."""
    head = _HEADS[layout_of(walked[5])]
    flag, born_ms, born_host, reconsume_times, body_size = head.unpack_from(view, position)
    log_offset, _, _, _, queue_offset, sys_flag, store_ms, properties = walked
    body_start = position + head.size
    body = view[body_start : body_start + body_size].tobytes()
    fields = (body, properties, queue_offset, log_offset, flag, sys_flag, born_ms, born_host)
    # FollowedRecord(…) would be a call of Python's more.
    return tuple.__new__(FollowedRecord, (*fields, store_ms, reconsume_times))


class FoundRecords(NamedTuple):
    """Records from the files by their offset, and where to go on."""

    records: dict[int, FollowedRecord]
    next_offset: int


class _FoundEntries(NamedTuple):
    entries: bytes
    next_offset: int


def read_records(reader: ColdReader, view: QueueView, queue_offset: int) -> FoundRecords:
    """Return the next records, from the files; for a thread.

    Offsets that it lacks are lost, or holes. Raises ReadFailed when the disk refuses.
    """
    found = gather_cold(reader, view, queue_offset, COLD_LIMITS.count_max, limits=COLD_LIMITS)
    records: dict[int, FollowedRecord] = {}
    for part in found.parts:
        walked = record_at(part, 0, log_offset_of(part))
        if walked is not None:
            records[walked.queue_offset] = _record(walked, part, 0)
    return FoundRecords(records, found.next_offset)


class QueueFollower:
    """One reader of a queue, from a position on."""

    def __init__(
        self, context: "Context", queue: Queue, name: str, progress: Progress, owner: FollowerOwner
    ) -> None:
        """`name` says in the log what is followed: `delayed messages of level 3`."""
        self.queue = queue
        self.name = name
        self.next_offset = 0
        """The next entry to deal with, what is only staged included."""
        self._context = context
        self._progress = progress
        self._owner = owner
        self._entries = (0, b"")
        """Entries from the files: the offset of the first one, and their bytes."""
        self._records: dict[int, FollowedRecord] = {}
        self._looked_for = range(0)
        """The offsets that `_records` has, or that no record was found for."""
        self._waits_for: asyncio.Future[Any] | asyncio.TimerHandle | None = None
        """What is being read, or the time at which the disk is asked again."""
        self._logged_count = 0
        self._go_back()
        context.on_grown.add(queue, owner.note_news)

    async def stop(self) -> None:
        """Tell the owner nothing more; what is being read is waited for."""
        self._context.on_grown.remove(self.queue, self._owner.note_news)
        if isinstance(self._waits_for, asyncio.TimerHandle):
            self._waits_for.cancel()
        elif self._waits_for is not None:
            await asyncio.wait([self._waits_for])

    @property
    def is_reading(self) -> bool:
        """Whether something is being read for it; its owner is told when it is there."""
        return isinstance(self._waits_for, asyncio.Future)

    # --- What comes next ---

    def entry(self) -> QueueEntry | None:
        """Return the next entry; None: there is none yet, and the owner is told when there may be.

        It has a record, or something that claims to be one: `record` finds out.
        """
        queue = self.queue
        while self._waits_for is None:
            offset = self.next_offset
            if offset < queue.min_offset:
                self.pass_over(queue.min_offset, "their log files were removed")
            elif offset >= queue.readable_offset:
                return None
            else:
                entry = self._entry_at(offset)
                if entry is None or entry[2] != HOLE_SIZE:
                    return entry
                self.advance(offset + 1)
        return None

    def _entry_at(self, offset: int) -> QueueEntry | None:
        entries: bytes | bytearray = self.queue.entries
        position = (offset - self.queue.base_offset) * ENTRY_SIZE
        if position < 0:
            first, entries = self._entries
            position = (offset - first) * ENTRY_SIZE
            if not 0 <= position < len(entries):
                self._read_entries(offset)
                return None
        # QueueEntry(…) would be a call of Python's more, twice as long as all this.
        return tuple.__new__(QueueEntry, (offset, *ENTRY.unpack_from(entries, position)))

    def record(self, entry: QueueEntry) -> FollowedRecord | None:
        """Return the record of the next entry.

        None: it is being read, and there is no next entry until it is there; or it was passed over,
        and there is another next entry.
        """
        tail = self._context.core.tail
        offset, log_offset, size, _ = entry
        if log_offset < tail.hot_offset:
            return self._cold_record(offset)
        number, position = divmod(log_offset, tail.file_size)
        view = tail.views.get(number)
        walked = None if view is None else record_at(view, position, log_offset - position)
        own = (log_offset, size, self.queue.topic, self.queue.queue_id, offset)
        if view is None or walked is None or walked[:5] != own:
            self.pass_over(offset + 1, "the record is damaged")
            return None
        return _record(walked, view, position)

    def _cold_record(self, offset: int) -> FollowedRecord | None:
        if offset not in self._looked_for:
            self._read_records(offset)
            return None
        record = self._records.get(offset)
        if record is None:
            following = (at for at in self._records if at > offset)
            next_offset = min(following, default=self._looked_for.stop)
            self.pass_over(next_offset, "the records are damaged or removed")
        return record

    # --- Moving on ---

    def advance(self, next_offset: int, log_end: int = 0) -> None:
        """Go on at `next_offset`: what comes before is dealt with, by records of this turn.

        `log_end` is where the last of them ends in the log; without it, it is where the log ends.
        """
        self.next_offset = next_offset
        if self._records:
            self._records.pop(next_offset - 1, None)
        if self._progress.stage(next_offset, log_end or self._context.core.tail.end_offset):
            self._context.writer.after_write(self._end_turn)

    def _end_turn(self, error: StoreError | None) -> None:
        self._progress.end_turn(is_written=error is None)
        if error is not None:
            self._go_back()
        self._owner.note_written(error)

    def _go_back(self) -> None:
        written = self._progress.written
        self.next_offset = self.queue.min_offset if written is None else written
        self._records, self._looked_for = {}, range(0)

    def pass_over(self, next_offset: int, cause: str) -> None:
        """Go on at `next_offset` though nothing was done of the messages before: they are lost."""
        first, count = self.next_offset, next_offset - self.next_offset
        self._logged_count += 1
        if self._logged_count <= LOGGED_MAX:
            log.error(
                "%d %s, queue offsets from %d on, are lost: %s", count, self.name, first, cause
            )
        self._owner.note_lost(count)
        self.advance(next_offset)

    # --- From the files ---

    def _read_entries(self, offset: int) -> None:
        view, reader = snapshot(self.queue, offset, COLD_ENTRIES), self._context.store.reader

        def read() -> _FoundEntries:
            entries = reader.entries(view, offset, COLD_ENTRIES)
            next_offset = offset if entries else behind_queue_file(reader, view, offset)
            return _FoundEntries(entries, next_offset)

        def take(found: _FoundEntries) -> None:
            entries, next_offset = found
            self._entries = (offset, entries)
            if next_offset > self.next_offset == offset:
                self.pass_over(next_offset, "the file of their queue is missing")

        self._read(read, take)

    def _read_records(self, offset: int) -> None:
        view = snapshot(self.queue, offset, COLD_LIMITS.count_max)
        reader = self._context.store.reader

        def take(found: FoundRecords) -> None:
            self._records, end = found
            self._looked_for = range(offset, end)

        self._read(lambda: read_records(reader, view, offset), take)

    def _read(self, read: Callable[[], T], take: Callable[[T], None]) -> None:
        """Read in a thread, then tell the owner; it asks anew after a disk that refuses."""
        self._waits_for = reading = self._context.follower_threads.run(read)

        def done(reading: asyncio.Future[T]) -> None:
            self._waits_for = None
            error = reading.exception()
            if error is None:
                take(reading.result())
                self._owner.note_news()
            else:
                log.error("%s wait: %s", self.name, error)
                loop = asyncio.get_running_loop()
                self._waits_for = loop.call_later(RETRY_S, self._ask_again)

        reading.add_done_callback(done)

    def _ask_again(self) -> None:
        self._waits_for = None
        self._owner.note_news()
