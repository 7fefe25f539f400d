"""Light queues: one message in several queues that are no topics.

The broker has enableLmq and enableMultiDispatch, OrbitMQ's or the original's that is the judge.
"""

import json
import threading
from collections.abc import Callable, Iterator

import pytest

from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.requests import await_readable, pull_request, send_request
from tests.foreign.judged import System, judged_original, system_with
from tests.wire_client import WireClient

Fresh = Callable[[str], str]
KEYS = {"enableLmq": "true", "enableMultiDispatch": "true"}
ILLEGAL = 13


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A broker with light queues, and its name server."""
    with system_with(tmp_path_factory.mktemp("light"), KEYS) as system:
        yield system


def dispatched(*names: str, more: str = "") -> str:
    """Properties that name light queues."""
    return f"{more}INNER_MULTI_DISPATCH\x01{','.join(names)}\x02WAIT\x01true"


def put(client: WireClient, topic: str, body: bytes, *names: str, more: str = "") -> None:
    """Send a message to queue 0 of a topic and to light queues; it can be read then."""
    ends = {name: int(end_of(client, name)) for name in names}
    answer = client.call(send_request(topic, body, i=dispatched(*names, more=more)))
    assert answer.code == 0, answer.remark
    for name, end in {topic: int(answer.fields["queueOffset"]), **ends}.items():
        await_readable(client, name, 0, end + 1)


def pulled(client: WireClient, name: str, group: str = "%LMQ%readers") -> list[Record]:
    answer = client.call(pull_request(name, group, 0))
    assert answer.code == 0, answer.remark
    return list(scan_records(answer.body))


def end_of(client: WireClient, name: str) -> str:
    return client.ask(30, topic=name, queueId=0).fields["offset"]


def test_a_message_is_in_its_own_queue_and_in_each_light_queue(
    light: System, fresh_name: Fresh
) -> None:
    topic, first, second = fresh_name("T"), fresh_name("%LMQ%a"), fresh_name("%LMQ%b")
    with WireClient(light.broker) as client:
        put(client, topic, b"0", first, more="KEYS\x01k\x02")
        put(client, topic, b"1", second, first)
        client.call(send_request(topic, b"2"))
        await_readable(client, topic, 0, 3)
        found = pulled(client, first)
        assert [record.body for record in found] == [b"0", b"1"]
        assert [record.body for record in pulled(client, second)] == [b"1"]
        assert [record.body for record in pulled(client, topic, "G")] == [b"0", b"1", b"2"]
        assert (end_of(client, first), end_of(client, second)) == ("2", "1")
        assert client.ask(31, topic=first, queueId=0).fields["offset"] == "0"
        early = client.ask(29, topic=first, queueId=0, timestamp=found[1].store_ms)
        assert early.fields["offset"] in ("0", "1")
    assert [(record.topic, record.queue_id, record.queue_offset) for record in found] == [
        (topic, 0, 0),
        (topic, 0, 1),
    ]
    own = [parse_properties(record.properties) for record in found]
    assert [table["INNER_MULTI_DISPATCH"] for table in own] == [first, f"{second},{first}"]
    assert [table["INNER_MULTI_QUEUE_OFFSET"] for table in own] == ["0", "0,1"]
    assert own[0]["KEYS"] == "k"
    assert "WAIT" not in own[0]


def test_messages_of_several_topics_and_queues_share_a_light_queue(
    light: System, fresh_name: Fresh
) -> None:
    name, topics = fresh_name("%LMQ%a"), [fresh_name("T") for _ in range(3)]
    with WireClient(light.broker) as client:
        for number in range(9):
            put(client, topics[number % 3], b"%d" % number, name)
        found = pulled(client, name)
    assert [record.body for record in found] == [b"%d" % number for number in range(9)]
    numbers = [parse_properties(one.properties)["INNER_MULTI_QUEUE_OFFSET"] for one in found]
    assert numbers == [str(number) for number in range(9)]


def test_a_light_queue_is_no_topic_and_a_light_group_no_group(
    light: System, fresh_name: Fresh
) -> None:
    topic, name, group = fresh_name("T"), fresh_name("%LMQ%a"), fresh_name("%LMQ%G")
    with WireClient(light.broker) as client, WireClient(light.namesrv) as namesrv:
        put(client, topic, b"x", name)
        assert len(pulled(client, name, group)) == 1
        made: dict[str, str | int] = {
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
            "order": "false",
        }
        asked = client.ask(
            17, topic=name, defaultTopic="TBW102", topicFilterType="SINGLE_TAG", **made
        )
        assert asked.code == 0
        topics = client.ask(21).body.decode()
        assert topic in topics
        assert name not in topics
        assert group not in client.ask(201).body.decode()
        assert namesrv.ask(105, topic=name).code == 17
        beyond = client.call(pull_request(name, group, 0, queueId=1))
    assert beyond.code == 1
    assert f"queueId[1] is illegal, topic:[{name}] topicConfig.readQueueNums:[1]" in (
        beyond.remark or ""
    )


def test_offsets_of_light_queues_are_kept(light: System, fresh_name: Fresh) -> None:
    topic, name, group = fresh_name("T"), fresh_name("%LMQ%a"), fresh_name("%LMQ%G")
    usual = fresh_name("G")
    with WireClient(light.broker) as client:
        put(client, topic, b"0", name)
        put(client, topic, b"1", name)
        for who, offset in ((group, 2), (usual, 1)):
            place: dict[str, str | int] = {"consumerGroup": who, "topic": name, "queueId": 0}
            assert client.ask(15, commitOffset=offset, **place).code == 0
            assert client.ask(14, **place).fields["offset"] == str(offset)
        table = client.ask(43).body.decode()
    assert f'"{name}@{group}":2' in table.partition('"offsetTable"')[0]
    assert f'"{name}@{usual}":{{0:1}}' in table.partition('"offsetTable"')[2]


def test_a_pull_that_waits_for_a_light_queue_is_answered_when_a_message_comes(
    light: System, fresh_name: Fresh
) -> None:
    topic, name = fresh_name("T"), fresh_name("%LMQ%a")
    with WireClient(light.broker) as client, WireClient(light.broker) as reader:
        for number in range(2):  # the first one waits for a queue that is not there
            waits = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
            opaque = reader.send(pull_request(name, "%LMQ%g", number, **waits))
            timer = threading.Timer(0.2, put, (client, topic, b"%d" % number, name))
            timer.start()
            answer = reader.receive_answer(opaque, 10)
            timer.join()
            assert [record.body for record in scan_records(answer.body)] == [b"%d" % number]


def test_a_light_queue_can_be_filtered_by_tag(light: System, fresh_name: Fresh) -> None:
    topic, name = fresh_name("T"), fresh_name("%LMQ%a")
    with WireClient(light.broker) as client:
        for tag in ("A", "B", "A"):
            put(client, topic, tag.encode(), name, more=f"TAGS\x01{tag}\x02")
        answer = client.call(pull_request(name, "%LMQ%g", 0, subscription="A"))
    assert [record.body for record in scan_records(answer.body)] == [b"A", b"A"]


def test_a_deleted_light_queue_begins_anew(light: System, fresh_name: Fresh) -> None:
    topic, name = fresh_name("T"), fresh_name("%LMQ%a")
    with WireClient(light.broker) as client:
        put(client, topic, b"old", name)
        assert end_of(client, name) == "1"
        assert client.ask(215, topic=name).code == 0
        assert end_of(client, name) == "0"
        put(client, topic, b"new", name)
        assert [record.body for record in pulled(client, name)] == [b"new"]
        assert [record.body for record in pulled(client, topic, "G")] == [b"old", b"new"]


def test_a_message_may_be_sent_to_a_light_queue_alone(light: System, fresh_name: Fresh) -> None:
    name = fresh_name("%LMQ%a")
    with WireClient(light.broker) as client:
        for number in range(2):
            answer = client.call(send_request(name, b"%d" % number))
            assert (answer.code, answer.fields["queueOffset"]) == (0, str(number))
        await_readable(client, name, 0, 2)
        assert [record.body for record in pulled(client, name)] == [b"0", b"1"]
        assert "request queueId[1] is illegal" in (
            client.call(send_request(name, e=1)).remark or ""
        )


# --- where the original's other messages would suffer ---


@pytest.mark.skipif(
    judged_original() is not None,
    reason="an original takes these: after `%LMQ%/../x` no queue of any topic grows for 30 s, and"
    " messages get into queues of other topics",
)
@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("INNER_MULTI_DISPATCH\x01Other", "'Other' is no light queue"),
        ("INNER_MULTI_DISPATCH\x01%LMQ%/../x", "a character that is not allowed"),
        ("INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%a", "twice"),
        ("INNER_MULTI_DISPATCH\x01 ", "is no light queue"),
        ("INNER_MULTI_DISPATCH\x01" + "%LMQ%a," * 1_001, "limit 1000"),
        ("INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010", "reserved"),
        ("INNER_MULTI_QUEUE_OFFSET\x010", "reserved"),
        ("INNER_MULTI_DISPATCH\x01%LMQ%a\x02DELAY\x011", "no delayed messages"),
    ],
)
def test_what_a_message_may_not_say_of_light_queues_is_refused(
    light: System, fresh_name: Fresh, properties: str, said: str
) -> None:
    topic, name = fresh_name("T"), fresh_name("%LMQ%x")
    with WireClient(light.broker) as client:
        put(client, topic, b"before", name)
        answer = client.call(send_request(topic, b"evil", i=properties))
        assert answer.code == ILLEGAL
        assert said in (answer.remark or "")
        put(client, topic, b"behind", name)
        for queue in (topic, name):
            assert [one.body for one in pulled(client, queue)] == [b"before", b"behind"]


@pytest.mark.skipif(judged_original() is not None, reason="an original uses two counters there")
def test_a_light_queue_counts_direct_messages_and_others_together(
    light: System, fresh_name: Fresh
) -> None:
    topic, name = fresh_name("T"), fresh_name("%LMQ%a")
    with WireClient(light.broker) as client:
        for number in range(4):
            if number % 2:
                assert client.call(send_request(name, b"%d" % number)).code == 0
            else:
                put(client, topic, b"%d" % number, name)
        assert [record.body for record in pulled(client, name)] == [b"0", b"1", b"2", b"3"]
        itself = client.call(send_request(name, b"twice", i=dispatched(name)))
    assert "names the topic that the message is sent to" in (itself.remark or "")


def test_a_message_that_is_sent_back_is_in_no_light_queue_again(
    light: System, fresh_name: Fresh
) -> None:
    if judged_original() is not None:
        pytest.skip("an original puts it there again, before its time and with another code")
    topic, name, group = fresh_name("T"), fresh_name("%LMQ%a"), fresh_name("G")
    with WireClient(light.broker) as client:
        put(client, topic, b"x", name)
        (record,) = pulled(client, name, group)
        back = client.ask(
            36, group=group, offset=record.log_offset, delayLevel=1, originTopic=topic
        )
        assert back.code == 0, back.remark
        retry = f"%RETRY%{group}"
        waits = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
        answer = client.call(pull_request(retry, group, 0, **waits), 20)
        (again,) = scan_records(answer.body)
        assert end_of(client, name) == "1"
    assert again.body == b"x"
    assert "INNER_MULTI" not in json.dumps(parse_properties(again.properties))
