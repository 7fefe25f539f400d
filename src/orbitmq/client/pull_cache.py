"""Messages that were pulled and wait to be polled, queue by queue, within limits.

In: batches as pulls bring them. Out: messages, queues by turns and each in order; word to pulls
that there is room again.

Rules:
1. A queue's `position` is the offset behind what was handed out, its `done` the offset behind what
   was handed out before the last poll: the program has come back, so it is through with it.
2. Offsets that no message has (filtered ones, the batch's end) count as handed out with the message
   before them.
3. What is in the memory of a paused queue stays there; what is in that of a dropped one is gone,
   and so is all that was pulled before a seek.
"""

import asyncio
from collections import deque

from orbitmq.client.message import ReceivedMessage
from orbitmq.client.pull_settings import PullConsumerSettings
from orbitmq.client.subscriptions import Subscription
from orbitmq.wire.bodies_client import MessageQueue


class _Batch:
    """The messages of one pull that were not handed out yet, and where the next pull began."""

    __slots__ = ("end", "messages", "size_bytes")

    def __init__(self, messages: list[ReceivedMessage], end: int) -> None:
        self.messages = messages
        self.end = end
        self.size_bytes = sum([len(message.body) for message in messages])

    def take(self, count_max: int) -> tuple[list[ReceivedMessage], int]:
        """Return messages and their bytes; they are not in the batch any more."""
        taken, rest = self.messages, self.messages[count_max:]
        if not rest:
            self.messages = []
            return taken, self.size_bytes
        taken, self.messages = taken[:count_max], rest
        size_bytes = sum([len(message.body) for message in taken])
        self.size_bytes -= size_bytes
        return taken, size_bytes


