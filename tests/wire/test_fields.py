"""Typed headers read what real clients send and name what they cannot read."""

import pytest

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_client import PullMessage, SendMessageBack, read_send
from orbitmq.wire.headers_namesrv import GetRoute, QueryDataVersionAnswer, RegisterBroker

REGISTER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": "0",
}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-1", -1),
        ("+7", 7),
        ("007", 7),
        ("-07", -7),
        (" 7 ", 7),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_numbers_are_read_as_java_reads_them(text: str, number: int) -> None:
    assert read_header(RegisterBroker, REGISTER | {"brokerId": text}).broker_id == number


@pytest.mark.parametrize(
    "text", ["", " ", "x", "1x", "0x1", "1_0", "٣", "--1", str(2**63), "9" * 5_000]
)
def test_what_is_no_number_is_refused_by_the_name_of_its_field(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="brokerId") as caught:
        read_header(RegisterBroker, REGISTER | {"brokerId": text})
    assert caught.value.reason == "header-field"


def test_a_number_of_32_bits_has_32_bits() -> None:
    assert (
        read_header(RegisterBroker, REGISTER | {"bodyCrc32": str(2**31 - 1)}).body_crc32
        == 2**31 - 1
    )
    with pytest.raises(RemoteProtocolError, match="bodyCrc32"):
        read_header(RegisterBroker, REGISTER | {"bodyCrc32": str(2**31)})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("1", True),
        (" true ", True),
        ("false", False),
        ("0", False),
        ("yes", False),
        ("2", False),
    ],
)
def test_booleans_are_true_when_true_or_1(text: str, value: bool) -> None:
    assert read_header(RegisterBroker, REGISTER | {"compressed": text}).compressed is value


def test_an_empty_text_is_an_absent_number_or_boolean() -> None:
    empty = {"compressed": "", "bodyCrc32": "", "heartbeatTimeoutMillis": ""}
    header = read_header(RegisterBroker, REGISTER | empty)
    assert (header.compressed, header.body_crc32, header.heartbeat_timeout_ms) == (False, 0, None)


def test_an_empty_text_stays_a_text() -> None:
    assert read_header(GetRoute, {"topic": ""}).topic == ""


def test_a_missing_field_is_named_with_its_header() -> None:
    with pytest.raises(RemoteProtocolError, match=r"PullMessage: .*`consumerGroup`"):
        read_header(PullMessage, {})


def test_a_missing_letter_of_a_send_is_named_by_its_long_name() -> None:
    with pytest.raises(RemoteProtocolError, match="`topic`"):
        read_send(310, {"a": "group", "topic": "a long name does not count here"})


def test_what_is_none_is_not_written_and_booleans_are_words() -> None:
    header = SendMessageBack(log_offset=42, consumer_group="g", delay_level=-1)
    assert write_header(header) == {
        "offset": "42",
        "group": "g",
        "delayLevel": "-1",
        "unitMode": "false",
    }
    assert write_header(QueryDataVersionAnswer(changed=True)) == {"changed": "true"}
