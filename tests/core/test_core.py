"""The hot core: the same tests for every implementation."""

import itertools
import struct
import zlib
from collections.abc import Iterator
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.core import (
    Admitted,
    CoreState,
    PullStatus,
    ReadResult,
    Subscription,
    admit,
    checksum,
)
from orbitmq.core.state import BULK_COUNT_MAX, ENTRY
from orbitmq.errors import SettingError
from orbitmq.wire.command import Command, decode_command, encode_command
from orbitmq.wire.frame import BINARY, FrameDecoder
from orbitmq.wire.java import string_hash
from orbitmq.wire.record import BLANK_MAGIC, decode_record, scan_records
from tests.core.hot import (
    BORN,
    IMPLEMENTATIONS,
    NOW_MS,
    STORE,
    new_state,
    origin,
    publish,
    pull_frame,
    send_frame,
)

HEARTBEAT = encode_command(Command(34, opaque=9, body=b"{}"))


@pytest.fixture(params=IMPLEMENTATIONS)
def core(request: pytest.FixtureRequest) -> ModuleType:
    return IMPLEMENTATIONS[request.param]


def answers_of(result: ReadResult) -> list[Command]:
    frames = FrameDecoder().feed(b"".join(result.answers))
    return [decode_command(frame) for frame in frames]


def read(core: ModuleType, state: CoreState, data: bytes) -> ReadResult:
    result: ReadResult = core.handle_one_read(state, data, 0, origin(core), NOW_MS)
    return result


def test_of_a_guarded_connection_each_request_is_handed_back_in_its_order(core: ModuleType) -> None:
    """Rights are checked where the table of requests is: the hot path serves nothing before."""
    state, guarded = new_state(core), origin(core)
    read(core, state, send_frame())
    publish(state)
    log_end = state.tail.end_offset
    data = send_frame(opaque=1) + pull_frame(0, opaque=2) + send_frame(code=10, opaque=3)
    guarded.is_guarded = True
    position, opaques = 0, []
    while position < len(data):
        result = core.handle_one_read(state, data, position, guarded, NOW_MS)
        assert (result.answers, result.sends, result.pulls) == ([], 0, 0)
        opaques.append(decode_command(result.unknown).opaque)
        position = result.used
    assert (opaques, state.tail.end_offset) == ([1, 2, 3], log_end)
    part = data[:20]
    assert core.handle_one_read(state, part, 0, guarded, NOW_MS)[:2] == (0, [])
    guarded.is_guarded = False
    result = core.handle_one_read(state, data, 0, guarded, NOW_MS)
    assert (result.sends, result.pulls, result.unknown) == (2, 1, None)


