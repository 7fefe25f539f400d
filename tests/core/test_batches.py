"""A batch is staged as its messages would be one by one; what the key index gets means the same."""

from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.core import BatchColumns, BatchStamp, LogTail, Origin, Queue, append, append_batch
from orbitmq.wire.host import Host, pack_host
from tests.core.hot import BORN, NOW_MS, ORIGIN

ID = b"UNIQ_KEY\x01" + b"0aB9" * 8
PIECES = st.sampled_from(
    [
        ID,
        ID[:-1],
        b"UNIQ_KEY\x01",
        b"KEYS\x01a b",
        b"\x02",
        b"TAGS\x01t",
        b"A\x01b",
        b"KEY",
        b"\xc3",
    ]
)
PROPERTIES = st.lists(PIECES, max_size=5).map(b"".join)
MESSAGES = st.lists(
    st.tuples(
        st.binary(max_size=20),
        PROPERTIES,
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
    ),
    min_size=1,
    max_size=5,
)
WIDE = Origin(pack_host(Host("2001:db8::1", 1)), pack_host(BORN))
CLOSED = b"\x02CLUSTER\x01c"


@given(MESSAGES, st.sampled_from([ORIGIN, WIDE]), st.sampled_from(["T", "t" * 200]))
@example([(b"a", ID + CLOSED, 0, 1), (b"", ID + b"\x02KEYS\x01a" + CLOSED, 1, 2)], ORIGIN, "T")
@example([(b"a", ID + CLOSED, 0, 1), (b"b", ID + CLOSED, -1, -5)], WIDE, "T")
@example([(b"a", ID + b"X" + CLOSED, 0, 1)], ORIGIN, "T")
def test_a_batch_is_staged_as_its_messages_would_be_one_by_one(
    messages: list[tuple[bytes, bytes, int, int]], origin: Origin, topic: str
) -> None:
    one, many = LogTail(4_096, 100), LogTail(4_096, 100)
    one.store_ms = many.store_ms = NOW_MS
    queue, twin = Queue(topic, 3, 7), Queue(topic, 3, 7)
    offsets = [
        append(one, queue, origin, (flag, 1, 5, 2, 0, code), body, properties)
        for body, properties, flag, code in messages
    ]
    bodies, texts, flags, codes = map(list, zip(*messages, strict=True))
    columns = BatchColumns(bodies, texts, flags, codes)
    assert append_batch(many, twin, origin, BatchStamp(1, 5, 2), columns) == offsets
    assert many.staged == one.staged
    assert (many.end_offset, many.staged_count) == (one.end_offset, one.staged_count)
    assert many.grown == {twin}
    assert twin.entries == queue.entries
    assert (twin.next_offset, twin.put_bytes) == (queue.next_offset, queue.put_bytes)
    assert many.rows == one.rows


@given(MESSAGES, st.sampled_from([CLOSED, b"\x02KEYS\x01b" + CLOSED, b"S\x01x", b""]))
@example([(b"a", ID, 0, 1), (b"b", ID + b"\x02KEYS\x01a", 1, 2)], CLOSED)
@example([(b"a", ID + b"\x02KEY", 0, 1)], b"S\x01x")
def test_an_ending_that_all_properties_share_is_stored_as_if_each_had_it(
    messages: list[tuple[bytes, bytes, int, int]], ending: bytes
) -> None:
    bodies, properties, flags, codes = map(list, zip(*messages, strict=True))
    whole, parted = LogTail(4_096, 100), LogTail(4_096, 100)
    queue, twin = Queue("T", 3, 7), Queue("T", 3, 7)
    each = BatchColumns(bodies, [text + ending for text in properties], flags, codes)
    shared = BatchColumns(bodies, properties, flags, codes, ending)
    stamp = BatchStamp(1, 5, 2)
    assert append_batch(whole, queue, ORIGIN, stamp, each) == append_batch(
        parted, twin, ORIGIN, stamp, shared
    )
    assert parted.staged == whole.staged
    assert twin.entries == queue.entries
    assert (twin.next_offset, twin.put_bytes) == (queue.next_offset, queue.put_bytes)
    assert parted.rows == whole.rows
