"""What the parts of Admin share: its life, whom to ask, and asking several at a time.

In: names of clusters, brokers, topics and groups. Out: the brokers that know about them, their
answers, and one error that says where something was done and where not.

Rules:
1. Brokers are found through name servers: by the route of a topic, of a group's retry topic, or in
   the list of all brokers (106). Nothing is remembered: an administrator sees what is.
2. Masters are asked; for a broker without one whoever is there, unless something is to be changed.
3. Brokers are asked at a time, at most ASKED_AT_A_TIME. Every one is asked even if another fails.
"""

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self, TypeVar, Unpack

from orbitmq.client.admin_results import BrokerEntry, Cluster
from orbitmq.client.instance import Instance, join
from orbitmq.client.name_servers import nobody_answers
from orbitmq.client.remote import SUCCESS, failure_of, request
from orbitmq.client.routes import MASTER_ID, Route
from orbitmq.client.settings import ClientOptions, ClientSettings, settings_from
from orbitmq.errors import (
    ClientStateError,
    ConnectFailed,
    MQError,
    NotFound,
    OutcomeUnknown,
    PartlyFailed,
    PartlyUnknown,
    RequestFailed,
    RouteNotFound,
    SettingError,
)
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_namesrv import BrokerData, ClusterInfo
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.fields import Header
from orbitmq.wire.names import retry_topic, unwrap_namespace, wrap_namespace

ASKED_AT_A_TIME = 16
LONG_FACTOR = 3.0
"""Questions that brokers read much for, or pass on to clients, get so many times the time-out."""

T = TypeVar("T")


class AdminOptions(ClientOptions, total=False):
    """Keyword arguments of Admin; AdminSettings says what they mean."""


class AdminSettings(ClientSettings, frozen=True, kw_only=True):
    """How an administrator reaches its cluster."""


class Target(NamedTuple):
    """One broker to ask."""

    cluster: str
    name: str
    broker_id: int
    address: str


