"""Delivery of delayed messages: each goes to its own topic when its time has come.

In: the queues of the schedule topic, the clock. Out: messages in the topics they belong to, staged
like any other and written with the turn.

Rules:
1. One timer for all levels, set to the earliest message; it looks at least every LOOK_S, for the
   wall clock may jump, and at once when a level's queue grows. A message that would be due later
   than its level's delay from now is due now: the clock was set back. Store times do not go back
   with it, so what is stored then is due too late by as much: its level remembers that (`skews`).
2. Each level is delivered in the order of its queue. When the store takes nothing, the level waits
   and tries again; a message that cannot be delivered at all is counted, logged and passed over.
3. What memory holds is delivered on the loop, a few messages a turn; the rest is read in a thread.
4. A message goes with its topic when that is removed, unless it is made again in time. 4.9.7 puts
   it into a queue without a topic; here that would bring the topic back at the next start.
5. A level's offset moves when the copy is written. With the log and `delayOffset.json` that makes
   delivery happen once, whatever ends the process: see `delay_offsets` and `delay_recovery`.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from orbitmq.broker.delay_copies import stage_copy
from orbitmq.broker.delay_reading import (
    COLD_COUNT,
    ColdLook,
    Entry,
    HotRecord,
    delivered_message,
    due_ms_of,
    hot_entry,
    hot_record,
    is_due,
    is_hole,
    read_cold,
)
from orbitmq.broker.delay_recovery import behind_delivered, find_copies
from orbitmq.broker.puts import put
from orbitmq.broker.turn_share import SLICE_S, share_s
from orbitmq.core import Queue
from orbitmq.errors import RequestFailed, StoreError
from orbitmq.metrics import Registry
from orbitmq.store.reading import snapshot
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.names import SCHEDULE_TOPIC
from orbitmq.wire.record import Record
from orbitmq.world.threads import Threads

if TYPE_CHECKING:
    from orbitmq.broker.context import Context

log = logging.getLogger(__name__)

LOOK_S = 1.0
RETRY_S = 0.1
"""How long a level waits after the store has refused."""

READ_RETRY_S = 1.0
TURN_COUNT_LEAST, TURN_COUNT_MAX = 50, 256
"""Delivering takes its share of a turn (`turn_share`), but so many messages are delivered at least,
or at most; more while turns are long. Each level that has some that are due gets as much."""
SHARE_LEAST = 4
"""Messages of a share, however many levels there are."""

SKEWS_MAX = 10_000
TOLD_MAX = 100
"""So many messages that were passed over are named in the log."""


class _Level:
    """One delay level: its queue and how far it is delivered, what is only staged included."""

    __slots__ = (
        "cold_due_ms",
        "delay_ms",
        "is_reading",
        "next_offset",
        "number",
        "queue",
        "seen_offset",
        "skews",
        "staged_bytes",
        "staged_count",
        "wait_s",
    )

    def __init__(self, number: int, delay_ms: int, queue: Queue) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.queue = queue
        self.next_offset = 0
        self.is_reading = False
        """Whether a thread reads for it."""
        self.wait_s = 0.0
        """Until when, on the monotonic clock, it lets the store recover."""
        self.cold_due_ms: tuple[int, int] | None = None
        """An offset whose entry is in the files, and when it is due."""
        self.seen_offset = queue.readable_offset
        self.skews: deque[tuple[int, int]] = deque()
        """From which offset on entries are due too late, and by how many ms."""
        self.staged_count = self.staged_bytes = 0
        """Copies that are staged and not written yet."""

    def note_grown(self, skew_ms: int) -> None:
        """Take note of new entries that were stored while store times were so far ahead."""
        first, self.seen_offset = self.seen_offset, self.queue.readable_offset
        skew_ms = max(0, skew_ms)
        last_ms = self.skews[-1][1] if self.skews else 0
        if skew_ms != last_ms and len(self.skews) < SKEWS_MAX:
            self.skews.append((first, skew_ms))

    def skew_ms(self) -> int:
        """Return by how much the next entry is due too late."""
        skews = self.skews
        while len(skews) > 1 and skews[1][0] <= self.next_offset:
            skews.popleft()
        if not skews or skews[0][0] > self.next_offset:
            return 0
        if len(skews) == 1 and not skews[0][1]:
            skews.clear()
            return 0
        return skews[0][1]


_Steps = dict[_Level, tuple[int, int]]
"""Levels that have moved on in one turn: to which offset, and where the log ends behind the copy.

