"""Every recorded frame is read, and written again equal in bytes or with a named difference.

Method: the recorded header or body is parsed by the standard library, the differences listed for
its capture are applied to it, and the result must equal what we write byte for byte. A difference
that nobody listed fails, and so does a listed one that never occurs.
"""

import bisect
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.wire import bodies_client as bc
from orbitmq.wire import bodies_namesrv as bn
from orbitmq.wire import headers_client as hc
from orbitmq.wire import headers_namesrv as hn
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.fields import Header, read_header, write_header
from orbitmq.wire.frame import JSON, FrameDecoder, cut_frame
from tests.golden.frames import Recorded, all_recorded, captures, recorded

Json = dict[str, Any]
FIRST_STANDARD_JSON_VERSION = 401  # V4_9_4


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# --- frames and headers ---


def with_key(header: Json, key: str, value: Any) -> Json:
    """Put a missing key at its place among keys that are in order already."""
    if key in header:
        return header
    items = list(header.items())
    items.insert(bisect.bisect(list(header), key), (key, value))
    return dict(items)


def add_ext_fields(header: Json) -> Json:
    """We always write `extFields`: the Rust client cannot read a header without it."""
    return with_key(header, "extFields", {})


def values_as_text(header: Json) -> Json:
    """C++ and Node write numbers and booleans; we write every ext field as text, as Java does."""
    fields = {
        name: value if isinstance(value, str) else dump(value).decode()
        for name, value in header["extFields"].items()
    }
    return {**header, "extFields": fields}


def add_serialize_type(header: Json) -> Json:
    """Only Java writes `serializeTypeCurrentRPC`; we write it as Java does."""
    return with_key(header, "serializeTypeCurrentRPC", "JSON")


def sort_keys(header: Json) -> Json:
    """Go and Node have their own order of keys; ours is alphabetical, as Java's."""
    return dict(sorted(header.items()))


Difference = Callable[[Json], Json]
HEADER_DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    # Every capture holds Java's answers and a broker's requests, some without extFields.
    "cpp-1.x": (add_ext_fields, values_as_text, add_serialize_type),
    "cpp-2.2": (add_ext_fields, values_as_text, add_serialize_type),
    "go-2.x": (sort_keys, add_ext_fields, add_serialize_type),
    "java-4.9.8-binary-header": (add_ext_fields,),
    "java-4.9.8-client": (add_ext_fields,),
    "java-5.0.0-pop": (add_ext_fields,),
    "mqadmin-4.9.8": (add_ext_fields,),
    "node-ali-ons-3.12": (sort_keys, add_ext_fields, values_as_text, add_serialize_type),
    "node-rocketmq-2.0.1": (sort_keys, add_ext_fields, values_as_text, add_serialize_type),
}
NEWLINE_AFTER_JSON = {"cpp-1.x", "cpp-2.2"}
"""C++ writes a newline behind header and body; we do not."""


def apply_differences(
    value: Json, differences: tuple[Difference, ...], seen: set[Difference]
) -> Json:
    for difference in differences:
        before = dump(value)
        value = difference(value)
        if dump(value) != before:
            seen.add(difference)
    return value


def test_the_captures_are_all_there() -> None:
    assert set(captures()) == set(HEADER_DIFFERENCES)
    assert len(all_recorded()) == 2451


@pytest.mark.parametrize("capture", captures())
def test_frames_written_again_are_equal_or_differ_as_listed(capture: str) -> None:
    seen: set[Difference] = set()
    newlines = 0
    for entry in recorded(capture):
        written = encode_command(entry.command)
        if written == entry.data:
            continue
        again = cut_frame(written, 0)
        assert again is not None
        assert entry.frame.serialization == JSON, f"{entry.place}: binary headers have no excuse"
        header = entry.frame.header
        if capture in NEWLINE_AFTER_JSON and header.endswith(b"\n"):
            newlines += 1
        elif header.endswith(b"\n"):
            pytest.fail(f"{entry.place}: a newline that is not listed")
        listed = apply_differences(json.loads(header), HEADER_DIFFERENCES[capture], seen)
        assert again.header == dump(listed), entry.place
        assert again.body == entry.frame.body, entry.place
    assert seen == set(HEADER_DIFFERENCES[capture]), "a listed difference never occurs"
    assert bool(newlines) == (capture in NEWLINE_AFTER_JSON)


