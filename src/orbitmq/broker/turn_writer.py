"""The writer of a turn: what is staged is written at its end, then every answer that it made true.

In: answers to what was staged in this turn, and calls that wait for its write. Out: one write, then
the answers; the queues that grew, for those who wait for them.

Rules:
1. An answer that depends on the log leaves when its records may be seen: after the write, with
   synchronous flush after the sync, or as timed out. The store decides which (`Store.require`). One
   to a send that made its topic waits for the topic's file as well.
2. When the write is refused, every staged answer that said "stored" becomes an error that says why;
   nothing of that turn was stored. When it fails in a way nobody foresaw, all are disconnected.
3. Who waits for the write is told before anything of the turn goes out.
"""

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from orbitmq.broker.answers import SentWhenTrue, as_failed, as_refused, send_turned
from orbitmq.broker.flushing import Flusher
from orbitmq.broker.keeping import Keeper
from orbitmq.broker.overload import SLOW_WRITE_S, Overload
from orbitmq.broker.repeated_failures import RepeatedFailure
from orbitmq.broker.topics import TopicTable
from orbitmq.config import BrokerSettings
from orbitmq.core import Queue
from orbitmq.errors import StoreError
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Parts
from orbitmq.net.later import Arrival, Deadlines
from orbitmq.net.turn import Turn
from orbitmq.store.store import Store
from orbitmq.watermark import Call
from orbitmq.world.clock import Clock

log = logging.getLogger(__name__)


class WriterParts(NamedTuple):
    """What the writer works with."""

    store: Store
    topics: TopicTable
    flusher: Flusher
    keeper: Keeper
    overload: Overload
    deadlines: Deadlines
    on_seen: Collection[Callable[[set[Queue]], None]]
    """Called in this order with the queues that grew, when that may be seen."""


_Staged = tuple[Connection, Parts, bool]
"""Answers to one connection, and whether they say something of records that may be seen when they
leave. One is made for each read that brings sends."""


