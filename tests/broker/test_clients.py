"""The table of clients: who is in which group, what is subscribed, and what one peer may cost."""

from typing import cast

import msgspec
import pytest

from orbitmq.broker import clients
from orbitmq.broker.clients import ClientTable, Member
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.shown_metrics import add_client_metrics
from orbitmq.core import CoreState, LogTail
from orbitmq.errors import LimitExceeded, RemoteProtocolError
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies_client import (
    SQL92,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    Heartbeat,
    MessageModel,
    MessageQueue,
    ProducerData,
    SubscriptionData,
)
from orbitmq.wire.expression import complete_subscription
from orbitmq.wire.java import string_hash


class Peer:
    """Stands for a connection: the table only compares and hashes them."""


def connection() -> Connection:
    return cast("Connection", Peer())


def member(client_id: str = "c@1", seen_s: float = 0.0) -> Member:
    return Member(client_id, "JAVA", 407, seen_s)


def heartbeat(group: str = "G", *topics: SubscriptionData) -> Heartbeat:
    consumer = ConsumerData(group_name=group, subscription_data_set=list(topics))
    return Heartbeat(client_id="c@1", consumer_data_set=[consumer])


def subscription(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version)


@pytest.fixture
def table() -> ClientTable:
    return ClientTable(CoreState(LogTail(4096, 0), "c", "r"))


def test_a_group_changes_with_a_new_member_or_topic_and_not_with_a_repetition(
    table: ClientTable,
) -> None:
    one, two = connection(), connection()
    assert table.heartbeat(one, heartbeat("G", subscription("T")), member()).changed == {"G"}
    assert table.heartbeat(one, heartbeat("G", subscription("T")), member()).changed == set()
    assert table.heartbeat(two, heartbeat("G", subscription("T")), member("c@2")).changed == {"G"}
    both = heartbeat("G", subscription("T"), subscription("U"))
    assert table.heartbeat(one, both, member()).changed == {"G"}
    assert table.member_ids("G") == ["c@1", "c@2"]


def test_a_subscription_is_replaced_by_a_greater_version_only(table: ClientTable) -> None:
    one, core = connection(), table._core
    table.heartbeat(one, heartbeat("G", subscription("T", "A", 5)), member())
    assert core.subscriptions["G", "T"].codes == frozenset({string_hash("A")})
    table.heartbeat(one, heartbeat("G", subscription("T", "B", 5)), member())
    assert core.subscriptions["G", "T"].version == 5
    assert core.subscriptions["G", "T"].codes == frozenset({string_hash("A")})
    table.heartbeat(one, heartbeat("G", subscription("T", "B", 6)), member())
    assert core.subscriptions["G", "T"].codes == frozenset({string_hash("B")})
    table.heartbeat(one, heartbeat("G"), member())
    assert ("G", "T") not in core.subscriptions


def test_a_closed_connection_leaves_everything_and_the_last_one_takes_the_group_along(
    table: ClientTable,
) -> None:
    one, two = connection(), connection()
    for peer in (one, two):
        table.heartbeat(peer, heartbeat("G", subscription("T")), member())
    assert table.connection_closed(one) == {"G"}
    assert table.connection_closed(one) == set()
    assert table.consumer_group("G") is not None
    assert table.connection_closed(two) == {"G"}
    assert table.consumer_group("G") is None
    assert not table._core.subscriptions
    assert not table._joined


def test_a_client_silent_for_120_s_is_taken_out(table: ClientTable) -> None:
    one, two = connection(), connection()
    table.heartbeat(one, heartbeat("G"), member("c@1", seen_s=0))
    table.heartbeat(two, heartbeat("G"), member("c@2", seen_s=50))
    assert list(table.expiring(120)) == [set()]
    assert table.member_ids("G") == ["c@1", "c@2"]
    assert list(table.expiring(121)) == [{"G"}]
    assert table.member_ids("G") == ["c@2"]


