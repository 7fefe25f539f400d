"""Where a consumer keeps how far it has come: at the brokers, in a file, or with the program.

In: offsets as messages are done. Out: the offsets to go on at.

Rules:
1. What is kept is the offset of the next message, as everywhere.
2. In memory first, stored by `persist`. Every persist stores all that it is given, changed or not:
   a broker that was restored from an older copy learns it again.
3. `None` is "no offset": the group is new to this queue. "It cannot be known" is an MQError, never
   None: a consumer that took it for new would consume all or lose some.
4. The file is the original's, its `.bak` included, so that a Java consumer's broadcasting offsets
   are taken over: `~/.rocketmq_offsets/<client id>/<group>/offsets.json`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from orbitmq.client.instance import Instance
from orbitmq.client.queue_offsets import (
    group_offset,
    max_offset,
    offset_for_time,
    store_group_offset,
)
from orbitmq.errors import MQError, RemoteProtocolError, StoreError
from orbitmq.wire.bodies_client import ConsumeFromWhere, MessageQueue, read_queue_key
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.names import is_retry_topic
from orbitmq.world.files import Files, SystemFiles
from orbitmq.world.machine import home_folder
from orbitmq.world.threads import Threads

log = logging.getLogger(__name__)

OFFSETS_FOLDER = ".rocketmq_offsets"
OFFSETS_FILE = "offsets.json"

T = TypeVar("T")


class OffsetStore(Protocol):
    """Where a consumer's offsets are kept; a program may bring its own."""

    async def load(self) -> None:
        """Make ready; called once, at the consumer's start."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, increases_only: bool = False) -> None:
        """Remember the next offset of a queue; with `increases_only` never a smaller one."""
        ...

    def cached(self, queue: MessageQueue) -> int | None:
        """Return what is remembered of a queue, without waiting."""
        ...

    async def read(self, queue: MessageQueue) -> int | None:
        """Return what is stored of a queue, None when there is nothing.

        Raises MQError when it cannot be known.
        """
        ...

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Store what is remembered of these queues; raises MQError when some could not be."""
        ...

    def remove(self, queue: MessageQueue) -> None:
        """Forget what is remembered of a queue that is another member's now."""
        ...

    def snapshot(self, topic: str) -> dict[MessageQueue, int]:
        """Return what is remembered of a topic's queues; of all topics' for an empty text."""
        ...


class Remembered:
    """The part that all stores share: the next offsets, in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increases_only: bool = False) -> None:
        """Remember the next offset of a queue; with `increases_only` never a smaller one."""
        if not increases_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def cached(self, queue: MessageQueue) -> int | None:
        """Return what is remembered of a queue."""
        return self._offsets.get(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue."""
        self._offsets.pop(queue, None)

    def snapshot(self, topic: str) -> dict[MessageQueue, int]:
        """Return what is remembered of a topic's queues; of all topics' for an empty text."""
        return {
            queue: offset
            for queue, offset in self._offsets.items()
            if not topic or queue.topic == topic
        }


class BrokerOffsets(Remembered):
    """Offsets that the brokers keep for the group: what clustering consumers use."""

    def __init__(self, instance: Instance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group

    async def load(self) -> None:
        """Do nothing: each queue is asked for when it is ours."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the queue's broker, and remember its answer."""
        offset = await group_offset(self._instance, self._group, queue)
        if offset is not None:
            self._offsets[queue] = offset
        return offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Have the brokers keep these; all are tried, then the first error is raised."""
        known = [queue for queue in queues if queue in self._offsets]
        outcomes = await asyncio.gather(*map(self._store, known), return_exceptions=True)
        for queue, outcome in zip(known, outcomes, strict=True):
            if isinstance(outcome, MQError):
                log.debug("offset of group %s in %s is not stored: %s", self._group, queue, outcome)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _store(self, queue: MessageQueue) -> None:
        offset = self._offsets[queue]
        await store_group_offset(self._instance, self._group, queue, offset)


class _OffsetsOut(msgspec.Struct, rename="camel"):
    offset_table: dict[MessageQueue, int]


class _OffsetsIn(msgspec.Struct, rename="camel"):
    offset_table: dict[str, int] = {}


class FileOffsets(Remembered):
    """Offsets in a file of this machine: what broadcasting consumers use.

    `folder` is where the original has its folder `.rocketmq_offsets`, the user's home if not given.
    """

    def __init__(
        self,
        client_id: str,
        group: str,
        *,
        folder: Path | None = None,
        files: Files | None = None,
    ) -> None:
        super().__init__()
        root = (folder if folder is not None else home_folder()) / OFFSETS_FOLDER
        self.path = root / client_id / group / OFFSETS_FILE
        self._files = files if files is not None else SystemFiles()
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, or its backup when it is missing, empty or damaged.

        Raises StoreError when there is a file and neither can be understood.
        """
        self._offsets = await _in_thread(self._load)

    def _load(self) -> dict[MessageQueue, int]:
        damage: StoreError | None = None
        for path in (self.path, self.path.with_name(f"{OFFSETS_FILE}.bak")):
            try:
                if (found := self._read(path)) is not None:
                    return found
            except StoreError as error:
                damage = damage or error
        if damage is not None:
            raise damage
        return {}

    def _read(self, path: Path) -> dict[MessageQueue, int] | None:
        try:
            data = self._files.read(path)
            if not data:
                return None
            table = read_json(data, _OffsetsIn).offset_table
            return {read_queue_key(key): offset for key, offset in table.items()}
        except (OSError, RemoteProtocolError) as error:
            raise StoreError(
                f"cannot read the offsets in {path}: {error}; mend the file, or remove it to "
                "begin as a new group"
            ) from error

    async def read(self, queue: MessageQueue) -> int | None:
        """Return what the file said or will say: nobody else writes it."""
        return self._offsets.get(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Replace the file by what is known; the old one becomes its backup.

        Queues that are not given keep what was known of them: broadcasting consumers lose none.
        """
        async with self._saving:
            data = write_json(_OffsetsOut(dict(self._offsets)), standard=False)
            await _in_thread(lambda: self._write(data))

    def _write(self, data: bytes) -> None:
        self._files.make_folder(self.path.parent)
        self._files.replace(self.path, data, keep_backup=True)

    def remove(self, queue: MessageQueue) -> None:
        """Keep it: the queue may come back, and nobody else knows how far we were."""


async def _in_thread(action: Callable[[], T]) -> T:
    """Run what waits for the disk in a thread that ends with it."""
    threads = Threads(1, "offsets")
    try:
        return await asyncio.shield(threads.run(action))
    finally:
        threads.close()


async def first_offset(
    instance: Instance,
    store: OffsetStore,
    queue: MessageQueue,
    where: ConsumeFromWhere,
    timestamp_ms: int,
) -> int:
    """Return where to begin in a queue that has just become ours.

    What the store has counts. A group that is new there begins as `where` says: at the end, at the
    beginning, or at a time; but a retry topic at its beginning, or, by time, at its end, as the
    original does. Raises MQError when it cannot be known now.
    """
    stored = await store.read(queue)
    if stored is not None and stored >= 0:
        return stored
    is_retry = is_retry_topic(queue.topic)
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and not is_retry:
        return await offset_for_time(instance, queue, timestamp_ms)
    if is_retry and where is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        return 0
    return await max_offset(instance, queue)