@pytest.mark.parametrize("capture", captures())
def test_a_stream_of_recorded_frames_cut_anywhere_gives_the_same_frames(capture: str) -> None:
    stream = b"".join(entry.data for entry in recorded(capture))
    frames = [entry.frame for entry in recorded(capture)]
    for piece in (1, 7, 1_448, len(stream)):
        decoder = FrameDecoder()
        got = [
            frame
            for start in range(0, len(stream), piece)
            for frame in decoder.feed(stream[start : start + piece])
        ]
        assert got == frames
        assert decoder.held_bytes == 0


# --- typed headers ---

REQUEST_HEADERS: dict[int, type[Header]] = {
    11: hc.PullMessage,
    14: hc.QueryConsumerOffset,
    15: hc.UpdateConsumerOffset,
    30: hc.GetMaxOffset,
    31: hc.GetMinOffset,
    35: hc.UnregisterClient,
    36: hc.SendMessageBack,
    38: hc.GetConsumerList,
    40: hc.NotifyConsumerIdsChanged,
    100: hn.PutKv,
    101: hn.GetKv,
    102: hn.DeleteKv,
    103: hn.RegisterBroker,
    105: hn.GetRoute,
    205: hn.WipeWritePerm,
    216: hn.DeleteTopicInNamesrv,
    327: hn.AddWritePerm,
}
SENDS = {10, 310, 320, 325}
ANSWER_HEADERS: dict[int, type[Header]] = {
    10: hc.SendMessageAnswer,
    11: hc.PullMessageAnswer,
    14: hc.QueryConsumerOffsetAnswer,
    103: hn.RegisterBrokerAnswer,
    310: hc.SendMessageAnswer,
    320: hc.SendMessageAnswer,
    325: hc.SendMessageAnswer,
}
UNDECLARED = {
    "AccessKey": "C++ signs every request, also without credentials",
    "OnsChannel": "C++ signs every request, also without credentials",
    "Signature": "C++ signs every request, also without credentials",
    "ReqT": "4.9.x lite pull and admin clients",
    "bname": "newer clients name the broker in every request; only the sends declare it",
}
WRITTEN_DEFAULTS = {
    ("SendMessage", "m"): "Node leaves batch out; Java writes it always",
    ("GetMaxOffset", "committed"): "5.x; 4.9 leaves it out",
}
BOOLEAN_DIGITS = {"0": "false", "1": "true"}
"""C++ writes booleans as digits; we write words, as Java does."""


def check_fields(
    entry: Recorded, name: str, given: dict[str, str], written: dict[str, str]
) -> set[object]:
    """Compare fields with what we write of them and return the excuses that were needed."""
    excuses: set[object] = set(given.keys() - written.keys())
    assert excuses <= UNDECLARED.keys(), f"{entry.place}: {name} does not declare {excuses}"
    for field, value in written.items():
        if field not in given:
            assert (name, field) in WRITTEN_DEFAULTS, f"{entry.place}: {name} adds {field}={value}"
            excuses.add((name, field))
        elif value != given[field]:
            assert entry.capture.startswith("cpp"), f"{entry.place}: {name}.{field}"
            assert value == BOOLEAN_DIGITS[given[field]], f"{entry.place}: {name}.{field}"
    return excuses


