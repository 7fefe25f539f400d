"""Where topics are: routes as name servers give them, and the queues and addresses in them.

In: topics that somebody uses. Out: the queues to send to or to consume, the addresses of brokers,
and word to those who watch a topic when its route has changed.

Rules:
1. A route is asked for when it is first needed and then kept fresh by the instance's timer. Whoever
   asks while an answer is under way waits for the same one.
2. A topic that does not exist yet may be sent to: the template topic's brokers then make it. Its
   queues are as many as the template has, at most `queue_count` (the original's rule).
3. A route that a name server no longer has stays in use: brokers answer for themselves. That of a
   template is taken anew instead: nothing is at its brokers yet.
4. A route that nobody has used since the last round is forgotten. Where two routes say different
   things of a broker, the newer one counts.
5. Queues are in the order of broker names and queue ids, so that every client sees the same list.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from orbitmq.client.broker_directory import BrokerDirectory
from orbitmq.client.name_servers import NameServers, nobody_answers
from orbitmq.client.remote import failure_of, request
from orbitmq.errors import (
    BrokerNotFound,
    ConnectFailed,
    MQError,
    OutcomeUnknown,
    RouteNotFound,
)
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_namesrv import ClusterInfo, QueueData, TopicRoute
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.headers_namesrv import GetRoute
from orbitmq.wire.names import TEMPLATE_TOPIC

log = logging.getLogger(__name__)

ROUTE_TIMEOUT_S = 3.0
MASTER_ID = 0
PERM_WRITE, PERM_READ = 2, 4

Changed = Callable[[str], None]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The route of one topic."""

    topic: str
    data: TopicRoute
    publish_queues: tuple[MessageQueue, ...]
    """Those a producer may send to: writable, at a broker with a master."""
    subscribe_queues: tuple[MessageQueue, ...]
    template_queue_count: int = 0
    """How many queues a topic that does not exist yet is to get."""

    @property
    def is_template(self) -> bool:
        """Whether the topic does not exist yet."""
        return self.template_queue_count > 0

    def addresses(self, broker_name: str) -> dict[int, str]:
        """Return the addresses of a broker's members by their ids; empty when it is unknown."""
        for broker in self.data.broker_datas:
            if broker.broker_name == broker_name:
                return broker.broker_addrs
        return {}


