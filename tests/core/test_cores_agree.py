"""Both cores do the same: answers, log, queue entries, index, counters and errors, byte for byte.

In: streams of frames, ordinary, odd, damaged, cut anywhere. Out: what each core makes of them.

Rule: a frame that the compiled core leaves alone goes to the plain one, on the compiled state: so
it may leave alone what it likes, and whatever it takes must be as the plain one has it. What it
must take says `test_the_compiled_core_takes_what_clients_send`.
"""

import itertools
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from orbitmq.core import CoreState, Subscription, plain
from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.command import FIELD_COUNT_MAX, Command, decode_command, encode_command
from orbitmq.wire.frame import BINARY, FrameDecoder, encode_frame
from tests.core.hot import (
    IMPLEMENTATIONS,
    NOW_MS,
    new_state,
    origin,
    publish,
    pull_frame,
    send_frame,
)
from tests.golden.frames import Recorded, captures, recorded

pytestmark = pytest.mark.skipif("compiled" not in IMPLEMENTATIONS, reason="it is not built")

HEARTBEAT = encode_command(Command(34, opaque=9, body=b"{}"))
ID = "UNIQ_KEY\x017F00000100002A139A550001E2400001"


def events(core: ModuleType, state: CoreState, reads: list[bytes]) -> Iterator[object]:
    """What a connection sees: answers, frames nobody knew, and an error at most."""
    decoder = FrameDecoder()
    came_from = origin(core)
    for piece in reads:
        data, position = decoder.take(piece), 0
        while True:
            result = core.handle_one_read(state, data, position, came_from, NOW_MS)
            yield from result.answers
            yield (result.sends, result.pulls)
            is_stuck = result.used == position
            position = result.used
            if result.unknown is not None:
                yield from by_plain(core, state, result.unknown)
            elif position == len(data) or is_stuck:
                break
        try:
            decoder.hold(data, position)
        except RemoteProtocolError as error:
            yield str(error)
            return


def by_plain(core: ModuleType, state: CoreState, frame: Any) -> Iterator[object]:
    """What the plain core makes of a frame, with the state of either."""
    if core is plain:
        yield frame
        return
    with (
        mock.patch.object(plain, "append", core.append),
        mock.patch.object(plain, "append_batch", core.append_batch),
    ):
        data = encode_frame(*frame)
        result = plain.handle_one_read(state, data, 0, origin(core), NOW_MS)
    yield from result.answers
    yield (result.sends, result.pulls)
    if result.unknown is not None:
        yield result.unknown


