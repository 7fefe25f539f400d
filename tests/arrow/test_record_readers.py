"""The two readers of single records agree: what is whole to one is whole to the other, alike."""

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.core import record_at
from orbitmq.errors import CorruptRecord
from orbitmq.wire.record import Record, body_place, decode_record, encode_record, properties_of
from tests.arrow.made import RECORDS

CHANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)


def decoded(data: bytes) -> tuple[Record, int] | None:
    try:
        return decode_record(data)
    except CorruptRecord:
        return None


@given(RECORDS, CHANGES, st.binary(max_size=20))
def test_core_and_codec_find_the_same_in_any_bytes(
    record: Record, changes: list[tuple[int, int]], more: bytes
) -> None:
    data = bytearray(encode_record(record) + more)
    for position, value in changes:
        data[position % len(data)] = value
    view = memoryview(bytes(data))
    exact = decoded(bytes(data))
    base = exact[0].log_offset if exact is not None else record.log_offset
    walked = record_at(view, 0, base)
    if exact is None:
        assert walked is None
        return
    whole, size = exact
    assert walked is not None
    assert walked == (
        *(whole.log_offset, size, whole.topic, whole.queue_id, whole.queue_offset),
        *(whole.sys_flag, whole.store_ms, whole.properties),
    )
    assert properties_of(view[:size]) == whole.properties
    begin, end = body_place(view.tobytes().ljust(200, b"\0"))
    assert view[begin:end] == whole.body
    assert record_at(view, 0, base + 1) is None, "it says that it lies elsewhere"
