"""Fuzz targets of the protocol: frame, headers, typed headers, bodies.

Each target takes bytes and either accepts them or raises RemoteProtocolError. What is accepted must
also be stable: written and read again it is the same value.
"""

import zlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import msgspec

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire import headers_client, headers_consume, headers_namesrv
from orbitmq.wire.bodies_client import ConsumerList, read_heartbeat, read_queue_key
from orbitmq.wire.bodies_consume import LockBatch
from orbitmq.wire.bodies_namesrv import (
    ClusterInfo,
    TopicRoute,
    read_register_body,
    write_register_body,
)
from orbitmq.wire.command import Command, decode_command, encode_command
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.fields import Header, read_header, write_header
from orbitmq.wire.frame import BINARY, JSON, Frame, FrameDecoder, cut_frame
from orbitmq.wire.headers_client import read_send, write_send
from tests.fuzz.running import SEED_SIZE_MAX, Target
from tests.golden.frames import all_recorded
from tests.wire.strategies import BODY_TYPES

T = TypeVar("T")
P = ParamSpec("P")


def reread(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read what we wrote ourselves: a refusal of that is a failure."""
    try:
        return read(*args, **kwargs)
    except RemoteProtocolError as error:
        raise AssertionError(f"we refuse what we wrote: {error}") from error


# --- frames ---


def _events(pieces: list[bytes]) -> list[object]:
    """Return what a connection sees: frames in order, then perhaps an error and nothing more."""
    decoder = FrameDecoder()
    events: list[object] = []
    try:
        for piece in pieces:
            data, start = decoder.take(piece), 0
            while (frame := cut_frame(data, start)) is not None:
                events.append(frame)
                start += 8 + len(frame.header) + len(frame.body)
            decoder.hold(data, start)
    except RemoteProtocolError as error:
        return [*events, error.reason]
    return [*events, decoder.held_bytes]


def frame(data: bytes) -> None:
    """Whole, in two halves and byte by byte give the same frames and the same error."""
    whole = _events([data])
    half = len(data) // 2
    assert _events([data[:half], data[half:]]) == whole
    assert _events([data[at : at + 1] for at in range(len(data))]) == whole


def feed(data: bytes) -> None:
    """The decoder's own loop gives the frames, or the error of the first wrong one."""
    for given in FrameDecoder().feed(data):
        decode_command(given)


# --- headers ---


def _stable_command(command: Command) -> None:
    data = encode_command(command)
    again = cut_frame(data, 0)
    assert again is not None
    assert reread(decode_command, again) == command
    assert encode_command(decode_command(again)) == data


def json_header(data: bytes) -> None:
    """A JSON header that is read is written and read again as the same command."""
    _stable_command(decode_command(Frame(JSON, data, b"")))


def binary_header(data: bytes) -> None:
    """A binary header that is read is written and read again as the same command."""
    _stable_command(decode_command(Frame(BINARY, data, b"")))


def _types_of(module: object) -> list[type[Header]]:
    members = [each for each in vars(module).values() if isinstance(each, type)]
    return [each for each in members if issubclass(each, Header) and each is not Header]


def typed_headers(types: list[type[Header]]) -> Target:
    """Make a target that reads all these headers from the texts of the input.

    The input is cut at zero bytes; the texts go round through the header's fields, so that one
    input gives numbers, booleans and texts each a try. An empty text leaves its field out.
    """

    def target(data: bytes) -> None:
        texts = data.decode("utf-8", "replace").split("\x00")
        for header_type in types:
            names = header_type.__struct_encode_fields__
            fields = {name: texts[at % len(texts)] for at, name in enumerate(names)}
            _stable_header(header_type, fields)
            _stable_header(header_type, {name: text for name, text in fields.items() if text})

    return target


def _stable_header(header_type: type[Header], fields: dict[str, str]) -> None:
    try:
        header = read_header(header_type, fields)
    except RemoteProtocolError:
        return
    assert reread(read_header, header_type, write_header(header)) == header


def send_header(data: bytes) -> None:
    """A whole send request, its fields read in both spellings."""
    command = decode_command(Frame(JSON, data, b""))
    for code in (10, 310):
        try:
            header = read_send(code, command.fields)
        except RemoteProtocolError:
            continue
        assert reread(read_send, code, write_send(code, header)) == header


# --- bodies ---


def _stable_json(value: object, body_type: type) -> None:
    for standard in (True, False):
        data = write_json(value, standard=standard)
        assert write_json(reread(read_json, data, body_type), standard=standard) == data


def body(body_type: type[msgspec.Struct]) -> Target:
    """Make a target for one type of body."""

    def target(data: bytes) -> None:
        _stable_json(read_json(data, body_type), body_type)

    return target


def every_body(data: bytes) -> None:
    """Whatever the input is, every type of body reads or refuses it."""
    for body_type in BODY_TYPES:
        try:
            value = read_json(data, body_type)
        except RemoteProtocolError:
            continue
        _stable_json(value, body_type)


def any_json(data: bytes) -> None:
    """The dialect without any type behind it."""
    _stable_json(read_json(data, dict[str, Any]), dict)


def dialect(data: bytes) -> None:
    """The same with an integer key in front, so that the tolerant reader gets it."""
    any_json(b"{0:" + data + b"}")


def queue_key(data: bytes) -> None:
    """The key of a map of queues."""
    read_queue_key(data.decode("latin-1"))


def heartbeat(data: bytes) -> None:
    """A heartbeat that is read is written and read again as the same one."""
    value = read_heartbeat(data)
    assert reread(read_heartbeat, write_json(value, standard=True)) == value


def _register(data: bytes, *, compressed: bool) -> None:
    """What is read is written and read again as the same value."""
    value = read_register_body(data, compressed=compressed)
    again = write_register_body(value, compressed=compressed)
    assert reread(read_register_body, again, compressed=compressed) == value


def register_plain(data: bytes) -> None:
    """The register body in JSON."""
    _register(data, compressed=False)


def register_stream(data: bytes) -> None:
    """The compressed register body, damaged as a stream."""
    _register(data, compressed=True)


def register_packed(data: bytes) -> None:
    """The compressed register body, damaged before it was compressed."""
    _register(zlib.compress(data, 1), compressed=True)


# --- seeds ---


def _distinct(pick: Callable[[Any], bytes | None], per_kind: int = 2) -> list[bytes]:
    """Pick from every recorded frame, a few of each kind: capture, code, request or response."""
    counts: dict[tuple[str, int, bool], int] = {}
    seeds = [b""]
    for entry in all_recorded():
        seed = pick(entry)
        kind = (entry.capture, entry.command.code, entry.command.is_response)
        if seed is None or len(seed) > SEED_SIZE_MAX or counts.get(kind, 0) >= per_kind:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        seeds.append(seed)
    return seeds


def _header_of(serialization: int) -> list[bytes]:
    return _distinct(lambda e: e.frame.header if e.frame.serialization == serialization else None)


def _body_of(code: int, *, response: bool = False) -> list[bytes]:
    def pick(entry: Any) -> bytes | None:
        if entry.command.is_response != response or not entry.command.body:
            return None
        asked = entry.request if response else entry.command
        return entry.command.body if asked is not None and asked.code == code else None

    return _distinct(pick, per_kind=5)


def _texts_of_fields() -> list[bytes]:
    return _distinct(lambda e: "\x00".join(e.command.fields.values()).encode(), per_kind=1)


def _json_bodies() -> list[bytes]:
    return _distinct(lambda e: e.command.body if e.command.body.startswith(b"{") else None)


def _registered(*, packed: bool) -> list[bytes]:
    plain = [seed for seed in _body_of(103) if seed]
    assert plain
    streams = [
        write_register_body(read_register_body(seed, compressed=False), compressed=True)
        for seed in plain
    ]
    return [zlib.decompress(stream) for stream in streams] if packed else streams


TARGETS: dict[str, Target] = {
    "frame": frame,
    "feed": feed,
    "json header": json_header,
    "binary header": binary_header,
    "headers of the name server": typed_headers(_types_of(headers_namesrv)),
    "headers of clients": typed_headers(_types_of(headers_client)),
    "headers about consumers": typed_headers(_types_of(headers_consume)),
    "send header": send_header,
    "json body": any_json,
    "dialect": dialect,
    "every body": every_body,
    "queue as key": queue_key,
    "heartbeat": heartbeat,
    "register body": register_plain,
    "register body as a stream": register_stream,
    "register body before compression": register_packed,
    "route": body(TopicRoute),
    "cluster info": body(ClusterInfo),
    "consumer list": body(ConsumerList),
    "locks": body(LockBatch),
}

_FRAMES = _distinct(lambda entry: entry.data)
_FRAMES += [b"".join(_FRAMES[at : at + 3]) for at in range(0, len(_FRAMES), 20)]
_KEY = b'{"brokerName":"broker-a","queueId":3,"topic":"T"}'

SEEDS: dict[str, list[bytes]] = {
    "frame": _FRAMES,
    "feed": _FRAMES,
    "json header": _header_of(JSON),
    "binary header": _header_of(BINARY),
    "headers of the name server": [*_texts_of_fields(), b"1\x00true\x00a:1", b"0\x00\x00+07"],
    "headers of clients": [*_texts_of_fields(), b"1\x00true\x00a:1", b"0\x00\x00+07"],
    "headers about consumers": [*_texts_of_fields(), b"1\x00true\x00a:1", b"0\x00\x00+07"],
    "send header": _header_of(JSON),
    "json body": _json_bodies(),
    "dialect": [*_json_bodies(), b"{%s:[1,null,{}]}" % _KEY],
    "every body": _json_bodies(),
    "queue as key": [_KEY],
    "heartbeat": _body_of(34),
    "register body": _body_of(103),
    "register body as a stream": _registered(packed=False),
    "register body before compression": _registered(packed=True),
    "route": _body_of(105, response=True),
    "cluster info": _body_of(106, response=True),
    "consumer list": _body_of(38, response=True),
    "locks": _body_of(41),
}
