"""Headers in both serializations: what real clients send is read, what we send is strict."""

import struct

import pytest

from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import VERSION, Command, decode_command, encode_command, reply_to
from orbitmq.wire.frame import BINARY, JSON, Frame, cut_frame


def read(header: bytes, serialization: int = JSON) -> Command:
    return decode_command(Frame(serialization, header, b""))


def written_header(command: Command) -> bytes:
    frame = cut_frame(encode_command(command), 0)
    assert frame is not None
    return frame.header


def refusal(header: bytes, serialization: int = JSON) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        read(header, serialization)
    return caught.value.reason


# --- JSON ---


def test_numbers_booleans_and_null_in_ext_fields_are_read_as_java_would_write_them() -> None:
    command = read(
        b'{"code":310,"extFields":{"d":4,"k":false,"m":true,"i":"p","l":null,"x":1.5}}\n'
    )
    assert command.fields == {"d": "4", "k": "false", "m": "true", "i": "p", "x": "1.5"}


@pytest.mark.parametrize("ext", [b"", b',"extFields":{}', b',"extFields":null'])
def test_ext_fields_may_be_missing_empty_or_null(ext: bytes) -> None:
    assert read(b'{"code":34%s}' % ext).fields == {}


def test_unknown_keys_and_unknown_languages_are_read() -> None:
    command = read(b'{"code":1,"language":"COBOL","nobody":{"knows":[]},"remark":""}')
    assert (command.language, command.remark) == ("COBOL", "")
    assert read(b'{"code":1,"language":7}').language == "OTHER"


def test_a_json_header_is_written_as_java_writes_it_and_always_with_ext_fields() -> None:
    command = Command(105, opaque=7, fields={"topic": "T"}, version=409)
    assert written_header(command) == (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    assert b'"extFields":{}' in written_header(Command(34))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "header-json"),
        (b"{}", "header-json"),
        (b"[]", "header-json"),
        (b'{"code":"x"}', "header-json"),
        (b'{"code":2147483648}', "header-json"),
        (b'{"code":1,"opaque":-2147483649}', "header-json"),
        (b'{"code":1,"remark":"\xff"}', "header-json"),
        (b'{"code":1}x', "header-json"),
        (b'{"code":1,"extFields":[]}', "header-json"),
        (b'{"code":1,"extFields":{"a":{}}}', "header-field"),
        (b'{"code":1,"extFields":{"a":[]}}', "header-field"),
    ],
)
def test_a_wrong_json_header_is_refused(header: bytes, reason: str) -> None:
    assert refusal(header) == reason


# --- binary ---

ROUTE_REQUEST = (
    bytes.fromhex("0069 00 0199 00000001 00000000 00000000 00000011 0005")
    + b"topic\x00\x00\x00\x06TBW102"
)


def test_the_recorded_binary_header_is_read_and_written() -> None:
    command = read(ROUTE_REQUEST, BINARY)
    assert (command.code, command.opaque, command.version) == (105, 1, 409)
    assert (command.language, command.remark, command.fields) == ("JAVA", None, {"topic": "TBW102"})
    assert written_header(command) == ROUTE_REQUEST


def test_empty_names_and_values_are_absent_in_a_binary_header() -> None:
    entries = (
        b"\x00\x00\x00\x00\x00\x01v" + b"\x00\x01n\x00\x00\x00\x00" + b"\x00\x01n\x00\x00\x00\x01v"
    )
    header = ROUTE_REQUEST[:17] + struct.pack(">i", len(entries)) + entries
    assert read(header, BINARY).fields == {"n": "v"}
    assert written_header(Command(1, fields={"": "v", "n": ""}, serialization=BINARY)) == (
        written_header(Command(1, serialization=BINARY))
    )


def test_a_language_nobody_knows_is_other_in_a_binary_header() -> None:
    header = ROUTE_REQUEST[:2] + b"\xfe" + ROUTE_REQUEST[3:]
    assert read(header, BINARY).language == "OTHER"
    rust = ROUTE_REQUEST[:2] + b"\x0c" + ROUTE_REQUEST[3:]
    assert read(rust, BINARY).language == "RUST"


@pytest.mark.parametrize("end", range(len(ROUTE_REQUEST)))
def test_a_binary_header_that_ends_early_is_refused(end: int) -> None:
    assert refusal(ROUTE_REQUEST[:end], BINARY) == "header-binary"


@pytest.mark.parametrize("at", [13, 17, 21, 28], ids=["remark", "fields", "name", "value"])
@pytest.mark.parametrize("size", [-1, 1_000, 32_767])
def test_a_wrong_length_in_a_binary_header_is_refused(at: int, size: int) -> None:
    field = struct.pack(">h" if at == 21 else ">i", size)
    header = ROUTE_REQUEST[:at] + field + ROUTE_REQUEST[at + len(field) :]
    assert refusal(header, BINARY) == "header-binary"


def test_a_code_that_does_not_fit_a_binary_header_cannot_be_written() -> None:
    with pytest.raises(LocalProtocolError, match="200050"):
        encode_command(Command(RequestCode.POP_MESSAGE, serialization=BINARY))


def test_a_field_name_that_does_not_fit_a_binary_header_cannot_be_written() -> None:
    with pytest.raises(LocalProtocolError, match="32768"):
        encode_command(Command(1, fields={"n" * 32_768: "v"}, serialization=BINARY))


# --- replies ---


@pytest.mark.parametrize("serialization", [JSON, BINARY])
def test_a_reply_has_the_opaque_and_the_serialization_of_its_request(serialization: int) -> None:
    request = Command(105, opaque=9, serialization=serialization, version=63, language="RUST")
    reply = reply_to(request, ResponseCode.TOPIC_NOT_EXIST, "no route", body=b"b")
    assert (reply.opaque, reply.serialization, reply.code) == (9, serialization, 17)
    assert reply.is_response
    assert not reply.is_oneway
    assert (reply.language, reply.version, reply.remark) == ("JAVA", VERSION, "no route")
    assert Command(1, flag=2).is_oneway