def test_typed_request_headers_keep_every_field() -> None:
    seen, excuses = set(), set()
    for entry in all_recorded():
        code, fields = entry.command.code, entry.command.fields
        if entry.command.is_response or code not in REQUEST_HEADERS.keys() | SENDS:
            continue
        if code in SENDS:
            name, written = "SendMessage", hc.write_send(code, hc.read_send(code, fields))
        else:
            name = REQUEST_HEADERS[code].__name__
            written = write_header(read_header(REQUEST_HEADERS[code], fields))
        excuses |= check_fields(entry, name, fields, written)
        seen.add(code)
    assert seen == REQUEST_HEADERS.keys() | SENDS, "a code that no capture holds"
    assert excuses == UNDECLARED.keys() | WRITTEN_DEFAULTS.keys(), "an excuse that nobody needs"


def test_typed_answer_headers_keep_every_field() -> None:
    seen = set()
    for entry in all_recorded():
        code = entry.request.code if entry.request is not None else -1
        if code not in ANSWER_HEADERS or (not entry.command.fields and code != 103):
            continue  # refusals have no fields
        header = read_header(ANSWER_HEADERS[code], entry.command.fields)
        name, written = type(header).__name__, write_header(header)
        assert not check_fields(entry, name, entry.command.fields, written)
        seen.add(code)
    assert seen == ANSWER_HEADERS.keys()


def test_both_spellings_of_a_send_give_the_same_header() -> None:
    letters = next(e.command for e in all_recorded() if e.command.code == 310)
    send = hc.read_send(310, letters.fields)
    assert (send.producer_group, send.topic, send.default_topic) == ("P2PG", "TopicP2", "TBW102")
    assert send.born_ms == 1_794_768_434_712
    assert send.max_reconsume_times == 16
    assert hc.read_send(10, hc.write_send(10, send)) == send
    assert hc.write_send(310, send).keys() <= set("abcdefghijklmn")


# --- typed bodies ---


def sort_all_keys(value: Any) -> Any:
    """Go and Node have their own order of keys; ours is alphabetical, as Java's."""
    if isinstance(value, dict):
        return {key: sort_all_keys(item) for key, item in sorted(value.items())}
    return [sort_all_keys(item) for item in value] if isinstance(value, list) else value


def enums_by_name(heartbeat: Json) -> Json:
    """C++ writes enums as ordinals; we write names, as Java does."""
    kinds = {
        "consumeType": bc.ConsumeType,
        "messageModel": bc.MessageModel,
        "consumeFromWhere": bc.ConsumeFromWhere,
    }
    for consumer in heartbeat.get("consumerDataSet", []):
        for name, kind in kinds.items():
            if isinstance(consumer[name], int):
                consumer[name] = list(kind)[consumer[name]].name
    return heartbeat


def versions_as_numbers(heartbeat: Json) -> Json:
    """C++ writes subVersion as text; we write a number, as Java does."""
    for consumer in heartbeat.get("consumerDataSet", []):
        for subscription in consumer["subscriptionDataSet"]:
            subscription["subVersion"] = int(subscription["subVersion"])
    return heartbeat


def add_defaults(heartbeat: Json) -> Json:
    """C++ and Node leave fields out that Java writes always; we write their defaults."""
    defaults = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "tagsSet": []}
    for consumer in heartbeat.setdefault("consumerDataSet", []):
        consumer.setdefault("unitMode", False)
        for subscription in consumer["subscriptionDataSet"]:
            subscription.update({**defaults, **subscription})
    return heartbeat


HEARTBEAT_DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "cpp-1.x": (enums_by_name, versions_as_numbers, add_defaults, sort_all_keys),
    "cpp-2.2": (enums_by_name, versions_as_numbers, add_defaults, sort_all_keys),
    "go-2.x": (sort_all_keys,),
    "node-ali-ons-3.12": (add_defaults, sort_all_keys),
    "node-rocketmq-2.0.1": (add_defaults, sort_all_keys),
}


