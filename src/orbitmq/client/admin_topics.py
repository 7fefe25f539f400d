"""Topics, as an administrator sees and changes them.

In: names and settings of topics. Out: what name servers and brokers know of them.

Rules:
1. Making a topic that is there already changes what is given and keeps the rest.
2. A topic is deleted at every broker and then at every name server.
3. A topic that was just made is waited for: who sends to it next finds its route.
4. A topic with `order` also gets its fixed list of queues at the name servers, as the original's
   tools do it.
"""

import asyncio
from typing import TypedDict, Unpack

from orbitmq.client.admin_base import AdminBase, Target, check_cluster, check_options
from orbitmq.client.admin_results import (
    BrokerEntry,
    QueueEntryInfo,
    QueueStats,
    RouteQueues,
    TopicInfo,
    TopicRouteInfo,
    TopicStats,
)
from orbitmq.client.remote import request
from orbitmq.client.routes import Route
from orbitmq.errors import LocalProtocolError, NotFound, RequestFailed, RouteNotFound
from orbitmq.wire.bodies_answers import read_topic_stats
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_consume import GroupList
from orbitmq.wire.bodies_namesrv import (
    ORDER_TOPIC_NAMESPACE,
    PERM_READ_WRITE,
    TopicConfig,
    TopicConfigTable,
    TopicList,
)
from orbitmq.wire.bodies_topics import QueueEntries
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_consume import QueryGroupsOfTopic
from orbitmq.wire.headers_namesrv import (
    DeleteKv,
    DeleteTopicInNamesrv,
    GetKv,
    GetKvAnswer,
    GetTopicsByCluster,
    PutKv,
)
from orbitmq.wire.headers_topics import (
    CreateTopic,
    DeleteTopic,
    GetTopicConfig,
    GetTopicStats,
    QueryConsumeQueue,
)
from orbitmq.wire.names import (
    SYSTEM_TOPICS,
    TEMPLATE_TOPIC,
    broker_topics,
    check_topic,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_topic,
    namespace_of,
)

QUEUE_COUNT = 8
"""What a topic is made with unless something else is given: the original's number."""

ROUTE_WAIT_S = 3.0
ROUTE_LOOK_S = 0.05

UNIT_LISTS = {
    "unit": RequestCode.GET_UNIT_TOPIC_LIST,
    "subscribed": RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    "subscribed by others": RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
}


class TopicOptions(TypedDict, total=False):
    """What a topic can be made with."""

    queue_count: int
    """Queues at each broker, to read from and to write to (8)."""
    read_queue_count: int
    write_queue_count: int
    perm: int
    """4 read, 2 write, 6 both (6)."""
    order: bool
    """Clients see the same queues even while brokers are away (no)."""
    sys_flag: int
    attributes: dict[str, str]
    """Of 5.x, such as `message.type`."""


