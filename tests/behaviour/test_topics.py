"""Topics as operators manage them, over TCP.

Differences that are kept: ours refuses numbers that make no sense (the originals take them), and a
deleted topic takes its consumer offsets along (as in 5.x; 4.9.7 keeps them). What only 5.x serves
(18, 351) is not asked of 4.9.7.
"""

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, pull_request, send_request
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

Fresh = Callable[[str], str]

UPDATE_TOPIC, UPDATE_TOPICS, ALL_TOPICS, TOPIC_CONFIG = 17, 18, 21, 351
DELETE_TOPIC, TOPIC_STATS, SYSTEM_TOPICS = 215, 202, 305
CLEAN_QUEUES, CLEAN_TOPICS, QUERY_QUEUE = 306, 316, 321
ROUTE, KV_PUT, KV_DELETE = 105, 100, 102
NAME_SERVER_S = 10.0
IS_OURS = judged_original() is None


def topic_request(topic: str, **changes: str | int) -> Command:
    """Return the request of `mqadmin updateTopic`."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    fields.update({name: str(value) for name, value in changes.items()})
    return Command(UPDATE_TOPIC, fields={name: text for name, text in fields.items() if text})


def make(client: WireClient, topic: str, **changes: str | int) -> None:
    """Make or change a topic; it must be taken."""
    answer = client.call(topic_request(topic, **changes))
    assert answer.code == 0, answer.remark


def configs(client: WireClient) -> dict[str, dict[str, Any]]:
    """Return the broker's topic table."""
    table: dict[str, dict[str, Any]] = json.loads(client.ask(ALL_TOPICS).body)["topicConfigTable"]
    return table


def java_json(body: bytes) -> Any:
    """Read a body whose tables have objects or numbers for keys."""
    text = body.decode()
    text = re.sub(r"(\{[^{}]*\}):", lambda key: json.dumps(key.group(1)) + ":", text)
    return json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', text))


def stats(client: WireClient, topic: str) -> dict[int, dict[str, int]]:
    """Return a topic's queues as 202 tells of them."""
    table = java_json(client.ask(TOPIC_STATS, topic=topic).body)["offsetTable"]
    return {json.loads(key)["queueId"]: value for key, value in table.items()}


# ---- make and change -----------------------------------------------------------------------------


def test_a_made_topic_is_in_the_table_with_all_it_was_given(
    system: System, fresh_name: Fresh
) -> None:
    """`order` is not compared: 4.9.7 leaves it to the name server's table, 5.x takes it."""
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        make(client, topic, readQueueNums=3, writeQueueNums=5, perm=4, topicSysFlag=1)
        config = configs(client)[topic]
    config.pop("attributes", None)
    assert config == {
        "order": False,
        "perm": 4,
        "readQueueNums": 3,
        "writeQueueNums": 5,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 1,
    }


def test_the_name_server_knows_a_changed_topic_when_the_change_is_answered(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as client, WireClient(system.namesrv) as names:
        for count in (2, 7, 3, 9):
            make(client, topic, readQueueNums=count, writeQueueNums=count)
            route = json.loads(names.ask(ROUTE, topic=topic, acceptStandardJsonOnly="true").body)
            assert [data["writeQueueNums"] for data in route["queueDatas"]] == [count]


def test_each_change_counts_up_the_tables_version(system: System, fresh_name: Fresh) -> None:
    with WireClient(system.broker) as client:
        before = json.loads(client.ask(ALL_TOPICS).body)["dataVersion"]
        make(client, fresh_name("T"))
        after = json.loads(client.ask(ALL_TOPICS).body)["dataVersion"]
    assert after["counter"] > before["counter"]
    assert after["timestamp"] >= before["timestamp"]


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("SCHEDULE_TOPIC_XXXX", "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."),
        ("BenchmarkTest", "The topic[BenchmarkTest] is conflict with system topic."),
        ("DefaultCluster", "The topic[DefaultCluster] is conflict with system topic."),
        ("broker-a", "The topic[broker-a] is conflict with system topic."),
        ("rmq_sys_x", "The topic[rmq_sys_x] is conflict with system topic."),
        ("a/b", "The specified topic contains illegal characters, allowing only"),
        (" ", "The specified topic is blank."),
        ("x" * 128, "The specified topic is longer than topic max length."),
    ],
)
def test_names_that_cannot_be_are_refused_for_making_and_deleting(
    system: System, topic: str, remark: str
) -> None:
    with WireClient(system.broker) as client:
        before = configs(client)
        for request in (topic_request(topic), Command(DELETE_TOPIC, fields={"topic": topic})):
            answer = client.call(request)
            assert answer.code == 1
            assert (answer.remark or "").startswith(remark)
        assert configs(client) == before


