"""Keeping what operators change and senders bring about: an answer means that it is saved.

In: changes of tables, topics that were removed. Out: saved files; answers that wait for them.

Rules:
1. Tables are saved one at a time, in a thread; a failed save is due again (table.py).
2. The answer to an operator's change comes when the files of removed topics are gone, tables are
   saved and name servers were told, in this order: after a kill a topic that was being removed is
   there with all it had, there with its settings and empty, or gone. Tables first would let it come
   back as what its files say: its settings and its groups' offsets would be lost.
3. What waits for a table alone is served as a group: one save for all who wait when it begins, the
   next one at once for those who came meanwhile. They go on after a failed save, too, and after a
   second, and when too many wait: what they wait to say is true, and the table is saved as soon as
   it can be. A disk that hangs must neither silence them nor fill the memory.
4. Name servers that are slow or away hold up no answer for long: they learn of it later.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress

from orbitmq.broker.repeated_failures import RepeatedFailure
from orbitmq.broker.table import TableFile
from orbitmq.errors import MQError, StoreError
from orbitmq.net.later import Deadlines, Later
from orbitmq.watermark import Call
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.world.clock import Clock

log = logging.getLogger(__name__)

WAIT_MAX_S = 1.0
"""Clients wait three seconds for an answer, and then send the message again."""

TIMEOUT_S = 30.0
UNDER_WAY_MAX = 1_000
"""Changes that wait to be kept; above it they are refused."""

Step = Callable[[], Awaitable[None]]


class Keeper:
    """Saves the tables of one broker, and says when that is done."""

    def __init__(
        self,
        files: Iterable[TableFile],
        finish_removals: Step,
        clock: Clock,
        deadlines: Deadlines,
    ) -> None:
        self._files = list(files)
        self._deadlines = deadlines
        self._finish_removals = finish_removals
        self.tell_name_servers: Step = _nobody
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_threads: set[asyncio.Task[None]] = set()
        self._hurried: set[TableFile] = set()
        self._save_failures = RepeatedFailure(log, clock)

    async def save_all(self) -> None:
        """Save every table that has changed; raises the first failure after trying all."""
        first: Exception | None = None
        for file in self._files:
            try:
                await self.save(file)
            except Exception as error:
                if first is not None:
                    log.error("%s", error)
                first = first or error
        if first is not None:
            raise first

    async def save_behind_removals(self) -> None:
        """Save every table, once the files of removed topics are gone or cannot go (rule 2)."""
        with suppress(StoreError):  # told by who tries it again; the tables do not wait for that
            await self._finish_removals()
        await self.save_all()

    async def save(self, file: TableFile) -> None:
        """Save one table if it has changed; afterwards what it was at the call is in its file."""
        async with self._lock:
            mark, save = file.last_mark, file.take()
            if save is None:
                self._serve(file, mark)
                return
            work = asyncio.create_task(asyncio.to_thread(save))
            self._in_threads.add(work)
            work.add_done_callback(self._in_threads.discard)
            try:
                await asyncio.shield(work)  # a caller that is cancelled leaves it to `settle`
            finally:
                self._serve(file, mark)

    async def settle(self) -> None:
        """Give up what waits, and return when no thread saves any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._in_threads, return_exceptions=True)

    def after_save(self, file: TableFile, mark: int, done: Callable[[], None]) -> None:
        """Have `done` called once this change of a table is saved, or could not be (rule 3)."""
        self._deadlines.wait_for(file.saved, mark, Call(lambda _error: done()), WAIT_MAX_S)
        if file not in self._hurried:
            self._hurried.add(file)
            self._begin(self._save_for(file))

    async def _save_for(self, file: TableFile) -> None:
        try:
            while file.saved.waiter_count:
                await self._save_one_behind_removals(file)
        finally:
            self._hurried.discard(file)

    async def _save_one_behind_removals(self, file: TableFile) -> None:
        with suppress(StoreError):
            await self._finish_removals()
        try:
            await self.save(file)
        except (MQError, OSError) as error:
            self._save_failures.report(f"{error}; it is tried again")

    def _serve(self, file: TableFile, mark: int) -> None:
        """Let those go on who waited for changes up to this one, saved or not (rule 3)."""
        file.on_saved()
        file.saved.wake()
        file.saved.refuse(StoreError("the table could not be saved"), mark)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def answer_kept(self, request: Command, reply: Command | None = None) -> Later | Command:
        """Return the answer to a change that was made just now: `reply`, or a plain success."""
        if len(self._tasks) >= UNDER_WAY_MAX:
            return reply_to(
                request,
                ResponseCode.SYSTEM_BUSY,
                f"{UNDER_WAY_MAX} changes wait to be saved already; this one was made, and is saved"
                " with them: look whether it is there before you try again",
            )
        reply = reply or reply_to(request)
        later = Later(TIMEOUT_S, functools.partial(_too_slow, request))
        self._begin(self._keep(request, reply, later))
        return later

    async def _keep(self, request: Command, reply: Command, later: Later) -> None:
        try:
            await self._finish_removals()
            await self.save_all()
        except (MQError, OSError) as error:
            remark = f"the change is in force but could not be saved: {error}"
            later.answer(reply_to(request, ResponseCode.SYSTEM_ERROR, remark))
            return
        await self.tell_name_servers()
        later.answer(reply)


def _too_slow(request: Command) -> Command:
    remark = f"the change is in force, but was not saved within {TIMEOUT_S:g} s: the disk is slow"
    return reply_to(request, ResponseCode.SYSTEM_ERROR, remark)


async def _nobody() -> None:
    """Stand in for name servers while none is known."""