A turn is written and synced as a whole: only the last step of each level counts."""


class Delays:
    """Delivers the delayed messages of one broker."""

    def __init__(self, context: "Context", registry: Registry) -> None:
        self._context = context
        self._levels: list[_Level] = []
        self._queues: set[Queue] = set()
        self._threads = Threads(1, "delay")
        self._timer: asyncio.Handle | None = None
        self._timer_s = 0.0
        self._wanted_s = 0.0
        """When the next look is wanted: how late it comes says how long the loop's turns are."""
        self._recovery: asyncio.Task[None] | None = None
        self._reads: set[asyncio.Future[ColdLook]] = set()
        self._batch: _Steps | None = None
        self._due_count = 1
        self._told_count = 0
        self._is_delivering = False
        self._catching_up: list[asyncio.Future[None]] = []
        """Who waits until nothing is due any more."""
        self._delivered = registry.counter(
            "orbitmq_broker_delivered_delayed_messages_total",
            "Delayed messages that were delivered to their topics.",
        )
        self._lost = registry.counter(
            "orbitmq_broker_lost_delayed_messages_total",
            "Delayed messages that could not be delivered: damaged, or removed with old files.",
        )
        self._lateness = registry.histogram(
            "orbitmq_broker_delay_lateness_seconds",
            "How late delayed messages were delivered.",
            bits=17,
            scale=0.001,
        )

    def start(self) -> None:
        """Find out what was delivered before the last stop, then begin to deliver; once."""
        if self._recovery is not None:
            return
        context = self._context
        self._levels = [
            _Level(number, delay_ms, context.store.queue(SCHEDULE_TOPIC, number - 1))
            for number, delay_ms in enumerate(context.delays.delays_ms, 1)
        ]
        self._recovery = asyncio.create_task(self._recover())

    async def stop(self) -> None:
        """Deliver nothing more; what is under way is waited for."""
        self._is_delivering = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        if self._reads:
            await asyncio.wait(self._reads)
        self._threads.close()
        self._tell_caught_up()
        for _ in range(3):
            await asyncio.sleep(0)  # the turn that writes what is staged ends now

    # --- After a start ---

    async def _recover(self) -> None:
        delays = self._context.delays
        while delays.saved_log_offset is not None:
            try:
                await self._find_delivered(delays.saved_log_offset)
                break
            except StoreError as error:
                log.error("delayed messages wait: what was delivered cannot be read: %s", error)
            except Exception:  # a bug of ours: without this task nothing would ever be delivered
                log.exception("delayed messages wait: finding out what was delivered failed")
            await asyncio.sleep(READ_RETRY_S)
        delays.note_recovered()
        for level in self._levels:
            level.next_offset = delays.find(level.number)
            level.seen_offset = level.queue.readable_offset
        self._queues = {level.queue for level in self._levels}
        self._context.on_grown.append(self._note_grown)
        self._is_delivering = True
        self._look()

    async def _find_delivered(self, start: int) -> None:
        store, delays = self._context.store, self._context.delays
        first = max(start, store.first_offset)
        end = store.tail.visible_offset
        views = {
            level.number: (snapshot(level.queue), delays.find(level.number))
            for level in self._levels
        }

        def find() -> dict[int, int]:
            copies = find_copies(store.log, first, end)
            return {
                number: behind_delivered(
                    store.reader, view, offset, copies[number], store.removals.end_of
                )
                for number, (view, offset) in views.items()
                if number in copies
            }

        for number, offset in (await self._threads.run(find)).items():
            if offset > delays.find(number):
                delays.note_delivered(number, offset, 0)

    # --- Looking ---

    def _note_grown(self, grown: set[Queue]) -> None:
        if self._queues.isdisjoint(grown):
            return
        skew_ms = self._context.core.tail.store_ms - self._context.clock.wall_ms()
        for level in self._levels:
            if level.queue in grown:
                level.note_grown(skew_ms)
        self.look_soon()

    def look_soon(self) -> None:
        """Have a look in the loop's next turn: the clock or a queue has changed."""
        self._look_in(0.0)

    async def caught_up(self) -> None:
        """Look at once, and return when all that is due is written, or the store takes nothing."""
        if self._recovery is None:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._catching_up.append(waiting)
        self.look_soon()
        await waiting

    def _tell_caught_up(self) -> None:
        waiting, self._catching_up = self._catching_up, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _look_in(self, delay_s: float) -> None:
        """Have a look so soon, or sooner if one is due before."""
        if not self._is_delivering:
            return
        loop = asyncio.get_running_loop()
        # The next turn comes before any timer, also before one that is over: uvloop's are rounded.
        at_s = loop.time() + delay_s if delay_s else 0.0
        if self._timer is not None:
            if self._timer_s <= at_s:
                return
            self._timer.cancel()
        self._timer_s = at_s
        self._wanted_s = self._context.clock.monotonic_s() + delay_s
        self._timer = (
            loop.call_later(delay_s, self._look) if delay_s else loop.call_soon(self._look)
        )

    def _look(self) -> None:
        """Deliver what is due, as much as one turn may take; look again when more is."""
        self._timer = None
        self._batch = None
        try:
            wait_s = self._deliver_due()
        except Exception:  # a bug of ours: others' messages must come all the same
            log.exception("delivering delayed messages failed; it is tried again")
            wait_s = LOOK_S
        if wait_s and self._catching_up and not self._reads:
            self._context.after_write(lambda _error: self._tell_caught_up())
        self._look_in(wait_s)

    def _deliver_due(self) -> float:
        """Deliver a turn's share of what is due; give in how many seconds to look again."""
        now_ms = self._context.clock.wall_ms()
        due_count = max(1, self._due_count)
        turn_s = share_s(self._context.clock.monotonic_s() - self._wanted_s)
        count_max = int(TURN_COUNT_MAX * turn_s / SLICE_S)
        shares = (max(SHARE_LEAST, TURN_COUNT_LEAST // due_count), count_max // due_count)
        self._due_count = 0
        wait_s = LOOK_S
        for level in self._levels:
            level_wait_s = self._advance(level, now_ms, shares, turn_s / due_count)
            self._due_count += not level_wait_s
            wait_s = min(wait_s, level_wait_s)
        return wait_s

    def _advance(
        self, level: _Level, now_ms: int, counts: tuple[int, int], level_s: float
    ) -> float:
        """Deliver messages of a level for `level_s`, but as many as `counts` say, least and most.

        Gives in how many seconds to look again: 0 when more is due.
        """
        queue, clock_s = level.queue, self._context.clock.monotonic_s
        count_least, count_max = counts
        until_s = clock_s() + level_s
        for number in range(count_max):
            now_s = clock_s()
            if level.wait_s > now_s:
                return level.wait_s - now_s
            if now_s > until_s and number >= count_least:
                return 0.0
            if level.is_reading:
                return LOOK_S
            if level.next_offset < queue.min_offset:
                self._pass_over(level, queue.min_offset, "their log files were removed")
            if level.next_offset >= queue.readable_offset:
                return LOOK_S
            entry = hot_entry(queue, level.next_offset)
            due_ms = self._due_ms(level, entry, now_ms)
            if due_ms is None:
                return LOOK_S
            if not is_due(due_ms, now_ms, level.delay_ms):
                return (due_ms - now_ms) / 1000
            self._deliver_next(level, entry, due_ms, now_ms)
        return 0.0

    def _due_ms(self, level: _Level, entry: Entry | None, now_ms: int) -> int | None:
        """Return when the next message is due; None when a thread must find out."""
        if entry is not None:
            return entry.code - level.skew_ms()
        if level.cold_due_ms is not None and level.cold_due_ms[0] == level.next_offset:
            return level.cold_due_ms[1]
        self._read(level, now_ms)
        return None

    def _deliver_next(self, level: _Level, entry: Entry | None, due_ms: int, now_ms: int) -> None:
        """Deliver the next message, which is due, or have it read."""
        offset, tail = level.next_offset, self._context.core.tail
        if entry is None or (entry.log_offset < tail.hot_offset and not is_hole(entry)):
            self._read(level, now_ms)
            return
        if is_hole(entry):
            self._move(level, offset + 1)
            return
        record = hot_record(tail, level.queue, offset, entry)
        if record is None:
            self._pass_over(level, offset + 1, "the record is damaged")
            return
        if entry.code < 0:  # it points to an extra unit and says no time
            by_record_ms = due_ms_of(entry.code, record, self._context.delays.delays_ms)
            due_ms = by_record_ms - level.skew_ms()
            if not is_due(due_ms, now_ms, level.delay_ms):
                self._wait(level, min(LOOK_S, (due_ms - now_ms) / 1000))
                return
        log_offset = stage_copy(self._context, record)
        if log_offset is None:
            self._deliver(level, record, now_ms - due_ms)
        else:
            self._note_staged(level, offset + 1, log_offset, now_ms - due_ms)

    # --- Delivering ---

    def _deliver(self, level: _Level, record: Record | HotRecord, late_ms: int) -> bool:
        """Stage the message; False when the level must wait."""
        next_offset = record.queue_offset + 1
        message = delivered_message(record)
        if message is None:
            self._pass_over(level, next_offset, "it does not say where it belongs")
            return True
        if self._is_of_removed(message.topic, record.log_offset):
            self._pass_over(level, next_offset, f"their topic {message.topic} was removed")
            return True
        try:
            placed = put(self._context, message)
        except RequestFailed as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL:
                self._pass_over(level, next_offset, error.remark)
                return True
            self._wait(level, RETRY_S)
            return False
        self._note_staged(level, next_offset, placed.log_offset, late_ms)
        return True

    def _note_staged(self, level: _Level, next_offset: int, log_offset: int, late_ms: int) -> None:
        self._delivered.value += 1
        self._lateness.observe(late_ms)
        level.staged_count += 1
        level.staged_bytes += self._context.core.tail.end_offset - log_offset
        self._move(level, next_offset, log_offset + 1)

    def _is_of_removed(self, topic: str, log_offset: int) -> bool:
        """Whether a message was sent to a topic that was removed since and not made again."""
        context = self._context
        return context.topics.find(topic) is None and log_offset < context.store.removals.end_of(
            topic
        )

    def _wait(self, level: _Level, delay_s: float) -> None:
        level.wait_s = self._context.clock.monotonic_s() + delay_s

    def _move(self, level: _Level, next_offset: int, log_end: int = 0) -> None:
        """Let a level go on; it counts when this turn is written."""
        level.next_offset = next_offset
        if self._batch is None:
            batch: _Steps = {}
            self._batch = batch
            self._context.after_write(lambda error: self._written(batch, error))
        self._batch[level] = (next_offset, log_end or self._context.core.tail.end_offset)

    def _written(self, batch: _Steps, error: StoreError | None) -> None:
        delays, stats = self._context.delays, self._context.stats
        for level, (next_offset, log_end) in batch.items():
            if error is None:
                delays.note_delivered(level.number, next_offset, log_end)
                if level.staged_count:
                    queue_id = level.queue.queue_id
                    stats.note_delivered(queue_id, level.staged_count, level.staged_bytes)
            else:
                level.next_offset = delays.find(level.number)
                self._wait(level, RETRY_S)
            level.staged_count = level.staged_bytes = 0

    def _pass_over(self, level: _Level, next_offset: int, cause: str) -> None:
        first, count = level.next_offset, next_offset - level.next_offset
        self._lost.value += count
        self._told_count += 1
        if self._told_count <= TOLD_MAX:
            log.error(
                "%d delayed messages of level %d, queue offsets from %d on, are lost: %s",
                count,
                level.number,
                first,
                cause,
            )
        self._move(level, next_offset)

    # --- From the files ---

    def _read(self, level: _Level, now_ms: int) -> None:
        if not self._is_delivering:
            return
        level.is_reading = True
        offset, due = level.next_offset, (now_ms + level.skew_ms(), level.delay_ms)
        view = snapshot(level.queue, offset, COLD_COUNT)
        reader = self._context.store.reader
        future = self._threads.run(lambda: read_cold(reader, view, offset, due))
        self._reads.add(future)
        future.add_done_callback(lambda done: self._read_done(level, offset, done))

    def _read_done(self, level: _Level, offset: int, done: "asyncio.Future[ColdLook]") -> None:
        self._reads.discard(done)
        level.is_reading = False
        error = done.exception()
        if error is None:
            if level.next_offset == offset:  # else a refused write has set the level back
                self._take(level, done.result())
        else:
            log.error("delayed messages of level %d wait: %s", level.number, error)
            self._wait(level, READ_RETRY_S)
        self.look_soon()

    def _take(self, level: _Level, look: ColdLook) -> None:
        """Deliver what a look into the files found."""
        if look.due_ms is not None:
            level.cold_due_ms = (look.next_offset, look.due_ms - level.skew_ms())
            return
        self._batch = None
        now_ms, delays_ms = self._context.clock.wall_ms(), self._context.delays.delays_ms
        for code, record in look.found:
            if record.queue_offset > level.next_offset:
                self._pass_over(level, record.queue_offset, "the records are damaged or removed")
            due_ms = due_ms_of(code, record, delays_ms) - level.skew_ms()
            if not is_due(due_ms, now_ms, level.delay_ms):
                level.cold_due_ms = (record.queue_offset, due_ms)
                return
            if not self._deliver(level, record, now_ms - due_ms):
                return
        if look.next_offset > level.next_offset:
            self._pass_over(level, look.next_offset, "the records are damaged or removed")