class Routes:
    """The routes that one client uses."""

    def __init__(self, name_servers: NameServers | BrokerDirectory) -> None:
        self._name_servers = name_servers
        self._routes: dict[str, Route] = {}
        self._asking: dict[str, asyncio.Task[Route]] = {}
        self._used: set[str] = set()
        self._watchers: list[Changed] = []

    def watch(self, changed: Changed) -> None:
        """Call `changed` with every topic whose route is new or another one."""
        self._watchers.append(changed)

    def unwatch(self, changed: Changed) -> None:
        """Call it no more; nothing when it is not called."""
        if changed in self._watchers:
            self._watchers.remove(changed)

    def known(self, topic: str) -> Route | None:
        """Return the route that is known, without asking."""
        return self._routes.get(topic)

    async def find(self, topic: str, *, queue_count: int = 0) -> Route:
        """Return a topic's route, asked for if it is not known.

        With `queue_count` a topic that does not exist yet gets the template's (rule 2). Raises
        RouteNotFound, or ConnectFailed or OutcomeUnknown when no name server answers.
        """
        self._used.add(topic)
        route = self._routes.get(topic)
        if route is not None and (queue_count or not route.is_template):
            return route
        try:
            return await self.refresh(topic)
        except RouteNotFound as error:
            if not queue_count:
                raise await self._explained(error, "this topic") from None
        try:
            return await self._take_template(topic, queue_count)
        except RouteNotFound as error:
            what = "this topic, and sending makes none (autoCreateTopicEnable=false)"
            raise await self._explained(error, what) from None

    async def refresh(self, topic: str) -> Route:
        """Ask for a topic's route now; the errors are those of `find`."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._ask(topic))
            self._asking[topic] = asking
            asking.add_done_callback(lambda done: self._asked(topic, done))
        return await asyncio.shield(asking)

    async def refresh_all(self, topics: Iterable[str]) -> None:
        """Ask for the routes of these topics and of those that were used since the last round.

        What fails is logged and stays as it was; the others are forgotten.
        """
        wanted = {*topics, *(self._used & set(self._routes))}
        for topic in sorted(wanted):
            try:
                await self.refresh(topic)
            except RouteNotFound as error:
                log.debug("%s", error)
            except ConnectFailed as error:  # the name servers' silence is told by who asks them
                log.debug("all routes stay as they are: %s", error)
                return
            except MQError as error:
                log.warning("the route of topic %s stays as it is: %s", topic, error)
        for topic in set(self._routes) - wanted - self._used:
            self.forget(topic)
        self._used = set()

    def forget(self, topic: str) -> None:
        """Forget a topic that nobody uses any more."""
        self._routes.pop(topic, None)

    async def wait_quiet(self) -> None:
        """Return when no answer is under way any more."""
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def broker_addresses(self) -> dict[str, dict[int, str]]:
        """Return all brokers of all routes: their members' addresses by id."""
        found: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            for broker in route.data.broker_datas:
                found.setdefault(broker.broker_name, {}).update(broker.broker_addrs)
        return found

    async def master_address(self, queue: MessageQueue) -> str:
        """Return where a queue's master is, looked up again if it is unknown."""
        return await self.address(queue, MASTER_ID, is_exact=True)

    async def address(
        self, queue: MessageQueue, broker_id: int = MASTER_ID, *, is_exact: bool = False
    ) -> str:
        """Return the address of a queue's broker: that member's or, unless exact, any other's.

        Raises BrokerNotFound when the route, asked for again, has none.
        """
        self._used.add(queue.topic)
        route = self._routes.get(queue.topic)
        found = _member(route, queue.broker_name, broker_id, is_exact=is_exact)
        if found is None:
            route = await self.refresh(queue.topic)
            found = _member(route, queue.broker_name, broker_id, is_exact=is_exact)
        if found is None:
            raise BrokerNotFound(queue.broker_name, queue.topic)
        return found

    # --- asking ---

    def _asked(self, topic: str, asking: "asyncio.Task[Route]") -> None:
        self._asking.pop(topic, None)
        if not asking.cancelled():
            asking.exception()  # who asked may be gone: that is nothing to complain of

    async def look_up(self, topic: str) -> Route:
        """Ask for a topic's route without keeping it, for those who only want to know."""
        return route_of(topic, await self._fetch(topic))

    async def _ask(self, topic: str) -> Route:
        try:
            data = await self._fetch(topic)
        except RouteNotFound:
            known = self._routes.get(topic)
            if known is not None and known.is_template:
                await self._take_template(topic, known.template_queue_count)
            raise
        return self._keep(route_of(topic, data))

    async def _take_template(self, topic: str, queue_count: int) -> Route:
        try:
            template = await self._fetch(TEMPLATE_TOPIC)
        except RouteNotFound as error:
            raise RouteNotFound(topic, error.name_servers, error.cause, advice_for(topic)) from None
        return self._keep(template_route(topic, template, queue_count))

    async def _explained(self, error: RouteNotFound, what: str) -> RouteNotFound:
        """Return the error with what the name servers do know."""
        brokers = await self._brokers()
        if brokers is None:
            return error
        cause, advice = f"they know the brokers {', '.join(brokers)} but not {what}", error.advice
        if not brokers:
            cause = "no broker has registered with them"
            advice = (
                "start one with these name servers, or give this client those of another cluster"
            )
        return RouteNotFound(error.topic, error.name_servers, cause, advice)

    async def _brokers(self) -> list[str] | None:
        """Return the names of all brokers that are registered; None when nobody says."""
        asked = request(RequestCode.GET_BROKER_CLUSTER_INFO)
        try:
            answer = await self._name_servers.call(asked, ROUTE_TIMEOUT_S)
            if answer.code != ResponseCode.SUCCESS:
                return None
            return sorted(read_json(answer.body, ClusterInfo).broker_addr_table)
        except MQError:
            return None

    async def _fetch(self, topic: str) -> TopicRoute:
        asked = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic=topic))
        servers = self._name_servers
        try:
            answer = await servers.call(asked, ROUTE_TIMEOUT_S)
        except (ConnectFailed, OutcomeUnknown) as error:
            problem = f"no name server says where topic {topic} is"
            raise nobody_answers(problem, error, servers.addresses) from error
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise RouteNotFound(
                topic,
                servers.addresses,
                "they do not know it",
                advice_for(topic),
            )
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer)
        return read_json(answer.body, TopicRoute)

    def _keep(self, route: Route) -> Route:
        before = self._routes.pop(route.topic, None)
        self._routes[route.topic] = route  # the newest is the last one (rule 4)
        if before != route:
            if before is not None:
                log.info(
                    "the route of topic %s has changed: %s", route.topic, _change(before, route)
                )
            for changed in list(self._watchers):
                changed(route.topic)
        return route


