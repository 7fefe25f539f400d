"""Consumer groups as operators manage them, over TCP.

Differences that are kept: ours refuses names and numbers that make no sense (4.9.7 takes them).
What only 5.x serves (225, 352, 353) is not asked of 4.9.7.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, heartbeat_body, pull_request
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

Fresh = Callable[[str], str]

UPDATE_GROUP, UPDATE_GROUPS, ALL_GROUPS, GROUP_CONFIG = 200, 225, 201, 352
DELETE_GROUP, FORBIDDEN = 207, 353
ALL_TOPICS, QUERY_OFFSET, UPDATE_OFFSET, HEARTBEAT, LEAVE = 21, 14, 15, 34, 35
IS_OURS = judged_original() is None
only_ours = pytest.mark.skipif(not IS_OURS, reason="4.9.7 does otherwise; see the docstring")


def update(client: WireClient, **config: str | int | bool) -> Command:
    """Make or change a group."""
    return client.ask(UPDATE_GROUP, json.dumps(config).encode())


def groups(client: WireClient) -> dict[str, dict[str, Any]]:
    """Return the broker's group table."""
    body = json.loads(client.ask(ALL_GROUPS).body)
    table: dict[str, dict[str, Any]] = body["subscriptionGroupTable"]
    return table


def test_a_made_group_is_in_the_table_with_defaults_for_the_rest(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        assert update(client, groupName=group, retryQueueNums=2, retryMaxTimes=3).code == 0
        config = groups(client)[group]
    assert config == {
        "groupName": group,
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 2,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def test_the_systems_groups_are_there(system: System) -> None:
    with WireClient(system.broker) as client:
        names = groups(client).keys()
    assert {
        *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"),
        *("CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"),
    } <= names


def test_a_group_that_may_not_consume_gets_nothing(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        update(client, groupName=group, consumeEnable=False)
        refused = client.call(pull_request(topic, group, 0))
        update(client, groupName=group, consumeEnable=True)
        allowed = client.call(pull_request(topic, group, 0))
    assert (refused.code, allowed.code) == (16, 0)


def test_a_group_that_is_made_disabled_can_be_set_to_the_end_before_it_consumes(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    place: dict[str, str | int] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    with WireClient(system.broker) as client:
        fill(client, topic, [b"old"] * 3)
        update(client, groupName=group, consumeEnable=False)
        assert client.call(pull_request(topic, group, 0)).code == 16
        assert client.ask(UPDATE_OFFSET, **place, commitOffset=3).code == 0
        update(client, groupName=group, consumeEnable=True)
        start = int(client.ask(QUERY_OFFSET, **place).fields["offset"])
        fill(client, topic, [b"new"])
        holds = {"sysFlag": 6, "suspendTimeoutMillis": 9_000}
        found = client.call(pull_request(topic, group, start, **holds))
    assert [record.body for record in scan_records(found.body)] == [b"new"]


@only_ours
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"groupName": "a/b"}, "'/' at position 1"),
        ({"groupName": ""}, "no name"),
        ({"groupName": "G", "retryQueueNums": -3}, "retryQueueNums is -3, allowed are 1 to"),
        ({"groupName": "G", "retryMaxTimes": -5}, "retryMaxTimes is -5, allowed are -1 to"),
        ({"groupName": "G", "brokerId": -1}, "brokerId is -1, allowed are 0 to"),
    ],
)
def test_a_group_that_cannot_be_is_refused_with_the_reason(
    system: System, config: dict[str, str | int], words: str
) -> None:
    """Kept difference: 4.9.7 takes all of them."""
    with WireClient(system.broker) as client:
        before = groups(client)
        answer = client.ask(UPDATE_GROUP, json.dumps(config).encode())
        assert groups(client) == before
    assert answer.code == 1
    assert words in (answer.remark or "")


@pytest.mark.parametrize("body", [b"", b"{x", b"{}"])
def test_a_body_that_is_no_group_is_an_error(system: System, body: bytes) -> None:
    with WireClient(system.broker) as client:
        assert client.ask(UPDATE_GROUP, body).code == 1


@pytest.mark.parametrize("field", ["removeOffset", ""])
def test_a_deleted_group_is_gone_and_its_offsets_if_asked(
    system: System, fresh_name: Fresh, field: str
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    place: dict[str, str | int] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x", b"y"])
        update(client, groupName=group)
        client.ask(UPDATE_OFFSET, **place, commitOffset=2)
        answer = client.ask(DELETE_GROUP, groupName=group, **({field: "true"} if field else {}))
        assert answer.code == 0
        assert group not in groups(client)
        assert client.ask(QUERY_OFFSET, **place).fields["offset"] == ("0" if field else "2")
        assert client.ask(DELETE_GROUP, groupName=group).code == 0  # once more is no error
        assert client.ask(DELETE_GROUP).code == 1


def test_a_deleted_group_leaves_its_retry_topic(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        client.ask(HEARTBEAT, heartbeat_body("c", group, topic))
        client.ask(LEAVE, clientID="c", consumerGroup=group)
        client.ask(DELETE_GROUP, groupName=group, removeOffset="true")
        topics = json.loads(client.ask(ALL_TOPICS).body)["topicConfigTable"]
    assert f"%RETRY%{group}" in topics


@only_ours
def test_5x_asks_for_one_group_and_makes_several(system: System, fresh_name: Fresh) -> None:
    one, two, three = (fresh_name("G") for _ in range(3))
    with WireClient(system.broker) as client:
        good = {"groupConfigList": [{"groupName": one}, {"groupName": two, "retryMaxTimes": 7}]}
        bad = {"groupConfigList": [{"groupName": three}, {"groupName": "a/b"}]}
        assert client.ask(UPDATE_GROUPS, json.dumps(good).encode()).code == 0
        assert client.ask(UPDATE_GROUPS, json.dumps(bad).encode()).code == 1
        found = json.loads(client.ask(GROUP_CONFIG, group=two).body)
        table = groups(client)
    assert (found["groupName"], found["retryMaxTimes"]) == (two, 7)
    assert one in table
    assert three not in table


@only_ours
def test_a_group_can_be_forbidden_a_topic_and_allowed_again(
    system: System, fresh_name: Fresh
) -> None:
    topic, other, group = fresh_name("T"), fresh_name("T"), fresh_name("G")
    pair: dict[str, str | int] = {"group": group, "topic": topic}
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        fill(client, other, [b"x"])
        assert client.ask(FORBIDDEN, **pair, readable="false").code == 26
        update(client, groupName=group)
        set_to = json.loads(client.ask(FORBIDDEN, **pair, readable="false").body)
        asked = json.loads(client.ask(FORBIDDEN, **pair).body)
        refused = client.call(pull_request(topic, group, 0))
        elsewhere = client.call(pull_request(other, group, 0))
        client.ask(FORBIDDEN, **pair, readable="true")
        allowed = client.call(pull_request(topic, group, 0))
        no_topic = client.ask(FORBIDDEN, group=group, topic=fresh_name("none"), readable="false")
    assert set_to == asked == {"group": group, "topic": topic, "readable": False}
    assert (refused.code, elsewhere.code, allowed.code, no_topic.code) == (16, 0, 0, 17)
