"""Resetting the offsets of a group by time, as tools and members see it.

Difference that is kept: the original says in its message to the members that the reset was not
forced, whatever was asked; ours says what was asked. No client looks at it.
"""

import json
import time
from typing import Any

import pytest

from orbitmq.wire.command import Command
from tests.behaviour.consumers import (
    BROKER_NAME,
    Fresh,
    commit,
    fill_queues,
    heartbeat,
    join,
    next_request,
    queues,
    stored,
    unread,
)
from tests.behaviour.requests import fill
from tests.foreign.asking import await_claim
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

pytestmark = pytest.mark.skipif(judged_original() == "5.5.0", reason="5.5.0 resets by itself")

TO_THE_END = -1


def reset(client: WireClient, group: str, topic: str, timestamp: int, force: str = "true") -> Any:
    answer = client.ask(222, group=group, topic=topic, timestamp=timestamp, isForce=force)
    assert answer.code == 0, answer.remark
    return queues(answer.body, "offsetTable")


def test_every_member_is_told_the_new_offsets_and_the_broker_stores_nothing(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with (
        WireClient(system.broker) as tool,
        WireClient(system.broker) as one,
        WireClient(system.broker) as two,
    ):
        fill_queues(tool, topic, [3, 1])
        commit(tool, group, topic, [1, 1, 0, 0])
        join(one, "c@1", group, topic)
        join(two, "c@2", group, topic)
        assert reset(tool, group, topic, TO_THE_END) == {0: 3, 1: 1, 2: 0, 3: 0}
        for member in (one, two):
            told = next_request(member, 220)
            assert told.is_oneway
            assert queues(told.body, "offsetTable") == {0: 3, 1: 1, 2: 0, 3: 0}
            assert (told.fields["topic"], told.fields["group"]) == (topic, group)
            assert told.fields["timestamp"] == "-1"
            is_forced = "true" if judged_original() is None else "false"
            assert told.fields["isForce"] == is_forced
        assert stored(tool, group, topic, 0) == 1


def test_without_force_offsets_only_go_back(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [3, 1])
        commit(client, group, topic, [2, 1, 0, 0])
        join(client, "c@1", group, topic)
        assert reset(client, group, topic, TO_THE_END, "false") == {0: 2, 1: 1, 2: 0, 3: 0}
        assert reset(client, group, topic, 0, "false") == {0: 0, 1: 0, 2: 0, 3: 0}


def test_a_time_is_looked_up_in_each_queue(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [2])
        middle_ms = int(time.time() * 1000)
        unread(client)  # so that the times differ
        fill(client, topic, [b"later", b"later"])
        fill(client, topic, [b"other"], e=1)
        await_claim(
            lambda: client.ask(30, topic=topic, queueId=1).fields["offset"] == "1",
            "the last message is readable",
            10,
        )
        commit(client, group, topic, [0, 0, 0, 0])
        join(client, "c@1", group, topic)
        after_all = reset(client, group, topic, int(time.time() * 1000) + 60_000)
        between = reset(client, group, topic, middle_ms + 1)
    assert after_all == {0: 3, 1: 0, 2: 0, 3: 0}  # the last message of each queue
    assert between == {0: 1, 1: 0, 2: 0, 3: 0}  # the nearest one


def test_a_tool_of_cpp_has_members_told_in_a_form_that_cpp_reads(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    fields = {"group": group, "topic": topic, "timestamp": "-1", "isForce": "true"}
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [2])
        commit(client, group, topic, [0, 0, 0, 0])
        join(client, "c@1", group, topic)
        client.send(Command(222, fields=fields, language="CPP"))
        rows = json.loads(next_request(client, 220).body)["offsetTable"]
    first = min(rows, key=lambda row: int(row["queueId"]))
    assert first == {"brokerName": BROKER_NAME, "offset": 2, "queueId": 0, "topic": topic}
    assert len(rows) == 4


def test_a_group_of_which_nobody_is_online_is_206(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [2])
        commit(client, group, topic, [0, 0, 0, 0])
        answer = client.ask(222, group=group, topic=topic, timestamp=-1, isForce="true")
    assert (answer.code, answer.remark) == (
        206,
        f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic}"
        " Timestamp: -1",
    )


def test_an_unknown_group_and_an_unknown_topic_are_1(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [1])
        no_group = client.ask(222, group=group, topic=topic, timestamp=-1, isForce="true")
        no_topic = client.ask(222, group=group, topic="none", timestamp=-1, isForce="true")
    assert no_group.code == no_topic.code == 1
    assert (no_group.remark or "").startswith(f"THe consumer group <{group}> not exist")
    assert (
        no_topic.remark == "[reset-offset] reset offset failed, no topic in this broker. topic=none"
    )


def test_a_group_with_a_member_that_is_too_old_is_1(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill_queues(client, topic, [1])
        commit(client, group, topic, [0, 0, 0, 0])
        client.call(Command(34, body=heartbeat("c@1", group, topic), version=10))
        answer = client.ask(222, group=group, topic=topic, timestamp=-1, isForce="true")
    assert answer.code == 1
    assert (answer.remark or "").startswith("the client does not support this feature. version=")
