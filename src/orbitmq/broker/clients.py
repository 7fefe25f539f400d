"""Who is connected: producers and consumer groups with their members and subscriptions.

In: heartbeats, goodbyes, closed connections, the passing of time. Out: member lists, the
subscriptions that the hot path filters by, and the groups whose members must be told of a change.

Rules:
1. A member is a connection; it leaves when it says so, when it closes, or 120 s after its last
   heartbeat.
2. A subscription is replaced when the new one has a greater version; topics that a heartbeat no
   longer names are removed. The expression counts, not the codes a client sends (C++ sends wrong
   ones).
3. A group that got or lost a member or a topic is reported once per call, however much changed.
4. A heartbeat is taken whole or not at all: its names, expressions and numbers are checked first.
"""

import msgspec

from orbitmq.core import CoreState, Subscription
from orbitmq.errors import LimitExceeded
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies_client import (
    TAG,
    ConsumerData,
    Heartbeat,
    MessageModel,
    SubscriptionData,
)
from orbitmq.wire.expression import complete_subscription

SILENCE_S_MAX = 120.0
"""A client that sent no heartbeat for this long is gone, as in the original."""

GROUPS_PER_CONNECTION_MAX = 5_000
"""Groups of one connection; each may make a topic and costs a table entry."""

SUBSCRIPTIONS_MAX = 500_000
"""Subscriptions of all groups together."""


class Member(msgspec.Struct):
    """One connection of a group."""

    client_id: str
    language: str
    version: int
    seen_s: float


class ConsumerGroup(msgspec.Struct):
    """The live side of a consumer group."""

    name: str
    message_model: MessageModel = MessageModel.CLUSTERING
    members: dict[Connection, Member] = {}
    subscriptions: dict[str, SubscriptionData] = {}


class Joined(msgspec.Struct):
    """The groups that one connection is in."""

    producers: set[str] = set()
    consumers: set[str] = set()


