"""How far groups are, as tools see it: one group (208), all (317), by time (303).

Difference that is kept: for a queue without a stored offset 303 gives a delay counted from the
queue's first message; the originals give the time since 1970.
"""

import json
import time
from typing import Any

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.fastjson import read_json
from tests.behaviour.consumers import Fresh, commit, fill_queues, join, queues
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

is_v4 = pytest.mark.skipif(judged_original() == "4.9.7", reason="4.9.7 does not know it")


def progress(client: WireClient, group: str, **more: str) -> dict[int, tuple[int, int]]:
    """Return end and offset of each queue."""
    answer = client.ask(208, consumerGroup=group, **more)
    assert answer.code == 0, answer.remark
    rows = queues(answer.body, "offsetTable")
    return {one: (row["brokerOffset"], row["consumerOffset"]) for one, row in rows.items()}


def make_topic(client: WireClient, topic: str, read_count: int, write_count: int) -> None:
    answer = client.ask(
        17,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=read_count,
        writeQueueNums=write_count,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order="false",
    )
    assert answer.code == 0, answer.remark


def test_a_groups_progress_has_ends_offsets_and_the_last_consumed_time(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [3, 1])
        commit(client, group, topic, [2, 0])
        answer = client.ask(208, consumerGroup=group)
    body = read_json(answer.body, dict[str, Any])
    assert body.keys() == {"consumeTps", "offsetTable"}
    assert body["consumeTps"] == 0.0
    rows = queues(answer.body, "offsetTable")
    assert abs(rows[0].pop("lastTimestamp") - time.time() * 1000) < 60_000
    assert rows[1]["lastTimestamp"] == 0
    assert (rows[0]["brokerOffset"], rows[0]["consumerOffset"]) == (3, 2)
    assert (rows[1]["brokerOffset"], rows[1]["consumerOffset"]) == (1, 0)
    assert (rows[3]["brokerOffset"], rows[3]["consumerOffset"]) == (0, 0)


def test_progress_goes_over_the_queues_that_can_be_read(system: System, fresh_name: Fresh) -> None:
    few_read, few_written, group = fresh_name("T"), fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        make_topic(client, few_read, 2, 4)
        make_topic(client, few_written, 4, 2)
        assert list(progress(client, group, topic=few_read).values()) == [(0, 0)] * 2
        assert list(progress(client, group, topic=few_written).values()) == [(0, 0)] * 4


def test_a_group_without_offsets_has_no_progress_unless_a_topic_is_named(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [2])
        assert progress(client, group) == {}
        assert progress(client, group, topic=topic)[0] == (2, 0)
        assert progress(client, group, topic="nobody_knows_it") == {}


def test_topics_that_a_live_group_no_longer_subscribes_to_are_left_out(
    system: System, fresh_name: Fresh
) -> None:
    topic, other, group = fresh_name("T"), fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        for name in (topic, other):
            fill_queues(client, name, [1])
            commit(client, group, name, [1])
        join(client, "c@1", group, topic)
        body = client.ask(208, consumerGroup=group).body
        assert (topic.encode() in body, other.encode() in body) == (True, False)
        client.ask(35, clientID="c@1", consumerGroup=group)
        body = client.ask(208, consumerGroup=group).body
        assert (topic.encode() in body, other.encode() in body) == (True, True)


@is_v4
def test_a_5x_tool_sees_how_far_a_group_has_pulled(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [3])
        commit(client, group, topic, [2])
        request = Command(208, fields={"consumerGroup": group}, version=513)
        rows = queues(client.call(request).body, "offsetTable")
    assert rows[0]["pullOffset"] == 2


def test_all_groups_progress_is_listed_by_group_and_topic(
    system: System, fresh_name: Fresh
) -> None:
    topic, group, idle = fresh_name("T"), fresh_name("G"), fresh_name("G")
    with WireClient(system.broker) as client:
        make_topic(client, topic, 2, 3)
        fill_queues(client, topic, [3, 1])
        join(client, "c@1", idle, "TBW102")
        join(client, "c@1", group, topic)
        commit(client, group, topic, [1, 1])
        answer = client.ask(317, isOrder="false")
        ordered = read_json(client.ask(317, isOrder="true").body, dict[str, Any])
    assert answer.code == 0
    body = read_json(answer.body, dict[str, Any])
    assert body["brokerAddr"] == system.broker
    assert body["totalDiff"] >= 2
    (topics,) = [one[group] for one in body["consumeStatsList"] if group in one]
    (stats,) = topics
    rows = {json.loads(key)["queueId"]: row for key, row in stats["offsetTable"].items()}
    assert {one: (row["brokerOffset"], row["consumerOffset"]) for one, row in rows.items()} == {
        0: (3, 1),
        1: (1, 1),
        2: (0, 0),
    }
    assert {idle: []} in body["consumeStatsList"]
    assert {"TOOLS_CONSUMER": []} in body["consumeStatsList"]
    assert {group: []} in ordered["consumeStatsList"]


def test_time_spans_say_how_late_a_group_is(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        make_topic(client, topic, 2, 3)
        fill_queues(client, topic, [3, 2])
        commit(client, group, topic, [1, 2])
        answer = client.ask(303, topic=topic, group=group)
        unknown = client.ask(303, topic="none", group=group)
    assert (unknown.code, unknown.remark) == (17, "topic[none] not exist")
    spans = json.loads(answer.body)["consumeTimeSpanSet"]
    rows = {span["messageQueue"]["queueId"]: span for span in spans}
    assert rows.keys() == {0, 1, 2}
    behind, done, empty = rows[0], rows[1], rows[2]
    assert behind["minTimeStamp"] == behind["consumeTimeStamp"] <= behind["maxTimeStamp"]
    assert 0 <= behind["delayTime"] < 60_000
    assert (done["consumeTimeStamp"], done["delayTime"]) == (done["maxTimeStamp"], 0)
    assert [empty[name] for name in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")] == [
        -1
    ] * 3
    local = time.localtime(behind["maxTimeStamp"] // 1000)
    millis = f":{behind['maxTimeStamp'] % 1000:03d}"
    assert behind["maxTimeStampStr"] == time.strftime("%Y-%m-%d#%H:%M:%S", local) + millis


@pytest.mark.skipif(judged_original() is not None, reason="see the difference above")
def test_a_group_without_offsets_is_late_since_the_first_message(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [2])
        answer = client.ask(303, topic=topic, group=fresh_name("G"))
    first, second, *_ = json.loads(answer.body)["consumeTimeSpanSet"]
    assert 0 <= first["delayTime"] < 60_000
    assert (second["consumeTimeStamp"], second["delayTime"]) == (-1, 0)
