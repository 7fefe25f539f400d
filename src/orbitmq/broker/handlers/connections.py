"""Who is connected, as tools ask: 203, 204, 328; and who consumes what: 300, 343, 345.

In: the name of a group or topic. Out: connections and subscriptions of the moment, and the groups
and topics that have offsets. Long answers are made in a thread.
"""

from collections.abc import Callable
from itertools import islice

import msgspec

from orbitmq.broker.clients import Member
from orbitmq.broker.context import Context
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_consume import (
    ClientConnection,
    ConsumerConnections,
    GroupList,
    GroupSubscription,
    ProducerClient,
    ProducerConnections,
    ProducerTable,
)
from orbitmq.wire.bodies_namesrv import TopicList
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_consume import (
    GetConsumerConnections,
    GetProducerConnections,
    QueryGroupsOfTopic,
    QuerySubscription,
    QueryTopicsOfGroup,
)

ROWS_MAX = 50_000
"""Clients in one answer: about 8 MB."""

QUICK_ROWS = 100
"""An answer of so many rows is made at once: less than a millisecond's work."""


def get_consumer_connections(context: Context, request: Command, connection: Connection) -> Result:
    """Return a group's members and what they subscribe to."""
    name = read_header(GetConsumerConnections, request.fields).consumer_group
    group = context.clients.consumer_group(name)
    if group is None:
        raise RequestFailed(
            ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
        )
    members = list(group.members.values())[:ROWS_MAX]
    subscriptions = dict(group.subscriptions)

    def make() -> ConsumerConnections:
        return ConsumerConnections(
            connection_set=[_connection_of(member) for member in members],
            subscription_table=subscriptions,
            consume_type=group.consume_type.name,
            message_model=group.message_model.name,
            consume_from_where=group.consume_from_where.name,
        )

    return _answer(context, request, connection, len(members) + len(subscriptions), make)


def get_producer_connections(context: Context, request: Command, connection: Connection) -> Result:
    """Return a producer group's members."""
    name = read_header(GetProducerConnections, request.fields).producer_group
    found = context.clients.producer_groups().get(name)
    if found is None:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    members = list(found.values())[:ROWS_MAX]

    def make() -> ProducerConnections:
        return ProducerConnections(connection_set=[_connection_of(member) for member in members])

    return _answer(context, request, connection, len(members), make)


def get_all_producers(context: Context, request: Command, connection: Connection) -> Result:
    """Return all producers by group."""
    clock = context.clock
    boot_ms = clock.wall_ms() - clock.monotonic_s() * 1000
    pairs = (
        (name, member)
        for name, members in context.clients.producer_groups().items()
        for member in members.values()
    )
    shown = list(islice(pairs, ROWS_MAX))

    def make() -> ProducerTable:
        data: dict[str, list[ProducerClient]] = {}
        for name, member in shown:
            data.setdefault(name, []).append(_producer(member, boot_ms))
        return ProducerTable(data=data)

    return _answer(context, request, connection, len(shown), make)


def query_groups_of_topic(context: Context, request: Command, _connection: Connection) -> Result:
    """Return the groups that subscribe to a topic, and those that have offsets in it."""
    topic = read_header(QueryGroupsOfTopic, request.fields).topic
    groups = dict.fromkeys(context.clients.groups_of_topic(topic))
    groups.update(dict.fromkeys(context.offsets.groups_of(topic)))
    return reply_to(request, body=write_json(GroupList(group_list=list(groups)), standard=True))


def query_topics_of_group(context: Context, request: Command, _connection: Connection) -> Result:
    """Return the topics in which a group has offsets."""
    group = read_header(QueryTopicsOfGroup, request.fields).consumer_group
    body = TopicList(
        topic_list=context.offsets.topics_of(group), broker_addr=str(context.store_host)
    )
    return reply_to(request, body=write_json(body, standard=True))


def query_subscription(context: Context, request: Command, _connection: Connection) -> Result:
    """Return how a group subscribes to a topic, if it does."""
    header = read_header(QuerySubscription, request.fields)
    group = context.clients.consumer_group(header.consumer_group)
    data = group.subscriptions.get(header.topic or "") if group is not None else None
    body = GroupSubscription(
        group=header.consumer_group, topic=header.topic, subscription_data=data
    )
    return reply_to(request, body=write_json(body, standard=True))


def _answer(
    context: Context,
    request: Command,
    connection: Connection,
    row_count: int,
    make: Callable[[], msgspec.Struct],
) -> Result:
    """Answer with a body, now or by a thread; `make` touches nothing that changes."""
    if row_count <= QUICK_ROWS:
        return reply_to(request, body=write_json(make(), standard=True))
    return context.cold_reads.answer(
        connection, request, lambda: reply_to(request, body=write_json(make(), standard=True))
    )


def _connection_of(member: Member) -> ClientConnection:
    return ClientConnection(
        client_id=member.client_id,
        client_addr=member.address,
        language=member.language,
        version=member.version,
    )


def _producer(member: Member, boot_ms: float) -> ProducerClient:
    return ProducerClient(
        client_id=member.client_id,
        remote_ip=f"/{member.address}",
        language=member.language,
        version=member.version,
        seen_ms=int(boot_ms + member.seen_s * 1000),
    )