def advice_for(topic: str) -> str:
    """Return what to do about a topic that does not exist."""
    return f"make it (orbitmq topic create {topic}), or check its name and the name servers"


def route_of(topic: str, data: TopicRoute) -> Route:
    """Return the route that a name server's answer describes."""
    ordered = _ordered_queues(topic, data)
    return Route(
        topic=topic,
        data=data,
        publish_queues=ordered if ordered is not None else _writable(topic, data),
        subscribe_queues=tuple(
            MessageQueue(topic, queues.broker_name, queue_id)
            for queues in _sorted(data)
            if queues.perm & PERM_READ
            for queue_id in range(queues.read_queue_count)
        ),
    )


def template_route(topic: str, template: TopicRoute, queue_count: int) -> Route:
    """Return the route of a topic that brokers will make from the template."""
    data = msgspec.structs.replace(
        template,
        queue_datas=[_limited(queues, queue_count) for queues in template.queue_datas],
    )
    return msgspec.structs.replace(
        route_of(topic, data), template_queue_count=queue_count, subscribe_queues=()
    )


def _limited(queues: QueueData, queue_count: int) -> QueueData:
    count = min(queue_count, queues.write_queue_count)
    return msgspec.structs.replace(queues, read_queue_count=count, write_queue_count=count)


def _sorted(data: TopicRoute) -> list[QueueData]:
    return sorted(data.queue_datas, key=lambda queues: queues.broker_name)


def _writable(topic: str, data: TopicRoute) -> tuple[MessageQueue, ...]:
    masters = {
        broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs
    }
    return tuple(
        MessageQueue(topic, queues.broker_name, queue_id)
        for queues in _sorted(data)
        if queues.perm & PERM_WRITE and queues.broker_name in masters
        for queue_id in range(queues.write_queue_count)
    )


def _ordered_queues(topic: str, data: TopicRoute) -> tuple[MessageQueue, ...] | None:
    """Return the queues that an order configuration fixes (`broker-a:4;broker-b:4`), or None."""
    if not data.order_topic_conf:
        return None
    queues: list[MessageQueue] = []
    for part in data.order_topic_conf.split(";"):
        broker_name, _, count = part.rpartition(":")
        if broker_name and count.isascii() and count.isdigit():
            queues += (MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(count)))
    return tuple(queues)


def _change(before: Route, after: Route) -> str:
    return f"from {_shown(before)} to {_shown(after)}"


def _shown(route: Route) -> str:
    """Return a route's brokers in a few words: `a at 10.0.0.1:10911 (read 4, write 4, perm 6)`."""
    shown = [
        f"{queues.broker_name} at {', '.join(route.addresses(queues.broker_name).values()) or '-'} "
        f"(read {queues.read_queue_count}, write {queues.write_queue_count}, perm {queues.perm})"
        for queues in _sorted(route.data)
    ]
    return "; ".join(shown) or "no broker"


def _member(route: Route | None, broker_name: str, broker_id: int, *, is_exact: bool) -> str | None:
    members = route.addresses(broker_name) if route is not None else {}
    if broker_id in members or is_exact:
        return members.get(broker_id)
    return members[min(members)] if members else None