@pytest.mark.parametrize(
    "change",
    [
        {"readQueueNums": -1},
        {"writeQueueNums": 0},
        {"writeQueueNums": 2**31 - 1},
        {"perm": 999},
        {"perm": -1},
        {"topicSysFlag": 9},
    ],
    ids=str,
)
def test_numbers_that_make_no_sense_are_refused_with_the_range(
    system: System, fresh_name: Fresh, change: dict[str, int]
) -> None:
    """Kept difference: the originals take them, and the topic is useless or worse."""
    if not IS_OURS:
        pytest.skip("the originals take any number")
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        answer = client.call(topic_request(topic, **change))
        assert topic not in configs(client)
    name = next(iter(change))
    assert answer.code == 1
    assert f"{name} is {change[name]}, allowed are" in (answer.remark or "")


@pytest.mark.parametrize("field", ["perm", "readQueueNums", "writeQueueNums"])
def test_a_missing_number_is_an_error(system: System, fresh_name: Fresh, field: str) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(topic_request(fresh_name("T"), **{field: ""}))
    assert answer.code == 1
    if IS_OURS:
        assert field in (answer.remark or "")


def test_a_filter_type_that_is_none_is_an_error(system: System, fresh_name: Fresh) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(topic_request(fresh_name("T"), topicFilterType="ZZZ"))
    assert answer.code == 1
    assert "topicFilterType = [ZZZ] value invalid" in (answer.remark or "")


