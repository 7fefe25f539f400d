"""The messages of one queue that a consumer has in hand: pulled, and not consumed yet.

In: the messages of pulls, and word of those that are done. Out: how far the group is in the queue,
whether there is room for more, and what is stuck.

Rules:
1. Messages come in the order of their offsets. The progress is the smallest offset in hand, or
   where the next pull begins when none is: everything before it was consumed or returned.
2. A dropped queue is another member's: it takes no messages, and nothing done later counts.
3. For an orderly consumer the messages in hand lie in `waiting`, in order, except the ones that the
   handler has.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from orbitmq.client.message import ReceivedMessage
from orbitmq.wire.bodies_client import MessageQueue

MIB = 1_048_576


class Job(msgspec.Struct, eq=False):
    """Messages that one call of the handler gets."""

    process_queue: "ProcessQueue"
    messages: list[ReceivedMessage]
    started_s: float | None = None
    """When the handler began, by the loop's clock; None while it has not."""
    ended_s: float = 0.0
    answer: asyncio.Future[BaseException | None] | None = None
    """Who waits for the outcome, if somebody does."""


class Room:
    """How much one queue may have in hand; see the settings of the same names."""

    __slots__ = ("bytes_max", "count_max", "span_max")

    def __init__(self, count_max: int, bytes_max: int, span_max: int | None) -> None:
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.span_max = span_max


class ProcessQueue:
    """One queue of a consumer."""

    def __init__(self, queue: MessageQueue, next_offset: int, now_s: float) -> None:
        self.queue = queue
        self.next_offset = next_offset
        """Where the next pull begins."""
        self.began_s = now_s
        self.size_bytes = 0
        self.is_dropped = False
        self.is_known = False
        """Whether a pull was answered: before that there is no progress to store."""
        self.puller: asyncio.Task[None] | None = None
        self.pulled_s = now_s
        self.consumed_s = now_s
        # Of commits (see committing).
        self.is_settled = False
        self.committed: int | None = None
        self.committing: asyncio.Future[None] | None = None
        # Of orderly consumers.
        self.waiting: deque[ReceivedMessage] = deque()
        self.is_running = False
        self.is_handling = False
        self.locked_until_s: float | None = None
        self.locked_s = 0.0
        self._in_hand: dict[int, Job | None] = {}
        self._order: deque[int] = deque()
        self._last_offset = -1
        self._room: tuple[Room, asyncio.Future[None]] | None = None
        self._idle: asyncio.Future[None] | None = None

    # --- messages come and go ---

    def take(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Have these in hand; give those that are new, in order."""
        in_hand, order, last_offset = self._in_hand, self._order, self._last_offset
        fresh, size_bytes = [], 0
        for message in messages:
            offset = message.queue_offset
            if offset <= last_offset:
                continue
            last_offset = offset
            in_hand[offset] = None
            order.append(offset)
            size_bytes += len(message.body)
            fresh.append(message)
        self._last_offset = last_offset
        self.size_bytes += size_bytes
        return fresh

    def assign(self, jobs: Iterable[Job]) -> None:
        """Remember whose call the messages of jobs are part of."""
        in_hand = self._in_hand
        for job in jobs:
            for message in job.messages:
                in_hand[message.queue_offset] = job

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Have these in hand no more; return how many were."""
        in_hand, order = self._in_hand, self._order
        count = len(in_hand)
        for message in messages:
            offset = message.queue_offset
            if offset in in_hand:
                del in_hand[offset]
                self.size_bytes -= len(message.body)
        while order and order[0] not in in_hand:
            order.popleft()
        while order and order[-1] not in in_hand:
            order.pop()
        if not in_hand:
            self.size_bytes = 0
        if self._room is not None:
            self._tell_room()
        return count - len(in_hand)

    def has(self, message: ReceivedMessage) -> bool:
        """Whether a message is in hand."""
        return message.queue_offset in self._in_hand

    @property
    def count(self) -> int:
        """How many messages are in hand."""
        return len(self._in_hand)

    @property
    def span(self) -> int:
        """How far apart the first and the last offset in hand are."""
        return self._order[-1] - self._order[0] if self._order else 0

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and the last offset in hand; zeros without any."""
        return (self._order[0], self._order[-1]) if self._order else (0, 0)

    @property
    def progress(self) -> int | None:
        """The offset at which the next owner would go on; None while it is not known."""
        if self._order:
            return self._order[0]
        return self.next_offset if self.is_known else None

    def stuck_job(self, since_s: float) -> Job | None:
        """Return the job of the first message, if its handler began before `since_s`."""
        job = self._in_hand[self._order[0]] if self._order else None
        if job is None or job.started_s is None or job.started_s > since_s:
            return None
        return job

    # --- room ---

    def has_room(self, room: Room) -> bool:
        """Whether more may be pulled."""
        return (
            len(self._in_hand) <= room.count_max
            and self.size_bytes <= room.bytes_max
            and (room.span_max is None or self.span <= room.span_max)
        )

    async def wait_room(self, room: Room) -> None:
        """Return when there is room, or the queue is dropped."""
        if self.is_dropped or self.has_room(room):
            return
        waiting = asyncio.get_running_loop().create_future()
        self._room = room, waiting
        try:
            await waiting
        finally:
            self._room = None

    def _tell_room(self) -> None:
        if self._room is not None:
            room, waiting = self._room
            if not waiting.done() and (self.is_dropped or self.has_room(room)):
                waiting.set_result(None)

    # --- the end ---

    def stop_pulling(self) -> None:
        """Ask for no more messages."""
        if self.puller is not None:
            self.puller.cancel()

    def drop(self) -> None:
        """Have nothing to do with the queue any more (rule 2)."""
        self.is_dropped = True
        self._tell_room()
        self.stop_pulling()

    async def wait_unhandled(self) -> None:
        """Return when no handler has messages of this (orderly) queue."""
        while self.is_handling:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def handled(self) -> None:
        """Say that the handler has given back what it had (orderly)."""
        self.is_handling = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
