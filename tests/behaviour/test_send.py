"""Sending, as a broker's clients see it."""

from collections.abc import Callable

import msgspec
import pytest

from orbitmq.wire.bodies_namesrv import ClusterInfo, DataVersion, TopicRoute
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.frame import BINARY, JSON
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, pull_request, send_request
from tests.foreign.judged import System, judged_original
from tests.namesrv.registering import header
from tests.namesrv.serving import register_request
from tests.wire_client import WireClient

Fresh = Callable[[str], str]


@pytest.mark.parametrize("serialization", [JSON, BINARY])
def test_a_send_is_answered_in_kind_with_place_and_id(
    system: System, fresh_name: Fresh, serialization: int
) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        for queue_offset in range(3):
            answer = client.call(send_request(topic, serialization=serialization, e=1))
            assert (answer.code, answer.serialization) == (0, serialization)
            assert answer.fields["queueId"] == "1"
            assert answer.fields["queueOffset"] == str(queue_offset)
            assert answer.fields["MSG_REGION"] == "DefaultRegion"
            assert answer.fields["TRACE_ON"] == "true"
            place = decode_offset_id(answer.fields["msgId"])
            assert str(place.host) == system.broker


def test_code_10_with_long_names_is_the_same_send(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("T")
    fields = {
        "producerGroup": "PG",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "5",
        "properties": "KEYS\x01k\x02",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    with WireClient(system.broker) as client:
        for expected in ("0", "1"):
            answer = client.call(Command(10, fields=fields, body=b"x"))
            assert (answer.code, answer.fields["queueOffset"]) == (0, expected)


def test_a_stored_message_is_what_was_sent(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, ["Grüße".encode()], h=9, f=1, i="KEYS\x01a b\x02TAGS\x01TagB\x02x\x01y")
        answer = client.call(pull_request(topic, group, 0))
        (record,) = scan_records(answer.body)
    assert record.body == "Grüße".encode()
    assert (record.topic, record.flag, record.sys_flag) == (topic, 9, 1)
    assert (record.born_ms, record.reconsume_times) == (1700000000000, 0)
    assert record.born_host.ip == "127.0.0.1"
    properties = parse_properties(record.properties)
    assert properties.pop("CLUSTER") == "DefaultCluster"
    for added_by_5 in ("MSG_REGION", "TRACE_ON"):
        properties.pop(added_by_5, None)
    assert properties == {"KEYS": "a b", "TAGS": "TagB", "x": "y"}


def test_an_unknown_topic_is_made_with_the_queues_asked_for(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"], d=3)
        assert client.call(pull_request(topic, group, 0, queueId=2)).code == 19
        assert client.call(pull_request(topic, group, 0, queueId=3)).code == 1
        assert client.call(send_request(topic, e=3)).code == 1


def test_the_route_of_a_new_topic_is_known_to_the_name_server(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as broker, WireClient(system.namesrv) as namesrv:
        fill(broker, topic, [b"x"])
        for _ in range(200):
            answer = namesrv.ask(105, topic=topic)
            if answer.code == 0:
                break
        assert answer.code == 0, answer.remark
        assert system.broker.encode() in answer.body


SYSTEM_TOPICS = {
    "TBW102": (8, 7),
    "DefaultCluster": (16, 7),
    "broker-a": (1, 7),
    "BenchmarkTest": (1024, 6),
    "SELF_TEST_TOPIC": (1, 6),
    "OFFSET_MOVED_EVENT": (1, 6),
}


@pytest.mark.parametrize("topic", SYSTEM_TOPICS)
def test_system_topics_are_there_from_the_start(system: System, topic: str) -> None:
    with WireClient(system.namesrv) as namesrv:
        route = read_json(namesrv.ask(105, topic=topic).body, TopicRoute)
    (queues,) = route.queue_datas
    queue_count, perm = SYSTEM_TOPICS[topic]
    assert (queues.read_queue_count, queues.write_queue_count) == (queue_count, queue_count)
    assert (queues.perm, queues.topic_sys_flag) == (perm, 0)


def test_a_broker_registers_who_and_where_it_is_and_what_its_topics_version_is(
    system: System,
) -> None:
    ha_port = int(system.broker.rpartition(":")[2]) + 1
    names = {"brokerName": "broker-a", "clusterName": "DefaultCluster"}
    slave = header("broker-a", "127.0.0.1:1", 1, "DefaultCluster")
    with WireClient(system.namesrv) as namesrv:
        info = read_json(namesrv.ask(106).body, ClusterInfo)
        assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"]}
        assert info.broker_addr_table["broker-a"].broker_addrs == {0: system.broker}
        master = namesrv.call(register_request(slave)).fields
        assert master["masterAddr"] == system.broker
        assert master["haServerAddr"].endswith(f":{ha_port}")  # of any interface in the originals
        query = {**names, "brokerAddr": system.broker, "brokerId": "0"}
        answer = namesrv.ask(322, b'{"counter":0,"timestamp":0}', **query)
        assert answer.fields["changed"] == "true"
        assert read_json(answer.body, DataVersion).timestamp_ms > 0


def test_the_id_of_a_send_says_where_its_record_lies_in_the_one_log(
    system: System, fresh_name: Fresh
) -> None:
    topics, group = (fresh_name("T"), fresh_name("T")), fresh_name("G")
    with WireClient(system.broker) as client:
        places = [
            decode_offset_id(
                client.call(send_request(topic, serialization=serialization)).fields["msgId"]
            )
            for serialization in (JSON, JSON, BINARY)
            for topic in topics
        ]
        log_offsets = [place.log_offset for place in places]
        assert log_offsets == sorted(set(log_offsets))
        for number, topic in enumerate(topics):
            records = scan_records(client.call(pull_request(topic, group, 0)).body)
            assert [record.log_offset for record in records] == log_offsets[number::2]


def test_queue_minus_one_lets_the_broker_choose(system: System, fresh_name: Fresh) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        chosen = {client.call(send_request(topic, e=-1)).fields["queueId"] for _ in range(40)}
    assert chosen <= {"0", "1", "2", "3"}
    assert len(chosen) > 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"b": "bad topic!"}, 1),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16),
        ({"b": "NoTemplate", "c": "NoSuchTemplate"}, 17),
        ({"b": "TBW102", "e": 99}, 1),
    ],
)
def test_refused_sends_carry_the_originals_code(
    system: System, changes: dict[str, str | int], code: int
) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(send_request(str(changes["b"]), **changes))
    assert answer.code == code, answer.remark
    assert answer.remark


