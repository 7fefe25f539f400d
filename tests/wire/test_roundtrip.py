"""What is written is read back as it was: frames, commands, typed headers, bodies, the dialect."""

import itertools
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orbitmq.wire.bodies_client import Heartbeat, MessageQueue, read_heartbeat, read_queue_key
from orbitmq.wire.bodies_namesrv import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    read_register_body,
    write_register_body,
)
from orbitmq.wire.codes import Language
from orbitmq.wire.command import Command, decode_command, encode_command
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.fields import Header, read_header, write_header
from orbitmq.wire.frame import BINARY, JSON, Frame, FrameDecoder, cut_frame, encode_frame
from orbitmq.wire.headers_client import SendMessage, read_send, write_send
from tests.wire.strategies import BODY_TYPES, HEADER_TYPES, int64s, json_values, texts, values

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
some_text = st.text(min_size=1, max_size=12)


# --- frames and commands ---


frames = st.builds(
    Frame, st.sampled_from((JSON, BINARY)), st.binary(max_size=40), st.binary(max_size=40)
)


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 500), max_size=12))
def test_frames_cut_anywhere_are_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(*frame) for frame in sent)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder()
    got = [
        frame
        for start, end in itertools.pairwise(edges)
        for frame in decoder.feed(stream[start:end])
    ]
    assert got == sent
    assert decoder.held_bytes == 0


json_commands = st.builds(
    Command,
    code=int32s,
    opaque=int32s,
    flag=int32s,
    fields=st.dictionaries(texts, texts, max_size=6),
    body=st.binary(max_size=40),
    remark=st.none() | texts,
    language=texts,
    version=int32s,
)
binary_commands = st.builds(
    Command,
    code=int16s,
    opaque=int32s,
    flag=int32s,
    # An empty name, value or remark is absent in this serialization.
    fields=st.dictionaries(some_text, some_text, max_size=6),
    body=st.binary(max_size=40),
    remark=st.none() | some_text,
    language=st.sampled_from([language.name for language in Language]),
    version=int16s,
    serialization=st.just(BINARY),
)


@given(json_commands | binary_commands)
def test_a_command_comes_back_in_both_serializations(command: Command) -> None:
    data = encode_command(command)
    frame = cut_frame(data, 0)
    assert frame is not None
    assert decode_command(frame) == command
    assert encode_command(decode_command(frame)) == data


# --- typed headers ---


unknown_fields = st.dictionaries(texts.map("x-{}".format), texts, max_size=2)


@pytest.mark.parametrize("header_type", HEADER_TYPES, ids=lambda each: each.__name__)
def test_a_typed_header_comes_back(header_type: type[Header]) -> None:
    @settings(max_examples=40)
    @given(values(header_type), unknown_fields)
    def check(header: Header, others: dict[str, str]) -> None:
        fields = write_header(header)
        assert all(type(value) is str for value in fields.values())
        assert read_header(header_type, fields | others) == header

    check()


@given(values(SendMessage), st.sampled_from((10, 310, 320, 324, 325)))
def test_a_send_comes_back_in_both_spellings(send: SendMessage, code: int) -> None:
    assert read_send(code, write_send(code, send)) == send


@given(values(SendMessage), st.sampled_from((JSON, BINARY)))
def test_a_typed_header_comes_back_through_a_whole_frame(
    send: SendMessage, serialization: int
) -> None:
    # Texts that are empty do not survive a binary header: they are absent there.
    send = msgspec.structs.replace(
        send, producer_group="g" + send.producer_group, topic="t" + send.topic, default_topic="d"
    )
    if send.broker_name == "" and serialization == BINARY:
        send = msgspec.structs.replace(send, broker_name=None)
    command = Command(310, fields=write_send(310, send), serialization=serialization)
    frame = cut_frame(encode_command(command), 0)
    assert frame is not None
    assert read_send(310, decode_command(frame).fields) == send


# --- bodies ---


@pytest.mark.parametrize("body_type", BODY_TYPES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("standard", [True, False], ids=["standard", "dialect"])
def test_a_body_comes_back(body_type: type[msgspec.Struct], standard: bool) -> None:
    @settings(max_examples=40)
    @given(values(body_type))
    def check(body: msgspec.Struct) -> None:
        data = write_json(body, standard=standard)
        assert read_json(data, body_type) == body
        assert read_json(b" \r\n" + data + b"\t\n", body_type) == body
        if standard:
            assert msgspec.json.decode(data) is not None

    check()


@given(values(Heartbeat))
def test_a_heartbeat_comes_back(heartbeat: Heartbeat) -> None:
    assert read_heartbeat(write_json(heartbeat, standard=True)) == heartbeat


topic_names = st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True)
queue_counts = st.integers(0, 65_536)
topics = st.builds(
    TopicConfig,
    topic_name=topic_names,
    read_queue_count=queue_counts,
    write_queue_count=queue_counts,
    perm=st.integers(0, 15),
    topic_filter_type=st.sampled_from(("SINGLE_TAG", "MULTI_TAG")),
    attributes=st.none() | st.dictionaries(texts, texts, max_size=3),
)
mappings = st.dictionaries(topic_names, json_values, max_size=2).map(
    lambda named: {topic: {"topic": topic, "of": value} for topic, value in named.items()}
)


@given(values(DataVersion), st.lists(topics, max_size=4), st.none() | mappings, st.lists(texts))
def test_a_compressed_register_body_comes_back(
    version: DataVersion,
    topics: list[TopicConfig],
    mapping: dict[str, Any] | None,
    filter_servers: list[str],
) -> None:
    table = TopicConfigTable(
        data_version=version,
        topic_config_table={topic.topic_name: topic for topic in topics},
        topic_queue_mapping_info_map=mapping,
    )
    body = RegisterBrokerBody(topics=table, filter_server_list=filter_servers)
    for compressed in (True, False):
        data = write_register_body(body, compressed=compressed)
        assert read_register_body(data, compressed=compressed) == body
    assert zlib.decompress(write_register_body(body, compressed=True))


# --- the dialect ---


@given(st.dictionaries(values(MessageQueue), int64s, max_size=4), st.booleans())
def test_queues_as_keys_come_back(offsets: dict[MessageQueue, int], standard: bool) -> None:
    data = write_json({"offsetTable": offsets}, standard=standard)
    table = read_json(data, dict[str, dict[str, int]])["offsetTable"]
    assert {read_queue_key(key): offset for key, offset in table.items()} == offsets


@given(st.dictionaries(int64s, json_values, max_size=4), st.booleans())
def test_integers_as_keys_come_back(table: dict[int, Any], standard: bool) -> None:
    data = write_json(table, standard=standard)
    assume(b'"$ref"' not in data)  # a reference of fastjson's: the tolerant reader leaves it out
    assert read_json(data, dict[int, Any]) == table
    assert all((b'"%d":' % key in data) or not standard for key in table)


@given(st.dictionaries(texts, json_values, max_size=4))
def test_the_tolerant_reader_reads_standard_json_as_msgspec_does(value: dict[str, Any]) -> None:
    data = write_json({"a": {1: value}}, standard=False)  # the integer key forces the second reader
    assume(b'"$ref"' not in data)
    assert read_json(data, dict[str, dict[str, Any]]) == {"a": {"1": value}}