@pytest.mark.parametrize("capture", captures())
def test_heartbeats_written_again_are_equal_or_differ_as_listed(capture: str) -> None:
    seen: set[Difference] = set()
    for entry in recorded(capture):
        if entry.command.is_response or entry.command.code != RequestCode.HEART_BEAT:
            continue
        written = write_json(bc.read_heartbeat(entry.command.body), standard=True)
        if written == entry.command.body:
            continue
        body = json.loads(entry.command.body)
        listed = apply_differences(body, HEARTBEAT_DIFFERENCES[capture], seen)
        assert written == dump(listed), entry.place
        assert not entry.command.body.endswith(b"\n") or capture in NEWLINE_AFTER_JSON
    assert seen == set(HEARTBEAT_DIFFERENCES.get(capture, ())), "a listed difference never occurs"


REQUEST_BODIES: dict[int, type] = {200: bn.SubscriptionGroupConfig}
ANSWER_BODIES: dict[int, type] = {
    38: bc.ConsumerList,
    103: bn.KVTable,
    105: bn.TopicRoute,
    106: bn.ClusterInfo,
    201: bn.SubscriptionGroupTable,
    206: bn.TopicList,
}


def test_register_bodies_written_again_are_equal() -> None:
    count = 0
    for entry in all_recorded():
        command = entry.command
        if command.code != RequestCode.REGISTER_BROKER or command.is_response:
            continue
        header = read_header(hn.RegisterBroker, command.fields)
        assert header.body_crc32 == bn.body_crc32(command.body), entry.place
        body = bn.read_register_body(command.body, compressed=header.compressed)
        assert body.topics.topic_config_table, entry.place
        assert bn.write_register_body(body, compressed=False) == command.body, entry.place
        packed = bn.write_register_body(body, compressed=True)
        unpacked = bn.read_register_body(packed, compressed=True)
        assert unpacked.topics.topic_config_table.keys() == body.topics.topic_config_table.keys()
        count += 1
    assert count == 49


def test_other_bodies_written_again_are_equal() -> None:
    seen = set()
    for entry in all_recorded():
        command, code = entry.command, body_code(entry)
        body_type = (ANSWER_BODIES if command.is_response else REQUEST_BODIES).get(code)
        if body_type is None or not command.body:
            continue
        standard = code == RequestCode.GET_ROUTEINFO_BY_TOPIC and wants_standard(entry.request)
        value: Any = read_json(command.body, body_type)
        assert write_json(value, standard=standard) == command.body, entry.place
        seen.add(code)
    assert seen == REQUEST_BODIES.keys() | ANSWER_BODIES.keys()


def body_code(entry: Recorded) -> int:
    if not entry.command.is_response:
        return entry.command.code
    return entry.request.code if entry.request is not None else -1


def wants_standard(request: Command | None) -> bool:
    assert request is not None
    return request.version >= FIRST_STANDARD_JSON_VERSION


# --- every JSON body, whatever it is ---


def restore_keys(value: Any) -> Any:
    """Turn the keys that were no texts back into what they were."""
    if isinstance(value, list):
        return [restore_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {restore_key(key): restore_keys(item) for key, item in value.items()}


def restore_key(key: str) -> object:
    if key.startswith("{"):
        return bc.read_queue_key(key)
    return int(key) if re.fullmatch("-?[0-9]+", key) else key


def test_every_json_body_is_read_and_written_again_in_its_dialect() -> None:
    objects_as_keys = integers_as_keys = 0
    for entry in all_recorded():
        body = entry.command.body
        if not body.startswith(b"{"):
            continue
        value: Any = restore_keys(read_json(body, dict[str, Any]))
        standard = re.search(rb'"[0-9]+":', body) is not None
        written = write_json(value, standard=standard)
        newline = b"\n" if entry.capture in NEWLINE_AFTER_JSON and body.endswith(b"\n") else b""
        assert written + newline == body, entry.place
        objects_as_keys += b"{{" in body
        integers_as_keys += re.search(rb"[{,][0-9]+:", body) is not None
    assert objects_as_keys == 2
    assert integers_as_keys > 50
