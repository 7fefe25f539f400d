"""Following the log into queues and index while a folder is recovered.

In: records and gaps in log order. Out: queue entries and index entries in their files.

Rules:
1. A record's number must be the next of its queue. What is not so is doubted until the queue's next
   record is there, because nothing protects the number in a record's bytes:
   a. numbers that damage has swallowed become holes, at most as many as fit the damaged bytes;
   b. when the next record goes on behind the doubted one, the jump is real: number 0 means that the
      topic was deleted and made again, a higher one that numbers are missing;
   c. when the next record goes on behind the queue, the doubted one is damaged: a hole;
   d. a number that is taken stays with the record that took it;
   e. a record of a queue that cannot be, or of none and yet with a number, is left out.
2. Unless everything is made anew, a jump that damage does not explain is a Disagreement, and so is,
   in a folder of the original, an entry in a queue's file that says something else.
3. An entry keeps the address of a unit that says the same and cannot be torn; new ones get none.
4. Records from before their topic was removed are in no queue. Memory is bounded by `write_out`.
"""

from collections.abc import Callable, Iterable, Sequence

from orbitmq.core import Walked
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.store.consume_queue import HOLE_SIZE, Extent, QueueFiles
from orbitmq.store.follow import entry_code, in_queues, index_rows
from orbitmq.store.key_index import KeyIndex
from orbitmq.store.layout import can_hold_queue
from orbitmq.store.log_source import Gap
from orbitmq.store.queue_ext import is_address
from orbitmq.wire.light_queues import is_light
from orbitmq.wire.record import RECORD_SIZE_MIN

ROWS_BYTES_MAX = 131_072
HOLES_MAX = 1_000_000
"""A queue that jumps further begins anew behind the jump."""

QueueKey = tuple[str, int]


class Disagreement(Exception):
    """Queues and log do not belong together: the queues must be made anew."""


class Lane:
    """One queue while the log is followed."""

    __slots__ = (
        "begin_offset",
        "damage_seen",
        "doubt",
        "first_log_offset",
        "first_number",
        "is_anew",
        "is_begun",
        "is_known",
        "is_touched",
        "key",
        "next_offset",
        "pending",
        "pending_offset",
    )

    def __init__(self, key: QueueKey, next_offset: int, *, is_known: bool) -> None:
        self.key = key
        self.next_offset = next_offset
        self.pending_offset = next_offset
        """The number of the first entry in `pending`."""
        self.pending = bytearray()
        self.is_known = is_known
        """Whether its files say where it stands; else its first record does."""
        self.is_touched = False
        """Whether a record of it was met."""
        self.is_anew = False
        self.is_begun = False
        self.begin_offset = 0
        """If it was begun here: what lies before is no part of the queue."""
        self.damage_seen = 0
        """How much damage there was in the log when the queue's last record was met."""
        self.doubt: Walked | None = None
        self.first_number = next_offset
        """The number of the first record of it that was met, when it is touched."""
        self.first_log_offset = -1
        """Where the queue's file, before it was touched, had the record of number 0."""