@pytest.mark.parametrize("code", [310, 10])
def test_a_send_stages_a_whole_record_with_every_field(core: ModuleType, code: int) -> None:
    state = new_state(core)
    result = read(core, state, send_frame(b"body", code=code, e=2, opaque=77))
    assert result.unknown is None
    assert result.log_end == state.tail.end_offset
    assert (result.sends, result.pulls) == (1, 0)
    (record,) = scan_records(publish(state))
    assert record.topic == "T"
    assert record.body == b"body"
    assert (record.queue_id, record.queue_offset, record.log_offset) == (2, 0, 0)
    assert (record.flag, record.sys_flag, record.born_ms) == (3, 0, 1699999999999)
    assert (record.born_host, record.store_host, record.store_ms) == (BORN, STORE, NOW_MS)
    assert record.properties == b"UNIQ_KEY\x01ABC\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"
    (answer,) = answers_of(result)
    assert (answer.code, answer.opaque, answer.is_response) == (0, 77, True)
    assert answer.fields == {
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "2",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_the_queue_entry_names_place_size_and_tag(core: ModuleType) -> None:
    state = new_state(core)
    result = read(core, state, send_frame() + send_frame(i="TAGS\x01Büro\x02"))
    (queue,) = result.grown
    first, second = struct.iter_unpack(">qiq", queue.entries)
    assert first == (0, second[0], string_hash("TagA"))
    assert second[2] == string_hash("Büro")
    assert second[0] + second[1] == state.tail.end_offset


def test_wait_true_is_not_stored_and_properties_are_closed(core: ModuleType) -> None:
    state = new_state(core)
    read(core, state, send_frame(i="WAIT\x01true\x02KEYS\x01k") + send_frame(i="XWAIT\x01true\x02"))
    first, second = scan_records(publish(state))
    assert first.properties == b"KEYS\x01k\x02CLUSTER\x01DefaultCluster"
    assert second.properties == b"XWAIT\x01true\x02CLUSTER\x01DefaultCluster"


def test_a_oneway_send_is_stored_and_not_answered(core: ModuleType) -> None:
    state = new_state(core)
    result = read(core, state, send_frame(flag=2))
    assert not result.answers
    assert len(list(scan_records(publish(state)))) == 1


def test_what_is_staged_cannot_be_seen_before_it_is_published(core: ModuleType) -> None:
    state = new_state(core)
    result = read(core, state, send_frame() + pull_frame(0))
    assert result.unknown is not None
    assert decode_command(result.unknown).code == 11
    publish(state)
    assert read(core, state, pull_frame(0)).unknown is None


def without(frame: bytes, name: str) -> bytes:
    """Return a request without one of its fields."""
    command = decode_command(FrameDecoder().feed(frame)[0])
    del command.fields[name]
    return encode_command(command)


UNKNOWN_FRAMES = {
    "another code": HEARTBEAT,
    "unknown topic": send_frame(b="Other"),
    "unknown queue": send_frame(e=99),
    "queue to be chosen": send_frame(e=-1),
    "delayed": send_frame(i="DELAY\x013\x02"),
    "half message": send_frame(i="TRAN_MSG\x01true\x02"),
    "timer": send_frame(i="TIMER_DELAY_SEC\x013\x02"),
    "reserved for the broker": send_frame(i="INNER_MULTI_DISPATCH\x01x\x02"),
    "batch": send_frame(m="true"),
    "a header above the limit": send_frame(x="y" * 300_000),
    "a send without its group": without(send_frame(), "a"),
    "a pull without its time": without(pull_frame(0), "suspendTimeoutMillis"),
    "reconsumed": send_frame(j=1),
    "host bits that only a broker may set": send_frame(f=0x10),
    "transaction bits": send_frame(f=4),
    "a queue id that is no number": send_frame(e="x"),
    "a flag that does not fit": send_frame(h=2**31),
    "binary header": encode_command(Command(310, serialization=BINARY, fields={"b": "T"})),
    "oversized properties": send_frame(i="K\x01" + "v" * 32_760 + "\x02"),
    "a response": encode_command(Command(310, flag=1)),
    "pull of an unknown group": pull_frame(0, consumerGroup="X"),
    "pull with a newer subscription": pull_frame(0, subVersion=8),
    "pull past the read queues": pull_frame(0, queueId=4),
    "pull at the end": pull_frame(1),
    "pull with an own expression": pull_frame(0, sysFlag=6, subscription="TagA"),
}


@pytest.mark.parametrize("name", UNKNOWN_FRAMES)
def test_the_first_unknown_frame_is_handed_back_and_nothing_behind_it_is_touched(
    core: ModuleType, name: str
) -> None:
    state = new_state(core)
    read(core, state, send_frame())
    publish(state)
    unknown = UNKNOWN_FRAMES[name]
    data = send_frame(b"before") + unknown + send_frame(b"behind")
    result = read(core, state, data)
    assert result.used == len(data) - len(send_frame(b"behind"))
    assert result.unknown is not None
    assert result.unknown == FrameDecoder().feed(unknown)[0]
    bodies = [record.body for record in scan_records(publish(state))]
    assert bodies == [b"hello", b"before"]
    assert len(answers_of(result)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "CLUSTER\x01c\x02",
        "MYTAGS\x01c\x02",
        "TAGS\x01A\x02TAGS\x01\x02",
        "TAGS\x01" + "a" * 300,
        "\x02\x02A\x01\u00e4\x02\x02WAIT\x01true",
        "DELAY\x010",
    ],
)
def test_what_the_core_stores_of_properties_is_what_is_admitted(
    core: ModuleType, text: str
) -> None:
    admitted = admit(text.encode())
    assert isinstance(admitted, Admitted)
    state = new_state(core)
    assert read(core, state, send_frame(i=text)).unknown is None
    entries = state.topics["T"].queues[0].entries
    assert ENTRY.unpack(entries)[2] == admitted.tags_code
    (record,) = scan_records(publish(state))
    assert record.properties == admitted.own + b"CLUSTER\x01DefaultCluster"


def test_bytes_that_are_no_frame_are_left_to_the_decoder(core: ModuleType) -> None:
    state = new_state(core)
    for bad in (
        b"\xff" * 16,
        b"\0\0\0\3xxxxxx",
        b"GET / HTTP/1.1\r\n",
        b"\x7f\xff\xff\xff\0\0\0\0",
    ):
        data = send_frame() + bad
        result = read(core, state, data)
        assert (result.used, result.unknown) == (len(data) - len(bad), None)