def test_four_mebibytes_of_body_are_taken_and_one_byte_more_is_not(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        assert client.call(send_request(topic, bytes(4_194_304))).code == 0
        assert client.call(send_request(topic, bytes(4_194_305))).code == 13
        assert client.call(send_request(topic, b"x")).fields["queueOffset"] == "1"


def test_properties_above_32_kib_are_refused(system: System, fresh_name: Fresh) -> None:
    with WireClient(system.broker) as client:
        answer = client.call(send_request(fresh_name("T"), i="K\x01" + "v" * 40_000))
        assert answer.code == 13


def test_a_oneway_send_is_stored_and_never_answered(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"first"])
        oneway = client.send(send_request(topic, b"oneway", flag=2))
        answer = client.call(send_request(topic, b"last"))
        assert answer.opaque != oneway
        assert answer.fields["queueOffset"] == "2"
        records = scan_records(client.call(pull_request(topic, group, 0)).body)
        assert [record.body for record in records] == [b"first", b"oneway", b"last"]


def test_a_request_without_a_required_field_names_it(system: System) -> None:
    with WireClient(system.broker) as client:
        answer = client.ask(310, b="T")
    assert answer.code == 1
    assert answer.remark


def test_an_unknown_code_is_answered_with_3(system: System) -> None:
    """The name server of 4.9.7 never answers it; that of 5.5.0 does."""
    addresses = [system.broker]
    if judged_original() != "4.9.7":
        addresses.append(system.namesrv)
    for address in addresses:
        with WireClient(address) as client:
            answer = client.ask(9999)
            assert (answer.code, answer.remark) == (3, " request type 9999 not supported")


def test_filter_servers_are_no_longer_known(system: System) -> None:
    """301 and 302 kept their names in 4.9.7, and nothing serves them there."""
    with WireClient(system.broker) as client:
        for code in (301, 302):
            answer = client.ask(code, filterServerAddr="127.0.0.1:1")
            assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_host_bits_from_a_sender_do_not_spoil_the_log(system: System, fresh_name: Fresh) -> None:
    """Both originals store such a record malformed and cut the log there after a crash."""
    if judged_original() is not None:
        pytest.skip("originals store it malformed and give out nothing behind it")
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"one"])
        client.call(send_request(topic, b"evil", f=0x30))
        fill(client, topic, [b"three"])
        records = list(scan_records(client.call(pull_request(topic, group, 0)).body))
        assert [record.body for record in records] == [b"one", b"evil", b"three"]


def test_sends_before_a_broken_frame_are_answered_before_the_close(
    system: System, fresh_name: Fresh
) -> None:
    """Symptom: what was stored in the turn of a protocol error was never answered."""
    if judged_original() is not None:
        pytest.skip("originals close with the answers unsent")
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"first"])
        frames = b"".join(
            encode_command(msgspec.structs.replace(send_request(topic), opaque=1000 + number))
            for number in range(10)
        )
        client.send_bytes(frames + b"\xff" * 16)
        opaques = [client.receive().opaque for _ in range(10)]
        assert opaques == list(range(1000, 1010))
        with pytest.raises(ConnectionError):
            client.receive()
