"""The table of clients: who is in which group, what is subscribed, and what one peer may cost."""

from typing import cast

import pytest

from orbitmq.broker import clients
from orbitmq.broker.clients import ClientTable, Member
from orbitmq.core import CoreState, LogTail
from orbitmq.errors import LimitExceeded, RemoteProtocolError
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies_client import ConsumerData, Heartbeat, ProducerData, SubscriptionData
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
    assert table.heartbeat(one, heartbeat("G", subscription("T")), member()) == {"G"}
    assert table.heartbeat(one, heartbeat("G", subscription("T")), member()) == set()
    assert table.heartbeat(two, heartbeat("G", subscription("T")), member("c@2")) == {"G"}
    both = heartbeat("G", subscription("T"), subscription("U"))
    assert table.heartbeat(one, both, member()) == {"G"}
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
    assert table.expire(120) == set()
    assert table.expire(121) == {"G"}
    assert table.member_ids("G") == ["c@2"]


def test_goodbye_names_one_group_and_an_empty_name_means_none(table: ClientTable) -> None:
    one = connection()
    table.heartbeat(one, heartbeat("G"), member())
    table.heartbeat(one, heartbeat("H"), member())
    assert table.leave("c@1", "", "") == set()
    assert table.leave("c@1", None, "G") == {"G"}
    assert table.leave("c@2", None, "H") == set()
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
    assert table.heartbeat(connection(), heartbeat("G"), member()) == {"G"}


def test_subscriptions_cannot_grow_without_end(
    table: ClientTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SUBSCRIPTIONS_MAX", 2)
    topics = [subscription(f"T{n}") for n in range(3)]
    with pytest.raises(LimitExceeded, match="more than 2 subscriptions"):
        table.heartbeat(connection(), heartbeat("G", *topics), member())
