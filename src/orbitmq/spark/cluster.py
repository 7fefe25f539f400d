"""The connections of one process to a cluster, and what sources and sinks ask through them.

In: connection options; topics, queues, offsets. Out: what the cluster says, to any thread.

Rules:
1. A process has one Cluster for equal options, kept for its life in a module global: Spark uses its
   workers again. A fork begins with none. `close_clusters` ends them, for programs that go on.
2. The asynchronous client does the work on the loop in the background that all synchronous clients
   share. `wait` gives what a coroutine gives there; a sink may run its own there.
3. Topics and groups are the user's names. Queues have the names that brokers know them by, with the
   namespace; those of users are taken as well.
4. Questions about many queues go out at a time, at most ASKED_AT_A_TIME. Each is asked again after
   a failure that may pass.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec

from orbitmq.blocking.facade import BACKGROUND
from orbitmq.client.admin import Admin
from orbitmq.client.instance import Instance, join
from orbitmq.client.queue_offsets import (
    group_offset,
    max_offset,
    min_offset,
    offset_for_time,
    store_group_offset,
)
from orbitmq.client.remote import request
from orbitmq.client.routes import Route
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import (
    BrokerBusy,
    BrokerNotFound,
    ConnectFailed,
    MQError,
    OutcomeUnknown,
    RequestFailed,
    RouteNotFound,
)
from orbitmq.spark.connection_options import ConnectionOptions, client_settings
from orbitmq.spark.data_loss import name_of
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.names import wrap_namespace
from orbitmq.world.chance import SystemChance
from orbitmq.world.threads import new_lock

ASKED_AT_A_TIME = 64
NAME_RANGE = 2**32

PASSING = (BrokerBusy, BrokerNotFound, ConnectFailed, OutcomeUnknown, RouteNotFound)
"""What may pass: a broker that is busy, silent, or gone for now and with it its route."""

T = TypeVar("T")

Offsets = dict[MessageQueue, int]


class Retries(msgspec.Struct, frozen=True):
    """How often a question is asked again, and after how long."""

    count: int = 3
    interval_s: float = 1.0


THREE_TIMES = Retries()


class Cluster:
    """What one process has of one cluster. Use `cluster_of`."""

    def __init__(self, settings: ClientSettings) -> None:
        name = f"spark-{os.getpid()}#{SystemChance().below(NAME_RANGE)}"
        self.settings = msgspec.structs.replace(settings, instance_name=name)
        """Those of every client here: clients made with them share the connections."""
        self._thread = BACKGROUND.join()
        self._joined: Instance | None = None
        self._joining: asyncio.Task[Instance] | None = None
        self._admin: Admin | None = None

    # --- the loop ---

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Have a coroutine run on the loop in the background."""
        return self._thread.submit(work)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine gives on that loop; an interrupted wait cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def instance(self) -> Instance:
        """Return the client instance, on the loop; the first call starts it."""
        if self._joined is None:
            if self._joining is None or self._joining.done():
                self._joining = asyncio.get_running_loop().create_task(join(self.settings))
            self._joined = await asyncio.shield(self._joining)
        return self._joined

    async def admin(self) -> Admin:
        """Return an administrator that shares the connections, on the loop."""
        await self.instance()
        if self._admin is None:
            names = set(ClientSettings.__struct_fields__) - {"namesrv"}
            options: Any = {name: getattr(self.settings, name) for name in names}
            self._admin = Admin(self.settings.namesrv, **options)
            await self._admin.start()
        return self._admin

    def close(self) -> None:
        """End the connections; whoever still uses them gets errors."""
        try:
            self.wait(self._end())
        finally:
            BACKGROUND.leave(self._thread)

    async def _end(self) -> None:
        if self._admin is not None:
            await self._admin.close()
        if self._joined is not None:
            await self._joined.leave()

    # --- topics ---

    def wrap(self, name: str) -> str:
        """Return a topic's or group's name as brokers know it."""
        return wrap_namespace(self.settings.namespace, name)

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as brokers know it."""
        return MessageQueue(self.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def topics(self, *, with_system: bool = False) -> list[str]:
        """Return the names of all topics; raises MQError."""

        async def ask() -> list[str]:
            return await (await self.admin()).topics(with_system=with_system)

        return self.wait(ask())

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that can be read of a topic, as name servers say now.

        Raises RouteNotFound for a topic that does not exist, ConnectFailed.
        """

        async def ask() -> Route:
            routes = (await self.instance()).routes
            wrapped = self.wrap(topic)
            try:
                return await routes.refresh(wrapped)
            except RouteNotFound:
                routes.forget(wrapped)
                return await routes.find(wrapped)  # says why not

        return self.wait(ask()).subscribe_queues

    def pause(self, seconds: float) -> None:
        """Wait."""
        self.wait(asyncio.sleep(seconds))

    # --- offsets ---

    def min_offsets(
        self, queues: Collection[MessageQueue], retries: Retries = THREE_TIMES
    ) -> Offsets:
        """Return the offset of each queue's oldest message; raises MQError that names the queue."""
        found = self._of_each("its first offset", min_offset, queues, retries)
        return {
            queue: max(0, offset) for queue, offset in found.items()
        }  # 5.x: -1 for an empty one

    def max_offsets(
        self, queues: Collection[MessageQueue], retries: Retries = THREE_TIMES
    ) -> Offsets:
        """Return the offset that each queue's next message will get."""
        return self._of_each("its end", max_offset, queues, retries)

    def offsets_for_times(
        self, times_ms: Mapping[MessageQueue, int], retries: Retries = THREE_TIMES
    ) -> Offsets:
        """Return the offset of a message of each queue that was stored about then."""
        wired = {self.wire_queue(queue): time_ms for queue, time_ms in times_ms.items()}

        async def ask(instance: Instance, queue: MessageQueue) -> int:
            return await offset_for_time(instance, queue, wired[queue])

        return self._of_each("its offset of a time", ask, times_ms, retries)

    def group_offsets(
        self, group: str, queues: Collection[MessageQueue], retries: Retries = THREE_TIMES
    ) -> dict[MessageQueue, int | None]:
        """Return where a group is in each queue; None where it has no offset."""
        wrapped = self.wrap(group)

        async def ask(instance: Instance, queue: MessageQueue) -> int | None:
            found = await group_offset(instance, wrapped, queue, zero_if_young=False)
            if found == 0 and not await _has_offset(instance, wrapped, queue):
                return None
            return found

        return self._of_each(f"where group {group} is", ask, queues, retries)

    def store_group_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int], retries: Retries = THREE_TIMES
    ) -> None:
        """Have brokers keep where a group is; returns when they have it, raises QueueFailed."""
        failed = self.try_group_offsets(group, offsets, retries)
        if failed:
            raise next(iter(failed.values()))

    def try_group_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int], retries: Retries = THREE_TIMES
    ) -> dict[MessageQueue, "QueueFailed"]:
        """Have brokers keep where a group is; return the queues of which one does not, and why.

        One queue of each topic and broker goes ahead: of a group's very first offsets an original
        forgets some if several come together. 5.x keeps none of a group that nobody has made: it is
        made then. A broker that does not answer is no reason to leave out the others.
        """
        wrapped = self.wrap(group)
        wired = {self.wire_queue(queue): offset for queue, offset in offsets.items()}

        async def ask(instance: Instance, queue: MessageQueue) -> None:
            await store_group_offset(instance, wrapped, queue, wired[queue])

        ahead = {(queue.topic, queue.broker_name): queue for queue in offsets}.values()
        others = set(offsets).difference(ahead)
        what = f"that it keeps where group {group} is"
        failed = self.wait(self._failures(what, ask, ahead, retries))
        strange = [queue for queue, error in failed.items() if _is_unknown_group(error.cause)]
        if strange:
            self.wait(self._make_group(group, {queue.broker_name for queue in strange}))
            failed = {queue: error for queue, error in failed.items() if queue not in strange}
            failed |= self.wait(self._failures(what, ask, strange, retries))
        silent = {(queue.topic, queue.broker_name) for queue in failed}
        asked = sorted(each for each in others if (each.topic, each.broker_name) not in silent)
        return failed | self.wait(self._failures(what, ask, asked, retries))

    async def _make_group(self, group: str, brokers: Collection[str]) -> None:
        admin = await self.admin()
        for broker in sorted(brokers):
            await admin.create_group(group, broker=broker)

    def _of_each(
        self,
        what: str,
        ask: Callable[[Instance, MessageQueue], Awaitable[T]],
        queues: Collection[MessageQueue],
        retries: Retries,
    ) -> dict[MessageQueue, T]:
        return self.wait(self.ask_each(what, ask, queues, retries))

    async def _failures(
        self,
        what: str,
        ask: Callable[[Instance, MessageQueue], Awaitable[T]],
        queues: Collection[MessageQueue],
        retries: Retries,
    ) -> dict[MessageQueue, "QueueFailed"]:
        """Ask all queues, whoever fails; give those that did."""
        limit = asyncio.Semaphore(ASKED_AT_A_TIME)

        async def one(queue: MessageQueue) -> QueueFailed | None:
            async with limit:
                try:
                    await self.ask_each(what, ask, [queue], retries)
                except QueueFailed as error:
                    return error
            return None

        found = zip(queues, await asyncio.gather(*map(one, queues)), strict=True)
        return {queue: error for queue, error in found if error is not None}

    async def ask_each(
        self,
        what: str,
        ask: Callable[[Instance, MessageQueue], Awaitable[T]],
        queues: Collection[MessageQueue],
        retries: Retries,
    ) -> dict[MessageQueue, T]:
        """Return the answers about all queues; raises QueueFailed for the first that fails."""
        instance = await self.instance()
        limit = asyncio.Semaphore(ASKED_AT_A_TIME)

        async def one(queue: MessageQueue) -> T:
            async with limit:
                wired = self.wire_queue(queue)
                return await _patiently(what, lambda: ask(instance, wired), queue, retries)

        found = await asyncio.gather(*map(one, queues))
        return dict(zip(queues, found, strict=True))