class AdminTopics(AdminBase):
    """The part of Admin about topics."""

    async def topics(self, *, cluster: str | None = None, with_system: bool = False) -> list[str]:
        """Return the names of all topics, sorted.

        Retry and dead-letter topics and those of the system are left out unless `with_system`.

        >>> await admin.topics()
        ['orders', 'payments']

        Raises NotFound for an unknown cluster.
        """
        if cluster is None:
            answer = await self._ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByCluster(cluster=cluster)
            answer = await self._ask_namesrv(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        found = set(read_json(answer.body, TopicList).topic_list)
        if not found and cluster is not None:
            check_cluster(await self.clusters(), cluster)
        if not with_system:
            found = await self._users_topics(found)
        namespace = self.settings.namespace
        if namespace:
            found = {topic for topic in found if namespace_of(topic) == namespace}
        return sorted(map(self._unwrap, found))

    async def _users_topics(self, topics: set[str]) -> set[str]:
        names = set(SYSTEM_TOPICS)
        for cluster in await self.clusters():
            for broker in cluster.brokers:
                names |= broker_topics(cluster.name, broker.name)
        return {
            topic
            for topic in topics - names
            if not (is_system_topic(topic) or is_retry_topic(topic) or is_dead_letter_topic(topic))
        }

    async def unit_topics(self, which: str = "unit") -> list[str]:
        """Return the topics of units: `unit`, `subscribed` by units, or `subscribed by others`."""
        if which not in UNIT_LISTS:
            raise LocalProtocolError(f"{which!r} is none of {', '.join(UNIT_LISTS)}")
        answer = await self._ask_namesrv(UNIT_LISTS[which])
        return sorted(map(self._unwrap, read_json(answer.body, TopicList).topic_list))

    # --- making and deleting ---

    async def create_topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **options: Unpack[TopicOptions],
    ) -> list[TopicInfo]:
        """Make a topic, or change it where it is there already; give its settings at each broker.

        It is made at every master of `cluster`, or at one `broker` (name or address). Without
        either the only cluster is meant. What is not given keeps its value, for a new topic 8
        queues, readable and writable.

        >>> await admin.create_topic("orders", queue_count=16)

        Raises NotFound for an unknown cluster or broker, RequestFailed when a broker refuses.
        """
        check_options(options, TopicOptions)
        name = self._wrap(topic)
        check_topic(name)
        targets = await self._targets(cluster, broker)

        async def create(target: Target) -> TopicInfo:
            config = _changed(await self._config_at(target, name), name, options)
            await self._ask(target.address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, config))
            return self._info_of(target, config, options)

        found = await self._at_each(targets, create)
        await self._await_route(name, [target.name for target in targets])
        if options.get("order"):
            await self._put_order(name, list(found.values()))
        return list(found.values())

    async def update_topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **options: Unpack[TopicOptions],
    ) -> list[TopicInfo]:
        """Change a topic that exists, as `create_topic`; raises RouteNotFound when it does not."""
        await self._instance.routes.look_up(self._wrap(topic))
        return await self.create_topic(topic, cluster=cluster, broker=broker, **options)

    def _info_of(self, target: Target, header: CreateTopic, options: TopicOptions) -> TopicInfo:
        return TopicInfo(
            topic=self._unwrap(header.topic),
            broker=target.name,
            read_queue_count=header.read_queue_count,
            write_queue_count=header.write_queue_count,
            perm=header.perm,
            order=header.order,
            sys_flag=header.topic_sys_flag or 0,
            attributes=options.get("attributes", {}),
        )

    async def _put_order(self, wrapped_topic: str, made: list[TopicInfo]) -> None:
        """Write down which queues an ordered topic has, beside those of other brokers."""
        parts = await self._order_parts(wrapped_topic)
        parts |= {info.broker: str(info.write_queue_count) for info in made}
        await self._write_order(wrapped_topic, parts)

    async def _forget_order(self, wrapped_topic: str, brokers: set[str]) -> None:
        """Let name servers forget the queues that an ordered topic had at these brokers."""
        parts = await self._order_parts(wrapped_topic)
        left = {broker: count for broker, count in parts.items() if broker not in brokers}
        if left:
            await self._write_order(wrapped_topic, left)
        elif parts:
            header = DeleteKv(namespace=ORDER_TOPIC_NAMESPACE, key=wrapped_topic)
            await self._tell_namesrvs(RequestCode.DELETE_KV_CONFIG, header)

    async def _order_parts(self, wrapped_topic: str) -> dict[str, str]:
        """Return what name servers have of an ordered topic: its queues by broker.

        Its route does not say so unless they have orderMessageEnable.
        """
        header = GetKv(namespace=ORDER_TOPIC_NAMESPACE, key=wrapped_topic)
        try:
            answer = await self._ask_namesrv(RequestCode.GET_KV_CONFIG, header)
        except RequestFailed as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return {}
        value = read_header(GetKvAnswer, answer.fields).value or ""
        return dict(part.rsplit(":", 1) for part in value.split(";") if ":" in part)

    async def _write_order(self, wrapped_topic: str, parts: dict[str, str]) -> None:
        value = ";".join(f"{broker}:{count}" for broker, count in sorted(parts.items()))
        header = PutKv(namespace=ORDER_TOPIC_NAMESPACE, key=wrapped_topic, value=value)
        await self._tell_namesrvs(RequestCode.PUT_KV_CONFIG, header)

    async def _await_route(self, wrapped_topic: str, brokers: list[str]) -> None:
        """Return when a name server knows the topic at these brokers, or after ROUTE_WAIT_S."""
        loop = self._instance.loop
        end_s = loop.time() + ROUTE_WAIT_S
        while not await self._is_routed(wrapped_topic, brokers) and loop.time() < end_s:
            await asyncio.sleep(ROUTE_LOOK_S)

    async def _is_routed(self, wrapped_topic: str, brokers: list[str]) -> bool:
        try:
            route = await self._instance.routes.look_up(wrapped_topic)
        except RouteNotFound:
            return False
        there = {queues.broker_name for queues in route.data.queue_datas}
        return there.issuperset(broker for broker in brokers if ":" not in broker)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> bool:
        """Delete a topic with all its messages, at all brokers and name servers.

        Gives whether there was such a topic; what is not there is no error. With `cluster` only
        there.
        """
        name = self._wrap(topic)
        try:
            await self._instance.routes.look_up(name)
            is_known = True
        except RouteNotFound:
            is_known = False
        targets = await self._targets(cluster, None, is_every_cluster=True)

        async def delete(target: Target) -> None:
            await self._ask(
                target.address,
                request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic=name)),
            )

        await self._at_each(targets, delete)
        for cluster_name in sorted({target.cluster for target in targets}):
            header = DeleteTopicInNamesrv(topic=name, cluster_name=cluster_name)
            await self._tell_namesrvs(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        await self._forget_order(name, {target.name for target in targets})
        return is_known

    # --- looking ---

    async def topic_config(self, topic: str) -> list[TopicInfo]:
        """Return a topic's settings at each of its brokers; raises RouteNotFound."""
        name = self._wrap(topic)
        _, targets = await self._targets_of_topic(name)

        async def look(target: Target) -> TopicConfig | None:
            return await self._config_at(target, name)

        found = await self._at_each(targets, look)
        return [
            TopicInfo(
                topic=topic,
                broker=target.name,
                read_queue_count=config.read_queue_count,
                write_queue_count=config.write_queue_count,
                perm=config.perm,
                order=config.order,
                sys_flag=config.topic_sys_flag,
                attributes=config.attributes or {},
            )
            for target, config in found.items()
            if config is not None
        ]

    async def _config_at(self, target: Target, wrapped_topic: str) -> TopicConfig | None:
        """Return a topic's settings at a broker; 4.9 is asked for those of all topics."""
        asked = request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic=wrapped_topic))
        try:
            answer = await self._ask(target.address, asked)
        except RequestFailed as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        else:
            return read_json(answer.body, TopicConfig)
        answer = await self._ask(target.address, request(RequestCode.GET_ALL_TOPIC_CONFIG))
        return read_json(answer.body, TopicConfigTable).topic_config_table.get(wrapped_topic)

    async def topic_route(self, topic: str) -> TopicRouteInfo:
        """Return where a topic is; raises RouteNotFound."""
        route = await self._instance.routes.look_up(self._wrap(topic))
        return _route_info(topic, route)

    async def topic_stats(self, topic: str) -> TopicStats:
        """Return what a topic's queues hold, at all brokers; raises RouteNotFound."""
        name = self._wrap(topic)
        _, targets = await self._targets_of_topic(name)

        async def look(target: Target) -> list[QueueStats]:
            return await self._stats_at(target, name)

        found = await self._at_each(targets, look)
        queues = sorted(
            (row for rows in found.values() for row in rows),
            key=lambda row: (row.broker, row.queue_id),
        )
        return TopicStats(
            topic=topic,
            queues=tuple(queues),
            message_count=sum(row.max_offset - row.min_offset for row in queues),
        )

    async def _stats_at(self, target: Target, wrapped_topic: str) -> list[QueueStats]:
        asked = request(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats(topic=wrapped_topic))
        answer = await self._ask(target.address, asked)
        return [
            QueueStats(
                topic=self._unwrap(queue.topic),
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                min_offset=max(0, offset.min_offset),
                max_offset=max(0, offset.max_offset),
                stored_ms=max(0, offset.last_update_ms),
            )
            for queue, offset in sorted(read_topic_stats(answer.body).items())
        ]

    async def topic_groups(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or have consumed it; raises RouteNotFound."""
        name = self._wrap(topic)
        _, targets = await self._targets_of_topic(name)

        async def look(target: Target) -> list[str]:
            asked = request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryGroupsOfTopic(topic=name))
            answer = await self._ask(target.address, asked)
            return read_json(answer.body, GroupList).group_list

        found = await self._at_each(targets, look)
        return sorted({self._unwrap(group) for groups in found.values() for group in groups})

    async def queue_entries(
        self, queue: MessageQueue, queue_offset: int, count: int = 10, *, group: str = ""
    ) -> list[QueueEntryInfo]:
        """Return entries of a queue's index, and which of them a running `group` would be given.

        Raises NotFound when the queue has nothing at that offset.
        """
        wrapped = self._wrap_queue(queue)
        header = QueryConsumeQueue(
            topic=wrapped.topic,
            queue_id=wrapped.queue_id,
            index=queue_offset,
            count=count,
            consumer_group=self._wrap(group) if group else None,
        )
        address = await self._master_of(wrapped)
        answer = await self._ask(address, request(RequestCode.QUERY_CONSUME_QUEUE, header))
        if not answer.body:
            place = f"{queue_offset} in queue {queue.queue_id} of {queue.topic}"
            raise NotFound("offset", place, answer.remark or "it holds other offsets")
        return [
            QueueEntryInfo(
                queue_offset=queue_offset + place,
                log_offset=entry.log_offset,
                size_bytes=entry.size,
                tag_code=entry.tags_code,
                is_passed=entry.is_passed,
            )
            for place, entry in enumerate(read_json(answer.body, QueueEntries).queue_data)
        ]


def _changed(before: TopicConfig | None, name: str, options: TopicOptions) -> CreateTopic:
    """Return the request that makes a topic what the options say (rule 1)."""
    new = TopicConfig(topic_name=name, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT)
    now = before or new
    read_count = options.get("queue_count", now.read_queue_count)
    write_count = options.get("queue_count", now.write_queue_count)
    attributes = options.get("attributes")
    return CreateTopic(
        topic=name,
        default_topic=TEMPLATE_TOPIC,
        read_queue_count=options.get("read_queue_count", read_count),
        write_queue_count=options.get("write_queue_count", write_count),
        perm=options.get("perm", now.perm if before else PERM_READ_WRITE),
        topic_filter_type=now.topic_filter_type,
        topic_sys_flag=options.get("sys_flag", now.topic_sys_flag),
        order=options.get("order", now.order),
        attributes=_attribute_text(attributes) if attributes else None,
    )


def _attribute_text(attributes: dict[str, str]) -> str:
    """Write attributes as 5.x wants them: `+name=value` with commas."""
    return ",".join(f"+{name}={value}" for name, value in attributes.items())


def _route_info(topic: str, route: Route) -> TopicRouteInfo:
    return TopicRouteInfo(
        topic=topic,
        queues=tuple(
            RouteQueues(
                broker=queues.broker_name,
                read_queue_count=queues.read_queue_count,
                write_queue_count=queues.write_queue_count,
                perm=queues.perm,
            )
            for queues in sorted(route.data.queue_datas, key=lambda queues: queues.broker_name)
        ),
        brokers=tuple(
            BrokerEntry(
                cluster=broker.cluster,
                name=broker.broker_name,
                addresses=dict(sorted(broker.broker_addrs.items())),
            )
            for broker in sorted(route.data.broker_datas, key=lambda broker: broker.broker_name)
        ),
        order_conf=route.data.order_topic_conf or "",
    )
