"""Consumer groups, as an administrator sees and changes them.

In: names and settings of groups. Out: what brokers know of them: settings, progress, who is there.

Rules:
1. Making a group that is there already changes what is given and keeps the rest.
2. A group is looked for at the brokers of its retry topic, as the original's tools do it, and at
   all brokers when it has none yet.
3. A group that no broker knows is NotFound; one that has consumed nothing has no rows.
"""

from typing import TypedDict, Unpack

import msgspec

from orbitmq.client.admin_base import Target, check_options
from orbitmq.client.admin_results import (
    GroupInfo,
    GroupProgress,
    GroupSummary,
    QueueDelay,
    QueueProgress,
)
from orbitmq.client.admin_topics import AdminTopics
from orbitmq.client.remote import request
from orbitmq.errors import NotFound, RequestFailed
from orbitmq.wire.bodies_answers import Progress, read_broker_consume_stats, read_consume_stats
from orbitmq.wire.bodies_client import MessageModel, MessageQueue
from orbitmq.wire.bodies_consume import ConsumerConnections, TimeSpans
from orbitmq.wire.bodies_consume import QueueProgress as WireProgress
from orbitmq.wire.bodies_namesrv import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicList,
)
from orbitmq.wire.bodies_topics import GroupForbiddenBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.headers_consume import (
    GetBrokerConsumeStats,
    GetConsumerConnections,
    GetConsumeStats,
    QueryConsumeTimeSpan,
    QueryTopicsOfGroup,
)
from orbitmq.wire.headers_topics import DeleteGroup, GroupForbidden
from orbitmq.wire.names import (
    check_group,
    dead_letter_topic,
    is_retry_topic,
    is_system_group,
    namespace_of,
    retry_topic,
)


class GroupOptions(TypedDict, total=False):
    """What a consumer group can be made with."""

    consume_enable: bool
    """Whether it may consume at all (yes)."""
    broadcast_enable: bool
    """Whether it may consume in broadcasting mode (yes)."""
    from_min_enable: bool
    """Whether it may begin at the first message (yes)."""
    retry_queue_count: int
    """Queues of its retry topic (1)."""
    retry_max_times: int
    """Tries before a message is a dead letter (16)."""
    orderly: bool
    """Of 5.x: pop gives its messages in order (no)."""
    attributes: dict[str, str]
    """Of 5.x."""


_WIRE_NAMES = {
    "consume_enable": "consume_enable",
    "broadcast_enable": "consume_broadcast_enable",
    "from_min_enable": "consume_from_min_enable",
    "retry_queue_count": "retry_queue_count",
    "retry_max_times": "retry_max_times",
    "orderly": "consume_message_orderly",
    "attributes": "attributes",
}
"""Our words for a group's settings, and those of the body."""