class TurnWriter:
    """Writes what one broker stages, once a turn."""

    def __init__(self, parts: WriterParts, turn: Turn, clock: Clock, registry: Registry) -> None:
        self._parts = parts
        self._store = parts.store
        self._tail = parts.store.tail
        self._turn = turn
        self._staged: list[_Staged] = []
        self._timeout_s = 0.0
        self._write_failures = RepeatedFailure(log, clock)
        self._write_sizes = registry.histogram(
            "orbitmq_store_write_bytes", "Sizes of the log's writes, one per turn of the loop."
        )
        self._timed_out = registry.counter(
            "orbitmq_store_sync_timeouts_total",
            "Answers that said `not synced in time` because the disk was too slow.",
        )
        parts.flusher.on_synced = self._note_seen
        turn.before_write(self.end_turn)

    def obey(self, settings: BrokerSettings) -> None:
        """Let answers wait as long as syncFlushTimeout says."""
        self._timeout_s = settings.sync_flush_timeout / 1000

    # --- Staging ---

    def stage_hot(self, connection: Connection, answers: Parts) -> None:
        """Keep answers of the hot path, which knows no topic that is not saved."""
        self._staged.append((connection, answers, True))
        if not self._turn.is_requested:
            self._turn.request()

    def stage_answers(
        self, connection: Connection, answers: Parts, topic: str, *, waits_for_sync: bool = True
    ) -> None:
        """Keep answers until the log is written at the end of this turn, and synced if it must.

        Those to the first messages of a topic wait until it is saved, too.
        """
        if not answers or topic not in self._parts.topics.unsaved:
            self._staged.append((connection, answers, waits_for_sync))
            self._turn.request()
            return

        def written(refused: StoreError | None) -> None:
            if refused is not None:
                send_turned(connection, answers, partial(as_refused, cause=str(refused)))
                return
            log_end = self._tail.written_offset if waits_for_sync else 0
            self.when_saved(topic, partial(self._answer, connection, answers, log_end))

        self.after_write(written)

    def when_saved(self, topic: str, done: Callable[[], None]) -> None:
        """Have `done` called when the topic is in its file: at once, or after the next save."""
        mark = self._parts.topics.unsaved.get(topic)
        if mark is None:
            done()
        else:
            self._parts.keeper.after_save(self._parts.topics.file, mark, done)

    def request_write(self) -> None:
        """Have what is staged written at the end of this turn, though nobody waits for it."""
        self._turn.request()

    def after_write(self, done: Callable[[StoreError | None], None]) -> None:
        """Have `done` called once this turn's records are written, or with the error if not.

        It is called before anything of the turn goes out. It may stage for the next turn, and must
        not raise.
        """
        self._tail.written.wait(self._tail.end_offset, Call(done))
        self._turn.request()

    # --- The end of the turn ---

    def end_turn(self) -> None:
        """Write what is staged, let its answers go, wake the reads that wait for it."""
        tail = self._tail
        if not self._staged and not tail.staged and not tail.written.waiter_count:
            return
        staged, self._staged = self._staged, []
        start = tail.written_offset
        try:
            grown = self._store.write_staged()
        except StoreError as error:
            self._refuse(staged, error)
        except Exception as error:  # what nobody foresaw: none may wait, none be told "stored"
            self._tell_written(StoreError(f"the log was not written: {error!r}"))
            for connection, _, _ in staged:
                connection.drop("internal-error")
            raise
        else:
            self._write_sizes.observe(tail.written_offset - start)
            self._acknowledge(staged, grown)
        # What was called here may have staged more, for the next turn.
        if tail.staged or tail.written.waiter_count:
            self._turn.loop.call_soon(self._turn.request)

    def _refuse(self, staged: list[_Staged], error: StoreError) -> None:
        """Tell everybody that nothing of this turn was stored."""
        self._write_failures.report(str(error))
        self._tell_written(error)
        for connection, answers, _ in staged:
            send_turned(connection, answers, partial(as_refused, cause=str(error)))
        self._store.wake()  # it may have been halted

    def _acknowledge(self, staged: list[_Staged], grown: set[Queue]) -> None:
        """Let go what is true now that this turn is written."""
        if self._store.stats.last_put_s > SLOW_WRITE_S:
            self._parts.overload.note_slow_write(self._store.stats.last_put_s)
        self._tell_written(None)
        log_end = self._tail.written_offset
        is_visible = self._tail.visible.number >= log_end
        for connection, answers, waits in staged:
            if is_visible or not waits:
                connection.send_parts(answers)
            else:
                self._answer(connection, answers, log_end)
        self._parts.flusher.note_written()
        self._note_seen(grown)

    def _tell_written(self, error: StoreError | None) -> None:
        """Tell those who wait for this turn's write what became of it."""
        try:
            if error is None:
                self._tail.written.wake()
            else:
                self._tail.written.refuse(error)
        except Exception:  # a bug of ours; the others were told all the same
            log.exception("what was to follow a write failed")

    def _note_seen(self, grown: set[Queue]) -> None:
        """Let the answers go that are true now, then tell all who wait for queues to grow."""
        self._store.wake()
        for tell in self._parts.on_seen:
            tell(grown)

    def _answer(self, connection: Connection, answers: Parts, log_end: int) -> None:
        """Send answers when the log may be seen up to `log_end`, which is written."""
        visible = self._tail.visible
        if visible.number >= log_end:
            connection.send_parts(answers)
        elif visible.failure is not None:
            send_turned(connection, answers, partial(as_failed, cause=str(visible.failure)))
        else:
            waiting = SentWhenTrue(connection, answers, self._timed_out)
            self._parts.deadlines.wait_for(visible, log_end, waiting, self._timeout_s)

    def note_mark_moved(self) -> None:
        """Let be seen what may be, when a mark that the store requires has risen or failed."""
        self._note_seen(self._store.publish())

    async def readable(self) -> None:
        """Return when what is written now can be read; raises when it never will be."""
        tail = self._tail
        if tail.visible_offset < tail.written_offset and tail.visible.failure is None:
            seen = Arrival()
            tail.visible.wait(tail.written_offset, seen)
            await seen.future
