"""What a send must pass, and which check comes first."""

import time
from collections.abc import Callable

import pytest

from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.bodies_namesrv import TopicRoute
from orbitmq.wire.command import Command
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import await_readable, fill, pull_request, send_request
from tests.behaviour.test_delay import record_of
from tests.foreign.asking import await_topic
from tests.foreign.judged import System, judged_original
from tests.wire_client import WireClient

Fresh = Callable[[str], str]

TOO_LARGE = bytes(4_194_305)
ILLEGAL = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
TWO = encode_batch([BatchMessage(b"1", b"TAGS\x01A"), BatchMessage(b"2")])


def batch_request(topic: str, body: bytes = TWO, /, **changes: str | int) -> Command:
    """A batch as Java sends it."""
    request = send_request(topic, body, **({"m": "true", "i": ""} | changes))
    request.code = 320
    return request


@pytest.mark.parametrize(
    ("changes", "body", "code", "remark"),
    [
        ({"b": "bad topic!", "c": "NoTemplate", "e": 99}, b"", 1, ILLEGAL),
        ({"b": "bad topic!" * 13}, b"", 1, ILLEGAL),
        ({"b": ""}, b"", 1, "The specified topic is blank."),
        ({"b": "  "}, b"", 1, "The specified topic is blank."),
        ({"b": "a" * 128}, b"", 1, "The specified topic is longer than topic max length."),
        ({"b": "SCHEDULE_TOPIC_XXXX", "e": 99}, TOO_LARGE, 16, "is forbidden."),
        ({"b": "OFFSET_MOVED_EVENT"}, b"", 16, "Sending message to topic[OFFSET_MOVED_EVENT]"),
        ({"b": "NeverMade", "c": "NoTemplate", "e": 99}, TOO_LARGE, 17, "topic[NeverMade] not"),
        ({"b": "TBW102", "e": 99}, TOO_LARGE, 1, "request queueId[99] is illegal, TopicConfig ["),
        ({"b": "TBW102", "i": "DELAY\x01x"}, TOO_LARGE, 1, "x"),
    ],
)
def test_the_checks_of_a_send_come_in_the_originals_order(
    system: System, changes: dict[str, str | int], body: bytes, code: int, remark: str
) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(send_request(str(changes["b"]), body, **changes))
    assert answer.code == code, answer.remark
    assert remark in (answer.remark or "")


def test_a_refusal_says_the_region_and_that_traces_are_on(system: System) -> None:
    with WireClient(system.broker) as client:
        fields = client.call(send_request("bad topic!")).fields
    assert fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def test_a_retry_topic_is_made_without_a_template_and_has_one_queue(
    system: System, fresh_name: Fresh
) -> None:
    topic = f"%RETRY%{fresh_name('G')}"
    with WireClient(system.broker) as client:
        assert client.call(send_request(topic, c="NoTemplate")).code == 0
        assert client.call(send_request(topic, c="NoTemplate", e=1)).code == 1


@pytest.mark.parametrize(("prefix", "sys_flag"), [("", 1), ("%RETRY%", 2)])
def test_a_topic_made_in_unit_mode_says_so(
    system: System, fresh_name: Fresh, prefix: str, sys_flag: int
) -> None:
    topic = prefix + fresh_name("U")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"], k="true")
    await_topic(system.namesrv, topic, "broker-a")
    with WireClient(system.namesrv) as namesrv:
        answer = namesrv.ask(105, topic=topic)
    (queues,) = read_json(answer.body, TopicRoute).queue_datas
    assert queues.topic_sys_flag == sys_flag


def test_127_characters_are_a_topic(system: System, fresh_name: Fresh) -> None:
    with WireClient(system.broker) as client:
        assert client.call(send_request(fresh_name("T").ljust(127, "x"))).code == 0


# --- Batches ---


def test_a_batch_is_what_says_so_whatever_its_code(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        by_flag = client.call(send_request(topic, TWO, m="true", i=""))
        assert by_flag.fields["msgId"].count(",") == 1
        single = send_request(topic, TWO, m="false", i="")
        single.code = 320
        for request in (single, send_request(topic, TWO, m="1", i="")):
            assert "," not in client.call(request).fields["msgId"]
        await_readable(client, topic, 0, 4)
        records = list(scan_records(client.call(pull_request(topic, group, 0)).body))
    assert [record.body for record in records] == [b"1", b"2", TWO, TWO]


def test_messages_in_batches_take_less_time_than_one_by_one(
    system: System, fresh_name: Fresh
) -> None:
    topic, count = fresh_name("T"), 1_000
    batch = encode_batch([BatchMessage(bytes(100)) for _ in range(100)])
    with WireClient(system.broker) as client:
        fill(client, topic, [b"first"])
        begin_s = time.monotonic()
        fill(client, topic, [bytes(100)] * count)
        singles_s, begin_s = time.monotonic() - begin_s, time.monotonic()
        for _ in range(count // 100):
            assert client.call(batch_request(topic, batch)).code == 0
        batches_s = time.monotonic() - begin_s
        last = client.call(send_request(topic)).fields["queueOffset"]
    assert last == str(1 + 2 * count), "all are there"
    assert batches_s < singles_s / 2


@pytest.mark.parametrize("changes", [{"i": "DELAY\x011"}, {"f": 4}])
def test_a_batch_is_neither_delayed_nor_transactional(
    system: System, fresh_name: Fresh, changes: dict[str, str | int]
) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(batch_request(fresh_name("T"), **changes))
    assert answer.code == 13
    assert (answer.remark or "").startswith("the message is illegal")


def test_the_delay_of_one_message_in_a_batch_has_no_effect(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    body = encode_batch([BatchMessage(b"1", b"DELAY\x011")])
    with WireClient(system.broker) as client:
        record = record_of(client, client.call(batch_request(topic, body)))
    assert record.topic == topic
    assert parse_properties(record.properties)["DELAY"] == "1"


def test_a_batch_for_a_retry_topic_is_stored_there(system: System, fresh_name: Fresh) -> None:
    topic = f"%RETRY%{fresh_name('G')}"
    with WireClient(system.broker) as client:
        answer = client.call(batch_request(topic, j=99))
        assert answer.code == 0, answer.remark
        assert client.ask(30, topic=topic, queueId=0).code == 0


def test_a_torn_batch_is_refused_whole(system: System, fresh_name: Fresh) -> None:
    """The originals answer 1 with the name of a Java exception; 13 says what is wrong."""
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"first"])
        torn = client.call(batch_request(topic, TWO[:-1]))
        assert torn.code == (13 if judged_original() is None else 1)
        assert client.call(send_request(topic, b"next")).fields["queueOffset"] == "1"