class ClientTable:
    """All clients of one broker."""

    def __init__(self, core: CoreState) -> None:
        self._core = core
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._joined: dict[Connection, Joined] = {}

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """Give the live group, or None when nobody of it is connected."""
        return self._consumers.get(name)

    def member_ids(self, group: str) -> list[str]:
        """Give the client ids of a group, each once."""
        found = self._consumers.get(group)
        return sorted({member.client_id for member in found.members.values()}) if found else []

    def heartbeat(self, connection: Connection, heartbeat: Heartbeat, member: Member) -> set[str]:
        """Take in what a client says of itself; give the consumer groups that changed.

        Raises LimitExceeded, or RemoteProtocolError for an expression that is none; then nothing
        of the heartbeat was taken.
        """
        self._check(connection, heartbeat)
        joined = self._joined.setdefault(connection, Joined())
        for producer in heartbeat.producer_data_set:
            self._producers.setdefault(producer.group_name, {})[connection] = member
            joined.producers.add(producer.group_name)
        joined.consumers.update(consumer.group_name for consumer in heartbeat.consumer_data_set)
        return {
            consumer.group_name
            for consumer in heartbeat.consumer_data_set
            if self._join(connection, consumer, member)
        }

    def leave(self, client_id: str, producer_group: str | None, group: str | None) -> set[str]:
        """Take a client out of the groups it names; give the consumer groups that changed."""
        if producer_group:
            members = self._producers.get(producer_group, {})
            self._drop_producers(producer_group, _with_id(members, client_id))
        found = self._consumers.get(group) if group else None
        if found is None:
            return set()
        return self._drop_members(found, _with_id(found.members, client_id))

    def connection_closed(self, connection: Connection) -> set[str]:
        """Take a connection out of all its groups; give the consumer groups that changed."""
        joined = self._joined.get(connection, Joined())
        for group in list(joined.producers):
            self._drop_producers(group, [connection])
        changed: set[str] = set()
        for group in list(joined.consumers):
            changed |= self._drop_members(self._consumers[group], [connection])
        self._joined.pop(connection, None)
        return changed

    def expire(self, now_s: float) -> set[str]:
        """Take out who was silent for too long; give the consumer groups that changed."""
        for group, members in list(self._producers.items()):
            self._drop_producers(group, _silent(members, now_s))
        changed: set[str] = set()
        for found in list(self._consumers.values()):
            changed |= self._drop_members(found, _silent(found.members, now_s))
        return changed

    def _check(self, connection: Connection, heartbeat: Heartbeat) -> None:
        joined = self._joined.get(connection, Joined())
        producers = joined.producers | {data.group_name for data in heartbeat.producer_data_set}
        consumers = joined.consumers | {data.group_name for data in heartbeat.consumer_data_set}
        count = len(producers) + len(consumers)
        if count > GROUPS_PER_CONNECTION_MAX:
            raise LimitExceeded(f"{count} groups, limit {GROUPS_PER_CONNECTION_MAX} a connection")
        new = sum(len(data.subscription_data_set) for data in heartbeat.consumer_data_set)
        if len(self._core.subscriptions) + new > SUBSCRIPTIONS_MAX:
            raise LimitExceeded(f"more than {SUBSCRIPTIONS_MAX} subscriptions at this broker")
        for consumer in heartbeat.consumer_data_set:
            for data in consumer.subscription_data_set:
                complete_subscription(data)

    def _join(self, connection: Connection, consumer: ConsumerData, member: Member) -> bool:
        group = self._consumers.get(consumer.group_name)
        if group is None:
            group = self._consumers[consumer.group_name] = ConsumerGroup(consumer.group_name)
        group.message_model = consumer.message_model
        is_new = connection not in group.members
        group.members[connection] = member
        return self._subscribe(group, consumer.subscription_data_set) or is_new

    def _subscribe(self, group: ConsumerGroup, subscriptions: list[SubscriptionData]) -> bool:
        """Replace, add and remove; whether topics came or went."""
        wanted = {data.topic: complete_subscription(data) for data in subscriptions}
        gone = group.subscriptions.keys() - wanted.keys()
        for topic in gone:
            del group.subscriptions[topic]
            self._core.subscriptions.pop((group.name, topic), None)
        is_changed = bool(gone)
        for topic, data in wanted.items():
            known = group.subscriptions.get(topic)
            is_changed |= known is None
            if known is None or data.sub_version > known.sub_version:
                group.subscriptions[topic] = data
                self._offer(group.name, data)
        return is_changed

    def _offer(self, group: str, data: SubscriptionData) -> None:
        """Let the hot path filter by a tag subscription; any other kind is not its business."""
        key = (group, data.topic)
        if data.expression_type == TAG and not data.class_filter_mode:
            codes = frozenset(data.code_set) or None
            self._core.subscriptions[key] = Subscription(data.sub_version, codes)
        else:
            self._core.subscriptions.pop(key, None)

    def _drop_members(self, group: ConsumerGroup, gone: list[Connection]) -> set[str]:
        for connection in gone:
            del group.members[connection]
            self._joined[connection].consumers.discard(group.name)
        if not group.members:
            del self._consumers[group.name]
            for topic in group.subscriptions:
                self._core.subscriptions.pop((group.name, topic), None)
        return {group.name} if gone else set()

    def _drop_producers(self, group: str, gone: list[Connection]) -> None:
        members = self._producers.get(group, {})
        for connection in gone:
            del members[connection]
            self._joined[connection].producers.discard(group)
        if not members:
            self._producers.pop(group, None)


def _with_id(members: dict[Connection, Member], client_id: str) -> list[Connection]:
    return [found for found, member in members.items() if member.client_id == client_id]


def _silent(members: dict[Connection, Member], now_s: float) -> list[Connection]:
    return [found for found, member in members.items() if now_s - member.seen_s > SILENCE_S_MAX]
