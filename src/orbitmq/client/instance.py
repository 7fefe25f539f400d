"""One client process's worth of shared parts: connections, routes, heartbeats, members.

In: producers and consumers that join. Out: routes kept fresh, brokers that know who is there, and
the requests of brokers at the consumers they are about.

Rules:
1. Members with one `instance_name` that reach the same cluster in the same way (event loop, name
   servers, TLS, address, unit) share an instance, with the other settings of the first of them;
   without a name each has its own. A group joins an instance once.
2. Every broker in the routes of the members gets a heartbeat every `heartbeat_interval_s`, at once
   when somebody joins or subscribes, and at once on a new connection: brokers forget a client with
   its connection. Slaves get one only while there are consumers.
3. A broker or name server that does not answer is told about in the log once, and once when it is
   back.
4. The last member that leaves closes everything: no task, socket or timer is left.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, TypeVar

from orbitmq.client.broker_directory import BrokerDirectory
from orbitmq.client.members import ConsumerMember, ProducerMember
from orbitmq.client.name_servers import LOOKUP_INTERVAL_S, NameServers, source_of
from orbitmq.client.on_broker import handlers_of
from orbitmq.client.publication import vip_address
from orbitmq.client.remote import Remote, request
from orbitmq.client.routes import MASTER_ID, Route, Routes
from orbitmq.client.sending import read_answers
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import ClientStateError, ConnectFailed, MQError
from orbitmq.metrics import Registry
from orbitmq.net.dispatch import Dispatcher
from orbitmq.wire.bodies_client import Heartbeat, ProducerData
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.headers_client import UnregisterClient
from orbitmq.world.chance import SystemChance
from orbitmq.world.clock import SystemClock
from orbitmq.world.net import own_address

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_S = 3.0
OWN_ADDRESS_S = 3.0
"""So long the search for this machine's own address may take."""
GOODBYE_S = 2.0
"""So long a close waits for brokers that do not answer: they notice by themselves."""
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""Every client of the original is in this group as well; tools expect it."""
ASK_AGAIN_S = 0.5
"""So often name servers are asked again that were not there at a start."""
NAME_RANGE = 2**48

T = TypeVar("T")

_Key = tuple[Hashable, ...]

_shared: dict[_Key, "Instance"] = {}
"""Named instances by what their members must have in common (rule 1)."""


async def join(settings: ClientSettings) -> "Instance":
    """Return the instance that these settings ask for, started; `leave` gives it back.

    Raises SettingError when no name server is known, ConnectFailed when a look-up fails.
    """
    key = _key(settings) if settings.instance_name else ()
    instance = _shared.get(key)
    if instance is None:
        instance = Instance(settings)
    if key:
        _shared[key], instance.key = instance, key
    instance.remote.add_hooks(settings.rpc_hooks)
    return await instance.start()


def _key(settings: ClientSettings) -> _Key:
    return (
        id(asyncio.get_running_loop()),
        settings.instance_name,
        *source_of(settings),
        settings.unit_name,
        settings.client_ip,
        settings.tls,
    )


class Instance:
    """What one or more producers and consumers share. Use `join` and `leave`."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.key: _Key = ()
        self.loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        self.chance = SystemChance()
        self.registry = Registry()
        self.ip = settings.client_ip
        self.client_id = ""
        """Both are known from `start` on."""
        self.broker_versions: dict[str, int] = {}
        """What brokers answered to heartbeats as, by address; see `wire.versions`."""
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        handle = Dispatcher(handlers_of(self.consumers, self.spawn), self.registry)
        self.remote = Remote(settings, handle, self.registry, read_answers)
        self.remote.on_connected = self._connected
        self.name_servers = self._directory()
        self.routes = Routes(self.name_servers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.Task[None]] = []
        self._beating: dict[str, asyncio.Task[bool]] = {}
        self._silent: set[str] = set()
        self._gone: set[str] = set()
        self._member_count = 0
        self._started: asyncio.Task[None] | None = None
        self._is_closed = False

    def _directory(self) -> NameServers | BrokerDirectory:
        if self.settings.brokers:
            return BrokerDirectory(self.settings.brokers, self.remote.call)
        return NameServers(self.settings, self.remote.call, self.chance)

    def _client_id(self) -> str:
        name = self.settings.instance_name or f"{os.getpid()}#{self.chance.below(NAME_RANGE)}"
        unit = f"@{self.settings.unit_name}" if self.settings.unit_name else ""
        return f"{self.ip}@{name}{unit}"

    # --- life ---

    async def start(self) -> "Instance":
        """Have name servers and begin to keep house, once; counts who has joined."""
        self._member_count += 1
        if self._started is None:
            self._started = self.loop.create_task(self._start())
        try:
            await asyncio.shield(self._started)
        except BaseException:
            await self.leave()
            raise
        return self

    async def _start(self) -> None:
        settings = self.settings
        self.ip = settings.client_ip or await own_address(OWN_ADDRESS_S)
        self.client_id = self._client_id()
        await self.name_servers.begin()
        self._every(settings.route_interval_s, self.refresh_routes)
        self._every(settings.heartbeat_interval_s, self.heartbeat)
        if self.name_servers.is_looked_up:
            self._every(LOOKUP_INTERVAL_S, self.name_servers.look_up)

    async def leave(self) -> None:
        """Give the instance back; the last one that does closes it."""
        self._member_count -= 1
        if self._member_count > 0 or self._is_closed:
            return
        self._is_closed = self.name_servers.is_closed = True
        if _shared.get(self.key) is self:
            del _shared[self.key]
        try:
            await self._end_tasks()
        finally:
            await self.remote.close()
            await self.routes.wait_quiet()

    async def _end_tasks(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self._beating.values()]
        if self._started is not None:
            tasks.append(self._started)
        ours = asyncio.current_task()  # a handler that a broker had called may close its consumer
        for task in (*tasks, *self._timers):
            if task is not ours:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not ours), return_exceptions=True)
        await asyncio.gather(*self._timers, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run something beside; it ends with the instance at the latest, a failure is logged."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work of client %s failed", self.client_id, exc_info=error)

    def _every(self, period_s: float, action: Callable[[], Awaitable[object]]) -> None:
        self._timers.append(self.loop.create_task(every(period_s, action)))

    # --- members ---

    def add_producer(self, member: ProducerMember) -> None:
        """Let a producer take part; raises ClientStateError when its group has joined already."""
        _refuse_second(self.producers, member.group, "producer")
        self.producers[member.group] = member

    def add_consumer(self, member: ConsumerMember) -> None:
        """Let a consumer take part; raises ClientStateError when its group has joined already."""
        _refuse_second(self.consumers, member.group, "consumer")
        self.consumers[member.group] = member

    async def remove_producer(self, member: ProducerMember) -> None:
        """Say goodbye for a producer."""
        if self.producers.get(member.group) is member:
            del self.producers[member.group]
            await self._say_goodbye(
                UnregisterClient(client_id=self.client_id, producer_group=member.group)
            )

    async def remove_consumer(self, member: ConsumerMember) -> None:
        """Say goodbye for a consumer: brokers tell the rest of its group."""
        if self.consumers.get(member.group) is member:
            del self.consumers[member.group]
            await self._say_goodbye(
                UnregisterClient(client_id=self.client_id, consumer_group=member.group)
            )

    def topics(self) -> set[str]:
        """Return the topics that members use."""
        members = [*self.producers.values(), *self.consumers.values()]
        return {topic for member in members for topic in member.topics()}

    # --- routes ---

    async def find_route(self, topic: str, wait_s: float, is_wanted: Callable[[], bool]) -> Route:
        """Return a topic's route; name servers that are not there yet are waited for.

        Raises ConnectFailed when none has answered within `wait_s`, or nobody wants it any more.
        """
        ends_s, is_told = self.loop.time() + wait_s, False
        while True:
            try:
                return await self.routes.find(topic)
            except ConnectFailed as error:
                if self.loop.time() >= ends_s or not is_wanted():
                    raise
                if not is_told:
                    log.warning("the start waits up to %g s for a name server: %s", wait_s, error)
                is_told = True
            await asyncio.sleep(min(ASK_AGAIN_S, wait_s))

    async def refresh_routes(self) -> None:
        """Ask for the routes of all topics in use, and end connections nobody needs any more."""
        await self.routes.refresh_all(self.topics())
        needed = {
            address
            for members in self.routes.broker_addresses().values()
            for address in members.values()
        }
        if self.settings.use_vip_channel:
            needed |= set(map(vip_address, needed))
        unneeded = self.remote.idle_addresses() - needed - set(self.name_servers.addresses)
        for address in unneeded:
            log.info("%s is in no route any more; its connection is closed", address)
            self._silent.discard(address)
            self.broker_versions.pop(address, None)
        for address in self._gone & needed:
            log.info("%s is in a route again", address)
        self._gone = (self._gone | unneeded) - needed
        self.remote.forget(unneeded)

    # --- heartbeats ---

    def broker_addresses(self) -> set[str]:
        """Return the addresses that get heartbeats (rule 2)."""
        return {
            address
            for members in self.routes.broker_addresses().values()
            for broker_id, address in members.items()
            if broker_id == MASTER_ID or self.consumers
        }

    async def heartbeat(self) -> int:
        """Tell all brokers who is here; return how many answered."""
        if not self.producers and not self.consumers:
            return 0
        beats = [self._beat(address) for address in self.broker_addresses()]
        return sum(await asyncio.gather(*beats))

    async def _beat(self, address: str) -> bool:
        """Send one broker a heartbeat, after the one that is under way."""
        while (before := self._beating.get(address)) is not None:
            await asyncio.wait([before])
        if self._is_closed:
            return False
        beating = self.loop.create_task(self._send_heartbeat(address))
        self._beating[address] = beating
        beating.add_done_callback(lambda _done: self._beating.pop(address, None))
        return await asyncio.shield(beating)

    async def _send_heartbeat(self, address: str) -> bool:
        beat = request(RequestCode.HEART_BEAT, body=self._heartbeat_body())
        try:
            answer = await self.remote.ask(address, beat, timeout_s=HEARTBEAT_TIMEOUT_S)
        except MQError as error:
            if address not in self._silent:
                self._silent.add(address)
                log.warning("broker %s does not take heartbeats: %s", address, error)
            return False
        self.broker_versions[address] = answer.version
        if address in self._silent:
            self._silent.discard(address)
            log.info("broker %s takes heartbeats again", address)
        return True

    def _heartbeat_body(self) -> bytes:
        groups = [*self.producers, INNER_PRODUCER_GROUP]
        return write_json(
            Heartbeat(
                client_id=self.client_id,
                consumer_data_set=[member.heartbeat() for member in self.consumers.values()],
                producer_data_set=[ProducerData(group_name=group) for group in groups],
            ),
            standard=True,
        )

    def _connected(self, address: str) -> None:
        """Introduce ourselves on a new connection, unless a heartbeat has made it."""
        if address in self._beating or self._is_closed:
            return
        if (self.producers or self.consumers) and address in self.broker_addresses():
            self.spawn(self._introduce(address))

    async def _introduce(self, address: str) -> None:
        await self._beat(address)

    async def _say_goodbye(self, header: UnregisterClient) -> None:
        """Tell all brokers, as far as they answer in time."""
        goodbyes = [
            self.loop.create_task(self._unregister(address, header))
            for address in self.broker_addresses()
            if self.remote.peer(address).connection is not None
        ]
        if goodbyes:
            await asyncio.wait(goodbyes)

    async def _unregister(self, address: str, header: UnregisterClient) -> None:
        """Say goodbye to one broker, behind the heartbeat that is under way.

        Originals handle the two in different threads: a heartbeat that comes second there makes a
        member that nobody is, and its queues belong to nobody until it expires.
        """
        if (beating := self._beating.get(address)) is not None:
            await asyncio.wait([beating], timeout=GOODBYE_S)
        try:
            goodbye = request(RequestCode.UNREGISTER_CLIENT, header)
            await self.remote.ask(address, goodbye, timeout_s=GOODBYE_S)
        except MQError as error:
            log.debug("broker %s was not told that we leave: %s", address, error)


def _refuse_second(members: dict[str, T], group: str, kind: str) -> None:
    if group in members:
        raise ClientStateError(
            f"a {kind} of group {group} is running in this instance already; give this one another "
            "group or another instance_name"
        )


async def every(period_s: float, action: Callable[[], Awaitable[object]]) -> None:
    """Do something again and again; a failure is logged and does not end it."""
    while True:
        await asyncio.sleep(period_s)
        try:
            await action()
        except MQError as error:
            log.warning("%s", error)
        except Exception:  # a bug of ours: what is to be done again is needed all the more
            log.exception("a routine of the client failed; it goes on")