def test_the_silent_are_looked_for_in_slices(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "EXPIRE_SLICE", 4)
    for number in range(5):
        table.heartbeat(connection(), heartbeat(f"G{number}"), member(f"c@{number}"))
    assert list(table.expiring(121)) == [
        {"G0", "G1", "G2", "G3"},
        {"G4"},
    ]


def test_a_connection_whose_client_id_changes_is_listed_under_the_new_one(
    table: ClientTable,
) -> None:
    one = connection()
    table.heartbeat(one, heartbeat("G"), member("c@1"))
    assert table.member_ids("G") == ["c@1"]
    table.heartbeat(one, heartbeat("G"), member("c@2"))
    assert table.member_ids("G") == ["c@2"]


def test_goodbye_names_one_group_and_an_empty_name_means_none(table: ClientTable) -> None:
    one = connection()
    table.heartbeat(one, heartbeat("G"), member())
    table.heartbeat(one, heartbeat("H"), member())
    assert table.leave(one, "", "") == set()
    assert table.leave(one, None, "G") == {"G"}
    assert table.leave(connection(), "P", "H") == set()
    assert table.member_ids("H") == ["c@1"]


def test_a_heartbeat_is_taken_whole_or_not_at_all(table: ClientTable) -> None:
    one = connection()
    bad = heartbeat("G", subscription("T"), subscription("U", "||"))
    with pytest.raises(RemoteProtocolError, match="names no tag"):
        table.heartbeat(one, bad, member())
    assert table.consumer_group("G") is None
    assert not table._core.subscriptions


def test_one_connection_cannot_join_groups_without_end(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "GROUPS_PER_CONNECTION_MAX", 3)
    one = connection()
    producers = [ProducerData(group_name=f"P{n}") for n in range(3)]
    table.heartbeat(one, Heartbeat(client_id="c", producer_data_set=producers), member())
    with pytest.raises(LimitExceeded, match="4 groups, limit 3"):
        table.heartbeat(one, heartbeat("G"), member())
    assert table.heartbeat(connection(), heartbeat("G"), member()).changed == {"G"}