class AdminGroups(AdminTopics):
    """The part of Admin about groups."""

    async def groups(self, *, cluster: str | None = None, with_system: bool = False) -> list[str]:
        """Return the names of all consumer groups that brokers know, sorted."""
        targets = await self._targets(cluster, None, is_every_cluster=True)
        found = await self._at_each(targets, self._groups_at)
        names = {name for table in found.values() for name in table}
        if not with_system:
            names = {name for name in names if not is_system_group(name)}
        namespace = self.settings.namespace
        if namespace:
            names = {name for name in names if namespace_of(name) == namespace}
        return sorted(map(self._unwrap, names))

    async def _groups_at(self, target: Target) -> dict[str, SubscriptionGroupConfig]:
        asked = request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        answer = await self._ask(target.address, asked)
        return read_json(answer.body, SubscriptionGroupTable).subscription_group_table

    # --- making and deleting ---

    async def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **options: Unpack[GroupOptions],
    ) -> list[GroupInfo]:
        """Make a consumer group, or change it where it is there already.

        It is made at every master of `cluster`, or at one `broker` (name or address). Without
        either the only cluster is meant. What is not given keeps its value.

        >>> await admin.create_group("billing", retry_max_times=3)
        """
        check_options(options, GroupOptions)
        name = self._wrap(group)
        check_group(name)
        changes = {_WIRE_NAMES[word]: value for word, value in options.items()}

        async def create(target: Target) -> GroupInfo:
            table = await self._groups_at(target)
            before = table.get(name) or SubscriptionGroupConfig(group_name=name)
            config = msgspec.structs.replace(before, **changes)
            body = write_json(config, standard=True)
            asked = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            await self._ask(target.address, asked)
            return self._group_info(target, config)

        found = await self._at_each(await self._targets(cluster, broker), create)
        return list(found.values())

    async def delete_group(
        self, group: str, *, cluster: str | None = None, keeps_offsets: bool = False
    ) -> bool:
        """Delete a group with its offsets, its retry topic and its dead letters.

        Gives whether there was such a group. A group whose consumers are running is made again by
        their next heartbeat where brokers make groups by themselves.
        """
        name = self._wrap(group)
        header = DeleteGroup(
            group_name=name, remove_offset=not keeps_offsets, clean_offset=not keeps_offsets
        )

        async def delete(target: Target) -> bool:
            is_known = name in await self._groups_at(target)
            await self._ask(target.address, request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))
            return is_known

        targets = await self._targets(cluster, None, is_every_cluster=True)
        found = await self._at_each(targets, delete)
        for topic in (retry_topic(name), dead_letter_topic(name)):
            await self.delete_topic(self._unwrap(topic), cluster=cluster)
        return any(found.values())

    async def group_config(self, group: str) -> list[GroupInfo]:
        """Return a group's settings at each broker that knows it; raises NotFound."""
        name = self._wrap(group)
        targets = await self._targets(None, None, is_every_cluster=True)
        found = await self._at_each(targets, self._groups_at)
        infos = [
            self._group_info(target, table[name])
            for target, table in found.items()
            if name in table
        ]
        if not infos:
            raise _no_group(group)
        return infos

    def _group_info(self, target: Target, config: SubscriptionGroupConfig) -> GroupInfo:
        return GroupInfo(
            group=self._unwrap(config.group_name),
            broker=target.name,
            consume_enable=config.consume_enable,
            broadcast_enable=config.consume_broadcast_enable,
            from_min_enable=config.consume_from_min_enable,
            retry_queue_count=config.retry_queue_count,
            retry_max_times=config.retry_max_times,
            orderly=bool(config.consume_message_orderly),
            attributes=config.attributes or {},
        )

    async def set_readable(self, group: str, topic: str, *, is_readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again; brokers of 4.9 cannot do it."""
        header = GroupForbidden(
            group=self._wrap(group), topic=self._wrap(topic), readable=is_readable
        )
        await self._ask_readable(header)

    async def is_readable(self, group: str, topic: str) -> bool:
        """Whether a group may read a topic, as far as `set_readable` is concerned."""
        header = GroupForbidden(group=self._wrap(group), topic=self._wrap(topic))
        return await self._ask_readable(header)

    async def _ask_readable(self, header: GroupForbidden) -> bool:
        _, targets = await self._targets_of_topic(header.topic)

        async def ask(target: Target) -> bool:
            asked = request(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
            answer = await self._ask(target.address, asked)
            return read_json(answer.body, GroupForbiddenBody).readable

        return all((await self._at_each(targets, ask)).values())

    # --- progress ---

    async def progress(self, group: str, *, topic: str | None = None) -> GroupProgress:
        """Return how far a group is in each queue of a topic, or of all that it has offsets in.

        >>> (await admin.progress("billing")).lag
        0

        Raises NotFound when no broker knows the group, RouteNotFound for an unknown topic.
        """
        name = self._wrap(group)
        wrapped_topic = self._wrap(topic) if topic else None
        if wrapped_topic is not None:
            _, targets = await self._targets_of_topic(wrapped_topic)
        else:
            targets = await self._targets_of_group(name)

        async def look(target: Target) -> Progress:
            return await self._progress_at(target, name, wrapped_topic)

        found = await self._at_each(targets, look)
        rows = self._progress_rows([table for table, _ in found.values()])
        if not rows:
            await self.group_config(group)  # raises for a group that nobody knows
        tps = sum(tps for _, tps in found.values())
        return _progress(group, rows, tps)

    async def _progress_at(
        self, target: Target, wrapped_group: str, wrapped_topic: str | None
    ) -> Progress:
        header = GetConsumeStats(consumer_group=wrapped_group, topic=wrapped_topic)
        asked = request(RequestCode.GET_CONSUME_STATS, header)
        answer = await self._ask(target.address, asked, is_long=True)
        return read_consume_stats(answer.body)

    def _progress_rows(self, tables: list[dict[MessageQueue, WireProgress]]) -> list[QueueProgress]:
        rows = [
            QueueProgress(
                topic=self._unwrap(queue.topic),
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                end_offset=one.broker_offset,
                offset=max(0, one.consumer_offset),
                lag=max(0, one.broker_offset - max(0, one.consumer_offset)),
                consumed_ms=max(0, one.consumed_ms),
            )
            for table in tables
            for queue, one in table.items()
        ]
        return sorted(rows, key=lambda row: (row.topic, row.broker, row.queue_id))

    async def broker_progress(self, broker: str, *, is_order: bool = False) -> list[GroupProgress]:
        """Return how far every group is at one broker (name or address).

        With `is_order` only in ordered topics.
        """
        (target,) = await self._targets(None, broker)
        header = GetBrokerConsumeStats(is_order=is_order)
        asked = request(RequestCode.GET_BROKER_CONSUME_STATS, header)
        answer = await self._ask(target.address, asked, is_long=True)
        return [
            _progress(
                self._unwrap(group),
                self._progress_rows([table for table, _ in topics]),
                sum(tps for _, tps in topics),
            )
            for group, topics in sorted(read_broker_consume_stats(answer.body).items())
        ]

    async def delays(self, group: str, topic: str) -> list[QueueDelay]:
        """Return how late a group is in each queue of a topic, by time; raises RouteNotFound."""
        header = QueryConsumeTimeSpan(topic=self._wrap(topic), consumer_group=self._wrap(group))
        _, targets = await self._targets_of_topic(header.topic)

        async def look(target: Target) -> list[QueueDelay]:
            asked = request(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            answer = await self._ask(target.address, asked, is_long=True)
            spans = read_json(answer.body, TimeSpans).consume_time_span_set
            return [
                QueueDelay(
                    topic=topic,
                    broker=span.message_queue.broker_name,
                    queue_id=span.message_queue.queue_id,
                    first_ms=max(0, span.min_ms),
                    last_ms=max(0, span.max_ms),
                    consumed_ms=max(0, span.consumed_ms),
                    delay_ms=max(0, span.delay_ms),
                )
                for span in spans
            ]

        found = await self._at_each(targets, look)
        rows = [row for rows in found.values() for row in rows]
        return sorted(rows, key=lambda row: (row.broker, row.queue_id))

    async def group_topics(self, group: str) -> list[str]:
        """Return the topics that a group has offsets in, its retry topic left out."""
        name = self._wrap(group)

        async def look(target: Target) -> list[str]:
            header = QueryTopicsOfGroup(consumer_group=name)
            try:
                answer = await self._ask(
                    target.address, request(RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
                )
            except RequestFailed as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                table, _ = await self._progress_at(target, name, None)
                return [queue.topic for queue in table]
            return read_json(answer.body, TopicList).topic_list

        found = await self._at_each(await self._targets_of_group(name), look)
        topics = {topic for topics in found.values() for topic in topics}
        return sorted(self._unwrap(topic) for topic in topics if not is_retry_topic(topic))

    async def group_summary(self, group: str) -> GroupSummary:
        """Return a group in one line: who is there, and how far behind it is."""
        name = self._wrap(group)
        targets = await self._targets_of_group(name)
        members = await self._connections(targets, name)
        tables = [await self._progress_or_none(target, name) for target in targets]
        rows = self._progress_rows([table for table, _ in filter(None, tables)])
        model = members[0].message_model if members else ""
        is_known = bool(rows) and model != MessageModel.BROADCASTING.name
        return GroupSummary(
            group=group,
            client_count=len({one.client_id for body in members for one in body.connection_set}),
            message_model=model,
            lag=sum(row.lag for row in rows) if is_known else None,
            tps=sum(tps for _, tps in filter(None, tables)),
        )

    async def _progress_or_none(self, target: Target, wrapped_group: str) -> Progress | None:
        try:
            return await self._progress_at(target, wrapped_group, None)
        except RequestFailed:
            return None

    async def _connections(
        self, targets: list[Target], wrapped_group: str
    ) -> list[ConsumerConnections]:
        """Return what each broker says of a group's members; nothing where nobody is online."""

        async def look(target: Target) -> ConsumerConnections | None:
            header = GetConsumerConnections(consumer_group=wrapped_group)
            asked = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            try:
                answer = await self._ask(target.address, asked)
            except RequestFailed as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                return None
            found = read_json(answer.body, ConsumerConnections)
            return found if found.connection_set else None

        found = await self._at_each(targets, look)
        return [body for body in found.values() if body is not None]


def _progress(group: str, rows: list[QueueProgress], tps: float) -> GroupProgress:
    return GroupProgress(group=group, queues=tuple(rows), lag=sum(row.lag for row in rows), tps=tps)


def _no_group(group: str) -> NotFound:
    return NotFound(
        "group",
        group,
        f"no broker knows it; start a consumer of it, or make it (orbitmq group create {group})",
    )
