"""Bodies with forms of their own: the register body and the heartbeat."""

import json
import struct
import zlib

import pytest

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.bodies_client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    Heartbeat,
    MessageModel,
    MessageQueue,
    ProducerData,
    SubscriptionData,
    read_heartbeat,
)
from orbitmq.wire.bodies_namesrv import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    body_crc32,
    read_register_body,
    write_register_body,
)
from orbitmq.wire.frame import FRAME_SIZE_MAX


def part(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


VERSION = part(b'{"counter":3,"timestamp":1794767097360}')
REGISTERED = (
    VERSION + struct.pack(">i", 2) + part(b"A 4 8 6 SINGLE_TAG") + part(b"B 1 1 7 MULTI_TAG")
)


def test_the_compressed_register_body_of_4_9_is_read() -> None:
    body = read_register_body(zlib.compress(REGISTERED + part(b"[]"), 9), compressed=True)
    assert body == RegisterBrokerBody(
        topics=TopicConfigTable(
            data_version=DataVersion(counter=3, timestamp_ms=1_794_767_097_360),
            topic_config_table={
                "A": TopicConfig(topic_name="A", read_queue_count=4, write_queue_count=8),
                "B": TopicConfig(
                    topic_name="B",
                    read_queue_count=1,
                    write_queue_count=1,
                    perm=7,
                    topic_filter_type="MULTI_TAG",
                ),
            },
        ),
        filter_server_list=[],
    )
    assert zlib.decompress(write_register_body(body, compressed=True)) == REGISTERED + part(b"[]")


def test_the_compressed_register_body_of_5_has_attributes_and_mappings() -> None:
    data = VERSION + struct.pack(">i", 1) + part(b'A 4 4 6 SINGLE_TAG {"k":"a value"}')
    data += part(b'["10.0.0.1:1"]') + struct.pack(">i", 1)
    data += part(b'{"bname":"b","currIdMap":{0:0},"topic":"A"}')
    body = read_register_body(zlib.compress(data), compressed=True)
    assert body.topics.topic_config_table["A"].attributes == {"k": "a value"}
    assert body.filter_server_list == ["10.0.0.1:1"]
    assert body.topics.topic_queue_mapping_info_map == {
        "A": {"bname": "b", "currIdMap": {"0": 0}, "topic": "A"}
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        VERSION,
        VERSION + struct.pack(">i", -1) + part(b"[]"),
        VERSION + struct.pack(">i", 1) + struct.pack(">i", -1),
        VERSION + struct.pack(">i", 1) + struct.pack(">i", 100) + b"A 4 8 6 SINGLE_TAG",
        VERSION + struct.pack(">i", 2**31 - 1) + part(b"A 4 8 6 SINGLE_TAG"),
        VERSION + struct.pack(">i", 1) + part(b"A 4 8 6") + part(b"[]"),
        VERSION + struct.pack(">i", 1) + part(b"A x 8 6 SINGLE_TAG") + part(b"[]"),
        VERSION + struct.pack(">i", 1) + part(b"\xff 4 8 6 SINGLE_TAG") + part(b"[]"),
        VERSION + struct.pack(">i", 1) + part(b"A 4 8 6 SINGLE_TAG {") + part(b"[]"),
        REGISTERED + part(b"{}"),
        REGISTERED + part(b"[]") + b"\x00",
        part(b"{") + struct.pack(">i", 0) + part(b"[]"),
    ],
)
def test_a_broken_compressed_register_body_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_register_body(zlib.compress(data), compressed=True)


def test_what_is_not_compressed_is_refused_as_compressed() -> None:
    whole = zlib.compress(REGISTERED + part(b"[]"))
    for data in (b"no zlib", whole[:-3], b"\x78"):
        with pytest.raises(RemoteProtocolError, match="body-register"):
            read_register_body(data, compressed=True)


def test_a_register_body_that_grows_past_a_frame_is_refused_without_growing() -> None:
    bomb = zlib.compress(bytes(4 * FRAME_SIZE_MAX), 9)
    assert len(bomb) < 100_000
    with pytest.raises(RemoteProtocolError, match=str(FRAME_SIZE_MAX)):
        read_register_body(bomb, compressed=True)