def outcome(core: ModuleType, reads: list[bytes], *, is_sync: bool = False) -> dict[str, object]:
    """All that reads leave behind, in a form that is the same for both."""
    state = new_state(core, 1 << 13)
    state.is_sync_flush = is_sync
    state.offsets["T@G"] = {}
    state.subscriptions["G2", "T"] = Subscription(7, frozenset({2598919}))
    state.groups.add("G2")
    seen: list[object] = []
    for part in (reads[: len(reads) // 2], reads[len(reads) // 2 :]):
        seen += events(core, state, part)
        rows = bytes(state.tail.rows), state.tail.left_out
        log = publish(state)
    queues = state.topics["T"].queues.values()
    answers = b"".join(one for one in seen if isinstance(one, bytes | memoryview))
    counts = [one for one in seen if isinstance(one, tuple) and len(one) == 2]
    return {
        "answers": answers,
        "sends": sum(one[0] for one in counts),
        "pulls": sum(one[1] for one in counts),
        "others": [one for one in seen if isinstance(one, str) or len(one) == 3],  # type: ignore[arg-type]  # sized
        "log": log,
        "rows": rows,
        "ends": (state.tail.end_offset, state.tail.store_ms),
        "queues": [(bytes(one.entries), one.next_offset, one.put_bytes) for one in queues],
        "got": {key: (got.count, got.size, got.pulls) for key, got in state.got.items()},
        "offsets": state.offsets,
    }


def batch_frame(
    messages: list[tuple[bytes, bytes, int]], torn: int = 0, **changes: str | int
) -> bytes:
    """A batch as Java clients send it."""
    body = encode_batch(BatchMessage(*message) for message in messages)
    fields: dict[str, str | int] = {"m": "true", "i": "WAIT\x01true", **changes}
    return send_frame(body[: len(body) - torn], code=320, **fields)


def check_agreement(reads: list[bytes], *, is_sync: bool = False) -> None:
    """Both cores give the same outcome."""
    found = {name: outcome(core, reads, is_sync=is_sync) for name, core in IMPLEMENTATIONS.items()}
    assert found["compiled"] == found["plain"]


# ---- what the compiled core must take by itself ----


def header_of(frame: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(FrameDecoder().feed(frame)[0].header)
    return header


def rewritten(frame: bytes, change: Any, **options: Any) -> bytes:
    """A frame whose header was changed as a value and written by another writer of JSON."""
    header = header_of(frame)
    change(header)
    text = json.dumps(header, **options)
    return encode_frame(0, text.encode(), FrameDecoder().feed(frame)[0].body)


def reverse(header: dict[str, Any]) -> None:
    header["extFields"] = dict(reversed(header["extFields"].items()))
    items = list(header.items())
    header.clear()
    header.update([items[0], *reversed(items[1:])])


def as_numbers(header: dict[str, Any]) -> None:
    fields = header["extFields"]
    for name in "defghjl":
        fields[name] = int(fields[name])
    fields["k"] = fields["m"] = False


def add_unknown(header: dict[str, Any]) -> None:
    header["extFields"].update(bname="broker-a", ns="x", n="broker-a")
    header["remark"] = None


ORDINARY = {
    "Java": send_frame(i=ID + "\x02WAIT\x01true\x02TAGS\x01TagA"),
    "long names": send_frame(code=10, i=ID),
    "Go": send_frame(code=10, i="WAIT\x01true\x02KEYS\x01a b\x02"),
    "other order": rewritten(send_frame(), reverse),
    "numbers as values": rewritten(send_frame(), as_numbers),
    "unknown fields": rewritten(send_frame(), add_unknown),
    "blanks": rewritten(send_frame(), lambda _: None, indent=1),
    "a newline behind it": rewritten(send_frame(), lambda _: None, separators=(" , ", " : ")),
    "characters": send_frame(i="TAGS\x01Büro\x02note\x01é漢😀\x02KEYS\x01漢 😀"),
    "escaped characters": rewritten(
        send_frame(i='TAGS\x01Büro\x02note\x01é漢😀"\\/\b\f\n\r\t'), lambda _: None
    ),
    "one-way": send_frame(flag=2),
    "no properties": send_frame(i=""),
    "no body": send_frame(b""),
    "compressed": send_frame(f=0x301),
    "batch": batch_frame([(b"a", ID.encode(), 0), (b"", b"TAGS\x01a\x02KEYS\x01k l", 7)], i=""),
    "batch with properties of the whole": batch_frame([(b"a", b"", 0), (b"b", ID.encode(), 0)]),
    "batch under another code": send_frame(encode_batch([BatchMessage(b"a")]), code=10, m="true"),
    "large": send_frame(bytes(range(256)) * 16),
}


def in_binary(frame: bytes) -> bytes:
    """The same request with a binary header."""
    command = decode_command(FrameDecoder().feed(frame)[0])
    command.serialization = BINARY
    return encode_command(command)


ORDINARY |= {f"{name}, binary": in_binary(frame) for name, frame in ORDINARY.items()}
ORDINARY["a remark and a language of its own"] = encode_command(
    Command(
        310,
        fields=decode_command(FrameDecoder().feed(send_frame())[0]).fields,
        remark="a remark",
        language="GO",
        serialization=BINARY,
    )
)


@pytest.mark.parametrize("name", ORDINARY)
def test_the_compiled_core_takes_what_clients_send(name: str) -> None:
    core, frame = IMPLEMENTATIONS["compiled"], ORDINARY[name]
    state = new_state(core)
    result = core.handle_one_read(state, frame * 3, 0, origin(core), NOW_MS)
    assert (result.sends, result.unknown) == (3, None)
    check_agreement([frame, frame * 2, HEARTBEAT + frame])


@pytest.mark.parametrize("queue_offset", [0, 1])
def test_the_compiled_core_takes_binary_pulls(queue_offset: int) -> None:
    core = IMPLEMENTATIONS["compiled"]
    state = new_state(core)
    core.handle_one_read(state, send_frame() * 2, 0, origin(core), NOW_MS)
    publish(state)
    frame = in_binary(pull_frame(queue_offset))
    result = core.handle_one_read(state, frame * 2, 0, origin(core), NOW_MS)
    assert (result.pulls, result.unknown) == (2, None)
    check_agreement([send_frame(), frame, pull_frame(queue_offset)])


# ---- what real clients sent ----

SENDS_AND_PULLS = (10, 310, 320, 11)


def golden(capture: str) -> list[Recorded]:
    """The recorded sends and pulls of one client."""
    return [
        entry
        for entry in recorded(capture)
        if not entry.command.is_response and entry.command.code in SENDS_AND_PULLS
    ]


def fitted(command: Command) -> bytes:
    """A recorded request for the topic and group that the state has, all else as it was."""
    names = {"topic": "T", "b": "T", "queueId": "0", "consumerGroup": "G"}
    if command.code == 11:
        names |= {"subVersion": "7", "commitOffset": "0", "queueOffset": "0"}
    if command.code in (310, 320):
        names["e"] = "0"
    fields = {name: names.get(name, value) for name, value in command.fields.items()}
    return encode_command(structs.replace(command, fields=fields))


@pytest.mark.parametrize("capture", captures())
@pytest.mark.parametrize("size", [0, 1_000, 333])
def test_both_cores_do_the_same_with_what_was_recorded(capture: str, size: int) -> None:
    """`size`: of the reads; 0: each request is one."""
    whole = [entry.data for entry in golden(capture)]
    made = [fitted(entry.command) for entry in golden(capture)]
    assert made
    for frames in (whole, made, [in_binary(frame) for frame in made]):
        stream = b"".join(frames)
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)] if size else frames
        check_agreement(pieces)


@pytest.mark.parametrize("capture", captures())
def test_the_compiled_core_takes_what_the_plain_one_takes_of_it(capture: str) -> None:
    states = {name: new_state(core) for name, core in IMPLEMENTATIONS.items()}
    taken = 0
    for entry in golden(capture):
        for frame in (fitted(entry.command), in_binary(fitted(entry.command))):
            counts = []
            for name, core in IMPLEMENTATIONS.items():
                result = core.handle_one_read(states[name], frame, 0, origin(core), NOW_MS)
                counts.append((result.sends, result.pulls))
                publish(states[name])
            assert counts[0] == counts[1], entry.place
            taken += sum(counts[0])
    assert taken * 4 > len(golden(capture))


# ---- streams of anything ----

PIECES = st.sampled_from(
    [
        *("\x02", "\x01", "x", "\0", "ü", "漢", "A\x01b", ID, ID[:-1], ID + "\x02", "KEYS\x01k l"),
        *("WAIT\x01true", "WAIT\x01false", "WAIT\x01true\x02", "TAGS\x01", "TagA", "TAGS\x01a\x02"),
        *("DELAY\x013", "DELAY", "CLUSTER\x01c", "TRAN_MSG\x01true", "UNIQ_KEY\x01", "KEYS\x01"),
    ]
)
PROPERTIES = st.lists(PIECES, max_size=6).map("".join)
NUMBERS = st.sampled_from(
    ["0", "1", "3", "4", "-1", "00", "-0", "+1", " 1", "", "x", "1.0", "2147483648", "9" * 19]
)
FIELDS = st.dictionaries(st.sampled_from("defghj"), NUMBERS, max_size=2)
SENDS = st.builds(
    lambda body, code, properties, fields, rest: send_frame(
        body, code=code, i=properties, **{**fields, **rest}
    ),
    st.binary(max_size=40),
    st.sampled_from([310, 310, 310, 10]),
    PROPERTIES,
    FIELDS,
    st.fixed_dictionaries(
        {
            "e": st.sampled_from("0012345"),
            "opaque": st.integers(-(2**31), 2**31 - 1),
            "flag": st.sampled_from([0, 0, 0, 1, 2, 3]),
        },
        optional={
            "m": st.sampled_from(["true", "false", "0", "1", "True", ""]),
            "b": st.sampled_from(["T", "U", "T\x01", "é"]),
            "z": st.just("more"),
        },
    ),
)
PULLS = st.builds(
    lambda offset, fields: pull_frame(offset, **fields),
    st.integers(-1, 5),
    st.fixed_dictionaries(
        {},
        optional={
            "consumerGroup": st.sampled_from(["G", "G2", "H"]),
            "queueId": NUMBERS,
            "maxMsgNums": NUMBERS,
            "sysFlag": st.sampled_from("0123456"),
            "commitOffset": NUMBERS,
            "subVersion": st.sampled_from("678"),
            "subscription": st.sampled_from(["*", "TagA"]),
            "expressionType": st.sampled_from(["TAG", "SQL92"]),
            "bulk": st.sampled_from(["true", "false", "1", ""]),
            "maxMsgBytes": NUMBERS,
        },
    ),
)
JSON_PIECES = st.sampled_from(
    [
        b'"',
        b"\\",
        b"\\u0041",
        b"\\ud83d\\ude00",
        b"\\ud83d",
        b"{",
        b"}",
        b",",
        b":",
        b"null",
        b"1e3",
        b'"code":310,',
        b'"e":"1",',
        b"\xff",
        b"\xc3\xa9",
        b"\n",
        b"\0",
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A send or pull with something else in its header; the frame around it is whole."""
    whole = FrameDecoder().feed(draw(SENDS | PULLS))[0]
    header = bytearray(whole.header)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(header)))
        end = min(len(header), at + draw(st.integers(0, 4)))
        header[at:end] = draw(JSON_PIECES | st.binary(max_size=2))
    return encode_frame(draw(st.sampled_from([0, 0, 0, 1])), bytes(header), whole.body)


LENGTHS = st.sampled_from([-(2**31), -1, 0, 1, 2, 4, 5, 0x7FFF, 0x8000, 0xFFFF, 2**24, 2**31 - 1])
TEXTS = st.sampled_from(
    [
        b"",
        b"b",
        b"T",
        b"e",
        b"0",
        b"i",
        b"TAGS\x01TagA",
        b"\xff",
        b"\xc3\xa9",
        b"\xed\xa0\x80",
        b"\0",
    ]
)


@st.composite
def damaged_binary(draw: st.DrawFn) -> bytes:
    """A binary header with sizes that lie, names that are cut, odd or repeated entries."""
    whole = FrameDecoder().feed(in_binary(draw(SENDS | PULLS)))[0]
    header = bytearray(whole.header)
    entries = bytearray(header[21:])
    for _ in range(draw(st.integers(0, 2))):
        odd = entry(draw(TEXTS), draw(TEXTS))
        entries[:] = odd + entries if draw(st.booleans()) else entries + odd
    if draw(st.booleans()):
        del entries[draw(st.integers(0, len(entries))) :]
    remark = draw(TEXTS)
    header[13:] = len(remark).to_bytes(4, "big") + remark
    header += len(entries).to_bytes(4, "big") + entries
    for _ in range(draw(st.integers(0, 2))):
        at, size = draw(st.integers(0, len(header) - 1)), draw(st.sampled_from([1, 2, 4]))
        number = draw(LENGTHS) % 256**size
        header[at : at + size] = number.to_bytes(size, "big")
    if draw(st.booleans()):
        del header[draw(st.integers(0, len(header))) :]
    return encode_frame(BINARY, bytes(header), whole.body)


def entry(name: bytes, value: bytes) -> bytes:
    return len(name).to_bytes(2, "big") + name + len(value).to_bytes(4, "big") + value


def with_entries(*more: bytes, at_end: bool = True, size_off: int = 0) -> bytes:
    """A send with further entries in its binary header."""
    whole = FrameDecoder().feed(in_binary(send_frame()))[0]
    added = b"".join(more)
    entries = whole.header[21:] + added if at_end else added + whole.header[21:]
    size = (len(entries) + size_off) % 2**32
    return encode_frame(BINARY, whole.header[:17] + size.to_bytes(4, "big") + entries, whole.body)


UNKNOWN_COUNT = FIELD_COUNT_MAX - len(decode_command(FrameDecoder().feed(send_frame())[0]).fields)
HOSTILE_BINARY = {
    "nothing": encode_frame(BINARY, b"", b""),
    "only the fixed fields": encode_frame(BINARY, in_binary(send_frame())[8:25], b""),
    "as many fields as may be": with_entries(*[entry(b"zz", b"1")] * UNKNOWN_COUNT),
    "a field too many": with_entries(*[entry(b"zz", b"1")] * (UNKNOWN_COUNT + 1)),
    "empty entries without end": with_entries(*[entry(b"", b"")] * FIELD_COUNT_MAX),
    "a name twice": with_entries(entry(b"e", b"1")),
    "a name twice, once without value": with_entries(entry(b"e", b"")),
    "a value without name": with_entries(entry(b"", b"x")),
    "no UTF-8 where nobody looks": with_entries(entry(b"", b"\xff")),
    "a name that is no UTF-8": with_entries(entry(b"\xff", b"1")),
    "a name beyond ASCII": with_entries(entry("é".encode(), b"1"), at_end=False),
    "a value that ends behind all": with_entries(b"\0\1z\0\0\0\2x"),
    "a value of negative size": with_entries(b"\0\1z\xff\xff\xff\xff"),
    "a name of negative size": with_entries(b"\xff\xff"),
    "a name that ends behind all": with_entries(b"\x7f\xff"),
    "a name without value": with_entries(b"\0\1z"),
    "half a size": with_entries(b"\0"),
    "entries that are longer": with_entries(size_off=1),
    "entries that are shorter": with_entries(size_off=-1),
    "entries of negative size": with_entries(size_off=-(2**31)),
    "a control character": in_binary(send_frame(i='TAGS\x01a"\\\n\x00')),
    "a batch of bad properties": in_binary(batch_frame([(b"a", b"", 0)], i="K\x01\x00")),
    "a third kind of header": b"\0\0\0\4\2\0\0\0",
}


@pytest.mark.parametrize("name", HOSTILE_BINARY)
def test_both_cores_do_the_same_with_a_hostile_binary_header(name: str) -> None:
    frame = HOSTILE_BINARY[name]
    check_agreement([send_frame() + frame + send_frame()])
    check_agreement([frame[:9], frame[9:20], frame[20:]])


def test_both_cores_do_the_same_with_a_binary_header_cut_or_changed_anywhere() -> None:
    whole = FrameDecoder().feed(in_binary(send_frame(b"")))[0].header
    cut = [encode_frame(BINARY, whole[:size], b"") for size in range(len(whole))]
    changed = [
        encode_frame(BINARY, whole[:at] + bytes([byte]) + whole[at + 1 :], b"")
        for at in range(len(whole))
        for byte in (0, 0x7F, 0x80, 0xFF)
    ]
    check_agreement(cut)
    check_agreement(changed)


SINGLES = st.tuples(
    st.binary(max_size=20),
    PROPERTIES.map(str.encode) | st.binary(max_size=6),
    st.integers(-(2**31), 2**31 - 1),
)
BATCHES = st.builds(
    lambda messages, torn, fields: batch_frame(messages, torn, **fields),
    st.lists(SINGLES, min_size=1, max_size=4),
    st.sampled_from([0, 0, 0, 1, 30]),
    st.fixed_dictionaries(
        {}, optional={"i": PROPERTIES, "f": NUMBERS, "j": NUMBERS, "flag": st.just(2)}
    ),
)
BINARIES = (SENDS | PULLS | BATCHES).map(in_binary) | damaged_binary()
OTHERS = st.just(HEARTBEAT) | st.binary(max_size=12)
FRAMES = SENDS | SENDS | PULLS | BATCHES | damaged() | BINARIES | OTHERS


@settings(deadline=None, max_examples=300)
@given(st.lists(FRAMES, max_size=8), st.lists(st.floats(0, 1), max_size=4), st.booleans())
@example([ORDINARY["Java"], pull_frame(0), pull_frame(1)], [0.5], False)
@example([send_frame(bytes(3_000)), send_frame(bytes(3_000)), send_frame(bytes(3_000))], [], False)
@example([send_frame(i="WAIT\x01true\x02WAIT\x01true\x02")], [], False)
@example([send_frame(i="A\x01b\x02WAIT\x01true")], [], True)
@example([send_frame(i="WAIT\x01false\x02")], [], True)
def test_both_cores_do_the_same(frames: list[bytes], cuts: list[float], is_sync: bool) -> None:
    stream = b"".join(frames)
    bounds = [0, *sorted(int(cut * len(stream)) for cut in cuts), len(stream)]
    check_agreement([stream[a:b] for a, b in itertools.pairwise(bounds)], is_sync=is_sync)


def test_state_of_the_other_core_is_an_error_and_no_crash() -> None:
    core = IMPLEMENTATIONS["compiled"]
    for topic, queue in ((plain.Topic, core.Queue), (core.Topic, plain.Queue)):
        state = new_state(core)
        state.topics["T"] = topic("T", 1, is_plain=True, is_readable=True)
        state.topics["T"].queues[0] = queue("T", 0, 0)
        for frame in (send_frame(), pull_frame(0)):
            with pytest.raises(TypeError, match="Cannot convert"):
                core.handle_one_read(state, frame, 0, origin(core), NOW_MS)
