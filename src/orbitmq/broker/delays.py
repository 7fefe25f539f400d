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
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.broker.delay_copies import delivered_message, stage_copy
from orbitmq.broker.delay_recovery import behind_delivered, find_copies
from orbitmq.broker.puts import put
from orbitmq.broker.queue_follower import FollowedRecord, QueueEntry, QueueFollower
from orbitmq.broker.turn_share import SLICE_S, share_s
from orbitmq.errors import RequestFailed, StoreError
from orbitmq.metrics import Registry
from orbitmq.net.later import Arrival
from orbitmq.store.follow import due_code
from orbitmq.store.reading import snapshot
from orbitmq.watermark import Watermark
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from orbitmq.broker.context import Context

log = logging.getLogger(__name__)

LOOK_S = 1.0
RETRY_S = 0.1
"""How long a level waits after the store has refused."""

RECOVERY_RETRY_S = 1.0
TURN_COUNT_LEAST, TURN_COUNT_MAX = 50, 256
"""Delivering takes its share of a turn (`turn_share`), but so many messages are delivered at least,
or at most; more while turns are long. Each level that has some that are due gets as much."""
SHARE_LEAST = 4
"""Messages of a share, however many levels there are."""

SKEWS_MAX = 10_000


class _Share(NamedTuple):
    """How much one level may deliver in one turn: for so long, but so many at least and at most."""

    seconds: float
    count_least: int
    count_max: int