@given(data=st.data())
def test_reads_cut_anywhere_store_and_answer_the_same(data: st.DataObject) -> None:
    bodies = data.draw(st.lists(st.binary(max_size=300), min_size=1, max_size=8))
    frames = [send_frame(body, e=i % 4, opaque=i) for i, body in enumerate(bodies)]
    stream = b"".join(frames) + HEARTBEAT + pull_frame(0)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    for core in IMPLEMENTATIONS.values():
        whole = new_state(core)
        expected = list(_events(core, whole, [stream]))
        pieces = new_state(core)
        bounds = [0, *cuts, len(stream)]
        reads = [stream[a:b] for a, b in itertools.pairwise(bounds)]
        assert list(_events(core, pieces, reads)) == expected
        assert publish(pieces) == publish(whole)


def _events(core: ModuleType, state: CoreState, reads: list[bytes]) -> Iterator[object]:
    """Return answers and unknown frames in order, as a connection would see them."""
    decoder = FrameDecoder()
    for piece in reads:
        data = decoder.take(piece)
        position = 0
        while True:
            result = core.handle_one_read(state, data, position, origin(core), NOW_MS)
            yield from answers_of(result)
            position = result.used
            if result.unknown is None:
                break
            yield result.unknown
        decoder.hold(data, position)


_IDS = ("7F00000100002A139A550001E2400001", "7F00000100002A139A550001E240FFFF", "é" * 32, "0" * 31)
_AROUND = st.lists(
    st.sampled_from(
        [
            *(
                "\x02",
                "x",
                "WAIT\x01true",
                "WAIT\x01false",
                "TAGS\x01",
                "TagA",
                "TagB",
                "KEYS\x01k",
            ),
            *("DELAY\x01", "DELAY", "CLUSTER\x01", "TIMER_D", "UNIQ_KEY\x01", "ü"),
        ]
    ),
    max_size=6,
).map("".join)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(_IDS), st.booleans(), _AROUND | st.just("\x02TAGS\x01TagA\x02")),
        max_size=8,
    ),
    st.booleans(),
)
def test_a_message_is_stored_alike_whatever_came_before_it(
    sent: list[tuple[str, bool, str]], is_sync: bool
) -> None:
    for core in IMPLEMENTATIONS.values():
        used = new_state(core)
        used.is_sync_flush = is_sync
        for key, is_first, around in sent:
            id_ = f"UNIQ_KEY\x01{key}"
            frame = send_frame(i=id_ + around if is_first else around + id_)
            fresh = new_state(core)
            fresh.is_sync_flush = is_sync
            results = read(core, used, frame), read(core, fresh, frame)
            assert (results[0].unknown is None) == (results[1].unknown is None)
            stored = [
                [record.properties for record in scan_records(publish(state))]
                for state in (used, fresh)
            ]
            assert stored[0][-1:] == stored[1] or results[0].unknown is not None
            entries = [state.topics["T"].queues[0].entries for state in (used, fresh)]
            # The tags code is the last field of an entry.
            assert entries[0][-8:] == entries[1][-8:] or results[0].unknown is not None


def test_a_record_that_does_not_fit_goes_into_the_next_file(core: ModuleType) -> None:
    state = new_state(core, file_size=4096)
    for number in range(5):
        read(core, state, send_frame(bytes([number]) * 1500))
    log = publish(state)
    places = [
        struct.unpack_from(">qiq", state.topics["T"].queues[0].entries, 20 * i) for i in range(5)
    ]
    for log_offset, size, _ in places:
        assert log_offset // 4096 == (log_offset + size + 7) // 4096
        record, _ = decode_record(log, log_offset)
        assert record.log_offset == log_offset
    blank_at = places[1][0] + places[1][1]
    left, magic = struct.unpack_from(">iI", log, blank_at)
    assert (blank_at + left, magic) == (4096, BLANK_MAGIC)
    assert not any(log[blank_at + 8 : 4096])


def test_prepared_and_rolled_back_messages_take_no_queue_offset(core: ModuleType) -> None:
    state = new_state(core)
    queue = state.topics["T"].queues[0]
    for sys_flag in (4, 12, 8, 0):
        stamp = core.Stamp(0, sys_flag, 0, 0, 0, 0)
        core.append(state.tail, queue, origin(core), stamp, b"x", b"")
    assert [record.queue_offset for record in scan_records(publish(state))] == [0, 0, 0, 1]
    assert queue.next_offset == 2


def test_store_time_never_goes_back_when_the_clock_does(core: ModuleType) -> None:
    state = new_state(core)
    for now_ms in (NOW_MS, NOW_MS - 5000, NOW_MS + 1):
        core.handle_one_read(state, send_frame(), 0, origin(core), now_ms)
    times = [record.store_ms for record in scan_records(publish(state))]
    assert times == [NOW_MS, NOW_MS, NOW_MS + 1]


