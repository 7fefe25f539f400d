"""Delayed messages, as a broker's clients see them."""

from collections.abc import Callable

import pytest

from orbitmq.wire.command import Command
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.requests import fill, pull_request, send_request
from tests.foreign.judged import System
from tests.wire_client import WireClient

Fresh = Callable[[str], str]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HOLD = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
"""A pull that waits until there is something."""


def record_of(client: WireClient, answer: Command) -> Record:
    """The record that a send's answer leads to."""
    assert answer.code == 0, answer.remark
    log_offset = decode_offset_id(answer.fields["msgId"]).log_offset
    found = client.ask(33, offset=log_offset)
    assert found.code == 0, found.remark
    return next(scan_records(found.body))


def delivered(
    client: WireClient, topic: str, group: str, count: int = 1, queue_id: int = 0
) -> list[Record]:
    """The first messages of a queue; waits until there are so many."""
    records: list[Record] = []
    while len(records) < count:
        answer = client.call(pull_request(topic, group, len(records), queueId=queue_id, **HOLD))
        records += scan_records(answer.body)
    return records


def test_a_delayed_message_waits_in_the_schedule_topic_and_says_where_it_belongs(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    sent = "KEYS\x01k1\x02TAGS\x01TagA\x02WAIT\x01true\x02DELAY\x0118\x02empty\x01\x02x\x01y"
    with WireClient(system.broker) as client:
        fill(client, topic, [b"plain"])
        answer = client.call(send_request(topic, b"late", i=sent, e=2, h=7, f=1))
        record = record_of(client, answer)
    assert answer.fields["queueId"] == "2", "the queue that was asked for"
    assert answer.fields["queueOffset"] == str(record.queue_offset), "the place where it waits"
    assert (record.topic, record.queue_id) == (SCHEDULE_TOPIC, 17)
    assert (record.body, record.flag, record.sys_flag) == (b"late", 7, 1)
    assert parse_properties(record.properties) == {
        "KEYS": "k1",
        "TAGS": "TagA",
        "WAIT": "true",
        "DELAY": "18",
        "x": "y",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": topic,
        "REAL_QID": "2",
    }


def test_a_delayed_message_comes_when_its_level_says_and_with_all_it_had(
    system: System, fresh_name: Fresh
) -> None:
    """How precisely, tests/broker/test_delays.py says; the originals look every 100 ms."""
    topic, group = fresh_name("T"), fresh_name("G")
    sent = "KEYS\x01k1\x02TAGS\x01TagA\x02WAIT\x01true\x02DELAY\x011\x02x\x01y"
    with WireClient(system.broker) as client:
        fill(client, topic, [b"plain"])
        waiting = record_of(client, client.call(send_request(topic, b"late", i=sent, e=1, h=7)))
        assert client.call(pull_request(topic, group, 0, queueId=1)).code == 19
        (record,) = delivered(client, topic, group, queue_id=1)
    assert (record.topic, record.queue_id, record.queue_offset) == (topic, 1, 0)
    assert (record.body, record.flag, record.sys_flag) == (b"late", 7, 0)
    assert (record.born_ms, record.born_host) == (waiting.born_ms, waiting.born_host)
    assert parse_properties(record.properties) == parse_properties(waiting.properties)
    assert 0 <= record.store_ms - waiting.store_ms - 1_000 < 1_000


def test_messages_of_a_level_come_in_the_order_in_which_they_were_sent(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    bodies = [b"%d" % number for number in range(60)]
    with WireClient(system.broker) as client:
        fill(client, topic, bodies, i="DELAY\x011")
        records = delivered(client, topic, group, count=len(bodies))
    assert [record.body for record in records] == bodies


def test_a_delivered_message_is_found_by_its_tag_and_its_key(
    system: System, fresh_name: Fresh
) -> None:
    topic, group, key = fresh_name("T"), fresh_name("G"), fresh_name("K")
    sent = f"KEYS\x01{key}\x02TAGS\x01TagD\x02DELAY\x011"
    with WireClient(system.broker) as client:
        fill(client, topic, [b"late"], i=sent)
        delivered(client, topic, group)
        assert client.call(pull_request(topic, group, 0, subscription="TagD")).code == 0
        assert client.call(pull_request(topic, group, 0, subscription="TagE")).code == 20
        answer = client.ask(
            12, topic=topic, key=key, maxNum=8, beginTimestamp=0, endTimestamp=2**62
        )
        assert [record.topic for record in scan_records(answer.body)] == [topic]


@pytest.mark.parametrize("level", ["19", "99", "2147483647"])
def test_a_level_above_the_highest_is_the_highest(
    system: System, fresh_name: Fresh, level: str
) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(send_request(fresh_name("T"), b"x", i=f"DELAY\x01{level}"))
        record = record_of(client, answer)
    assert (record.topic, record.queue_id) == (SCHEDULE_TOPIC, 17)
    assert parse_properties(record.properties)["DELAY"] == "18"


@pytest.mark.parametrize("level", ["0", "-1", "-2147483648", ""])
def test_a_level_that_is_no_delay_is_stored_at_once(
    system: System, fresh_name: Fresh, level: str
) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        record = record_of(client, client.call(send_request(topic, i=f"DELAY\x01{level}")))
    assert record.topic == topic
    assert parse_properties(record.properties).get("DELAY", "") == level


@pytest.mark.parametrize("level", ["abc", "2.5", "3 ", "2147483648"])
def test_a_level_that_is_no_number_is_refused(
    system: System, fresh_name: Fresh, level: str
) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(send_request(fresh_name("T"), i=f"DELAY\x01{level}"))
    assert answer.code == 1
    assert level in (answer.remark or "")
