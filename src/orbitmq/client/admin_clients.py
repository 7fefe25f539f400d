"""Clients: who is connected, how running consumers are doing, and having one consume a message.

In: groups and client ids. Out: what brokers know of their clients, and what these say themselves.
Rule: members send heartbeats to every broker, so that one broker may know some and another others
for a moment; what all of them know is put together.
"""

from orbitmq.client.admin_base import Target
from orbitmq.client.admin_messages import AdminMessages
from orbitmq.client.admin_results import (
    ClientEntry,
    DirectResult,
    GroupMembers,
    MemberQueue,
    MemberTopic,
    RunningInfo,
    SubscriptionEntry,
)
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.remote import request
from orbitmq.errors import LocalProtocolError, NotFound, RequestFailed
from orbitmq.wire.bodies_answers import DirectResultBody, RunningInfoBody, by_queue
from orbitmq.wire.bodies_client import SubscriptionData
from orbitmq.wire.bodies_consume import ClientConnection, ProducerConnections, ProducerTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.headers_consume import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetProducerConnections,
)

MIB = 1_048_576


class AdminClients(AdminMessages):
    """The part of Admin about clients."""

    async def consumers(self, group: str) -> GroupMembers:
        """Return who consumes for a group now; nobody is no error, an unknown group is NotFound."""
        name = self._wrap(group)
        bodies = await self._connections(await self._targets_of_group(name), name)
        if not bodies:
            await self.group_config(group)  # raises for a group that nobody knows
            return GroupMembers(
                group=group,
                clients=(),
                subscriptions=(),
                consume_type="",
                message_model="",
                from_where="",
            )
        clients = {one.client_id: one for body in bodies for one in body.connection_set}
        table = {topic: data for body in bodies for topic, data in body.subscription_table.items()}
        return GroupMembers(
            group=group,
            clients=tuple(_client(clients[client_id]) for client_id in sorted(clients)),
            subscriptions=tuple(self._subscription(table[topic]) for topic in sorted(table)),
            consume_type=bodies[0].consume_type,
            message_model=bodies[0].message_model,
            from_where=bodies[0].consume_from_where,
        )

    async def producers(self, group: str, topic: str) -> list[ClientEntry]:
        """Return the clients of a producer group that send to a topic; raises RouteNotFound."""
        _, targets = await self._targets_of_topic(self._wrap(topic))
        header = GetProducerConnections(producer_group=self._wrap(group))

        async def look(target: Target) -> list[ClientConnection]:
            asked = request(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            try:
                answer = await self._ask(target.address, asked)
            except RequestFailed as error:
                if error.code != ResponseCode.SYSTEM_ERROR:  # it says that there are none
                    raise
                return []
            return read_json(answer.body, ProducerConnections).connection_set

        found = await self._at_each(targets, look)
        clients = {one.client_id: one for many in found.values() for one in many}
        return [_client(clients[client_id]) for client_id in sorted(clients)]

    async def all_producers(self, *, broker: str | None = None) -> dict[str, list[ClientEntry]]:
        """Return all producers that brokers know, by group."""
        targets = await self._targets(None, broker, is_every_cluster=True)

        async def look(target: Target) -> ProducerTable:
            answer = await self._ask(target.address, request(RequestCode.GET_ALL_PRODUCER_INFO))
            return read_json(answer.body, ProducerTable)

        merged: dict[str, dict[str, ClientEntry]] = {}
        for table in (await self._at_each(targets, look)).values():
            for group, members in table.data.items():
                clients = merged.setdefault(self._unwrap(group), {})
                for one in members:
                    clients[one.client_id] = ClientEntry(
                        client_id=one.client_id,
                        address=one.remote_ip.lstrip("/"),
                        language=one.language,
                        version=one.version,
                        seen_ms=one.seen_ms,
                    )
        return {
            group: [clients[client_id] for client_id in sorted(clients)]
            for group, clients in sorted(merged.items())
        }

    async def running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> RunningInfo:
        """Have a running consumer say how it is doing; raises NotFound when it is not online."""
        header = GetConsumerRunningInfo(
            consumer_group=self._wrap(group), client_id=client_id, jstack_enable=with_stacks
        )
        target = await self._broker_of_client(group, client_id)
        asked = request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        answer = await self._ask(target.address, asked, is_long=True)
        body = read_json(answer.body, RunningInfoBody)
        return self._running_info(client_id, body)

    def _running_info(self, client_id: str, body: RunningInfoBody) -> RunningInfo:
        return RunningInfo(
            client_id=client_id,
            properties=body.properties,
            subscriptions=tuple(map(self._subscription, body.subscription_set)),
            queues=tuple(
                MemberQueue(
                    topic=self._unwrap(queue.topic),
                    broker=queue.broker_name,
                    queue_id=queue.queue_id,
                    commit_offset=one.commit_offset,
                    cached_count=one.cached_count,
                    cached_bytes=one.cached_mib * MIB,
                    is_locked=one.locked,
                    is_dropped=one.dropped,
                    pulled_ms=max(0, one.pulled_ms),
                    consumed_ms=max(0, one.consumed_ms),
                )
                for queue, one in sorted(by_queue(body.mq_table).items())
            ),
            topics=tuple(
                MemberTopic(
                    topic=self._unwrap(topic),
                    pull_ms=one.pull_ms,
                    pull_tps=one.pull_tps,
                    consume_ms=one.consume_ms,
                    ok_tps=one.ok_tps,
                    failed_tps=one.failed_tps,
                    failed_count=one.failed_count,
                )
                for topic, one in sorted(body.status_table.items())
            ),
            stacks=body.jstack or "",
            more=dict(body.user_consumer_info),
        )

    async def consume_directly(
        self, group: str, client_id: str, message: ReceivedMessage
    ) -> DirectResult:
        """Have a running consumer consume one message now, and return what came of it.

        >>> await admin.consume_directly("billing", client_id, await admin.message(message_id))
        """
        if not message.queue.broker_name:
            raise LocalProtocolError("nobody knows which broker has that message")
        header = ConsumeMessageDirectly(
            consumer_group=self._wrap(group),
            client_id=client_id,
            msg_id=message.offset_id,
            broker_name=message.queue.broker_name,
            topic=message.queue.topic,
        )
        address = await self._master_of(message.queue)
        asked = request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        answer = await self._ask(address, asked, is_long=True)
        body = read_json(answer.body, DirectResultBody)
        return DirectResult(
            result=body.consume_result,
            remark=body.remark or "",
            order=body.order,
            auto_commit=body.auto_commit,
            spent_ms=body.spent_ms,
        )

    async def _broker_of_client(self, group: str, client_id: str) -> Target:
        name = self._wrap(group)
        online: set[str] = set()
        for target in await self._targets_of_group(name):
            for body in await self._connections([target], name):
                online |= {one.client_id for one in body.connection_set}
            if client_id in online:
                return target
        there = f"online are {', '.join(sorted(online))}" if online else "nobody is online"
        raise NotFound("client", f"{client_id} in group {group}", there)

    def _subscription(self, data: SubscriptionData) -> SubscriptionEntry:
        return SubscriptionEntry(
            topic=self._unwrap(data.topic),
            expression=data.sub_string,
            kind=data.expression_type,
        )


def _client(one: ClientConnection) -> ClientEntry:
    return ClientEntry(
        client_id=one.client_id,
        address=one.client_addr,
        language=one.language,
        version=one.version,
    )
