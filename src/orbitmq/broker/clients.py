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
   What a group has heard last already is not looked at again: it costs next to nothing.
5. What a group is (its type, model, first offset) is what its latest heartbeat said.
6. A heartbeat without subscriptions (5.x) keeps those that the group has. Whether these are still
   the client's own is told by its fingerprint, a hash that the client computes.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from orbitmq.core import CoreState, RecordFilter, Subscription
from orbitmq.errors import LimitExceeded
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies_client import (
    TAG,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    Heartbeat,
    MessageModel,
    SubscriptionData,
)
from orbitmq.wire.expression import complete_subscription

SILENCE_S_MAX = 120.0
"""A client that sent no heartbeat for this long is gone, as in the original."""

EXPIRE_SLICE = 2_000
"""Members that are looked at in one go: less than a millisecond's work."""

GROUPS_PER_HEARTBEAT_MAX = 500
SUBSCRIPTIONS_PER_HEARTBEAT_MAX = 2_000
"""More would hold up everybody else. Java's groups have two subscriptions each: one is to their
retry topic."""

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
    """When its latest heartbeat came, by the clock that never goes back."""
    address: str = ""


class ConsumerGroup(msgspec.Struct):
    """The live side of a consumer group."""

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    is_unit_mode: bool = False
    fingerprint: int | None = None
    """Of the latest heartbeat, None before the first; 0 from clients that compute none."""
    members: dict[Connection, Member] = {}
    member_ids: list[str] | None = None
    """Every member asks for them when one has come or gone: made once, None when to be made."""
    subscriptions: dict[str, SubscriptionData] = {}
    latest: ConsumerData | None = None
    """What was taken in last, whole; None when a heartbeat without subscriptions came after it."""


class Heard(NamedTuple):
    """What a heartbeat brought about."""

    changed: set[str]
    """Consumer groups that got a member or a topic, or lost a topic."""
    is_sub_change: bool
    """Whether the client must send its subscriptions again, in full."""
    resubscribed: set[tuple[str, str]]
    """Groups and topics whose expression is another one now."""


class Joined(msgspec.Struct):
    """The groups that one connection is in."""

    producers: set[str] = set()
    consumers: set[str] = set()


class _News(NamedTuple):
    """What a heartbeat says of one group."""

    consumer: ConsumerData
    wanted: dict[str, SubscriptionData] | None
    """Its subscriptions by topic, complete; None when it keeps those that it has."""
    is_known: bool = False
    """Whether the group has heard just this last."""