def filled(core: ModuleType, count: int, size: int = 10) -> CoreState:
    state = new_state(core, file_size=1 << 22)
    for number in range(count):
        read(core, state, send_frame(bytes(size), i=f"TAGS\x01Tag{number % 2}\x02"))
    publish(state)
    return state


def test_a_pull_gives_the_records_from_its_offset_on(core: ModuleType) -> None:
    state = filled(core, 40)
    (answer,) = answers_of(read(core, state, pull_frame(5, opaque=3)))
    assert (answer.code, answer.remark, answer.opaque) == (0, "FOUND", 3)
    assert answer.fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "37",
        "minOffset": "0",
        "maxOffset": "40",
    }
    offsets = [record.queue_offset for record in scan_records(answer.body)]
    assert offsets == list(range(5, 37))


def test_a_pull_takes_only_the_tags_of_its_subscription(core: ModuleType) -> None:
    state = filled(core, 10)
    state.subscriptions["G", "T"] = Subscription(7, frozenset({string_hash("Tag1")}))
    (answer,) = answers_of(read(core, state, pull_frame(0)))
    assert [record.queue_offset for record in scan_records(answer.body)] == [1, 3, 5, 7, 9]
    assert answer.fields["nextBeginOffset"] == "10"


def test_a_pull_commits_the_offset_it_brings(core: ModuleType) -> None:
    state = filled(core, 10)
    state.offsets["T@G"] = {}
    read(core, state, pull_frame(3, sysFlag=3, commitOffset=2))
    assert state.offsets == {"T@G": {0: 2}}


def test_a_bulk_pull_has_limits_of_its_own(core: ModuleType) -> None:
    state = filled(core, 1_100)
    asked = {"bulk": "true", "maxMsgNums": "5000"}
    (answer,) = answers_of(read(core, state, pull_frame(3, **asked)))
    assert answer.fields["nextBeginOffset"] == str(3 + BULK_COUNT_MAX)
    assert len(list(scan_records(answer.body))) == BULK_COUNT_MAX
    (few,) = answers_of(read(core, state, pull_frame(3, **{**asked, "maxMsgNums": "40"})))
    assert few.fields["nextBeginOffset"] == "43"
    state.bulk_bytes_max = len(answer.body) // 2
    (half,) = answers_of(read(core, state, pull_frame(3, **asked)))
    assert len(list(scan_records(half.body))) == BULK_COUNT_MAX // 2
    state.bulk_bytes_max = 0
    (usual,) = answers_of(read(core, state, pull_frame(3, **asked)))
    assert len(list(scan_records(usual.body))) == state.pull_count_max


def test_a_bulk_pull_that_wants_fewer_bytes_is_left_to_the_handler(core: ModuleType) -> None:
    state = filled(core, 50)
    fewer = str(state.bulk_bytes_max - 1)
    result = read(core, state, pull_frame(0, bulk="true", maxMsgBytes=fewer))
    assert (result.pulls, result.unknown is None) == (0, False)
    result = read(core, state, pull_frame(0, bulk="true", maxMsgBytes=state.bulk_bytes_max))
    assert (result.pulls, result.unknown) == (1, None)


def test_a_pull_is_bounded_by_bytes_but_gives_one_record_always(core: ModuleType) -> None:
    state = filled(core, 10, size=100_000)
    found = core.gather(state, state.topics["T"].queues[0], 0, 32, None)
    assert (found.next_offset, found.status) == (2, PullStatus.FOUND)
    state.pull_bytes_max = 10
    assert core.gather(state, state.topics["T"].queues[0], 0, 32, None).next_offset == 1


@pytest.mark.parametrize(
    ("count", "offset", "status", "next_offset"),
    [
        (0, 0, PullStatus.NO_MESSAGE_IN_QUEUE, 0),
        (0, 5, PullStatus.NO_MESSAGE_IN_QUEUE, 0),
        (3, 3, PullStatus.OFFSET_OVERFLOW_ONE, 3),
        (3, 9, PullStatus.OFFSET_OVERFLOW_BADLY, 3),
        (3, -1, PullStatus.OFFSET_TOO_SMALL, 0),
        (3, 0, PullStatus.FOUND, 3),
    ],
)
def test_a_look_outside_the_queue_says_where_to_go_on(
    core: ModuleType, count: int, offset: int, status: PullStatus, next_offset: int
) -> None:
    state = filled(core, count)
    found = core.gather(state, state.topics["T"].queues[0], offset, 32, None)
    assert (found.status, found.next_offset) == (status, next_offset)