def test_fewer_queues_hide_messages_and_more_bring_them_back(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        make(client, topic)
        fill(client, topic, [b"x"], e=3)
        make(client, topic, readQueueNums=2, writeQueueNums=2)
        hidden = client.call(pull_request(topic, group, 0, queueId=3))
        make(client, topic)
        shown = client.call(pull_request(topic, group, 0, queueId=3))
    assert hidden.code == 1
    assert [record.body for record in scan_records(shown.body)] == [b"x"]


def test_a_send_to_a_queue_that_the_topic_no_longer_has_is_refused(
    system: System, fresh_name: Fresh
) -> None:
    """Symptom: after updateTopic to fewer queues, producers with an old route were told "stored" of
    messages that nobody could pull."""
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        make(client, topic)
        for number in range(3):  # the third time its header is known by heart
            fill(client, topic, [b"x"], e=3, i=f"UNIQ_KEY\x01{number:032d}\x02TAGS\x01A")
        make(client, topic, readQueueNums=2, writeQueueNums=2)
        refused = [
            client.call(send_request(topic, b"lost", e=3, i=properties))
            for properties in ("TAGS\x01A", f"UNIQ_KEY\x01{9:032d}\x02TAGS\x01A")
        ]
        kept = client.call(send_request(topic, b"kept", e=1))
    assert [answer.code for answer in refused] == [1, 1]
    for answer in refused:
        assert "request queueId[3] is illegal" in (answer.remark or "")
    assert kept.code == 0


def test_a_topic_without_read_permission_is_not_pulled_from(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        make(client, topic)
        fill(client, topic, [b"x"])
        make(client, topic, perm=2)
        assert client.call(pull_request(topic, fresh_name("G"), 0)).code == 16


def test_several_topics_come_in_one_request_or_none_of_them(
    system: System, fresh_name: Fresh
) -> None:
    if not IS_OURS:
        pytest.skip("18 is of 5.x")
    one, two, three = (fresh_name("T") for _ in range(3))
    with WireClient(system.broker) as client:
        good = [{"topicName": one, "readQueueNums": 3}, {"topicName": two, "perm": 4}]
        bad = [{"topicName": three}, {"topicName": "a/b"}]
        taken = client.ask(UPDATE_TOPICS, json.dumps({"topicConfigList": good}).encode())
        refused = client.ask(UPDATE_TOPICS, json.dumps({"topicConfigList": bad}).encode())
        table = configs(client)
    assert (taken.code, refused.code) == (0, 1)
    assert (table[one]["readQueueNums"], table[two]["perm"]) == (3, 4)
    assert three not in table


def test_attributes_are_set_and_taken_away_and_kept(system: System, fresh_name: Fresh) -> None:
    if not IS_OURS:
        pytest.skip("351 is of 5.x")
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        make(client, topic, attributes="+message.type=FIFO,+cleanup.policy=DELETE")
        make(client, topic, attributes="-cleanup.policy")
        make(client, topic, perm=4)
        found = json.loads(client.ask(TOPIC_CONFIG, topic=topic).body)
        odd = client.call(topic_request(topic, attributes="message.type=FIFO"))
        absent = client.ask(TOPIC_CONFIG, topic=fresh_name("none"))
    assert found["attributes"] == {"message.type": "FIFO"}
    assert (found["topicName"], found["perm"]) == (topic, 4)
    assert odd.code == 1
    assert absent.code == 17


def test_the_name_servers_order_table_makes_topics_ordered(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    pair = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic}
    with WireClient(system.broker) as client, WireClient(system.namesrv) as names:
        make(client, topic)
        assert names.ask(KV_PUT, **pair, value="broker-a:4").code == 0
        make(client, fresh_name("T"))  # has the broker register, and read the answer
        deadline_s = time.monotonic() + NAME_SERVER_S
        while not configs(client)[topic]["order"]:
            assert time.monotonic() < deadline_s
            make(client, fresh_name("T"))
        names.ask(KV_DELETE, **pair)


# ---- look ----------------------------------------------------------------------------------------


def test_topic_stats_tell_of_every_write_queue(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("T")
    begin_ms = int(time.time() * 1000) - 5_000
    with WireClient(system.broker) as client:
        make(client, topic, readQueueNums=8, writeQueueNums=3)
        fill(client, topic, [b"a", b"b"], e=1)
        deadline_s = time.monotonic() + NAME_SERVER_S
        while (found := stats(client, topic))[1]["maxOffset"] < 2:  # fact 4: a small delay
            assert time.monotonic() < deadline_s
        absent = client.ask(TOPIC_STATS, topic=fresh_name("none"))
        missing = client.ask(TOPIC_STATS)
    assert sorted(found) == [0, 1, 2]
    assert found[0] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    assert begin_ms < found[1].pop("lastUpdateTimestamp") < begin_ms + 60_000
    assert found[1] == {"maxOffset": 2, "minOffset": 0}
    assert (absent.code, missing.code) == (17, 1)


def test_the_systems_topics_are_listed(system: System) -> None:
    with WireClient(system.broker) as client:
        names = json.loads(client.ask(SYSTEM_TOPICS).body)["topicList"]
        table = configs(client)
    assert sorted(names) == sorted(
        {
            *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
            *("DefaultCluster_REPLY_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "BenchmarkTest"),
            *("TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT", "TBW102", "broker-a"),
            *("SELF_TEST_TOPIC", "DefaultCluster"),
        }
    )
    assert table["TBW102"]["perm"] == 7
    assert table["SCHEDULE_TOPIC_XXXX"]["writeQueueNums"] == 18


def test_entries_of_a_queue_are_shown(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    place: dict[str, str | int] = {"topic": topic, "queueId": 1}
    with WireClient(system.broker) as client:
        make(client, topic)
        sent = [client.call(send_request(topic, b"x", e=1)) for _ in range(3)]
        deadline_s = time.monotonic() + NAME_SERVER_S
        while stats(client, topic)[1]["maxOffset"] < 3:
            assert time.monotonic() < deadline_s
        found = json.loads(
            client.ask(QUERY_QUEUE, **place, index=1, count=10, consumerGroup=group).body
        )
        nothing = json.loads(client.ask(QUERY_QUEUE, **place, index=0, count=0).body)
        beyond = client.ask(QUERY_QUEUE, **place, index=50, count=10)
        absent = client.ask(QUERY_QUEUE, topic=topic, queueId=9, index=0, count=1)
    offsets = [int(answer.fields["msgId"][-16:], 16) for answer in sent]
    assert [entry["physicOffset"] for entry in found["queueData"]] == offsets[1:]
    assert {entry["tagsCode"] for entry in found["queueData"]} == {2598919}
    assert {entry["eval"] for entry in found["queueData"]} == {False}
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
    assert found["filterData"] == f"{group}@{topic} is not online!"
    assert nothing["queueData"] == []
    assert (beyond.code, beyond.remark) == (0, f"Index 50 of 1@{topic} is not exist!")
    assert (absent.code, absent.remark) == (1, f"9@{topic} is not exist!")


# ---- delete --------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_for_everybody(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        make(client, topic)
        fill(client, topic, [b"a", b"b"])
        assert client.ask(DELETE_TOPIC, topic=topic).code == 0
        assert topic not in configs(client)
        assert client.call(pull_request(topic, group, 0)).code == 17
        assert client.ask(TOPIC_STATS, topic=topic).code == 17
        assert client.ask(30, topic=topic, queueId=0).fields["offset"] == "0"
        assert client.ask(DELETE_TOPIC, topic=topic).code == 0  # once more is no error


def test_name_servers_are_told_at_once_of_a_deleted_topic(
    system: System, fresh_name: Fresh
) -> None:
    """By the table's new version. 4.9.7 tells them with its next regular round only."""
    if not IS_OURS:
        pytest.skip("4.9.7 tells them later")
    who: dict[str, str | int] = {
        "brokerName": "broker-a",
        "clusterName": "DefaultCluster",
        "brokerAddr": system.broker,
        "brokerId": 0,
    }
    topic = fresh_name("T")
    with WireClient(system.broker) as client, WireClient(system.namesrv) as names:
        make(client, topic)
        assert client.ask(DELETE_TOPIC, topic=topic).code == 0
        version = json.dumps(json.loads(client.ask(ALL_TOPICS).body)["dataVersion"]).encode()
        assert names.ask(322, version, **who).fields["changed"] == "false"


def test_a_topic_made_again_begins_at_0_and_has_nothing_of_its_first_life(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        make(client, topic)
        fill(client, topic, [b"old0", b"old1", b"old2"])
        client.ask(DELETE_TOPIC, topic=topic)
        make(client, topic)
        sent = client.call(send_request(topic, b"new"))
        assert sent.fields["queueOffset"] == "0"
        deadline_s = time.monotonic() + NAME_SERVER_S
        while (pulled := client.call(pull_request(topic, group, 0))).code != 0:
            assert time.monotonic() < deadline_s
    assert [record.body for record in scan_records(pulled.body)] == [b"new"]


def test_offsets_of_a_deleted_topic_do_not_hide_its_new_messages(
    system: System, fresh_name: Fresh
) -> None:
    """Kept difference: 4.9.7 keeps them (5.x does not), and the group would begin at 2."""
    topic, group = fresh_name("T"), fresh_name("G")
    place: dict[str, str | int] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    with WireClient(system.broker) as client:
        make(client, topic)
        fill(client, topic, [b"old0", b"old1"])
        client.ask(15, **place, commitOffset=2)
        assert client.ask(14, **place).fields["offset"] == "2"
        client.ask(DELETE_TOPIC, topic=topic)
        make(client, topic)
        offset = client.ask(14, **place).fields["offset"]
    assert offset == ("0" if IS_OURS else "2")


def test_a_held_pull_is_answered_when_its_topic_is_deleted(
    system: System, fresh_name: Fresh
) -> None:
    """At once; 4.9.7 never answers it, 5.5.0 at its end."""
    if not IS_OURS:
        pytest.skip("4.9.7 never answers such a pull")
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client, WireClient(system.broker) as operator:
        make(client, topic)
        fill(client, topic, [b"a"])
        pull = pull_request(topic, group, 1, sysFlag=6, suspendTimeoutMillis=15_000)
        opaque = client.send(pull)
        timer = threading.Timer(0.2, lambda: operator.ask(DELETE_TOPIC, topic=topic))
        timer.start()
        answer = client.receive_answer(opaque, 8)
        timer.join()
    assert (answer.code, (answer.remark or "")[: len(topic) + 7]) == (17, f"topic[{topic}]")


def test_cleaning_up_leaves_what_is_in_use(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"a"])
        before = configs(client)
        assert client.ask(CLEAN_QUEUES).code == 0
        assert client.ask(CLEAN_TOPICS).code == 0
        assert configs(client) == before
        pulled = client.call(pull_request(topic, group, 0))
    assert [record.body for record in scan_records(pulled.body)] == [b"a"]