def test_an_empty_register_body_has_no_topics() -> None:
    assert read_register_body(b"", compressed=False) == RegisterBrokerBody()
    assert read_register_body(b"", compressed=True).topics.topic_config_table == {}


def test_the_checksum_of_a_register_body_is_positive() -> None:
    body = b"b"
    assert zlib.crc32(body) == 0x71BEEFF9
    assert body_crc32(b"a") == 0xE8B7BE43 & 0x7FFFFFFF


def test_data_versions_are_the_same_when_their_numbers_are() -> None:
    version = DataVersion(counter=1, timestamp_ms=2)
    assert version.is_same(DataVersion(counter=1, timestamp_ms=2, state_version=0))
    assert not version.is_same(DataVersion(counter=1, timestamp_ms=2, state_version=1))
    assert not version.is_same(DataVersion(counter=2, timestamp_ms=2))
    assert not version.is_same(DataVersion(counter=1, timestamp_ms=3))
    assert not version.is_same(None)


# --- heartbeat ---


def heartbeat(**consumer: object) -> Heartbeat:
    data = {"clientID": "c", "consumerDataSet": [{"groupName": "g", **consumer}]}
    return read_heartbeat(json.dumps(data).encode())


def test_enums_are_read_by_name_and_by_ordinal() -> None:
    by_ordinal = heartbeat(consumeType=1, messageModel=0, consumeFromWhere=4)
    by_name = heartbeat(
        consumeType="CONSUME_PASSIVELY",
        messageModel="BROADCASTING",
        consumeFromWhere="CONSUME_FROM_FIRST_OFFSET",
    )
    assert by_ordinal == by_name
    (consumer,) = by_name.consumer_data_set
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert heartbeat(consumeType=2).consumer_data_set[0].consume_type is ConsumeType.CONSUME_POP


@pytest.mark.parametrize("wrong", [3, -1, "CONSUME_SOMEHOW", "", True, 1.5, [], 2**40])
def test_an_enum_that_nobody_knows_is_refused(wrong: object) -> None:
    with pytest.raises(RemoteProtocolError):
        heartbeat(consumeType=wrong)


def test_what_a_client_leaves_out_or_sends_as_null_has_its_default() -> None:
    expected = Heartbeat(
        client_id="c",
        consumer_data_set=[
            ConsumerData(group_name="g", subscription_data_set=[SubscriptionData(topic="T")])
        ],
    )
    assert heartbeat(subscriptionDataSet=[{"topic": "T"}]) == expected
    nulls = {"tagsSet": None, "codeSet": None, "expressionType": None, "subVersion": None}
    assert heartbeat(subscriptionDataSet=[{"topic": "T", **nulls}], unitMode=None) == expected
    assert expected.consumer_data_set[0].subscription_data_set[0].expression_type == "TAG"


def test_a_producer_alone_may_leave_the_consumers_out() -> None:
    body = b'{"clientID":"c","consumerDataSet":null,"producerDataSet":[{"groupName":"p"}]}\n'
    assert read_heartbeat(body) == Heartbeat(
        client_id="c", producer_data_set=[ProducerData(group_name="p")]
    )


def test_a_version_is_read_as_number_and_as_text() -> None:
    for version in (1_794_768_069_447_669_188, "1794768069447669188"):
        (consumer,) = heartbeat(
            subscriptionDataSet=[{"topic": "T", "subVersion": version}]
        ).consumer_data_set
        assert consumer.subscription_data_set[0].sub_version == 1_794_768_069_447_669_188


def test_both_names_of_the_mark_without_subscriptions_are_read() -> None:
    for name in (b"withoutSub", b"isWithoutSub"):
        body = b'{"clientID":"c","heartbeatFingerprint":7,"%s":true}' % name
        assert read_heartbeat(body) == Heartbeat(
            client_id="c", heartbeat_fingerprint=7, without_sub=True
        )


def test_queues_are_ordered_by_topic_then_broker_then_id() -> None:
    queues = [MessageQueue("b", "a", 0), MessageQueue("a", "b", 0), MessageQueue("a", "a", 10)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]
    assert MessageQueue("a", "a", 2) < MessageQueue("a", "a", 10)
