"""Pulls of stored records for Spark: patient with brokers, exact about what is missing.

In: a queue and the offsets [begin, end) of it. Out: the records of these offsets as they came,
piece by piece and in order.

Rules:
1. Without a filter several pulls are on their way at offsets that are foreseen, one after the
   other: see `PullPace`. An answer with fewer messages is filled up by pulls behind it.
2. With a filter brokers leave out messages, so a pull goes where the one before it said.
3. A broker that does not answer is asked again until the time-out. One that answers that messages
   are gone, or that its queue ends too early, is believed after the retries: see `Lost`.
4. What is under way or waits to be taken is at most WINDOW_BYTES, about.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from orbitmq.client.pulling import Puller, PullStatus, RawPull
from orbitmq.client.subscriptions import Selector, Subscription
from orbitmq.errors import MQError
from orbitmq.spark.cluster import PASSING, Cluster, QueueFailed
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.wire.bodies_client import MessageQueue

WINDOW_BYTES = 4 << 20
WINDOW_COUNT_MAX = 64
"""Pulls on their way at a time: brokers answer them one after the other anyway."""
FULL_COUNT = 16
"""After so many full answers the next ones are asked to be larger."""
ATTEMPT_S = 10.0
"""One attempt of a pull waits so long for its answer."""
PAUSE_S = 0.1
"""Between attempts."""


class Piece(NamedTuple):
    """Records of the offsets [begin, end), and how many of these are gone."""

    body: bytes
    begin: int
    end: int
    lost_count: int = 0


class PullPace:
    """How many messages a pull asks for, and how many pulls may be on their way.

    A pull asks for as many as brokers gave when they were asked for more, and for twice as many
    after FULL_COUNT answers that gave all: messages may have become smaller.
    """

    def __init__(self, first: Piece, step_max: int) -> None:
        self.step = max(1, first.end - first.begin - first.lost_count)
        self._step_max = step_max
        self._body_size = len(first.body)
        self._full_count = 0

    @property
    def window(self) -> int:
        """How many pulls may be on their way (rule 4)."""
        return min(WINDOW_COUNT_MAX, max(2, WINDOW_BYTES // max(1, self._body_size)))

    def note(self, pieces: list[Piece]) -> None:
        """Learn from what one pull, and those that filled it up, have given."""
        first, last = pieces[0], pieces[-1]
        if not first.body:
            return
        self._body_size = len(first.body)
        if first.end < last.end:
            self.step, self._full_count = first.end - first.begin, 0
            return
        self._full_count += 1
        if self._full_count == FULL_COUNT:
            self.step, self._full_count = min(2 * self.step, self._step_max), 0


class QueuePulls:
    """Pulls of one queue, on the loop in the background."""

    def __init__(self, cluster: Cluster, options: TopicOptions, queue: MessageQueue) -> None:
        self._cluster = cluster
        self._options = options
        self._queue = queue
        self._wired = cluster.wire_queue(queue)
        self._is_filtered = options.selector is not None
        self._subscription = Subscription(
            self._wired.topic, options.selector or Selector.tags(), version=0
        )
        self._puller: Puller | None = None

    async def pull(self, offset: int, count_max: int) -> RawPull:
        """Pull from an offset on, until the time-out (rule 3); raises QueueFailed."""
        puller = await self._made_puller()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.pull_timeout_ms / 1000
        while True:
            left_s = deadline_s - loop.time()
            try:
                return await puller.pull_raw(
                    self._wired,
                    self._subscription,
                    offset,
                    count_max=count_max,
                    bytes_max=self._options.pull_max_bytes,
                    timeout_s=max(PAUSE_S, min(ATTEMPT_S, left_s)),
                    sends_expression=True,
                    is_bulk=True,
                )
            except MQError as error:
                if not isinstance(error, PASSING) or left_s <= PAUSE_S:
                    raise QueueFailed(f"what is at offset {offset}", self._queue, error) from error
            await asyncio.sleep(PAUSE_S)

    async def _made_puller(self) -> Puller:
        if self._puller is None:
            group = self._cluster.wrap(self._options.group)
            self._puller = Puller(await self._cluster.instance(), group)
        return self._puller

    async def pieces(self, begin: int, end: int) -> AsyncIterator[Piece]:
        """Return the records of [begin, end), in order (rules 1 and 2)."""
        first = await self._piece(begin, end, self._options.pull_batch_size)
        yield first
        rest = self._chain(first.end, end) if self._is_filtered else self._foreseen(first, end)
        async for piece in rest:
            yield piece

    async def _chain(self, begin: int, end: int) -> AsyncIterator[Piece]:
        """Return pieces one after the other; the next one is asked for before it is wanted."""
        loop = asyncio.get_running_loop()
        count_max = self._options.pull_batch_size
        coming: asyncio.Task[Piece] | None = None
        try:
            while begin < end:
                piece = await (coming or self._piece(begin, end, count_max))
                begin = piece.end
                coming = None
                if begin < end:
                    coming = loop.create_task(self._piece(begin, end, count_max))
                yield piece
        finally:
            if coming is not None:
                _give_up(coming)

    async def _foreseen(self, first: Piece, end: int) -> AsyncIterator[Piece]:
        loop = asyncio.get_running_loop()
        coming: deque[asyncio.Task[list[Piece]]] = deque()
        at, pace = first.end, PullPace(first, self._options.pull_batch_size)
        try:
            while at < end or coming:
                while at < end and len(coming) < pace.window:
                    until = min(at + pace.step, end)
                    coming.append(loop.create_task(self._filled(at, until)))
                    at = until
                pieces = await coming.popleft()
                pace.note(pieces)
                for piece in pieces:
                    yield piece
        finally:
            for task in coming:
                _give_up(task)

    async def _filled(self, begin: int, end: int) -> list[Piece]:
        pieces = []
        while begin < end:
            piece = await self._piece(begin, end, end - begin)
            pieces.append(piece)
            begin = piece.end
        return pieces

    async def _piece(self, begin: int, end: int, count_max: int) -> Piece:
        """Return what one answer has of [begin, end), or what it says is gone."""
        retries = self._options.retries
        left = retries.count
        while True:
            answer = await self.pull(begin, max(1, min(count_max, end - begin)))
            if answer.next_offset > begin:
                until = min(end, answer.next_offset)
                return Piece(answer.body, begin, until, self._lost(answer.status, until - begin))
            if not left:
                return Piece(b"", begin, end, end - begin)  # the queue ends too early
            left -= 1
            await asyncio.sleep(retries.interval_s)

    def _lost(self, status: PullStatus, count: int) -> int:
        """Return how many of the offsets that an answer steps over are gone."""
        if status is PullStatus.FOUND:
            return 0
        is_choice = self._is_filtered and status is PullStatus.NO_MATCHED_MSG
        return 0 if is_choice else count


def _give_up(task: asyncio.Task[Any]) -> None:
    """End a pull that nobody waits for any more; the one before it reports why it failed."""
    task.cancel()
    if task.done() and not task.cancelled():
        task.exception()
