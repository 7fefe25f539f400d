"""Small files that follow a request: written in a thread, one after the other, then answered.

In: a request and a step that gives the new contents. Out: a Later that answers when they are on the
disk, or says why they are not.

Rules:
1. A change counts when its file is written: `prepare` runs on the loop right before the write, the
   file is replaced as a whole in a thread, and only then `commit` makes the change visible. A
   failed write changes nothing. Contents that depend on the file as it is are made in the thread.
2. Changes of one file happen in the order of their requests.
3. The number of waiting changes is bounded.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from orbitmq.errors import RequestFailed, StoreError
from orbitmq.net.dispatch import Failures
from orbitmq.net.later import Later
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.world.files import Files

WAITING_MAX = 1_000
"""Changes are made by people and scripts; a thousand waiting ones are not."""

TIMEOUT_S = 10.0
"""Longer than any client waits (mqadmin: 5 s)."""


def read_file(files: Files, path: Path) -> bytes | None:
    """Return a file's contents, or None when there is none; raises StoreError when unreadable."""
    try:
        return files.read(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; mend or remove it") from None


class Save(NamedTuple):
    """The new contents of a file or how to make them, and what to do once they are there."""

    data: bytes | Callable[[], bytes]
    commit: Callable[[], None]

    def contents(self) -> bytes:
        """Return the new contents; may read the file."""
        return self.data() if callable(self.data) else self.data


Prepare = Callable[[], Save | None]
"""Gives the next contents, or None when there is nothing to write; may raise RequestFailed."""


class _Waiting(NamedTuple):
    request: Command
    prepare: Prepare
    later: Later


class Saver:
    """Writes one file."""

    def __init__(self, files: Files, path: Path, failures: Failures) -> None:
        self._files = files
        self._path = path
        self._failures = failures
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    def save(self, request: Command, prepare: Prepare) -> Later:
        """Make a change and answer `request` with SUCCESS when it is on the disk."""
        if len(self._waiting) >= WAITING_MAX:
            raise RequestFailed(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]system busy, {WAITING_MAX} changes of {self._path.name} are waiting"
                " for the disk, the limit; try again later",
            )
        later = Later(TIMEOUT_S, lambda: reply_to(request, ResponseCode.SYSTEM_ERROR, self._late()))
        self._waiting.append(_Waiting(request, prepare, later))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_all())
        return later

    async def finish(self) -> None:
        """Return when nothing is waiting any more."""
        while self._task is not None:
            await self._task

    def _late(self) -> str:
        return (
            f"{self._path.name} was not written within {TIMEOUT_S:g} s; it may still be. Look at"
            " the disk that has it"
        )

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                request, prepare, later = self._waiting.popleft()
                later.answer(await self._write(request, prepare))
        finally:
            self._task = None

    async def _write(self, request: Command, prepare: Prepare) -> Command:
        try:
            save = prepare()
            if save is not None:
                await asyncio.to_thread(self._replace, save)
                save.commit()
        except Exception as error:  # the one place that knows what to answer is `dispatch`
            return self._failures.reply(request, error)
        return reply_to(request)

    def _replace(self, save: Save) -> None:
        self._files.replace(self._path, save.contents())