class Replay:
    """Feeds queues and index."""

    def __init__(
        self,
        queue_files: QueueFiles,
        index: KeyIndex,
        delays_ms: Sequence[int],
        set_aside: Callable[[QueueKey], None],
        *,
        is_full: bool,
        is_compared: bool,
    ) -> None:
        """`set_aside` takes a queue's files out of the way, if there are any."""
        self.is_removed: Callable[[Walked], bool] | None = None
        """Says of a record whether its topic was removed since."""
        self._queue_files = queue_files
        self._index = index
        self._delays_ms = delays_ms
        self._set_aside = set_aside
        self.is_full = is_full
        self._is_compared = is_compared
        self.lanes: dict[QueueKey, Lane] = {}
        self._known: dict[QueueKey, int] = {}
        self._unwritten: dict[QueueKey, Lane] = {}
        self._rows = bytearray()
        self._left_out = 0
        self._damage = 0
        self._damage_start = 0
        self.store_ms = 0
        self.trusts_bits = True
        """Whether bits of filters in extra units are surely what was written."""
        self.misplaced: list[tuple[Walked, str]] = []
        """Whole records that could not be put into their queue, and why."""

    def know(self, extent: Extent, next_offset: int) -> None:
        """Take in what a queue's files hold of the log before the first record."""
        self._known[extent.topic, extent.queue_id] = next_offset

    def known(self, key: QueueKey) -> int | None:
        """Return what `know` was told of a queue."""
        return None if self.is_full else self._known.get(key, 0)

    # --- One record ---

    def add(self, walked: Walked) -> None:
        """Follow one record; raises Disagreement."""
        if walked.store_ms > self.store_ms:
            self.store_ms = walked.store_ms
        places = in_queues(walked)
        for place in places:
            self._enter(place)
        if not places and walked.queue_offset and not (self.is_removed and self.is_removed(walked)):
            self._give_up(walked, "its flags say that it is in no queue")
        rows, left_out = index_rows(walked)
        self._rows += rows
        self._left_out += left_out
        if len(self._rows) >= ROWS_BYTES_MAX:
            self._pass_rows()

    def _enter(self, walked: Walked) -> None:
        """Put a record into the queue that it names."""
        if self.is_removed is not None and self.is_removed(walked):
            return
        key = (walked.topic, walked.queue_id)
        lane = self.lanes.get(key) or self._open(key)
        if lane is None:
            self._give_up(walked, "there cannot be such a queue")
        elif walked.queue_offset == lane.next_offset and lane.doubt is None:
            self._put(lane, walked)
        else:
            self._settle(lane, walked)

    def add_gap(self, gap: Gap) -> None:
        """Take in that a part of the log is damaged: numbers may be missing behind it."""
        self._damage += gap.end - gap.start
        self._damage_start = gap.start

    def _open(self, key: QueueKey) -> Lane | None:
        if not can_hold_queue(*key):
            return None
        next_offset = self._known.get(key, 0)
        lane = Lane(key, next_offset, is_known=next_offset > 0 or not self.is_full)
        first = self._queue_files.read_cold(*key, 0, 1)
        if first:
            log_offset, size, _ = ENTRY.unpack(first)
            lane.first_log_offset = log_offset if size > 0 else -1
        self.lanes[key] = lane
        return lane

    def _put(self, lane: Lane, walked: Walked) -> None:
        code = entry_code(walked, self._delays_ms)
        lane.pending += ENTRY.pack(walked.log_offset, walked.size, code)
        if not lane.is_touched:
            lane.first_number = lane.next_offset
        lane.next_offset += 1
        lane.is_touched = True
        lane.damage_seen = self._damage
        self._unwritten[lane.key] = lane

    # --- A number that is not the next ---

    def _settle(self, lane: Lane, walked: Walked) -> None:
        doubt, lane.doubt = lane.doubt, None
        if doubt is not None:
            if walked.queue_offset == doubt.queue_offset + 1:
                self._jump(lane, doubt)
            else:
                self._give_up(doubt, f"the queue goes on with {walked.queue_offset}")
        number, due = walked.queue_offset, lane.next_offset
        if number == due or self._is_swallowed(lane, number):
            self._fill_holes(lane, number)
            self._put(lane, walked)
        elif 0 < number < due and (lane.is_touched or not self.is_full):
            if not self.is_full:
                raise Disagreement(_other_number(walked, due))
            self._give_up(walked, "an earlier record has that number")
        else:
            lane.doubt = walked

    def _is_swallowed(self, lane: Lane, number: int) -> bool:
        """Whether the damage since the queue's last record can have held what is missing."""
        room = (self._damage - lane.damage_seen) // RECORD_SIZE_MIN
        return lane.next_offset <= number <= lane.next_offset + room

    def _jump(self, lane: Lane, doubt: Walked) -> None:
        """Believe a number that is not the next: the queue's next record goes on behind it."""
        number, due = doubt.queue_offset, lane.next_offset
        if number == 0:
            self._begin(lane, 0)
            lane.is_anew = True
        elif not self.is_full:
            raise Disagreement(_other_number(doubt, due))
        elif not (lane.is_known or lane.is_touched) or number - due > HOLES_MAX:
            self._set_aside(lane.key)
            self._begin(lane, number)
        elif number < due:  # not touched yet: the log knows better than the files
            lane.next_offset = lane.pending_offset = number
        else:
            self._damage_start = doubt.log_offset
            self._fill_holes(lane, number)
        self._put(lane, doubt)

    def _begin(self, lane: Lane, number: int) -> None:
        """Let a queue begin at a number: its file is filled up to there, as the original does."""
        per_file = self._queue_files.file_size // ENTRY_SIZE
        filler_count = number % per_file
        lane.pending_offset = number - filler_count
        lane.pending = bytearray(ENTRY.pack(0, HOLE_SIZE, 0) * filler_count)
        lane.next_offset = lane.begin_offset = number
        lane.is_begun = True
        self._unwritten[lane.key] = lane

    def _fill_holes(self, lane: Lane, number: int) -> None:
        count = number - lane.next_offset
        if count:
            lane.pending += ENTRY.pack(self._damage_start, HOLE_SIZE, 0) * count
            lane.next_offset = number
            self._unwritten[lane.key] = lane

    def _give_up(self, walked: Walked, why: str) -> None:
        """Leave a whole record out of its queue; its bytes count as damage."""
        self.misplaced.append((walked, why))
        self._damage += walked.size
        self._damage_start = walked.log_offset

    def settle_doubts(self) -> None:
        """The log is over: decide about the last record of a queue that no further one confirms."""
        for lane in self.lanes.values():
            doubt, lane.doubt = lane.doubt, None
            if doubt is None:
                continue
            is_filed = lane.first_log_offset in (-1, doubt.log_offset)
            if doubt.queue_offset == 0 and is_filed:
                self._jump(lane, doubt)
            elif not self.is_full:
                raise Disagreement(_other_number(doubt, lane.next_offset))
            elif not (lane.is_known or lane.is_touched) or self._is_filed(lane, doubt):
                self._jump(lane, doubt)
            else:
                self._give_up(doubt, f"{lane.next_offset} is due")

    def _is_filed(self, lane: Lane, walked: Walked) -> bool:
        """Whether the queue's file, where it was not written over, has a record by its number."""
        if walked.queue_offset < lane.next_offset:
            return False
        entry = self._queue_files.read_cold(*lane.key, walked.queue_offset, 1)
        return bool(entry) and ENTRY.unpack(entry)[:2] == (walked.log_offset, walked.size)

    def begin(self, key: QueueKey, number: int) -> None:
        """Let a queue that the log does not mention, and that has no files, begin at a number."""
        lane = self._open(key)
        if lane is not None:
            self._begin(lane, number)
            if not lane.pending:  # only what is in a file is known at the next start
                per_file = self._queue_files.file_size // ENTRY_SIZE
                lane.pending_offset = number - per_file
                lane.pending = bytearray(ENTRY.pack(0, HOLE_SIZE, 0) * per_file)

    def go_on_at(self, key: QueueKey, number: int) -> None:
        """Let the next number of a queue not be below this one, if damage explains the rest."""
        lane = self.lanes[key]
        if not lane.is_anew and self._is_swallowed(lane, number):
            self._fill_holes(lane, number)

    # --- Writing ---

    def write_out(self) -> None:
        """Write what memory holds; afterwards the kernel has it. Raises Disagreement."""
        for lane in self._unwritten.values():
            self._write_lane(lane)
        self._unwritten.clear()
        self._pass_rows()
        job = self._index.freeze()
        if job is not None:
            for piece in job.by_file():
                piece.write_entries()
                piece.sync()  # no slot names an entry that a power cut could take away
                piece.write_slots()
            self._index.finish(job)

    def sync(self) -> None:
        """Return when the disk has what was written."""
        self._queue_files.sync()
        self._index.sync()

    def _pass_rows(self) -> None:
        self._index.add(bytes(self._rows), self._left_out)
        self._rows.clear()
        self._left_out = 0
        self._index.drain()

    def _write_lane(self, lane: Lane) -> None:
        merged = self._merged(lane)
        self._queue_files.write(*lane.key, lane.pending_offset, merged)
        lane.pending_offset = lane.next_offset
        lane.pending = bytearray()

    def _merged(self, lane: Lane) -> bytearray:
        """Return the entries to write, compared with what is there."""
        merged = lane.pending
        position = 0
        for present in self._present(lane):
            if any(present) and present != merged[position : position + len(present)]:
                self._merge(lane, merged, position, present)
            position += len(present)
        return merged

    def _present(self, lane: Lane) -> Iterable[bytes]:
        number, end = lane.pending_offset, lane.next_offset
        while number < end:
            entries = self._queue_files.read_cold(*lane.key, number, end - number)
            if not entries:  # no file: go on behind the place it would have
                per_file = self._queue_files.file_size // ENTRY_SIZE
                entries = bytes(min(end - number, per_file - number % per_file) * ENTRY_SIZE)
            yield entries
            number += len(entries) // ENTRY_SIZE

    def _merge(self, lane: Lane, merged: bytearray, position: int, present: bytes) -> None:
        extras = self._queue_files.extras(*lane.key)
        for at, (log_offset, size, code) in enumerate(ENTRY.iter_unpack(present)):
            if size <= 0:
                continue
            place = position + at * ENTRY_SIZE
            new = ENTRY.unpack_from(merged, place)
            if (log_offset, size) == new[:2] and is_address(code):
                if extras.fits(code, new[2], trusts_bits=self.trusts_bits):
                    ENTRY.pack_into(merged, place, log_offset, size, code)
            elif (log_offset, size, code) != new and self._is_compared:
                if (log_offset, size) == new[:2] and is_light(lane.key[0]):
                    ENTRY.pack_into(merged, place, log_offset, size, code)  # see `follow`, rule 2
                    continue
                number = lane.pending_offset + place // ENTRY_SIZE
                raise Disagreement(
                    f"entry {number} of topic {lane.key[0]}, queue {lane.key[1]} says log offset"
                    f" {log_offset}, {size} bytes, code {code}; the log says {new}"
                )


def _other_number(walked: Walked, due: int) -> str:
    return (
        f"the record at log offset {walked.log_offset} is number {walked.queue_offset} of topic"
        f" {walked.topic}, queue {walked.queue_id}, where {due} is due"
    )
