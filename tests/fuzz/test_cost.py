"""The cost of every decoder grows with its input and not faster.

Method: each case makes its worst input in size n and 2n. The lines of our own code that run are
counted, so that a loop in a loop shows without a clock. What C code does inside one line does not
count; for that the processor time is compared too, with a margin and the best of several tries.
"""

import struct
import sys
import time
import zlib
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.bodies_client import read_heartbeat
from orbitmq.wire.bodies_namesrv import RegisterBrokerBody, TopicRoute, read_register_body
from orbitmq.wire.command import FIELD_COUNT_MAX, HEADER_SIZE_MAX, decode_command
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.frame import BINARY, JSON, Frame, FrameDecoder, encode_frame
from orbitmq.wire.headers_namesrv import UnregisterBroker
from tests.fuzz.running import Target

RATIO_MAX = 2.5
"""Input twice as long may take this much more (T1)."""

TIME_RATIO_MAX = 3.0
"""For processor time, which the neighbours on the machine disturb; a quadratic decoder has 4."""


# --- what is measured ---


def feed_whole(data: bytes) -> None:
    FrameDecoder().feed(data)


def feed_in_sevens(data: bytes) -> None:
    decoder = FrameDecoder()
    for start in range(0, len(data), 7):
        decoder.feed(data[start : start + 7])


def json_header(data: bytes) -> None:
    decode_command(Frame(JSON, data, b""))


def binary_header(data: bytes) -> None:
    decode_command(Frame(BINARY, data, b""))


def heartbeat(data: bytes) -> None:
    read_heartbeat(data)


def dialect(data: bytes) -> None:
    read_json(data, dict[str, Any])


def route(data: bytes) -> None:
    read_json(data, TopicRoute)


def register(data: bytes) -> None:
    read_json(data, RegisterBrokerBody)


def register_compressed(data: bytes) -> None:
    read_register_body(zlib.compress(data, 1), compressed=True)


def number_field(data: bytes) -> None:
    names = UnregisterBroker.__struct_encode_fields__
    read_header(UnregisterBroker, dict.fromkeys(names, data.decode()))


# --- the worst inputs of n parts ---


def many_frames(n: int) -> bytes:
    return encode_frame(JSON, b"{}", b"") * n


def one_frame(n: int) -> bytes:
    return encode_frame(JSON, b"{}", bytes(100 * n))


def header_fields(n: int) -> bytes:
    fields = ",".join(f'"{at:05}":{at}' for at in range(n))
    return b'{"code":1,"extFields":{%s}}' % fields.encode()


def header_remark(n: int) -> bytes:
    return b'{"code":1,"remark":"%s"}' % (b"\\u0001" * 50 * n)


def header_number(n: int) -> bytes:
    return b'{"code":1,"extFields":{"a":%s}}' % (b"9" * 300 * n)


def binary_fields(n: int) -> bytes:
    entry = struct.pack(">h", 5) + b"%05d" + struct.pack(">i", 1) + b"v"
    fields = b"".join(entry % at for at in range(n))
    return struct.pack(">hBhiii", 1, 0, 1, 1, 0, 0) + struct.pack(">i", len(fields)) + fields


def integer_keys(n: int) -> bytes:
    return b"{" + b",".join(b'%d:"v"' % at for at in range(n)) + b"}"


def object_keys(n: int) -> bytes:
    return b"{" + b",".join(b'{"queueId":%d}:%d' % (at, at) for at in range(n)) + b"}"


def deep_values(n: int) -> bytes:
    return b"{1:[" + b",".join([b"[" * 60 + b"]" * 60] * (n // 20)) + b"]}"


def too_deep(n: int) -> bytes:
    return b"{1:" + b"[" * n


def keys_in_keys(n: int) -> bytes:
    return b"{" * n + b"}" + b":1}" * (n - 1)


def escapes(n: int) -> bytes:
    return b'{1:"' + b'\\"' * 50 * n + b'"}'


def escapes_without_end(n: int) -> bytes:
    return b'{1:"' + b'\\"' * 50 * n


def dialect_number(n: int) -> bytes:
    return b"{1:%s}" % (b"9" * 300 * n)


def blanks(n: int) -> bytes:
    return b"{1:2" + b" " * 300 * n + b"}x"


def references(n: int) -> bytes:
    return b'{"brokerDatas":[' + b",".join([b'{"$ref":"$"}'] * n) + b"]}"


def brokers(n: int) -> bytes:
    one = b'{"brokerAddrs":{0:"a:1"},"brokerName":"b%d","cluster":"c"}'
    return b'{"brokerDatas":[' + b",".join(one % at for at in range(n)) + b"]}"


def groups(n: int) -> bytes:
    one = b'{"groupName":"g%d","consumeType":1,"subscriptionDataSet":[{"topic":"t"}]}'
    consumers = b",".join(one % at for at in range(n))
    return b'{"clientID":"c","consumerDataSet":[%s]}' % consumers


def topics(n: int) -> bytes:
    table = b",".join(b'"t%d":{"topicName":"t%d"}' % (at, at) for at in range(n))
    return b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%s}}}' % table


