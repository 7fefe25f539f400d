"""Sends with headers known by heart: the same outcome as without, to the byte."""

import random
import struct
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.core import CoreState, Origin, ReadResult
from orbitmq.core.plain_known import LEARNING_COST, LEARNT_MAX, SHAPES_MAX
from orbitmq.store.index_keys import KeyHasher
from orbitmq.wire.command import decode_command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.record import scan_records
from tests.core.hot import IMPLEMENTATIONS, NOW_MS, ORIGIN, new_state, publish, send_frame

NEVER = -(10**9)
"""A credit with which nothing is learnt."""


@pytest.fixture(params=IMPLEMENTATIONS)
def core(request: pytest.FixtureRequest) -> ModuleType:
    return IMPLEMENTATIONS[request.param]


def usual(number: int = 0, *, tag: str = "TagA", **changes: str | int) -> bytes:
    """Return a send of the usual form."""
    fields: dict[str, str | int] = {
        "e": number % 4,
        "g": 1_699_999_999_999 + number,
        "h": 0,
        "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01{tag}",
        "opaque": 1000 + number % 9000,
    }
    return send_frame(b"body %d" % number, code=310, **fields | changes)


def new_origin() -> Origin:
    """Return that of a connection which has sent nothing yet."""
    return Origin(ORIGIN.born_host, ORIGIN.store_host)


def read(core: ModuleType, state: CoreState, data: bytes, origin: Origin) -> ReadResult:
    result: ReadResult = core.handle_one_read(state, data, 0, origin, NOW_MS)
    return result


def outcome(core: ModuleType, state: CoreState, reads: list[bytes]) -> list[object]:
    """Return everything that the reads have led to."""
    origin = new_origin()
    results = [read(core, state, data, origin) for data in reads]
    tail, queues = state.tail, state.topics["T"].queues
    return [
        [(one.used, b"".join(one.answers), one.log_end, one.unknown, one.sends) for one in results],
        bytes(tail.staged),
        (tail.end_offset, tail.staged_count, tail.grown == set()),
        sorted((queue.queue_id, queue.next_offset) for queue in tail.grown),
        [(bytes(queue.entries), queue.put_bytes) for queue in queues.values()],
        KeyHasher().rows(tail.keyed),
    ]


def both(core: ModuleType, reads: list[bytes], **shape: int) -> tuple[list[object], CoreState]:
    """Check that known headers and others lead to the same; give that, and the knowing state."""
    plain, knowing = new_state(**shape), new_state(**shape)
    plain.known.credit = NEVER
    without = outcome(core, plain, reads)
    with_known = outcome(core, knowing, reads)
    assert with_known == without
    return with_known, knowing


def taken_by_heart(state: CoreState) -> int:
    """Return how many of the staged messages were: of those the index gets the bare id."""
    return sum(len(text) == 32 for _, _, _, text in state.tail.keyed)


def test_messages_of_known_headers_are_stored_and_answered_as_others_are(core: ModuleType) -> None:
    _, state = both(core, [b"".join(usual(number) for number in range(200))])
    assert taken_by_heart(state) > 150
    records = list(scan_records(publish(state)))
    assert [record.body for record in records] == [b"body %d" % number for number in range(200)]


def test_groups_topics_tags_and_opaques_of_all_sizes_mix(core: ModuleType) -> None:
    chance = random.Random(5)
    frames = [
        usual(
            number,
            a=chance.choice(["PG", "other group"]),
            b="U" if number % 40 == 0 else "T",
            tag=chance.choice(["TagA", "B"]),
            f=number % 2,
            opaque=chance.choice([7, 99, 2**31 - 1, 10**9, 123456]) if number % 9 else 0,
            flag=2 if number % 30 == 0 else 0,
        )
        for number in range(3_000)
    ]
    _, state = both(core, frames)
    assert taken_by_heart(state) > 50


USUAL = usual(5, e=1, opaque=4711)


@settings(deadline=None, max_examples=400)
@given(st.integers(8, len(USUAL) - 1), st.integers(0, 255), st.integers(0, 3))
def test_a_changed_byte_of_a_known_header_is_never_overlooked(
    at: int, byte: int, more: int
) -> None:
    changed = bytearray(USUAL)
    changed[at] = byte
    for core in IMPLEMENTATIONS.values():
        both(core, [USUAL * 3, bytes(changed) + USUAL * more])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"opaque":4711', b'"opaque":0711'),
        (b'"opaque":4711', b'"opaque":-711'),
        (b'"g":"1700000000004"', b'"g":"0700000000004"'),
        (b'"g":"1700000000004"', b'"g":"170000000000x"'),
        (b"0000000000000005", b"000000000000000\\"),
        (b"0000000000000005", b"000000000000 005"),
        (b'"h":"0"', b'"h":"7"'),
        (b'"e":"1"', b'"e":"9"'),
        (b'"j":"0"', b'"j":"1"'),
        (b'"m":"false"', b'"m":"true" '),
        (b'"flag":0', b'"flag":2'),
        (b'"JSON"', b'"JSO\n"'),
    ],
)
def test_what_decoding_would_refuse_or_read_otherwise_is_left_to_it(
    core: ModuleType, old: bytes, new: bytes
) -> None:
    assert USUAL.count(old) == 1
    _, state = both(core, [USUAL * 4, USUAL.replace(old, new) + USUAL])
    assert taken_by_heart(state) >= 3


