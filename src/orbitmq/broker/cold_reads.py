"""Old messages: read from the files in threads, so that a slow disk stops nobody else.

In: pulls and queries whose messages are not in memory. Out: their answers, later.

Rules:
1. The queue is looked at on the loop (a snapshot); the thread touches files only.
2. A few threads serve all. Who waits for one is bounded in number: above it requests are refused as
   busy. Whose connection or time is over waits no more, and is never read for.
3. A disk that refuses is answered with the cause, never with "no message".
4. What is read is limited as in the original: recent messages by the limits for messages in memory,
   though their entries come from a file, others by those for messages on disk.
"""

import asyncio
import functools
import logging
from collections.abc import Callable

from orbitmq.broker.pulls import Pull, found_parts
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import RequestFailed, StoreError
from orbitmq.net.connection import Parts
from orbitmq.net.later import Later
from orbitmq.store.reading import ColdLimits, EntryFilter, QueueView, gather_cold, snapshot
from orbitmq.store.store import Store
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.world.threads import Threads

log = logging.getLogger(__name__)

THREAD_COUNT = 4
TIMEOUT_S = 20.0
WAITING_MAX = 1_024
"""Reads that wait for a thread."""
SCAN_COUNT = 1_024
"""More entries than one look goes over."""


class _Read:
    """One read that is owed."""

    def __init__(self, request: Command, read: Callable[[], Command | Parts]) -> None:
        self.request = request
        self.read = read
        self.later: Later


class ColdReads:
    """Reads old messages for one broker."""

    def __init__(self, store: Store, recent_limits: ColdLimits, old_limits: ColdLimits) -> None:
        self._store = store
        self._recent_limits = recent_limits
        self._old_limits = old_limits
        self._threads = Threads(THREAD_COUNT, "read")
        self._waiting: dict[_Read, None] = {}
        self._running = 0
        self._is_closed = False
        self.count = 0
        """Pulls that were read from the files."""

    @property
    def waiting_count(self) -> int:
        """How many reads wait for a thread."""
        return len(self._waiting)

    def pull(self, pull: Pull) -> Later:
        """Begin to read the messages of a pull; give the answer that is owed."""
        self.count += 1
        view = snapshot(pull.queue, pull.queue_offset, SCAN_COUNT)
        hot_offset = self._store.tail.hot_offset

        def read() -> Parts:
            limits = self._limits(view, pull.queue_offset, hot_offset)
            chosen = EntryFilter(pull.codes)
            found = gather_cold(
                self._store.reader, view, pull.queue_offset, pull.count_max, chosen, limits
            )
            return found_parts(pull, found)

        return self.answer(pull.request, read)

    def _limits(self, view: QueueView, queue_offset: int, hot_offset: int) -> ColdLimits:
        """Give how much a pull may take: that depends on where its first record lies."""
        entry = self._store.reader.entries(view, max(queue_offset, view.min_offset), 1)
        if len(entry) != ENTRY_SIZE:
            return self._old_limits
        log_offset, _, _ = ENTRY.unpack(entry)
        return self._recent_limits if log_offset >= hot_offset else self._old_limits

    def answer(self, request: Command, read: Callable[[], Command | Parts]) -> Later:
        """Make an answer in a thread that may read files; give the answer that is owed.

        Raises RequestFailed when too many wait already.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise RequestFailed(
                ResponseCode.SYSTEM_BUSY,
                f"{WAITING_MAX} requests for old messages wait for the disk already; ask again"
                " later, or have fewer consumers read old messages at a time",
            )
        one = _Read(request, read)
        one.later = Later(TIMEOUT_S, lambda: self._too_slow(one), lambda: self._forget(one))
        self._waiting[one] = None
        self._begin_next()
        return one.later

    def close(self) -> None:
        """End the threads; what they are at is finished first."""
        self._is_closed = True
        self._waiting.clear()
        self._threads.close()

    def _begin_next(self) -> None:
        """Give free threads something to read."""
        while self._waiting and self._running < THREAD_COUNT:
            one = next(iter(self._waiting))
            self._forget(one)
            self._running += 1
            future = self._threads.run(one.read)
            future.add_done_callback(functools.partial(self._done, one))

    def _done(self, one: _Read, future: "asyncio.Future[Command | Parts]") -> None:
        self._running -= 1
        one.later.answer(_outcome(one.request, future))
        if not self._is_closed:
            self._begin_next()

    def _forget(self, one: _Read) -> None:
        self._waiting.pop(one, None)

    def _too_slow(self, one: _Read) -> Command:
        self._forget(one)
        return reply_to(
            one.request,
            ResponseCode.SYSTEM_ERROR,
            f"the disk took more than {TIMEOUT_S:g} s to read these messages; ask again",
        )


def _outcome(request: Command, done: "asyncio.Future[Command | Parts]") -> Command | Parts:
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, RequestFailed):
        return reply_to(request, error.code, error.remark)
    if not isinstance(error, StoreError):
        log.error("reading old messages failed", exc_info=error)
    return reply_to(request, ResponseCode.SYSTEM_ERROR, f"cannot read the messages: {error}")
