"""A broker inside the test's own loop, and files that refuse or wait, for tests.

In: a folder, settings, files. Out: a started broker and a peer that asks it.
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.store_opening import this_machine
from orbitmq.config import BrokerSettings
from orbitmq.errors import DiskFull
from orbitmq.metrics import Registry
from orbitmq.net.peer import Peer
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command
from orbitmq.world.files import Files, FolderLock, SystemFiles

LIMIT_S = 10.0


class RefusingTables(SystemFiles):
    """Files whose tables refuse to be replaced while `is_full`; tells of locks that were let go."""

    def __init__(self) -> None:
        self.is_full = False
        self.refused: dict[str, threading.Event] = {}
        self.is_released = False

    def has_refused(self, name: str) -> bool:
        """Wait until a file of this name was refused; blocks."""
        return self.refused.setdefault(name, threading.Event()).wait(LIMIT_S)

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        if self.is_full:
            self.refused.setdefault(path.name, threading.Event()).set()
            raise DiskFull(f"no space left for {path.name}")
        super().replace(path, data, keep_backup=keep_backup)

    def lock(self, path: Path) -> FolderLock:
        return _TellingLock(self, super().lock(path))


class _TellingLock:
    def __init__(self, files: RefusingTables, inner: FolderLock) -> None:
        self._files = files
        self._inner = inner

    def release(self) -> None:
        self._inner.release()
        self._files.is_released = True


class Running:
    """A started broker."""

    def __init__(self, broker: Broker, turn: Turn) -> None:
        self.broker = broker
        self.peer = Peer(broker.address, turn)

    async def call(self, request: Command) -> Command:
        """Send a request and give its answer."""
        return await self.peer.call(request, LIMIT_S)

    async def ask(self, code: int, **fields: str | int) -> Command:
        """Call with fields given by their names on the wire."""
        texts = {name: str(value) for name, value in fields.items()}
        return await self.call(Command(code, fields=texts))

    async def stop(self) -> None:
        """Stop the broker; raises what that raises."""
        self.peer.close()
        await self.broker.stop()


async def begin(folder: Path, turn: Turn, settings: BrokerSettings, files: Files) -> Running:
    """Start a broker that the caller stops."""
    broker = Broker(settings, folder, turn, Registry(), outside=this_machine(files))
    await broker.start()
    return Running(broker, turn)


@asynccontextmanager
async def running(folder: Path, turn: Turn, settings: BrokerSettings) -> AsyncIterator[Running]:
    """A broker that runs inside the block."""
    started = await begin(folder, turn, settings, SystemFiles())
    try:
        yield started
    finally:
        await started.stop()