class PulledQueue:
    """One queue that this consumer pulls."""

    def __init__(self, queue: MessageQueue, subscription: Subscription) -> None:
        self.queue = queue
        self.subscription = subscription
        self.is_paused = False
        self.position: int | None = None
        """The offset behind what was handed out; None until it is known where to begin."""
        self.done: int | None = None
        self.committed: int | None = None
        """What the store has, as far as we know."""
        self.floor = 0
        """What another member has stored: nothing below it is due."""
        self.is_settled = False
        """Whether `floor` is known."""
        self.began_s = 0.0
        self.pulling: asyncio.Task[None] | None = None
        self.count = 0
        self.size_bytes = 0
        self._batches: deque[_Batch] = deque()

    def begin(self, offset: int) -> None:
        """Be at an offset; what was pulled before is gone."""
        if offset != self.position:
            self.is_settled = self.position is not None  # a seek is the program's own will
            self.floor = 0
            self.position = self.done = offset
        self.empty()

    @property
    def due_offset(self) -> int | None:
        """What is to be stored; None when nothing is."""
        if self.done is None or self.done == self.committed or self.done < self.floor:
            return None
        return self.done

    def empty(self) -> None:
        """Have nothing in memory."""
        self._batches.clear()
        self.count = self.size_bytes = 0

    def put(self, messages: list[ReceivedMessage], end: int) -> None:
        """Keep what a pull brought; `end` is where the next one begins."""
        if messages:
            batch = _Batch(messages, end)
            self._batches.append(batch)
            self.count += len(messages)
            self.size_bytes += batch.size_bytes
        elif self._batches:
            self._batches[-1].end = end
        else:
            if self.done == self.position:
                self.done = end
            self.position = end

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Hand out messages of the first batch."""
        batch = self._batches[0]
        taken, size_bytes = batch.take(count_max)
        if batch.messages:
            self.position = taken[-1].queue_offset + 1
        else:
            self.position = batch.end
            self._batches.popleft()
        self.count -= len(taken)
        self.size_bytes -= size_bytes
        return taken

    @property
    def has_messages(self) -> bool:
        """Whether something waits to be handed out."""
        return bool(self._batches)

    @property
    def span(self) -> int:
        """How far apart the first and the last offset in memory are."""
        if not self._batches:
            return 0
        first, last = self._batches[0].messages[0], self._batches[-1].messages[-1]
        return last.queue_offset - first.queue_offset


class PullCache:
    """What one consumer has in memory."""

    def __init__(self, settings: PullConsumerSettings) -> None:
        self._settings = settings
        self._count = 0
        self._ready: deque[PulledQueue] = deque()
        self._handed: set[PulledQueue] = set()
        self._wants_room: list[asyncio.Future[None]] = []
        self._wants_messages: asyncio.Future[None] | None = None

    # --- coming in ---

    def put(self, pulled: PulledQueue, messages: list[ReceivedMessage], end: int) -> None:
        """Keep what a pull brought."""
        was_ready = pulled.has_messages
        pulled.put(messages, end)
        self._count += len(messages)
        if pulled.has_messages and not was_ready and not pulled.is_paused:
            self._make_ready(pulled)

    def _make_ready(self, pulled: PulledQueue) -> None:
        self._ready.append(pulled)
        if self._wants_messages is not None and not self._wants_messages.done():
            self._wants_messages.set_result(None)

    def has_room(self, pulled: PulledQueue) -> bool:
        """Whether a queue may be pulled."""
        limits = self._settings
        return (
            not pulled.is_paused
            and self._count <= limits.messages_max
            and pulled.count <= limits.queue_messages_max
            and pulled.size_bytes <= limits.queue_bytes_max
            and pulled.span <= limits.queue_span_max
        )

    async def wait_room(self, pulled: PulledQueue) -> None:
        """Return when a queue may be pulled."""
        while not self.has_room(pulled):
            wanted = asyncio.get_running_loop().create_future()
            self._wants_room.append(wanted)
            await wanted

    def _tell_room(self) -> None:
        wanted, self._wants_room = self._wants_room, []
        for each in wanted:
            if not each.done():
                each.set_result(None)

    # --- going out ---

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Hand out messages of the next queue; none when there are none.

        What was handed out before is done (rule 1).
        """
        self.settle()
        if not self._ready:
            return []
        pulled = self._ready[0]
        taken = pulled.take(count_max)
        if not pulled.has_messages:
            self._ready.popleft()
        else:
            self._ready.rotate(-1)
        self._count -= len(taken)
        self._handed.add(pulled)
        if self._wants_room:
            self._tell_room()
        return taken

    def settle(self) -> None:
        """Count all that was handed out as done."""
        if self._handed:
            for pulled in self._handed:
                pulled.done = pulled.position
            self._handed.clear()

    async def wait_messages(self, timeout_s: float) -> None:
        """Return when there are messages, when the time is over, or when somebody says `wake`."""
        if self._ready:
            return
        self._wants_messages = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wants_messages
        except TimeoutError:
            pass
        finally:
            self._wants_messages = None

    @property
    def is_polled(self) -> bool:
        """Whether somebody waits for messages."""
        return self._wants_messages is not None

    def wake(self) -> None:
        """Let a poll return without messages."""
        if self._wants_messages is not None and not self._wants_messages.done():
            self._wants_messages.set_result(None)

    # --- queues come and go ---

    def pause(self, pulled: PulledQueue) -> None:
        """Pull nothing more of a queue and hand out nothing of it."""
        pulled.is_paused = True
        if pulled in self._ready:
            self._ready.remove(pulled)

    def resume(self, pulled: PulledQueue) -> None:
        """Go on with a paused queue."""
        if pulled.is_paused:
            pulled.is_paused = False
            if pulled.has_messages:
                self._make_ready(pulled)
            self._tell_room()

    def forget(self, pulled: PulledQueue) -> None:
        """Throw away what is in memory of a queue."""
        self._count -= pulled.count
        if pulled in self._ready:
            self._ready.remove(pulled)
        pulled.empty()
        self._tell_room()
