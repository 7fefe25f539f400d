"""A real name server and broker inside a test process, up in a moment and gone without a trace.

In: settings by the original's keys, if any. Out: two addresses for clients, and time to move.

Rules:
1. Everything runs on an event loop in a thread of its own: a test may block, and one that has a
   loop itself is not slowed down. Every method may be called from any thread.
2. The end of the block leaves nothing behind: no thread, task, socket or temporary folder. A folder
   that the caller gave stays as it is.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from orbitmq.errors import ClientStateError
from orbitmq.testing.moved_time import MovableClock
from orbitmq.testing.parts import Parts, Ports, Value
from orbitmq.world.temporary import make_temporary_folder, remove_tree
from orbitmq.world.threads import LoopThread

QUEUE_COUNT = 4
DELAYED_TIMEOUT_S = 10.0

T = TypeVar("T")


class EmbeddedBroker:
    """A name server and a broker for tests, in this process.

    ```python
    with EmbeddedBroker() as broker:
        client = make_client(namesrv=broker.namesrv)
        ...
        broker.advance(3600)                      # an hour passes; delayed messages come
    ```

    `async with` does the same without blocking the caller's loop. Clients of any language can
    connect, as long as they run on this machine.

    `folder` keeps the files somewhere else than in a temporary folder, and for good. `settings` are
    a broker's, by the original's keys: `{"flushDiskType": "SYNC_FLUSH"}`; an unknown one raises
    SettingError. Log and queue files are small (16 MiB, 10,000 messages) unless it says otherwise.
    """

    def __init__(
        self,
        *,
        folder: Path | str | None = None,
        settings: Mapping[str, Value] | None = None,
    ) -> None:
        self._given_folder = None if folder is None else Path(folder)
        self._settings = dict(settings or {})
        self._clock = MovableClock()
        self._folder: Path | None = None
        self._thread: LoopThread | None = None
        self._parts: Parts | None = None
        self._ports = Ports()

    # --- life ---

    def __enter__(self) -> "EmbeddedBroker":
        """Start; raises SettingError or StoreError."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and remove the temporary folder."""
        self.stop()

    async def __aenter__(self) -> "EmbeddedBroker":
        """Start; raises SettingError or StoreError."""
        thread = self._begin()
        try:
            await asyncio.wrap_future(thread.submit(self._start()))
        except BaseException:
            await asyncio.wrap_future(thread.begin_close())
            self._clear()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and remove the temporary folder."""
        thread = self._thread
        if thread is None:
            return
        try:
            await asyncio.wrap_future(thread.submit(self._end(Parts.stop)))
        finally:
            await asyncio.wrap_future(thread.begin_close())
            self._clear()

    def start(self) -> None:
        """Start, or go on after `kill` with the same files and ports.

        Raises ClientStateError when it runs already, SettingError or StoreError when it cannot.
        """
        if self._thread is not None:
            self._run(self._start())
            return
        thread = self._begin()
        try:
            self._run(self._start())
        except BaseException:
            thread.close()
            self._clear()
            raise

    def stop(self) -> None:
        """Stop cleanly and remove the temporary folder; nothing when it does not run."""
        thread = self._thread
        if thread is None:
            return
        try:
            self._run(self._end(Parts.stop))
        finally:
            thread.close()
            self._clear()

    def restart(self) -> None:
        """Stop cleanly and start again, with the same files and ports: clients must come back."""
        self._run(self._restart())

    def kill(self) -> None:
        """End name server and broker as if their process was killed; `start` lets them go on.

        Connections are cut, and nothing is saved that is not yet. Every message that was written
        is there after `start`.
        """
        self._run(self._end(Parts.kill))

    def _begin(self) -> LoopThread:
        if self._thread is not None:
            raise ClientStateError("this embedded broker runs already; make another one")
        self._folder = self._given_folder or make_temporary_folder("orbitmq-")
        self._thread = LoopThread("embedded")
        return self._thread

    async def _start(self) -> None:
        if self._parts is not None or self._folder is None:
            raise ClientStateError("this embedded broker runs already; make another one")
        parts = Parts(self._folder, self._settings, self._ports, self._clock)
        await parts.start()
        self._parts = parts
        self._ports = parts.ports

    async def _end(self, end: Callable[[Parts], Coroutine[Any, Any, None]]) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            await end(parts)

    async def _restart(self) -> None:
        self._running()
        await self._end(Parts.stop)
        await self._start()

    def _clear(self) -> None:
        """Forget the thread, which has ended, and the temporary folder."""
        thread, self._thread = self._thread, None
        folder, self._folder = self._folder, None
        self._ports = Ports()
        if thread is not None:
            thread.close()
        if folder is not None and self._given_folder is None:
            remove_tree(folder)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise self._not_running()
        return self._thread.submit(work).result()

    def _running(self) -> Parts:
        if self._parts is None:
            raise self._not_running()
        return self._parts

    def _not_running(self) -> ClientStateError:
        return ClientStateError(
            "this embedded broker does not run; use it inside `with EmbeddedBroker() as broker:`,"
            " or call start()"
        )

    # --- what is there ---

    @property
    def namesrv(self) -> str:
        """The name server's address, for clients: `127.0.0.1:34567`."""
        return self._running().namesrv

    @property
    def broker(self) -> str:
        """The broker's own address, for what is asked of it directly."""
        return self._running().broker

    @property
    def folder(self) -> Path:
        """Where the files are: `namesrv` and `store`."""
        if self._folder is None:
            raise self._not_running()
        return self._folder

    def create_topic(self, name: str, *, queues: int = QUEUE_COUNT) -> None:
        """Make a topic; when this returns, every client finds it.

        Raises RequestFailed for a name or number that cannot be.
        """
        self._run(self._running().create_topic(name, queues))

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Let the broker's clock run ahead by so many seconds more.

        When this returns, delayed messages and retries that are due by then are in their topics and
        can be read. Only what is due at a moment moves (delays, retries, the age of log files):
        connections, heartbeats, queue locks and held pulls do not notice.
        """
        self._run(self._running().advance(seconds))

    @property
    def delayed_count(self) -> int:
        """How many delayed messages and retries wait at the broker."""
        return self._run(self._running().delayed_count())

    def wait_for_delayed(self, count: int = 1, *, timeout: float = DELAYED_TIMEOUT_S) -> None:
        """Return when at least so many delayed messages and retries wait; raises TimeoutError.

        A retry reaches the broker a moment after its handler has failed: wait for it before time is
        moved. In an asynchronous test use `wait_for_delayed_async`.
        """
        self._run(self._running().wait_for_delayed(count, timeout))

    async def wait_for_delayed_async(
        self,
        count: int = 1,
        *,
        timeout: float = DELAYED_TIMEOUT_S,  # noqa: ASYNC109 - as in the twin
    ) -> None:
        """Return when at least so many delayed messages and retries wait; raises TimeoutError."""
        running, thread = self._running(), self._thread
        if thread is None:
            raise self._not_running()
        await asyncio.wrap_future(thread.submit(running.wait_for_delayed(count, timeout)))