class ClientTable:
    """All clients of one broker."""

    def __init__(self, core: CoreState) -> None:
        self._core = core
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._joined: dict[Connection, Joined] = {}
        self._groups_of: dict[str, dict[str, None]] = {}
        self._subscription_count = 0
        self.consumer_count = 0
        """Members of all consumer groups."""
        self.producer_count = 0

    def consumer_groups(self) -> dict[str, ConsumerGroup]:
        """Return the live consumer groups by name; not to be changed."""
        return self._consumers

    def producer_groups(self) -> dict[str, dict[Connection, Member]]:
        """Return the live producer groups by name; not to be changed."""
        return self._producers

    @property
    def connection_count(self) -> int:
        """How many connections are in some group."""
        return len(self._joined)

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """Return the live group, or None when nobody of it is connected."""
        return self._consumers.get(name)

    def member_ids(self, group: str) -> list[str]:
        """Return the client ids of a group, each once."""
        found = self._consumers.get(group)
        if found is None:
            return []
        if found.member_ids is None:
            found.member_ids = sorted({member.client_id for member in found.members.values()})
        return found.member_ids

    def connection_of(self, group: str, client_id: str) -> Connection | None:
        """Return how to reach a member of a group; the connection heard last when it has two."""
        found = self._consumers.get(group)
        if found is None:
            return None
        own = [pair for pair in found.members.items() if pair[1].client_id == client_id]
        return max(own, key=lambda pair: pair[1].seen_s)[0] if own else None

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the live groups that subscribe to a topic."""
        return list(self._groups_of.get(topic, ()))

    def heartbeat(self, connection: Connection, heartbeat: Heartbeat, member: Member) -> Heard:
        """Take in what a client says of itself.

        Raises LimitExceeded, or RemoteProtocolError for an expression that is none; then nothing
        of the heartbeat was taken.
        """
        news = self._news(connection, heartbeat)
        joined = self._joined.setdefault(connection, Joined())
        for producer in heartbeat.producer_data_set:
            members = self._producers.setdefault(producer.group_name, {})
            self.producer_count += connection not in members
            members[connection] = member
            joined.producers.add(producer.group_name)
        joined.consumers.update(consumer.group_name for consumer in heartbeat.consumer_data_set)
        changed: set[str] = set()
        resubscribed: set[tuple[str, str]] = set()
        is_sub_change = False
        for one in news:
            name = one.consumer.group_name
            group = self._consumers.setdefault(name, ConsumerGroup(name))
            is_sub_change |= _is_sub_change(group, heartbeat)
            group.fingerprint = heartbeat.heartbeat_fingerprint or 0
            is_changed = self._join(connection, group, member)
            if not one.is_known:
                renewed = _renewed_topics(group, one.wanted or {})
                resubscribed.update((name, topic) for topic in renewed)
                is_changed |= self._take_in(group, one)
            if is_changed:
                changed.add(name)
        return Heard(changed, is_sub_change, resubscribed)

    def leave(
        self, connection: Connection, producer_group: str | None, group: str | None
    ) -> set[str]:
        """Take a connection out of the groups it names; return the consumer groups that changed."""
        if producer_group and connection in self._producers.get(producer_group, ()):
            self._drop_producers(producer_group, [connection])
        found = self._consumers.get(group) if group else None
        if found is None or connection not in found.members:
            return set()
        return self._drop_members(found, [connection])

    def connection_closed(self, connection: Connection) -> set[str]:
        """Take a connection out of all its groups; return the consumer groups that changed."""
        joined = self._joined.get(connection, Joined())
        for group in list(joined.producers):
            self._drop_producers(group, [connection])
        changed: set[str] = set()
        for group in list(joined.consumers):
            changed |= self._drop_members(self._consumers[group], [connection])
        self._joined.pop(connection, None)
        return changed

    def expiring(self, now_s: float) -> Iterator[set[str]]:
        """Take out who was silent for too long, in slices; yield the groups that changed."""
        looked_at = 0
        for group in list(self._producers):
            members = self._producers.get(group, {})
            self._drop_producers(group, _silent(members, now_s))
            looked_at += 1 + len(members)
            if looked_at >= EXPIRE_SLICE:
                looked_at = 0
                yield set()
        changed: set[str] = set()
        for name in list(self._consumers):
            found = self._consumers.get(name)
            if found is not None:
                changed |= self._drop_members(found, _silent(found.members, now_s))
                looked_at += 1 + len(found.members)
            if looked_at >= EXPIRE_SLICE:
                looked_at = 0
                yield changed
                changed = set()
        yield changed

    def _news(self, connection: Connection, heartbeat: Heartbeat) -> list[_News]:
        """Return what each group is told, whole and checked; raises as `heartbeat` does."""
        self._check_groups(connection, heartbeat)
        consumers = {data.group_name: data for data in heartbeat.consumer_data_set}
        count = sum(len(data.subscription_data_set) for data in consumers.values())
        if count > SUBSCRIPTIONS_PER_HEARTBEAT_MAX:
            raise LimitExceeded(
                f"{count} subscriptions, limit {SUBSCRIPTIONS_PER_HEARTBEAT_MAX} a heartbeat;"
                " subscribe with several clients (instanceName)",
                SUBSCRIPTIONS_PER_HEARTBEAT_MAX,
            )
        news = [
            self._news_of(data, is_full=not heartbeat.without_sub) for data in consumers.values()
        ]
        new_count = sum(self._new_count(one) for one in news)
        if new_count and self._subscription_count + new_count > SUBSCRIPTIONS_MAX:
            raise LimitExceeded(
                f"more than {SUBSCRIPTIONS_MAX} subscriptions at this broker; let clients that are"
                " not needed leave, or use another broker",
                SUBSCRIPTIONS_MAX,
            )
        return news

    def _check_groups(self, connection: Connection, heartbeat: Heartbeat) -> None:
        count = len(heartbeat.producer_data_set) + len(heartbeat.consumer_data_set)
        if count > GROUPS_PER_HEARTBEAT_MAX:
            raise LimitExceeded(
                f"{count} groups, limit {GROUPS_PER_HEARTBEAT_MAX} a heartbeat; spread them over"
                " several clients (instanceName)",
                GROUPS_PER_HEARTBEAT_MAX,
            )
        joined = self._joined.get(connection, Joined())
        producers = {data.group_name for data in heartbeat.producer_data_set}
        consumers = {data.group_name for data in heartbeat.consumer_data_set}
        count = len(joined.producers) + len(producers - joined.producers)
        count += len(joined.consumers) + len(consumers - joined.consumers)
        if count > GROUPS_PER_CONNECTION_MAX:
            text = f"{count} groups, limit {GROUPS_PER_CONNECTION_MAX} a connection"
            raise LimitExceeded(text, GROUPS_PER_CONNECTION_MAX)

    def _news_of(self, consumer: ConsumerData, *, is_full: bool) -> _News:
        known = self._consumers.get(consumer.group_name)
        if not is_full:
            return _News(consumer, None)
        if known is not None and known.latest == consumer:
            return _News(consumer, None, is_known=True)
        wanted = {
            data.topic: complete_subscription(data) for data in consumer.subscription_data_set
        }
        return _News(consumer, wanted)

    def _new_count(self, news: _News) -> int:
        """Return how many subscriptions the group does not have yet."""
        if not news.wanted:
            return 0
        known = self._consumers.get(news.consumer.group_name)
        subscriptions = known.subscriptions if known is not None else {}
        return sum(topic not in subscriptions for topic in news.wanted)

    def _join(self, connection: Connection, group: ConsumerGroup, member: Member) -> bool:
        """Note a member's sign of life; whether it is a new one."""
        before = group.members.get(connection)
        self.consumer_count += before is None
        if before is None or before.client_id != member.client_id:
            group.member_ids = None
        group.members[connection] = member
        return before is None

    def _take_in(self, group: ConsumerGroup, news: _News) -> bool:
        """Let the group be as it was told; whether topics came or went."""
        consumer = news.consumer
        group.consume_type = consumer.consume_type
        group.message_model = consumer.message_model
        group.consume_from_where = consumer.consume_from_where
        group.is_unit_mode = consumer.unit_mode
        group.latest = None if news.wanted is None else consumer
        return news.wanted is not None and self._subscribe(group, news.wanted)

    def _subscribe(self, group: ConsumerGroup, wanted: dict[str, SubscriptionData]) -> bool:
        """Replace, add and remove; whether topics came or went."""
        gone = group.subscriptions.keys() - wanted.keys()
        self._unsubscribe(group, gone)
        is_changed = bool(gone)
        for topic, data in wanted.items():
            known = group.subscriptions.get(topic)
            if known is None:
                is_changed = True
                self._subscription_count += 1
            if known is None or data.sub_version > known.sub_version:
                group.subscriptions[topic] = data
                self._groups_of.setdefault(topic, {})[group.name] = None
                self._offer(group.name, data)
        return is_changed

    def _unsubscribe(self, group: ConsumerGroup, topics: Iterable[str]) -> None:
        for topic in topics:
            del group.subscriptions[topic]
            self._subscription_count -= 1
            self._core.subscriptions.pop((group.name, topic), None)
            groups = self._groups_of[topic]
            del groups[group.name]
            if not groups:
                del self._groups_of[topic]

    def _offer(self, group: str, data: SubscriptionData) -> None:
        """Let the hot path filter by a tag subscription; expressions come by `offer_filter`."""
        key = (group, data.topic)
        if data.expression_type == TAG and not data.class_filter_mode:
            codes = frozenset(data.code_set) or None
            self._core.subscriptions[key] = Subscription(data.sub_version, codes)
        else:
            self._core.subscriptions.pop(key, None)

    def offer_filter(self, group: str, data: SubscriptionData, accepts: RecordFilter) -> None:
        """Let the hot path filter by an expression that a pull was just served with.

        It ends with the subscription, or by `withdraw_filter`.
        """
        self._core.subscriptions[group, data.topic] = Subscription(data.sub_version, None, accepts)

    def withdraw_filter(self, group: str, topic: str) -> None:
        """Leave pulls by an expression to the handler: something that it looks at has changed."""
        known = self._core.subscriptions.get((group, topic))
        if known is not None and known.accepts is not None:
            del self._core.subscriptions[group, topic]

    def withdraw_filters(self) -> None:
        """Leave all pulls by expressions to the handler."""
        for group, topic in list(self._core.subscriptions):
            self.withdraw_filter(group, topic)

    def _drop_members(self, group: ConsumerGroup, gone: list[Connection]) -> set[str]:
        self.consumer_count -= len(gone)
        if gone:
            group.member_ids = None
        for connection in gone:
            del group.members[connection]
            self._joined[connection].consumers.discard(group.name)
        if not group.members:
            del self._consumers[group.name]
            self._unsubscribe(group, list(group.subscriptions))
        return {group.name} if gone else set()

    def _drop_producers(self, group: str, gone: list[Connection]) -> None:
        members = self._producers.get(group, {})
        self.producer_count -= len(gone)
        for connection in gone:
            del members[connection]
            self._joined[connection].producers.discard(group)
        if not members:
            self._producers.pop(group, None)


def _is_sub_change(group: ConsumerGroup, heartbeat: Heartbeat) -> bool:
    """Whether a client that computes fingerprints must send this group's subscriptions again.

    The original knows fingerprints of groups that it knows no subscription of, after a restart say,
    and leaves such a group without any; ours asks.
    """
    if not heartbeat.heartbeat_fingerprint:
        return True
    if group.fingerprint is None:
        return bool(heartbeat.without_sub)
    return group.fingerprint != heartbeat.heartbeat_fingerprint


def _renewed_topics(group: ConsumerGroup, wanted: dict[str, SubscriptionData]) -> list[str]:
    """Return the topics whose subscription these replace by one that asks for other messages."""
    return [
        topic
        for topic, data in wanted.items()
        if (known := group.subscriptions.get(topic)) is not None
        and data.sub_version > known.sub_version
        and (data.sub_string, data.expression_type) != (known.sub_string, known.expression_type)
    ]


def _silent(members: dict[Connection, Member], now_s: float) -> list[Connection]:
    return [found for found, member in members.items() if now_s - member.seen_s > SILENCE_S_MAX]
