"""Heartbeats, goodbyes, members of groups and who is told of them, as clients and tools see it."""

import json
import time

import pytest

from orbitmq.wire.command import Command
from tests.behaviour.consumers import (
    Fresh,
    commit,
    heartbeat,
    join,
    next_request,
    unread,
)
from tests.behaviour.requests import fill, pull_request
from tests.foreign.asking import await_claim
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

V5 = 513
is_v4 = pytest.mark.skipif(judged_original() == "4.9.7", reason="4.9.7 does not know it")


def notified(client: WireClient) -> list[str]:
    """Return the groups of the notifications that have come."""
    return [one.fields["consumerGroup"] for one in unread(client) if one.code == 40]


def member_ids(client: WireClient, group: str) -> list[str]:
    found = client.ask(38, consumerGroup=group)
    return sorted(json.loads(found.body)["consumerIdList"]) if found.code == 0 else []


def test_a_heartbeat_makes_the_groups_retry_topic_and_its_route(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client, WireClient(system.namesrv) as namesrv:
        join(client, "c@1", group, "TBW102")
        topic = f"%RETRY%{group}"
        await_claim(lambda: namesrv.ask(105, topic=topic).code == 0, f"{topic} has a route", 10)
        route = json.loads(namesrv.ask(105, topic=topic).body.replace(b"{0:", b'{"0":'))
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (1, 1, 6)
    assert queues["topicSysFlag" if "topicSysFlag" in queues else "topicSynFlag"] == 0


def test_the_retry_topic_of_a_group_in_unit_mode_says_so(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        join(client, "c@1", group, "TBW102", unitMode=True)
        topics = json.loads(client.ask(21).body)["topicConfigTable"]
    assert topics[f"%RETRY%{group}"]["topicSysFlag"] == 2


def test_members_are_told_of_who_joins_leaves_and_closes(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as one, WireClient(system.broker) as two:
        join(one, "c@1", group, "TBW102")
        unread(one)
        join(two, "c@2", group, "TBW102")
        assert next_request(one, 40).fields == {"consumerGroup": group}
        two.ask(35, clientID="c@2", consumerGroup=group)
        assert next_request(one, 40).is_oneway
        join(two, "c@2", group, "TBW102")
        next_request(one, 40)
        two.close()
        assert next_request(one, 40).fields == {"consumerGroup": group}
        assert member_ids(one, group) == ["c@1"]


def test_members_are_told_of_a_new_topic_and_not_of_a_repetition(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as one, WireClient(system.broker) as two:
        join(one, "c@1", group, "TBW102")
        join(two, "c@2", group, "TBW102")
        unread(one)
        join(two, "c@2", group, "TBW102")
        assert notified(one) == []
        join(two, "c@2", group, "TBW102", "BenchmarkTest")
        assert notified(one) == [group]


def test_members_of_a_group_that_wants_no_notifications_get_none(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    config = {"groupName": group, "notifyConsumerIdsChangedEnable": False, "retryQueueNums": 1}
    with WireClient(system.broker) as one, WireClient(system.broker) as two:
        assert one.ask(200, json.dumps(config).encode()).code == 0
        join(one, "c@1", group, "TBW102")
        join(two, "c@2", group, "TBW102")
        assert (notified(one), notified(two)) == ([], [])
        assert member_ids(one, group) == ["c@1", "c@2"]


def test_a_group_without_members_has_no_list(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        answer = client.ask(38, consumerGroup=group)
    assert (answer.code, answer.remark) == (1, f"no consumer for this group, {group}")


def test_a_goodbye_counts_for_the_connection_it_comes_on(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as member, WireClient(system.broker) as stranger:
        join(member, "c@1", group, "TBW102")
        assert stranger.ask(35, clientID="c@1", consumerGroup=group).code == 0
        assert member_ids(stranger, group) == ["c@1"]
        assert member.ask(35, clientID="c@1", consumerGroup=group).code == 0
        assert member_ids(stranger, group) == []


def test_a_heartbeat_that_is_none_is_refused(system: System) -> None:
    with WireClient(system.broker) as client:
        assert client.ask(34).code == 1
        assert client.ask(34, b'{"clientID":"c@1"}').code == 0


def test_namespaces_are_part_of_the_name(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        join(client, "c@1", f"ns%{group}", "ns%Orders")
        assert member_ids(client, f"ns%{group}") == ["c@1"]
        assert member_ids(client, group) == []


@is_v4
def test_a_5x_client_may_leave_out_subscriptions_while_they_stay_the_same(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:

        def beat(fingerprint: int, *, is_full: bool) -> dict[str, str]:
            data = json.loads(heartbeat("c@1", group, *(["TBW102"] if is_full else [])))
            data["heartbeatFingerprint"] = fingerprint
            data["isWithoutSub"] = data["withoutSub"] = not is_full
            return client.call(Command(34, body=json.dumps(data).encode(), version=V5)).fields

        assert beat(0, is_full=True) == {
            "IS_SUPPORT_HEART_BEAT_V2": "true",
            "IS_SUB_CHANGE": "true",
        }
        assert beat(7, is_full=True)["IS_SUB_CHANGE"] == "true"
        assert beat(7, is_full=True)["IS_SUB_CHANGE"] == "false"
        assert beat(7, is_full=False)["IS_SUB_CHANGE"] == "false"
        connections = json.loads(client.ask(203, consumerGroup=group).body)
        assert list(connections["subscriptionTable"]) == ["TBW102"]
        assert beat(8, is_full=False)["IS_SUB_CHANGE"] == "true"


@pytest.mark.skipif(judged_original() == "5.5.0", reason="5.5.0 tells every client")
def test_a_4x_client_gets_no_fields_with_the_answer_to_a_heartbeat(
    system: System, fresh_name: Fresh
) -> None:
    with WireClient(system.broker) as client:
        answer = client.ask(34, heartbeat("c@1", fresh_name("G"), "TBW102"))
    assert (answer.fields, answer.body) == ({}, b"")


@pytest.mark.skipif(judged_original() is not None, reason="an original takes more than 12 s")
def test_a_heartbeat_of_500_groups_is_answered_soon_and_one_of_more_is_refused(
    system: System, fresh_name: Fresh
) -> None:
    """Symptom: one heartbeat, sent again and again, held up everybody for 0.7 s each time."""
    prefix = fresh_name("Many")
    data = json.loads(heartbeat("c@1", prefix, "TBW102"))
    (consumer,) = data["consumerDataSet"]
    groups = [{**consumer, "groupName": f"{prefix}_{number}"} for number in range(501)]
    with WireClient(system.broker) as client:
        for count, code in ((501, 1), (500, 0)):
            data["consumerDataSet"] = groups[:count]
            answer = client.call(Command(34, body=json.dumps(data).encode()), timeout_s=5)
            assert answer.code == code
            assert code == 0 or "501 groups, limit 500 a heartbeat" in (answer.remark or "")
        assert member_ids(client, f"{prefix}_499") == ["c@1"]
        assert member_ids(client, f"{prefix}_500") == []


def test_a_producer_and_a_consumer_may_use_one_group_name(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("Both")
    data = json.loads(heartbeat("c@1", group, "TBW102"))
    data["producerDataSet"] = [{"groupName": group}]
    with WireClient(system.broker) as client:
        assert client.ask(34, json.dumps(data).encode()).code == 0
        assert member_ids(client, group) == ["c@1"]
        assert client.ask(204, producerGroup=group).code == 0
        client.ask(35, clientID="c@1", consumerGroup=group)
        assert member_ids(client, group) == []
        assert client.ask(204, producerGroup=group).code == 0


def test_members_that_subscribe_differently_take_topics_from_each_other(
    system: System, fresh_name: Fresh
) -> None:
    one_topic, other_topic, group = fresh_name("T"), fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as one, WireClient(system.broker) as two:
        fill(one, one_topic, [b"x"])
        fill(one, other_topic, [b"x"])
        pull = {"sysFlag": 0, "subVersion": 1}
        join(one, "c@1", group, one_topic)
        assert one.call(pull_request(one_topic, group, 0, **pull)).code == 0
        join(two, "c@2", group, other_topic)
        refused = one.call(pull_request(one_topic, group, 0, **pull))
    assert refused.code == 24
    assert (refused.remark or "").startswith("the consumer's subscription not exist")


# --- what tools ask ---


def test_the_connections_of_a_group_say_who_consumes_what_and_how(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        join(client, "c@1", group, "TBW102", consumeType="CONSUME_ACTIVELY")
        body = json.loads(client.ask(203, consumerGroup=group).body)
    (connection,) = body.pop("connectionSet")
    assert connection.pop("clientAddr").startswith("127.0.0.1:")
    assert connection == {"clientId": "c@1", "language": "JAVA", "version": 407}
    assert body == {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_ACTIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {
            "TBW102": {
                "classFilterMode": False,
                "codeSet": [],
                "expressionType": "TAG",
                "subString": "*",
                "subVersion": 1,
                "tagsSet": [],
                "topic": "TBW102",
            }
        },
    }


def test_a_group_of_which_nobody_is_connected_is_not_online(
    system: System, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    with WireClient(system.broker) as client:
        consumers = client.ask(203, consumerGroup=group)
        producers = client.ask(204, producerGroup=group)
    assert (consumers.code, consumers.remark) == (206, f"the consumer group[{group}] not online")
    assert (producers.code, producers.remark) == (1, f"the producer group[{group}] not exist")


def test_producers_are_shown_by_group_and_all_together(system: System, fresh_name: Fresh) -> None:
    group = fresh_name("P")
    beat = json.dumps({"clientID": "p@1", "producerDataSet": [{"groupName": group}]}).encode()
    with WireClient(system.broker) as client:
        assert client.ask(34, beat).code == 0
        (shown,) = json.loads(client.ask(204, producerGroup=group).body)["connectionSet"]
        (listed,) = json.loads(client.ask(328).body)["data"][group]
        assert client.ask(35, clientID="p@1", producerGroup=group).code == 0
        assert client.ask(204, producerGroup=group).code == 1
    assert (shown["clientId"], shown["language"], shown["version"]) == ("p@1", "JAVA", 407)
    assert listed["remoteIP"] == "/" + shown["clientAddr"]
    assert listed.keys() == {"clientId", "language", "lastUpdateTimestamp", "remoteIP", "version"}
    assert abs(listed["lastUpdateTimestamp"] - time.time() * 1000) < 60_000


def test_who_consumes_a_topic_is_who_subscribes_or_has_offsets(
    system: System, fresh_name: Fresh
) -> None:
    topic, live, gone = fresh_name("T"), fresh_name("G"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        join(client, "c@1", live, topic)
        commit(client, gone, topic, [1])
        groups = json.loads(client.ask(300, topic=topic).body)["groupList"]
        none = json.loads(client.ask(300, topic="nobody_knows_it").body)["groupList"]
    assert (sorted(groups), none) == (sorted([live, gone]), [])


@is_v4
def test_topics_and_subscription_of_a_group_as_5x_tools_ask(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        join(client, "c@1", group, topic)
        assert json.loads(client.ask(343, group=group).body)["topicList"] == []
        commit(client, group, topic, [1])
        topics = json.loads(client.ask(343, group=group).body)
        known = json.loads(client.ask(345, group=group, topic=topic).body)
        unknown = json.loads(client.ask(345, group=group, topic="other").body)
    assert topics == {"brokerAddr": system.broker, "topicList": [topic]}
    assert (known["group"], known["topic"]) == (group, topic)
    assert known["subscriptionData"]["subString"] == "*"
    assert unknown == {"group": group, "topic": "other"}
