"""The dialect of fastjson: what it adds to JSON is read, what is broken is refused, in bounds."""

import time
from typing import Any

import pytest

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire import fastjson
from orbitmq.wire.bodies_client import MessageQueue, read_queue_key
from orbitmq.wire.bodies_namesrv import BrokerData, KVTable, TopicList, TopicRoute
from orbitmq.wire.fastjson import NESTING_MAX, read_json, read_request, write_json

Table = dict[str, Any]


def refusal(data: bytes, body_type: type = dict) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        read_json(data, body_type)
    assert caught.value.reason == "body-json"
    return caught.value.detail


def test_integer_keys_without_quotes_are_read() -> None:
    body = b'{"brokerAddrs":{0:"a:1",-1 : "b:2"},"brokerName":"n","cluster":"c"}'
    data = read_json(body, BrokerData)
    assert data.broker_addrs == {0: "a:1", -1: "b:2"}


def test_integer_keys_are_written_as_the_reader_wants_them() -> None:
    data = BrokerData(cluster="c", broker_name="n", broker_addrs={0: "a:1"})
    rest = b',"brokerName":"n","cluster":"c"}'
    assert write_json(data, standard=True) == b'{"brokerAddrs":{"0":"a:1"}' + rest
    assert write_json(data, standard=False) == b'{"brokerAddrs":{0:"a:1"}' + rest


def test_objects_as_keys_become_texts_in_one_form_whatever_their_order() -> None:
    body = (
        b'{{"topic":"T","queueId":3, "brokerName":"b"}:1,'
        b'{"brokerName":"b","queueId":4,"topic":"T"}:2}'
    )
    table = read_json(body, dict[str, int])
    assert list(table) == [
        '{"brokerName":"b","queueId":3,"topic":"T"}',
        '{"brokerName":"b","queueId":4,"topic":"T"}',
    ]
    assert [read_queue_key(key) for key in table] == [
        MessageQueue("T", "b", 3),
        MessageQueue("T", "b", 4),
    ]


def test_queues_as_keys_are_written_as_objects_in_both_forms() -> None:
    table = {"offsetTable": {MessageQueue("T", "b", 3): 6}}
    written = b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:6}}'
    assert write_json(table, standard=False) == written
    assert write_json(table, standard=True) == written


def test_null_members_are_absent() -> None:
    assert read_json(b'{"topicList":null,"brokerAddr":null}', TopicList) == TopicList()


def test_references_are_left_out_of_lists_and_objects() -> None:
    body = b'{"brokerDatas":[{"$ref":"$.x"}],"queueDatas":{"$ref":"$.y"}}'
    assert read_json(body, TopicRoute) == TopicRoute()


def test_blanks_and_newlines_around_are_read() -> None:
    assert read_json(b' \t{"table":{}}\r\n\n', KVTable) == KVTable()


def test_keys_of_structs_are_in_alphabetical_order_and_none_is_left_out() -> None:
    assert write_json(MessageQueue("T", "b", 3), standard=True) == (
        b'{"brokerName":"b","queueId":3,"topic":"T"}'
    )
    assert write_json({"a": None, "b": [], "c": {}, "d": {"e": None}}, standard=True) == (
        b'{"b":[],"c":{},"d":{}}'
    )


def test_texts_are_written_in_utf_8_with_control_characters_escaped() -> None:
    assert write_json(['ä\x01\n"\\'], standard=True) == '["ä\\u0001\\n\\"\\\\"]'.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[",
        b'{"a"',
        b'{"a":',
        b'{"a":}',
        b'{"a":1,}',
        b'{"a" 1}',
        b'{"a":1 "b":2}',
        b'{,"a":1}',
        b"{true:1}",
        b"{[1]:1}",
        b"{1:[1,]}",
        b"{1:nul}",
        b"{1:2}}",
        b"{1:2} {}",
        b'{1:"abc}',
        b'{1:"\xff"}',
        b'{1:"\\ud800"}',
        b'{1:"\\x41"}',
        b'{1:"\x01"}',
        b"{1:01}",
        b"{1:-}",
        b"{1:1e999}",
        b"{1:NaN}",
        b'{{"$ref":"x"}:1}',
        b"\x00",
    ],
)
def test_what_is_neither_json_nor_the_dialect_is_refused(data: bytes) -> None:
    assert refusal(data)


def test_the_place_of_the_mistake_is_named() -> None:
    assert refusal(b'{1:2,"a" 5}') == "unexpected b'5' at byte 9"
    assert refusal(b'{1:"a"') == "it ends too early, at byte 6"


def test_a_value_of_another_type_is_refused_with_its_field() -> None:
    assert "topicList" in refusal(b'{"topicList":5}', TopicList)
    assert "TopicList" in refusal(b"[]", TopicList)


def test_nesting_has_a_limit() -> None:
    deepest = b"{1:" + b"[" * (NESTING_MAX - 1) + b"]" * (NESTING_MAX - 1) + b"}"
    assert read_json(deepest, dict[str, Any])
    assert "64 levels" in refusal(b"{1:" + b"[" * NESTING_MAX + b"]" * NESTING_MAX + b"}")
    assert refusal(b"[" * 1_000_000)
    assert refusal(b'{"topicList":' * 100_000, TopicList)
    assert refusal(b'{"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}", TopicList)


def test_keys_in_keys_cannot_double_without_end() -> None:
    assert "levels" in refusal(b"{" * 40 + b"}" + b":1}" * 39)
    assert "levels" in refusal(b'{"a":{{"b":{}}:1}}')


def test_the_number_of_tokens_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastjson, "TOKEN_COUNT_MAX", 100)
    assert read_json(b"{1:[" + b"1," * 40 + b"1]}", dict[str, Any])
    assert "100 tokens" in refusal(b"{1:[" + b"1," * 60 + b"1]}")


def test_what_a_broker_is_asked_has_tighter_limits() -> None:
    """Symptom: one body of 1 MB that must be read tolerantly held up a broker for 0.3 s."""
    wide = b"{" + b",".join(b'"k%d":%d' % (number, number) for number in range(100_000)) + b"}"
    started = time.process_time()
    with pytest.raises(RemoteProtocolError, match="more than 20000 tokens"):
        read_request(wide, MessageQueue)
    assert time.process_time() - started < 0.2
    with pytest.raises(RemoteProtocolError, match="2097153 bytes, limit 2097152"):
        read_request(b" " * 2_097_153, TopicList)
    assert read_request(b'{"topicList":["T"],"brokerAddr":null}', TopicList).topic_list == ["T"]


def test_long_numbers_are_refused() -> None:
    assert refusal(b"{1:" + b"9" * 100_000 + b"}")
    assert refusal(b'{"table":{"a":' + b"9" * 100_000 + b"}}", KVTable)


def test_a_text_without_end_is_refused_at_once() -> None:
    started = time.process_time()
    assert refusal(b'{1:"' + b"\\a" * 1_000_000)
    assert time.process_time() - started < 5