def test_tags_that_do_not_match_are_passed_over(core: ModuleType) -> None:
    state = filled(core, 1000)
    found = core.gather(state, state.topics["T"].queues[0], 0, 32, frozenset({1}))
    assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 800)


def test_a_region_of_any_characters_makes_an_answer_that_clients_can_read(
    core: ModuleType,
) -> None:
    """Symptom: a quote in regionId made malformed answers, a long one lost messages."""
    state = new_state(core)
    state.set_answer('a"b%d\\', is_traced=True)
    (answer,) = answers_of(read(core, state, send_frame()))
    assert answer.fields["MSG_REGION"] == 'a"b%d\\'
    with pytest.raises(SettingError, match="regionId"):
        core.CoreState(state.tail, "c", "r" * 900)


def test_a_send_before_a_pull_that_fails_is_published_with_the_next_write(
    core: ModuleType,
) -> None:
    """Symptom: an exception later in the read left a staged record that nobody published."""
    state = new_state(core)
    read(core, state, send_frame())
    publish(state)
    state.tail.views.clear()  # a log file that is hot and not mapped: no pull can be answered
    with pytest.raises(KeyError):
        read(core, state, send_frame(e=1) + pull_frame(0))
    assert state.tail.grown == {state.topics["T"].queues[1]}
    assert state.tail.staged


def test_a_flood_of_pulls_in_one_read_is_cut_into_bounded_answers(core: ModuleType) -> None:
    state = filled(core, 10, size=100_000)
    data = pull_frame(0) * 100
    result = read(core, state, data)
    assert result.unknown is None
    assert 0 < result.used < len(data)
    assert sum(map(len, result.answers)) < 2_000_000


def test_pulls_are_counted_by_topic_and_group(core: ModuleType) -> None:
    state = new_state(core)
    read(core, state, b"".join(send_frame(b"%d" % number) for number in range(5)))
    publish(state)
    first = read(core, state, pull_frame(0, maxMsgNums=3))
    read(core, state, pull_frame(3))
    got = state.got["T", "G"]
    assert (got.count, got.pulls) == (5, 2)
    assert got.size == state.tail.written_offset
    (answer,) = answers_of(first)
    assert len(list(scan_records(answer.body))) == 3


def test_puts_are_counted_by_queue_with_their_bytes(core: ModuleType) -> None:
    state = new_state(core)
    read(core, state, send_frame(b"a", e=1) + send_frame(b"bc", e=1) + send_frame(b"d", e=2))
    queues = state.topics["T"].queues
    assert queues[1].put_bytes + queues[2].put_bytes == state.tail.end_offset
    assert queues[1].put_bytes == 2 * queues[2].put_bytes + 1


@pytest.mark.parametrize("queue_count", [1, 3])
@pytest.mark.parametrize("bytes_max", [1 << 20, 700])
def test_a_pull_gathers_what_lies_together_scattered_and_over_files(
    core: ModuleType, queue_count: int, bytes_max: int
) -> None:
    """Small files: some pulls cross from one to the next; a small limit ends them earlier."""
    state = new_state(core, file_size=2_048)
    state.pull_bytes_max = bytes_max
    for number in range(60):
        read(core, state, send_frame(b"%d" % number, e=number % queue_count))
        publish(state)
    found: list[bytes] = []
    while len(found) < 60 // queue_count:
        result = core.gather(state, state.topics["T"].queues[0], len(found), 7, None)
        assert result.status is PullStatus.FOUND
        assert result.size == sum(map(len, result.parts))
        records = list(scan_records(b"".join(result.parts)))
        assert len(records) == result.message_count == result.next_offset - len(found) <= 7
        found += [record.body for record in records]
    assert found == [b"%d" % number for number in range(0, 60, queue_count)]


@given(st.binary(max_size=5_000))
def test_the_checksum_is_that_of_zlib(data: bytes) -> None:
    assert checksum.crc32(data) == zlib.crc32(data)
    assert checksum.crc32(memoryview(data)) == zlib.crc32(data)


def test_more_is_staged_while_somebody_still_looks_at_what_was_written(core: ModuleType) -> None:
    """The traceback of a refused write holds its bytes: their memory cannot grow meanwhile."""
    state = new_state(core, file_size=1 << 22)
    looks: list[object] = []
    for size in (10, 20_000, 400_000, 800_000):
        read(core, state, send_frame(bytes(size)))
        staged = state.tail.take()
        (record,) = scan_records(staged.data)
        assert record.body == bytes(size)
        looks.append(staged)
