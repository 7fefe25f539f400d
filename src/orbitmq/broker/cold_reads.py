"""Old messages: read from the files in threads, so that a slow disk stops nobody else.

In: pulls and queries whose messages are not in memory. Out: their answers, later.

Rules:
1. The queue is looked at on the loop (a snapshot); the thread touches files only.
2. A few threads serve all, one at a time while reads are quick: what is in the page cache costs the
   interpreter's time, which the loop needs. Beside one that takes `SLOW_S`, another is begun.
3. Connections take turns, so that nobody waits for all that another asked.
   What waits is bounded in number: above it the newest read of the connection that has most in line
   is refused as busy; it has no limit of its own.
4. Whose connection or time is over waits no more, and is never read for. For a connection that does
   not read its answers nothing more is read until it does.
5. A disk that refuses is answered with the cause, never with "no message".
6. What is read is limited (`FileLimits`) as in the original; recent messages whose entries come
   from a file count as those in memory.
7. A look ends when its filter has worked for `selecting.LOOK_S`, with what was found so far.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from orbitmq.broker.fair_line import FairLine
from orbitmq.broker.pulls import Note, Pull, found_parts
from orbitmq.broker.selecting import TimedFilter
from orbitmq.core import Gathered
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import RequestFailed, StoreError
from orbitmq.net.connection import Connection, Parts
from orbitmq.net.later import Later
from orbitmq.store.reading import ColdLimits, EntryFilter, QueueView, gather_cold, snapshot
from orbitmq.store.store import Store
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.world.clock import Clock
from orbitmq.world.threads import Threads

log = logging.getLogger(__name__)

T = TypeVar("T")

THREAD_COUNT = 4
SLOW_S = 0.01
"""A read that takes longer most likely waits for the disk, not for the interpreter."""
TIMEOUT_S = 20.0
WAITING_MAX = 1_024
"""Reads that wait for a thread."""
BULK_FILE_COUNT_MAX = 256
"""Records that a bulk pull gets from the files at a time: each is checked, which takes a while."""
SCAN_COUNT = 1_024
"""More entries than one look goes over."""


class FileLimits(NamedTuple):
    """How much one answer takes from the files."""

    recent: ColdLimits
    """For recent messages."""
    old: ColdLimits
    """For all others."""
    bulk: ColdLimits | None
    """For pulls that ask for much at a time; None: they are like others."""


class _Read:
    """One read that is owed: what to do in a thread, and who gets its outcome on the loop.

    `refuse` is told when it had to make room for another.
    """

    def __init__(
        self,
        read: Callable[[], Any],
        settle: "Callable[[asyncio.Future[Any]], None]",
        refuse: Callable[[RequestFailed], None],
    ) -> None:
        self.read = read
        self.settle = settle
        self.refuse = refuse
        self.timer: asyncio.TimerHandle | None = None
        """Until it is slow, while it runs."""


class _PullRead(NamedTuple):
    """What a pull got, and how long it took."""

    found: Gathered
    took_s: float


class ColdReads:
    """Reads old messages for one broker."""

    def __init__(
        self,
        store: Store,
        limits: FileLimits,
        *,
        clock: Clock,
        note: Note,
    ) -> None:
        """`note` is told of every pull's outcome, on the loop."""
        self._store = store
        self._now_s = clock.monotonic_s
        self._note = note
        self.limits = limits
        """How much further pulls may take."""
        self._threads = Threads(THREAD_COUNT, "read")
        self._waiting: FairLine[Connection, _Read] = FairLine(WAITING_MAX)
        self._running = 0
        self._slow = 0
        self._is_closed = False
        self.count = 0
        """Pulls that were read from the files."""

    @property
    def waiting_count(self) -> int:
        """How many reads wait for a thread."""
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """How many reads are at it."""
        return self._running

    def pull(self, owner: Connection, pull: Pull) -> Later:
        """Begin to read the messages of a pull for a connection; return the answer that is owed.

        Raises RequestFailed when too many wait already.
        """
        self.count += 1
        view = snapshot(pull.queue, pull.queue_offset, SCAN_COUNT)
        hot_offset = self._store.tail.hot_offset

        timed = TimedFilter(pull.accepts, self._now_s) if pull.accepts is not None else None

        def read() -> _PullRead:
            begin_s = self._now_s()
            limits = self._limits(view, pull, hot_offset)
            chosen = EntryFilter(pull.codes)
            if timed is not None:
                chosen = EntryFilter(pull.codes, timed.accepts, pull.may_accept, timed.is_late)
            found = gather_cold(
                self._store.reader, view, pull.queue_offset, pull.count_max, chosen, limits
            )
            return _PullRead(found, self._now_s() - begin_s)

        def answer(read: _PullRead) -> Parts:
            self._note(pull, read.found, read.took_s)
            return found_parts(pull, read.found)

        return self._answer(owner, pull.request, read, answer)

    def _limits(self, view: QueueView, pull: Pull, hot_offset: int) -> ColdLimits:
        """Return how much a pull may take: unless it is bulk, by where its first record lies."""
        limits = self.limits.bulk if pull.is_bulk else None
        if limits is None:
            entry = self._store.reader.entries(view, max(pull.queue_offset, view.min_offset), 1)
            is_recent = len(entry) == ENTRY_SIZE and ENTRY.unpack(entry)[0] >= hot_offset
            limits = self.limits.recent if is_recent else self.limits.old
        if pull.bytes_max is not None:
            limits = limits._replace(bytes_max=min(limits.bytes_max, pull.bytes_max))
        return limits

    def answer(
        self, owner: Connection, request: Command, read: Callable[[], Command | Parts]
    ) -> Later:
        """Make an answer in a thread that may read files; return the answer that is owed.

        Raises RequestFailed when too many wait already.
        """
        return self._answer(owner, request, read, lambda made: made)

    def _answer(
        self,
        owner: Connection,
        request: Command,
        read: Callable[[], T],
        made: Callable[[T], Command | Parts],
    ) -> Later:
        """Read in a thread; make the answer of what was read on the loop."""
        one = _Read(
            read,
            lambda future: later.answer(_outcome(request, future, made)),
            lambda error: later.answer(reply_to(request, error.code, error.remark)),
        )
        later = Later(
            TIMEOUT_S,
            lambda: self._too_slow(owner, one, request),
            lambda: self._waiting.forget(one),
        )
        self._add(owner, one)
        return later

    def value(self, owner: Connection, read: Callable[[], T]) -> "asyncio.Future[T]":
        """Run something in a thread that may read files; return what it gives, as a future.

        Raises RequestFailed when too many wait already. A future that is cancelled in time is never
        read for.
        """
        value: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        one = _Read(
            read,
            lambda future: _hand_on(future, value),
            lambda error: None if value.done() else value.set_exception(error),
        )
        self._add(owner, one)
        value.add_done_callback(lambda _value: self._waiting.forget(one))
        return value

    def _add(self, owner: Connection, one: _Read) -> None:
        if owner.has_peer_left:  # what is owed to it is about to be cancelled
            return
        refused = self._waiting.add(owner, one)
        if refused is one:
            raise _busy()
        if refused is not None:
            refused.refuse(_busy())
        self._begin_next()

    def close(self) -> None:
        """End the threads; what they are at is finished first."""
        self._is_closed = True
        self._waiting.clear()
        self._threads.close()

    def _begin_next(self) -> None:
        """Give free threads something to read."""
        while self._has_room() and (owner := self._waiting.first()) is not None:
            if owner.is_undrained:
                self._waiting.rest(owner)
                owner.when_drained(functools.partial(self._go_on, owner))
                continue
            self._begin(self._waiting.take())

    def _has_room(self) -> bool:
        return self._running < min(THREAD_COUNT, 1 + self._slow)

    def _begin(self, one: _Read) -> None:
        self._running += 1
        one.timer = asyncio.get_running_loop().call_later(SLOW_S, self._is_slow, one)
        future = self._threads.run(one.read)
        future.add_done_callback(functools.partial(self._done, one))

    def _is_slow(self, one: _Read) -> None:
        """Begin another read beside one that takes long."""
        one.timer = None
        self._slow += 1
        if not self._is_closed:
            self._begin_next()

    def _go_on(self, owner: Connection) -> None:
        """Read again for a connection that has taken its answers, or is gone."""
        self._waiting.go_on(owner)
        if not self._is_closed:
            self._begin_next()

    def _done(self, one: _Read, future: "asyncio.Future[Any]") -> None:
        self._running -= 1
        if one.timer is None:
            self._slow -= 1
        else:
            one.timer.cancel()
        one.settle(future)
        if not self._is_closed:
            self._begin_next()

    def _too_slow(self, owner: Connection, one: _Read, request: Command) -> Command:
        self._waiting.forget(one)
        cause = f"the disk took more than {TIMEOUT_S:g} s to read these messages; ask again"
        if owner.is_undrained:
            cause = (
                f"for {TIMEOUT_S:g} s nothing could be read, as earlier answers of this connection"
                " are not taken; take them, then ask again"
            )
        return reply_to(request, ResponseCode.SYSTEM_ERROR, cause)


def _busy() -> RequestFailed:
    return RequestFailed(
        ResponseCode.SYSTEM_BUSY,
        f"{WAITING_MAX} requests for old messages wait for the disk already; ask again"
        " later, or have fewer consumers read old messages at a time",
    )


def _hand_on(done: "asyncio.Future[T]", value: "asyncio.Future[T]") -> None:
    error = done.exception()
    if value.done():
        return
    if error is None:
        value.set_result(done.result())
    else:
        value.set_exception(error)


def _outcome(
    request: Command, done: "asyncio.Future[T]", made: Callable[[T], Command | Parts]
) -> Command | Parts:
    error = done.exception()
    if error is None:
        return made(done.result())
    if isinstance(error, RequestFailed):
        return reply_to(request, error.code, error.remark)
    if not isinstance(error, StoreError):
        log.error("reading old messages failed", exc_info=error)
    return reply_to(request, ResponseCode.SYSTEM_ERROR, f"cannot read the messages: {error}")