def packed_topics(n: int) -> bytes:
    texts = [b"t%d 4 4 6 SINGLE_TAG" % at for at in range(n)]
    parts = b"".join(struct.pack(">i", len(text)) + text for text in texts)
    return (
        struct.pack(">i", 2) + b"{}" + struct.pack(">i", n) + parts + struct.pack(">i", 2) + b"[]"
    )


def long_number(n: int) -> bytes:
    return b"9" * 300 * n


def padded_number(n: int) -> bytes:
    return b" " * 300 * n + b"7"


Maker = Callable[[int], bytes]
CASES: list[tuple[Target, Maker]] = [
    (feed_whole, many_frames),
    (feed_in_sevens, many_frames),
    (feed_in_sevens, one_frame),
    (json_header, header_fields),
    (json_header, header_remark),
    (json_header, header_number),
    (binary_header, binary_fields),
    (dialect, integer_keys),
    (dialect, object_keys),
    (dialect, deep_values),
    (dialect, too_deep),
    (dialect, keys_in_keys),
    (dialect, escapes),
    (dialect, escapes_without_end),
    (dialect, dialect_number),
    (dialect, blanks),
    (route, references),
    (route, brokers),
    (heartbeat, groups),
    (register, topics),
    (register_compressed, packed_topics),
    (number_field, long_number),
    (number_field, padded_number),
]
IDS = [f"{target.__name__}-{maker.__name__}" for target, maker in CASES]


# --- measuring ---


def lines_run(target: Target, data: bytes) -> int:
    """Count the lines of orbitmq that run, comprehensions and generators included."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if "orbitmq" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        attempt(target, data)
    finally:
        sys.settrace(before)
    return count


def attempt(target: Target, data: bytes) -> None:
    try:
        target(data)
    except RemoteProtocolError:
        return


def best_time(target: Target, data: bytes) -> float:
    def once() -> float:
        started = time.process_time()
        attempt(target, data)
        return time.process_time() - started

    return min(once() for _ in range(3))


def is_linear_in_lines(target: Target, maker: Maker, n: int) -> bool:
    single, double = lines_run(target, maker(n)), lines_run(target, maker(2 * n))
    assert single > 0, "nothing of ours ran"
    return double <= RATIO_MAX * single + 20


def is_linear_in_time(target: Target, maker: Maker, n: int) -> bool:
    """Compare processor times; one good try of four is enough, 2 ms of noise are nobody's fault."""
    single, double = maker(n), maker(2 * n)
    ratios = (best_time(target, double) / (best_time(target, single) + 0.002) for _ in range(4))
    return any(ratio <= TIME_RATIO_MAX for ratio in ratios)


@pytest.mark.parametrize(("target", "maker"), CASES, ids=IDS)
def test_twice_the_input_runs_at_most_twice_the_lines(target: Target, maker: Maker) -> None:
    assert 1.9 < len(maker(400)) / len(maker(200)) < 2.2
    assert is_linear_in_lines(target, maker, 200)


@pytest.mark.parametrize(("target", "maker"), CASES, ids=IDS)
def test_twice_the_input_takes_at_most_about_twice_the_time(target: Target, maker: Maker) -> None:
    assert is_linear_in_time(target, maker, 2_000)


def loop_in_a_loop(data: bytes) -> None:
    for at in range(len(data)):
        feed_whole(data[:at])


def copies_at_every_step(data: bytes) -> None:
    held = b""
    for at in range(0, len(data), 8):
        held = bytes(held + data[at : at + 8])
        for _ in range(1 + at // 4_096):
            zlib.crc32(held)


def test_a_quadratic_decoder_is_caught_by_its_lines() -> None:
    assert not is_linear_in_lines(loop_in_a_loop, many_frames, 20)


def test_a_quadratic_decoder_is_caught_by_its_time() -> None:
    assert not is_linear_in_time(copies_at_every_step, one_frame, 250)


# --- limits ---


def test_a_header_above_its_limits_is_refused_before_it_is_read() -> None:
    cases = [
        (json_header, b" " * (HEADER_SIZE_MAX + 1), "header-oversize"),
        (json_header, header_fields(FIELD_COUNT_MAX + 1), "header-fields"),
        (binary_header, binary_fields(FIELD_COUNT_MAX + 1), "header-fields"),
        (json_header, b'{"code":1,"extFields":{"a":%s}}' % (b"[" * 100_000), "header-json"),
        (json_header, b'{"code":1,"extFields":{"a":[[1]]}}', "header-field"),
        (json_header, header_number(20), "header-json"),
    ]
    for target, data, reason in cases:
        with pytest.raises(RemoteProtocolError) as caught:
            target(data)
        assert caught.value.reason == reason
    json_header(header_fields(FIELD_COUNT_MAX))
    binary_header(binary_fields(FIELD_COUNT_MAX))