def test_an_opaque_that_does_not_fit_is_left_to_the_decoder(core: ModuleType) -> None:
    frame = usual(1, opaque=2**31 - 1)
    both(core, [frame * 3, frame.replace(b'"opaque":2147483647', b'"opaque":2147483648')])


def test_a_message_with_keys_is_filed_under_all_of_them(core: ModuleType) -> None:
    keys = f"UNIQ_KEY\x01{1:032X}\x02KEYS\x01a b\x02TAGS\x01TagA"
    _, state = both(core, [usual(1, i=keys) * 5])
    assert taken_by_heart(state) == 0


def test_records_never_span_files_by_heart_either(core: ModuleType) -> None:
    _, state = both(core, [b"".join(map(usual, range(60)))], file_size=4_096)
    assert taken_by_heart(state) > 20
    log = publish(state)
    files = [log[start : start + 4_096] for start in range(0, len(log), 4_096)]
    assert sum(len(list(scan_records(one))) for one in files) == 60


def test_a_frame_that_is_not_all_there_waits(core: ModuleType) -> None:
    data = b"".join(map(usual, range(20)))
    for cut in (1, 7, 8, 100, len(usual(19)) - 1):
        (results, *_), _ = both(core, [data[:-cut]])
        assert isinstance(results, list)
        assert results[0][4] == 19


def test_answers_say_what_is_told_now(core: ModuleType) -> None:
    state, origin = new_state(), new_origin()
    read(core, state, b"".join(map(usual, range(20))), origin)
    state.set_answer("Elsewhere", is_traced=False)
    state.set_store_id(b"0A00000100002A9F")
    result = read(core, state, b"".join(map(usual, range(40))), origin)
    frames = FrameDecoder().feed(b"".join(result.answers))
    answers = [decode_command(frame).fields for frame in frames]
    assert {(one["MSG_REGION"], one["TRACE_ON"]) for one in answers} == {("Elsewhere", "false")}
    assert {one["msgId"][:16] for one in answers} == {"0A00000100002A9F"}
    assert taken_by_heart(state) > 30


def test_nothing_is_taken_by_heart_that_is_not_to_be_taken(core: ModuleType) -> None:
    state, origin = new_state(), new_origin()
    read(core, state, usual() * 10, origin)
    for forbid in ("refusal", "is_plain", "body_size_max"):
        staged = bytes(state.tail.staged)
        if forbid == "refusal":
            state.tail.refusal = "no"
        elif forbid == "is_plain":
            state.topics["T"].is_plain = False
        else:
            state.body_size_max = 3
        assert read(core, state, usual(), origin).unknown is not None
        assert state.tail.staged == staged
        state.tail.refusal, state.topics["T"].is_plain = "", True


def test_what_is_learnt_is_bounded_and_not_learnt_without_use(core: ModuleType) -> None:
    state, origin = new_state(), new_origin()
    count = 4_000
    for number in range(count):
        read(core, state, usual(number, tag=f"{number}"), origin)
        state.tail.staged.clear()
        state.tail.end_offset = 0
    assert len(state.known.rests) < count / LEARNING_COST + 32
    state.known.credit = 10**9
    for number in range(LEARNT_MAX + 10):
        read(core, state, usual(number, a=f"G{number}"), origin)
        state.tail.staged.clear()
        state.tail.end_offset = 0
    assert max(len(state.known.heads), len(state.known.rests)) <= LEARNT_MAX
    assert len(origin.shapes) <= SHAPES_MAX


def test_addresses_of_both_kinds_lie_where_they_belong(core: ModuleType) -> None:
    for born, store in ((b"\1" * 20, b"\2" * 8), (b"\1" * 8, b"\2" * 20)):
        origin = Origin(born, store)
        state = new_state()
        core.handle_one_read(state, usual() * 4, 0, origin, NOW_MS)
        assert taken_by_heart(state) == 3
        size = struct.unpack_from(">i", state.tail.staged)[0]
        first, *others = (
            bytes(state.tail.staged[at + 36 : at + size - 8]) for at in range(0, 4 * size, size)
        )
        assert [one[8:] for one in others] == [first[8:]] * 3


def test_queues_that_the_topic_no_longer_has_are_left_to_plain_python(core: ModuleType) -> None:
    """Symptom: sends to queues that a topic had lost were taken, and nobody could pull them."""
    state, origin = new_state(), new_origin()
    taken = [read(core, state, usual(number), origin).sends for number in range(8)]
    assert taken == [1] * 8
    state.topics["T"].send_queue_count = 2
    for number, is_taken in ((8, True), (9, True), (10, False), (11, False)):
        result = read(core, state, usual(number), origin)
        assert (result.sends == 1, result.unknown is None) == (is_taken, is_taken)
    unlike = send_frame(b"of a form that is not learnt", e=3)
    assert read(core, state, unlike, new_origin()).unknown is not None


def test_sends_before_the_time_are_left_to_plain_python(core: ModuleType) -> None:
    """Symptom: startAcceptSendRequestTimeStamp counted until the first pull of a queue only."""
    state, origin = new_state(), new_origin()
    assert [read(core, state, usual(number), origin).sends for number in range(8)] == [1] * 8
    for first_ms, is_taken in ((NOW_MS + 1, False), (NOW_MS, True)):
        state.send_from_ms = first_ms
        for frame in (usual(8), send_frame(b"unlike")):
            result = read(core, state, frame, origin)
            assert (result.sends == 1, result.unknown is None) == (is_taken, is_taken)