class _Level:
    """One delay level: the follower of its queue, and what keeps it from delivering."""

    def __init__(self, delays: "Delays", number: int, delay_ms: int) -> None:
        self._delays = delays
        self._context = context = delays.context
        self.number = number
        self._delay_ms = delay_ms
        self._wait_s = 0.0
        """Until when, on the monotonic clock, it lets the store recover."""
        self._skews: deque[tuple[int, int]] = deque()
        """From which offset on entries are due too late, and by how many ms."""
        self._staged_count = self._staged_bytes = 0
        """Copies that are staged and not written yet."""
        queue = context.store.queue(SCHEDULE_TOPIC, number - 1)
        self._seen_offset = queue.readable_offset
        name, progress = f"delayed messages of level {number}", context.delays.progress(number)
        self.follower = QueueFollower(context, queue, name, progress, self)

    # --- What the follower tells ---

    def note_news(self) -> None:
        """Have a look; take note of how far store times, by which new entries are due, are ahead of
        the clock."""
        first, self._seen_offset = self._seen_offset, self.follower.queue.readable_offset
        if first < self._seen_offset:
            context, skews = self._context, self._skews
            skew_ms = max(0, context.core.tail.store_ms - context.clock.wall_ms())
            last_ms = skews[-1][1] if skews else 0
            if skew_ms != last_ms and len(skews) < SKEWS_MAX:
                skews.append((first, skew_ms))
        self._delays.look_soon()

    def note_lost(self, count: int) -> None:
        """Count messages that are never delivered."""
        self._delays.lost.value += count

    def note_written(self, error: StoreError | None) -> None:
        """Count what is delivered, or let the store recover."""
        if error is not None:
            self._wait(RETRY_S)
        elif self._staged_count:
            queue_id = self.follower.queue.queue_id
            counts = self._context.counts
            counts.note_delivered(queue_id, self._staged_count, self._staged_bytes)
        self._staged_count = self._staged_bytes = 0

    # --- Delivering ---

    def deliver_due(self, now_ms: int, share: _Share) -> float:
        """Deliver its share; return in how many seconds to look again, 0 when more is due."""
        follower, clock_s = self.follower, self._context.clock.monotonic_s
        until_s = clock_s() + share.seconds
        for number in range(share.count_max):
            now_s = clock_s()
            if self._wait_s > now_s:
                return self._wait_s - now_s
            if now_s > until_s and number >= share.count_least:
                return 0.0
            entry = follower.entry()
            if entry is None:
                return LOOK_S
            wait_ms = self._deliver_if_due(entry, now_ms)
            if wait_ms:
                return wait_ms / 1000
        return 0.0

    def _deliver_if_due(self, entry: QueueEntry, now_ms: int) -> int:
        """Deliver the next message, or return in how many milliseconds it is due."""
        due_ms = entry.code - self._skew_ms()
        if now_ms < due_ms <= now_ms + self._delay_ms:
            return due_ms - now_ms
        record = self.follower.record(entry)
        if record is None:
            return 0
        if entry.code < 0:  # it points to an extra unit and says no time
            delays_ms = self._context.delays.delays_ms
            due_ms = due_code(record.properties, record.store_ms, delays_ms) or record.store_ms
            due_ms -= self._skew_ms()
            if now_ms < due_ms <= now_ms + self._delay_ms:
                return due_ms - now_ms
        self._deliver(record, now_ms - due_ms)
        return 0

    def _skew_ms(self) -> int:
        """Return by how much the next entry is due too late."""
        skews, next_offset = self._skews, self.follower.next_offset
        while len(skews) > 1 and skews[1][0] <= next_offset:
            skews.popleft()
        if not skews or skews[0][0] > next_offset:
            return 0
        if len(skews) == 1 and not skews[0][1]:
            skews.clear()
            return 0
        return skews[0][1]

    def _deliver(self, record: FollowedRecord, late_ms: int) -> None:
        """Stage the message, pass it over for good, or wait until the store takes it."""
        log_offset = stage_copy(self._context, record)
        if log_offset is None:
            log_offset = self._put(record)
        if log_offset is not None:
            self._delays.lateness.observe(late_ms)
            self._staged_count += 1
            self._staged_bytes += self._context.core.tail.end_offset - log_offset
            self.follower.advance(record.queue_offset + 1, log_offset + 1)

    def _put(self, record: FollowedRecord) -> int | None:
        """Stage what has no short way; return its log offset, None when it is not delivered now."""
        next_offset = record.queue_offset + 1
        message = delivered_message(record)
        if message is None:
            self.follower.pass_over(next_offset, "their properties do not say where they belong")
            return None
        if self._is_of_removed(message.topic, record.log_offset):
            self.follower.pass_over(next_offset, f"their topic {message.topic} was removed")
            return None
        try:
            return put(self._context, message).log_offset
        except RequestFailed as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL:
                self.follower.pass_over(next_offset, error.remark)
            else:
                self._wait(RETRY_S)
            return None

    def _is_of_removed(self, topic: str, log_offset: int) -> bool:
        """Whether a message was sent to a topic that was removed since and not made again."""
        context = self._context
        return context.topics.find(topic) is None and log_offset < context.store.removals.end_of(
            topic
        )

    def _wait(self, delay_s: float) -> None:
        self._wait_s = self._context.clock.monotonic_s() + delay_s