class AdminBase:
    """Life and questions."""

    def __init__(self, namesrv: str | None = None, **options: Unpack[AdminOptions]) -> None:
        self.settings: AdminSettings = settings_from(
            AdminSettings, dict(options), namesrv=namesrv or ""
        )
        """What it was told, defaults included."""
        self._joined: Instance | None = None
        self._state = "fresh"

    # --- life ---

    async def start(self) -> None:
        """Find the name servers. Brokers are dialled when they are asked something.

        Raises SettingError when no name server is known, ClientStateError on a second start.
        """
        if self._state != "fresh":
            raise ClientStateError(f"this Admin is {self._state}; make another one")
        self._state = "running"
        try:
            joined = await join(self.settings)
        except BaseException:
            self._state = "closed"
            raise
        if self._is_closed():
            await joined.leave()
            raise ClientStateError("this Admin was closed while it started; make another one")
        self._joined = joined

    def _is_closed(self) -> bool:
        return self._state == "closed"

    async def close(self) -> None:
        """End all connections; calling it again does nothing."""
        self._state = "closed"
        joined, self._joined = self._joined, None
        if joined is not None:
            await joined.leave()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _instance(self) -> Instance:
        if self._joined is None:
            advice = (
                "call its start() first, or use it in a with block"
                if self._state == "fresh"
                else "make another one"
            )
            raise ClientStateError(f"this Admin is not running; {advice}")
        return self._joined

    # --- names ---

    def _wrap(self, name: str) -> str:
        return wrap_namespace(self.settings.namespace, name)

    def _unwrap(self, name: str) -> str:
        return unwrap_namespace(self.settings.namespace, name)

    def _wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._wrap(queue.topic), queue.broker_name, queue.queue_id)

    # --- asking ---

    async def _ask(
        self,
        address: str,
        asked: Command,
        *,
        is_long: bool = False,
        expected: Iterable[int] = (SUCCESS,),
    ) -> Command:
        """Return a broker's answer; what it refuses with names it."""
        timeout_s = self.settings.request_timeout_s * (LONG_FACTOR if is_long else 1.0)
        try:
            return await self._instance.remote.ask(
                address, asked, timeout_s=timeout_s, expected=tuple(expected)
            )
        except RequestFailed as error:
            remark = f"{error.remark} (said by {address})"
            raise type(error)(error.code, remark) from None

    async def _ask_namesrv(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Command:
        """Return the answer of the first name server that answers."""
        servers = self._instance.name_servers
        asked = request(code, header, body)
        try:
            answer = await servers.call(asked, self.settings.request_timeout_s)
        except (ConnectFailed, OutcomeUnknown) as error:
            raise nobody_answers("no name server answers", error, servers.addresses) from error
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer)
        return answer

    async def _tell_namesrvs(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> dict[str, Command]:
        """Have every name server do something; give their answers by address."""
        addresses = self._instance.name_servers.addresses
        return await self._each(
            {address: self._ask(address, request(code, header, body)) for address in addresses}
        )

    async def _each(self, asked: dict[str, Awaitable[T]]) -> dict[str, T]:
        """Return the answers of all that are asked; raises when one of them fails (rule 3)."""
        limit = asyncio.Semaphore(ASKED_AT_A_TIME)

        async def one(answer: Awaitable[T]) -> T:
            async with limit:
                return await answer

        found = await asyncio.gather(*map(one, asked.values()), return_exceptions=True)
        answers: dict[str, T] = {}
        failures: list[tuple[str, Exception]] = []
        for name, answer in zip(asked, found, strict=True):
            if not isinstance(answer, BaseException):
                answers[name] = answer
            elif isinstance(answer, MQError):
                failures.append((name, answer))
            else:
                raise answer
        if failures:
            raise _failure(list(answers), failures)
        return answers

    async def _at_each(
        self, targets: Sequence[Target], act: Callable[[Target], Awaitable[T]]
    ) -> dict[Target, T]:
        """Do something at several brokers; return what came of it."""
        named = {f"{target.name} ({target.address})": target for target in targets}
        found = await self._each({name: act(target) for name, target in named.items()})
        return {named[name]: answer for name, answer in found.items()}

    # --- whom to ask ---

    async def clusters(self) -> list[Cluster]:
        """Return all clusters with their brokers, by name.

        >>> [broker.master for cluster in await admin.clusters() for broker in cluster.brokers]
        """
        answer = await self._ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = read_json(answer.body, ClusterInfo)
        return [
            Cluster(
                name=name,
                brokers=tuple(
                    _entry(info.broker_addr_table[broker])
                    for broker in sorted(brokers)
                    if broker in info.broker_addr_table
                ),
            )
            for name, brokers in sorted(info.cluster_addr_table.items())
        ]

    async def _targets(
        self, cluster: str | None, broker: str | None, *, is_every_cluster: bool = False
    ) -> list[Target]:
        """Return the masters that are meant: one broker's, one cluster's or, with neither, all.

        Raises NotFound for a name that nobody has, SettingError when several clusters would do.
        """
        clusters = await self.clusters()
        if broker is not None:
            return [_one_target(clusters, broker)]
        names = [known.name for known in clusters]
        if cluster is not None:
            check_cluster(clusters, cluster)
        if cluster is None and len(names) > 1 and not is_every_cluster:
            raise SettingError(
                f"there are several clusters ({', '.join(names)}); name one of them"
                " (cluster=, --cluster)"
            )
        targets = [
            target
            for known in clusters
            if cluster in (None, known.name)
            for entry in known.brokers
            for target in _masters([entry])
        ]
        if not targets:
            raise NotFound("broker", "with a master", "no broker has registered; is one running?")
        return targets

    async def _targets_of_topic(self, wrapped_topic: str) -> tuple[Route, list[Target]]:
        """Return a topic's route and its brokers; raises RouteNotFound."""
        route = await self._instance.routes.look_up(wrapped_topic)
        with_queues = {queues.broker_name for queues in route.data.queue_datas}
        entries = [_entry(data) for data in route.data.broker_datas]
        return route, _anyone([entry for entry in entries if entry.name in with_queues])

    async def _targets_of_group(self, wrapped_group: str) -> list[Target]:
        """Return the brokers that know a group: by its retry topic's route, else all of them."""
        try:
            _, targets = await self._targets_of_topic(retry_topic(wrapped_group))
        except RouteNotFound:
            targets = []
        if targets:
            return targets
        clusters = await self.clusters()
        return _anyone([entry for cluster in clusters for entry in cluster.brokers])

    async def _master_of(self, wrapped_queue: MessageQueue) -> str:
        """Return where a queue's master is; raises NotFound when its route has none."""
        route, targets = await self._targets_of_topic(wrapped_queue.topic)
        for target in targets:
            if target.name == wrapped_queue.broker_name:
                return target.address
        names = [target.name for target in targets]
        raise NotFound(
            "broker",
            f"{wrapped_queue.broker_name} with topic {self._unwrap(route.topic)}",
            _known(names, "no broker has it"),
        )


def check_options(options: Mapping[str, object], kind: type) -> None:
    """Raise SettingError for a keyword argument that there is none of, with the nearest one."""
    known = list(kind.__annotations__)
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise SettingError(f"there is no option {name}; {advice}")


def check_cluster(clusters: list[Cluster], name: str) -> None:
    """Raise NotFound when there is no cluster of that name."""
    names = [known.name for known in clusters]
    if name not in names:
        raise NotFound("cluster", name, _known(names, "no broker has registered yet"))


def _entry(data: BrokerData) -> BrokerEntry:
    addresses = dict(sorted(data.broker_addrs.items()))
    return BrokerEntry(cluster=data.cluster, name=data.broker_name, addresses=addresses)


def _anyone(entries: list[BrokerEntry]) -> list[Target]:
    """Return one member of each broker: its master, else the slave with the least id."""
    return [
        Target(entry.cluster, entry.name, min(entry.addresses), entry.any_address)
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.any_address is not None
    ]


def _masters(entries: list[BrokerEntry]) -> list[Target]:
    return [target for target in _anyone(entries) if target.broker_id == MASTER_ID]


def _one_target(clusters: list[Cluster], broker: str) -> Target:
    """Find a broker by its name (its master) or by an address; an unknown address is taken."""
    entries = [entry for cluster in clusters for entry in cluster.brokers]
    for entry in entries:
        if entry.name == broker and entry.master is not None:
            return Target(entry.cluster, entry.name, MASTER_ID, entry.master)
        for broker_id, address in entry.addresses.items():
            if address == broker:
                return Target(entry.cluster, entry.name, broker_id, address)
    if ":" in broker:
        return Target("", broker, MASTER_ID, broker)
    names = [entry.name for entry in entries]
    raise NotFound("broker", broker, _known(names, "no broker has registered"))


def _known(names: Iterable[str], otherwise: str) -> str:
    """Say which names there are."""
    found = sorted(set(names))
    return f"known are {', '.join(found)}" if found else otherwise


def _failure(done: list[str], failures: list[tuple[str, Exception]]) -> Exception:
    if not done and len(failures) == 1:
        return failures[0][1]
    is_unknown = any(isinstance(error, OutcomeUnknown) for _, error in failures)
    return (PartlyUnknown if is_unknown else PartlyFailed)(done, failures)