class QueueFailed(MQError):
    """A question about a queue has no answer. `queue` says which, `cause` why."""

    def __init__(self, what: str, queue: MessageQueue, cause: Exception) -> None:
        super().__init__(f"{name_of(queue)} does not tell {what}: {cause}")
        self.queue = queue
        self.cause = cause


def _is_unknown_group(error: Exception) -> bool:
    return (
        isinstance(error, RequestFailed) and error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    )


async def _has_offset(instance: Instance, group: str, queue: MessageQueue) -> bool:
    """Whether a broker's whole table has the group in this queue: 4.9 says 0 of young queues."""
    address = await instance.routes.address(queue)
    answer = await instance.remote.ask(address, request(RequestCode.GET_ALL_CONSUMER_OFFSET))
    table = read_json(answer.body, _OffsetTable).offset_table
    return str(queue.queue_id) in table.get(f"{queue.topic}@{group}", {})


class _OffsetTable(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[str, int]] = {}


async def _patiently(
    what: str, ask: Callable[[], Awaitable[T]], queue: MessageQueue, retries: Retries
) -> T:
    left = retries.count
    while True:
        try:
            return await ask()
        except MQError as error:
            if not left or not isinstance(error, PASSING):
                raise QueueFailed(what, queue, error) from error
        left -= 1
        await asyncio.sleep(retries.interval_s)


class _Process:
    """The clusters of one process (rule 1)."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = new_lock()
        self.clusters: dict[ClientSettings, Cluster] = {}


_process = _Process()


def cluster_of(options: ConnectionOptions) -> Cluster:
    """Return this process's connections for these options.

    Raises SettingError when the options do not say which cluster.
    """
    global _process  # noqa: PLW0603 - the pool is the process's
    if _process.pid != os.getpid():
        _process = _Process()
    settings = client_settings(options)
    with _process.lock:
        found = _process.clusters.get(settings)
        if found is None:
            found = _process.clusters[settings] = Cluster(settings)
        return found


def close_clusters() -> None:
    """End all connections of this process; the next `cluster_of` makes new ones."""
    if _process.pid != os.getpid():
        return
    with _process.lock:
        clusters = list(_process.clusters.values())
        _process.clusters.clear()
    for cluster in clusters:
        cluster.close()