def test_subscriptions_cannot_grow_without_end(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SUBSCRIPTIONS_MAX", 2)
    topics = [subscription(f"T{n}") for n in range(3)]
    with pytest.raises(LimitExceeded, match="more than 2 subscriptions"):
        table.heartbeat(connection(), heartbeat("G", *topics), member())


def test_one_heartbeat_cannot_bring_subscriptions_without_end(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SUBSCRIPTIONS_PER_HEARTBEAT_MAX", 2)
    topics = [subscription(f"T{n}") for n in range(3)]
    with pytest.raises(LimitExceeded, match="3 subscriptions, limit 2 a heartbeat"):
        table.heartbeat(connection(), heartbeat("G", *topics), member())
    assert table.heartbeat(connection(), heartbeat("G", *topics[:2]), member()).changed == {"G"}


def test_one_heartbeat_cannot_bring_groups_without_end(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "GROUPS_PER_HEARTBEAT_MAX", 2)
    producers = [ProducerData(group_name=f"P{n}") for n in range(2)]
    both = msgspec.structs.replace(heartbeat("G"), producer_data_set=producers)
    with pytest.raises(LimitExceeded, match="3 groups, limit 2 a heartbeat; spread them"):
        table.heartbeat(connection(), both, member())
    assert table.consumer_group("G") is None


def test_known_subscriptions_are_not_counted_again_at_the_limit(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: at the limit running consumers were refused, and expired."""
    monkeypatch.setattr(clients, "SUBSCRIPTIONS_MAX", 2)
    one, both = connection(), (subscription("T"), subscription("U"))
    table.heartbeat(one, heartbeat("G", *both), member())
    assert table.heartbeat(one, heartbeat("G", *both), member()).changed == set()
    assert table.heartbeat(connection(), heartbeat("G", *both), member()).changed == {"G"}
    renewed = heartbeat("G", subscription("T", "A", 2), both[1])
    assert table.heartbeat(one, renewed, member()).resubscribed == {("G", "T")}
    with pytest.raises(LimitExceeded, match="more than 2 subscriptions"):
        table.heartbeat(one, heartbeat("G", *both, subscription("V")), member())


def test_what_a_group_has_heard_last_is_not_looked_at_again(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a heartbeat that said nothing new cost as much as the first one."""
    looked_at: list[str] = []

    def complete(data: SubscriptionData) -> SubscriptionData:
        looked_at.append(data.sub_string)
        return complete_subscription(data)

    monkeypatch.setattr(clients, "complete_subscription", complete)
    one, two = connection(), connection()
    for seen_s, peer in enumerate((one, one, two, one)):
        table.heartbeat(peer, heartbeat("G", subscription("T", "A")), member(seen_s=seen_s))
    assert looked_at == ["A"]
    assert list(table.expiring(122.5)) == [{"G"}]  # who was heard last at 2 s is gone
    assert table._consumers["G"].members.keys() == {one}


def test_what_another_member_has_changed_is_changed_back_by_the_same_heartbeat_as_before(
    table: ClientTable,
) -> None:
    one, two = connection(), connection()
    mine, other = heartbeat("G", subscription("T")), heartbeat("G", subscription("U"))
    table.heartbeat(one, mine, member())
    assert table.heartbeat(two, other, member("c@2")).changed == {"G"}
    assert ("G", "T") not in table._core.subscriptions
    assert table.heartbeat(one, mine, member()).changed == {"G"}
    assert ("G", "T") in table._core.subscriptions
    assert ("G", "U") not in table._core.subscriptions


def test_a_heartbeat_without_subscriptions_is_no_heartbeat_of_a_group_that_has_none(
    table: ClientTable,
) -> None:
    one = connection()
    table.heartbeat(one, fingerprinted(7, subscription("T")), member())
    table.heartbeat(one, fingerprinted(7, is_full=False), member())
    assert ("G", "T") in table._core.subscriptions
    assert table.heartbeat(one, fingerprinted(8), member()).changed == {"G"}
    assert ("G", "T") not in table._core.subscriptions


def test_subscriptions_by_expression_count_for_the_limit_and_leave_it_with_their_group(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SUBSCRIPTIONS_MAX", 2)
    one = connection()
    selected = [
        SubscriptionData(topic=f"T{n}", sub_string="a > 1", expression_type=SQL92) for n in range(2)
    ]
    table.heartbeat(one, heartbeat("G", *selected), member())
    with pytest.raises(LimitExceeded):
        table.heartbeat(connection(), heartbeat("H", subscription("T")), member())
    table.connection_closed(one)
    table.heartbeat(connection(), heartbeat("H", subscription("T")), member())
    assert table.groups_of_topic("T") == ["H"]


def test_a_group_is_what_its_latest_heartbeat_says(table: ClientTable) -> None:
    one, two = connection(), connection()
    table.heartbeat(one, heartbeat("G"), member())
    consumer = ConsumerData(
        group_name="G",
        consume_type=ConsumeType.CONSUME_ACTIVELY,
        message_model=MessageModel.BROADCASTING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        unit_mode=True,
    )
    table.heartbeat(two, Heartbeat(client_id="c@2", consumer_data_set=[consumer]), member("c@2"))
    group = table.consumer_group("G")
    assert group is not None
    assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert group.message_model is MessageModel.BROADCASTING
    assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    assert group.is_unit_mode


def fingerprinted(fingerprint: int, *topics: SubscriptionData, is_full: bool = True) -> Heartbeat:
    consumer = ConsumerData(group_name="G", subscription_data_set=list(topics))
    return Heartbeat(
        client_id="c@1",
        consumer_data_set=[consumer],
        heartbeat_fingerprint=fingerprint,
        without_sub=not is_full,
    )


def test_a_heartbeat_without_subscriptions_keeps_those_of_its_group(table: ClientTable) -> None:
    one = connection()
    table.heartbeat(one, fingerprinted(7, subscription("T")), member(seen_s=1))
    heard = table.heartbeat(one, fingerprinted(7, is_full=False), member(seen_s=50))
    assert (heard.changed, heard.is_sub_change) == (set(), False)
    assert ("G", "T") in table._core.subscriptions
    assert list(table.expiring(125)) == [set()]  # it counts as a sign of life


def test_subscriptions_are_asked_for_when_the_fingerprint_is_another_one(
    table: ClientTable,
) -> None:
    one = connection()
    table.heartbeat(one, fingerprinted(7, subscription("T")), member())
    assert table.heartbeat(one, fingerprinted(8, is_full=False), member()).is_sub_change
    assert table.heartbeat(one, heartbeat("G", subscription("T")), member()).is_sub_change


def test_subscriptions_are_asked_for_when_the_broker_knows_none_of_the_group(
    table: ClientTable,
) -> None:
    """After a restart of the broker, for one; the original leaves the group without any."""
    one = connection()
    assert table.heartbeat(one, fingerprinted(7, is_full=False), member()).is_sub_change
    assert not table.heartbeat(one, fingerprinted(7, subscription("T")), member()).is_sub_change


def test_a_member_is_found_by_group_and_client_id_on_its_latest_connection(
    table: ClientTable,
) -> None:
    old, new = connection(), connection()
    table.heartbeat(old, heartbeat("G"), member("c@1", seen_s=1))
    table.heartbeat(new, heartbeat("G"), member("c@1", seen_s=2))
    assert table.connection_of("G", "c@1") is new
    assert table.connection_of("G", "c@2") is None
    assert table.connection_of("H", "c@1") is None


def test_the_groups_of_a_topic_follow_subscriptions_and_membership(table: ClientTable) -> None:
    one, two = connection(), connection()
    table.heartbeat(one, heartbeat("G", subscription("T"), subscription("U")), member())
    table.heartbeat(two, heartbeat("H", subscription("T")), member("c@2"))
    assert table.groups_of_topic("T") == ["G", "H"]
    table.heartbeat(one, heartbeat("G", subscription("U")), member())
    assert (table.groups_of_topic("T"), table.groups_of_topic("U")) == (["H"], ["G"])
    table.connection_closed(two)
    assert table.groups_of_topic("T") == []
    assert table._groups_of.keys() == {"U"}


def test_a_producer_leaves_its_group_by_goodbye_and_by_closing(table: ClientTable) -> None:
    one, two = connection(), connection()
    producer = Heartbeat(client_id="c@1", producer_data_set=[ProducerData(group_name="P")])
    table.heartbeat(one, producer, member())
    table.heartbeat(two, producer, member("c@2"))
    assert table.leave(one, "P", None) == set()
    assert list(table.producer_groups()["P"]) == [two]
    table.connection_closed(two)
    assert table.producer_groups() == {}


def test_members_connections_and_locks_are_shown_as_metrics(table: ClientTable) -> None:
    registry, locks = Registry(), QueueLocks()
    add_client_metrics(registry, table, locks)
    one, two = connection(), connection()
    both = msgspec.structs.replace(heartbeat("G"), producer_data_set=[ProducerData(group_name="P")])
    table.heartbeat(one, both, member())
    table.heartbeat(one, both, member())
    table.heartbeat(two, heartbeat("G"), member("c@2"))
    locks.lock("G", "c@1", [MessageQueue("T", "b", 0)], 0.0)
    assert shown(registry) == [2, 1, 1, 2, 1, 1]
    table.connection_closed(one)
    assert shown(registry) == [1, 1, 0, 1, 0, 1]


def shown(registry: Registry) -> list[int]:
    """Return the values of the gauges in the order of their names and labels."""
    names = (
        "orbitmq_broker_client_connections",
        'orbitmq_broker_client_groups{kind="consumer"}',
        'orbitmq_broker_client_groups{kind="producer"}',
        'orbitmq_broker_client_members{kind="consumer"}',
        'orbitmq_broker_client_members{kind="producer"}',
        "orbitmq_broker_queue_locks",
    )
    lines = dict(line.rsplit(" ", 1) for line in registry.render().splitlines())
    return [int(float(lines[name])) for name in names]