class Delays:
    """Delivers the delayed messages of one broker."""

    def __init__(self, context: "Context", registry: Registry) -> None:
        self.context = context
        self._levels: list[_Level] = []
        self._timer: asyncio.Handle | None = None
        self._timer_s = 0.0
        self._wanted_s = 0.0
        """When the next look is wanted: how late it comes says how long the loop's turns are."""
        self._recovery: asyncio.Task[None] | None = None
        self._due_count = 1
        self._is_delivering = False
        self._look_count = 0
        self._caught_up = Watermark()
        """The newest look after which nothing was due any more, and all that was is written."""
        self.lost = registry.counter(
            "orbitmq_broker_lost_delayed_messages_total",
            "Delayed messages that could not be delivered: damaged, or removed with old files.",
        )
        self.lateness = registry.histogram(
            "orbitmq_broker_delay_lateness_seconds",
            "How late delayed messages were delivered.",
            bits=17,
            scale=0.001,
        )

    def start(self) -> None:
        """Find out what was delivered before the last stop, then begin to deliver; once."""
        if self._recovery is None:
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
        for level in self._levels:
            await level.follower.stop()
        self._look_count += 1
        self._note_caught_up(self._look_count)
        for _ in range(3):
            await asyncio.sleep(0)  # the turn that writes what is staged ends now

    # --- After a start ---

    async def _recover(self) -> None:
        delays = self.context.delays
        while delays.saved_log_offset is not None:
            try:
                await self._find_delivered(delays.saved_log_offset)
                break
            except StoreError as error:
                log.error("delayed messages wait: what was delivered cannot be read: %s", error)
            except Exception:  # a bug of ours: without this task nothing would ever be delivered
                log.exception("delayed messages wait: finding out what was delivered failed")
            await asyncio.sleep(RECOVERY_RETRY_S)
        delays.note_recovered()
        self._levels = [
            _Level(self, number, delay_ms) for number, delay_ms in enumerate(delays.delays_ms, 1)
        ]
        self._is_delivering = True
        self._look()

    async def _find_delivered(self, start: int) -> None:
        store, delays = self.context.store, self.context.delays
        first = max(start, store.first_offset)
        end = store.tail.visible_offset
        views = {
            level: (snapshot(store.queue(SCHEDULE_TOPIC, level - 1)), delays.find(level))
            for level in range(1, delays.level_max + 1)
        }

        def find() -> dict[int, int]:
            copies = find_copies(store.log, first, end)
            return {
                level: behind_delivered(
                    store.reader, view, offset, copies[level], store.removals.end_of
                )
                for level, (view, offset) in views.items()
                if level in copies
            }

        for level, offset in (await self.context.follower_threads.run(find)).items():
            if offset > delays.find(level):
                delays.progress(level).note_written(offset, 0)

    # --- Looking ---

    def look_soon(self) -> None:
        """Have a look in the loop's next turn: the clock or a queue has changed."""
        self._look_in(0.0)

    async def caught_up(self) -> None:
        """Look at once, and return when all that is due is written, or the store takes nothing."""
        if self._recovery is None:
            return
        caught_up = Arrival()
        self._caught_up.wait(self._look_count + 1, caught_up)
        self.look_soon()
        await caught_up.future

    def _note_caught_up(self, look: int) -> None:
        self._caught_up.advance(max(look, self._caught_up.number))
        self._caught_up.wake()

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
        self._wanted_s = self.context.clock.monotonic_s() + delay_s
        self._timer = (
            loop.call_later(delay_s, self._look) if delay_s else loop.call_soon(self._look)
        )

    def _look(self) -> None:
        """Deliver what is due, as much as one turn may take; look again when more is."""
        self._timer = None
        self._look_count += 1
        try:
            wait_s = self._deliver_due()
        except Exception:  # a bug of ours: others' messages must come all the same
            log.exception("delivering delayed messages failed; it is tried again")
            wait_s = LOOK_S
        if wait_s and self._caught_up.waiter_count and not self._is_reading():
            look = self._look_count
            self.context.writer.after_write(lambda _error: self._note_caught_up(look))
        self._look_in(wait_s)

    def _is_reading(self) -> bool:
        return any(level.follower.is_reading for level in self._levels)

    def _deliver_due(self) -> float:
        """Deliver a turn's share of what is due; return in how many seconds to look again."""
        now_ms = self.context.clock.wall_ms()
        due_count = max(1, self._due_count)
        turn_s = share_s(self.context.clock.monotonic_s() - self._wanted_s)
        count_max = int(TURN_COUNT_MAX * turn_s / SLICE_S) // due_count
        share = _Share(
            turn_s / due_count, max(SHARE_LEAST, TURN_COUNT_LEAST // due_count), count_max
        )
        self._due_count = 0
        wait_s = LOOK_S
        for level in self._levels:
            level_wait_s = level.deliver_due(now_ms, share)
            self._due_count += not level_wait_s
            wait_s = min(wait_s, level_wait_s)
        return wait_s
