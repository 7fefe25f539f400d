"""Queues of a topic as clients see them: how many there are, and which of them a held pull is of.

The same tests run against an original (ORBITMQ_JUDGE=original-4.9.7).
"""

import json
import time
from typing import Any

import pytest

from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.record import scan_records
from tests.behaviour.consumers import Fresh, commit, stored
from tests.behaviour.requests import await_readable, fill, pull_request, send_request
from tests.behaviour.test_pull_checks import changed, client, topic
from tests.behaviour.test_topics import QUERY_QUEUE, make
from tests.foreign.asking import await_claim
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

__all__ = ["client", "topic"]  # fixtures

ROUTE, SEND_BATCH = 105, 320
WAITS = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}


def route_counts(system: System, topic: str) -> tuple[int, int]:
    """Return how many queues the route shows to readers and to writers."""
    with WireClient(system.namesrv) as names:
        answer = names.ask(ROUTE, topic=topic, acceptStandardJsonOnly="true")
    data: dict[str, Any] = json.loads(answer.body)["queueDatas"][0]
    return data["readQueueNums"], data["writeQueueNums"]


def test_a_topic_is_shrunk_without_loss_when_its_write_queues_go_first(
    system: System, client: WireClient, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    make(client, topic)
    fill(client, topic, [b"0", b"1"], e=3)
    make(client, topic, readQueueNums=4, writeQueueNums=2)
    await_claim(lambda: route_counts(system, topic) == (4, 2), "senders see two queues", 10)
    drained = client.call(pull_request(topic, group, 0, queueId=3, **WAITS))
    assert [record.body for record in scan_records(drained.body)] == [b"0", b"1"]
    make(client, topic, readQueueNums=2, writeQueueNums=2)
    await_claim(lambda: route_counts(system, topic) == (2, 2), "readers see two as well", 10)
    assert client.call(pull_request(topic, group, 2, queueId=3)).code == 1


def test_queues_beyond_the_read_count_cannot_be_consumed(
    client: WireClient, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    make(client, topic, readQueueNums=4, writeQueueNums=8)
    fill(client, topic, [b"unseen"], e=7)
    assert client.call(pull_request(topic, group, 0, queueId=7)).code == 1
    assert client.call(send_request(topic, e=8)).code == 1


def test_a_new_topic_has_at_most_the_queues_of_its_template(
    client: WireClient, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    fill(client, topic, [b"x"], d=16)
    assert client.call(pull_request(topic, group, 0, queueId=7)).code == 19
    assert client.call(pull_request(topic, group, 0, queueId=8)).code == 1


def test_groups_topics_and_queues_that_were_never_committed_all_count_as_new(
    client: WireClient, fresh_name: Fresh
) -> None:
    topic, other, group = fresh_name("T"), fresh_name("T"), fresh_name("G")
    for name in (topic, other):
        make(client, name, readQueueNums=1, writeQueueNums=1)
        fill(client, name, [b"x"] * 3)
    commit(client, group, topic, [3])
    make(client, topic, readQueueNums=2, writeQueueNums=2)
    fill(client, topic, [b"x"], e=1)
    assert stored(client, group, topic, 0) == 3
    assert stored(client, group, topic, 1) == 0, "an added queue"
    assert stored(client, group, other, 0) == 0, "another topic"
    assert stored(client, fresh_name("G"), topic, 0) == 0, "another group"


# --- held pulls ---


def test_a_held_pull_sleeps_through_messages_of_other_queues_and_topics(
    system: System, client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    opaque = client.send(pull_request(topic, fresh_name("G"), 0, queueId=1, **WAITS))
    with WireClient(system.broker) as sending:
        fill(sending, topic, [b"elsewhere"], e=2)
        fill(sending, fresh_name("T"), [b"elsewhere"], e=1)
        with pytest.raises(TimeoutError):
            client.receive(timeout_s=0.3)
        fill(sending, topic, [b"here"], e=1)
    answer = client.receive_answer(opaque, timeout_s=7)
    assert [record.body for record in scan_records(answer.body)] == [b"here"]


def test_a_pull_is_held_as_long_as_it_asks_for(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    start_s = time.monotonic()
    waits = {**WAITS, "suspendTimeoutMillis": 700}
    assert client.call(pull_request(topic, fresh_name("G"), 3, **waits)).code == 19
    took_s = time.monotonic() - start_s
    assert 0.69 < took_s < (3.0 if judged_original() is None else 10.0)


def test_without_long_polling_a_message_is_found_at_the_end_only(
    system: System, client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    """An original that was started with long polling may wake it earlier."""
    short = "longPollingEnable=false\nshortPollingTimeMills=600\n"
    with (
        WireClient(system.broker) as other,
        changed(other, short, "longPollingEnable=true\nshortPollingTimeMills=1000\n"),
    ):
        opaque = client.send(pull_request(topic, fresh_name("G"), 3, **WAITS))
        fill(other, topic, [b"3"])
        if judged_original() is None:
            with pytest.raises(TimeoutError):
                client.receive(timeout_s=0.2)
        answer = client.receive_answer(opaque, timeout_s=10)
    assert [record.body for record in scan_records(answer.body)] == [b"3"]


def test_without_the_commit_bit_a_pull_stores_no_offset(
    client: WireClient, topic: str, fresh_name: Fresh
) -> None:
    group = fresh_name("G")
    place: dict[str, str | int] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    assert client.call(pull_request(topic, group, 0, sysFlag=4, commitOffset=2)).code == 0
    assert client.ask(14, **place).fields.get("offset") in (None, "0")


def test_a_look_into_a_queue_shows_at_most_4096_entries(
    client: WireClient, fresh_name: Fresh
) -> None:
    """Kept difference: 4.9.7 gives as many as it is asked for."""
    topic, count = fresh_name("T"), 4_100
    batch = send_request(topic, encode_batch([BatchMessage(b"")] * count), m="true", i="")
    batch.code = SEND_BATCH
    assert client.call(batch).code == 0
    await_readable(client, topic, 0, count)
    answer = client.ask(QUERY_QUEUE, topic=topic, queueId=0, index=0, count=count)
    shown = 4_096 if judged_original() is None else count
    assert len(json.loads(answer.body)["queueData"]) == shown
