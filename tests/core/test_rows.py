"""Rows of the key index: both cores make those of `record_keys`, and file them alike."""

from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.core import INDEX_ENTRY, ROW, Filing
from orbitmq.core.record_keys import WORDS_MAX, keys_in
from orbitmq.wire.java import index_hash
from tests.core.hot import IMPLEMENTATIONS, NOW_MS, new_state, origin

PIECES = st.sampled_from(
    [
        *(b"TAGS\x01a\x02", b"KEYS\x01order-1 order-2\x02", b"KEYS\x01 x  y \x02", b"KEYS\x01\x02"),
        *(
            "KEYS\x01w\u00f6rter\x02".encode(),
            b"MYKEYS\x01z\x02",
            b"UNIQ_KEY\x01short\x02",
            b"\xff",
        ),
        *(
            b"UNIQ_KEY\x01" + "\u00e9".encode() * 16 + b"\x02",
            b"UNIQ_KEY\x01",
            b"\x02",
            b"x",
            b"\x01",
        ),
        *(b"UNIQ_KEY\x017F00000100002A139A550001E240ABCD\x02", b"X\x01KEYS\x01k\x02", b"KEYS\x01"),
    ]
)
MANY_WORDS = b"KEYS\x01" + b" ".join(b"%04x" % number for number in range(WORDS_MAX + 9))


@pytest.fixture(params=IMPLEMENTATIONS)
def core(request: pytest.FixtureRequest) -> ModuleType:
    return IMPLEMENTATIONS[request.param]


@given(st.lists(PIECES, max_size=5).map(b"".join), st.sampled_from([0, 12]))
@example(b"UNIQ_KEY\x01u\x02" + MANY_WORDS, 0)
@example("UNIQ_KEY\x01\u00e9\x02".encode() + MANY_WORDS, 0)
@example(b"KEYS\x01000000000000000000000000016I:LBM", 0)
def test_the_rows_of_a_record_are_those_of_its_keys(properties: bytes, sys_flag: int) -> None:
    keys = keys_in(properties) if not sys_flag else ([], [])
    expected = [(index_hash(f"T#{key}"), 0, NOW_MS) for key in keys[0]]
    for core in IMPLEMENTATIONS.values():
        state = new_state(core)
        state.tail.advance_clock(NOW_MS)
        queue = state.topics["T"].queues[0]
        core.append(state.tail, queue, origin(core), (0, sys_flag, 1, 0, 0, 0), b"", properties)
        assert list(ROW.iter_unpack(state.tail.rows)) == expected
        staged = state.tail.take()
        assert (list(ROW.iter_unpack(staged.rows)), staged.left_out) == (expected, len(keys[1]))
        assert (bytes(state.tail.rows), state.tail.left_out) == (b"", 0)


ROWS = st.lists(
    st.tuples(st.integers(0, 2**31 - 1) | st.integers(0, 9), st.integers(0, 2**62)), max_size=30
)


@given(ROWS, st.integers(1, 40), st.integers(-(2**40), 2**42))
def test_rows_are_filed_as_a_dictionary_has_them(
    rows: list[tuple[int, int]], slot_count: int, age_ms: int
) -> None:
    data = b"".join(ROW.pack(key_hash, offset, NOW_MS + age_ms) for key_hash, offset in rows)
    newest: dict[int, int] = {}
    expected = bytearray(b"old")
    for number, (key_hash, offset) in enumerate(rows, 7):
        previous = newest.get(key_hash % slot_count, 0)
        age_s = min(max(0, age_ms) // 1000, 2**31 - 1)
        expected += INDEX_ENTRY.pack(key_hash, offset, age_s, previous)
        newest[key_hash % slot_count] = number
    for core in IMPLEMENTATIONS.values():
        slots, dirty, entries = bytearray(400), bytearray(13), bytearray(b"old")
        numbers = memoryview(slots).cast("I")
        filing = Filing(numbers, dirty, entries, slot_count, 10, 8)
        assert core.file_rows(filing, memoryview(data), 7, NOW_MS) == len(newest)
        assert entries == expected
        assert {at: number for at, number in enumerate(numbers[10:]) if number} == newest
        pages = {(10 + slot) // 8 for slot in newest}
        assert {page for page, mark in enumerate(dirty) if mark} == pages


@pytest.mark.skipif("compiled" not in IMPLEMENTATIONS, reason="it is not built")
def test_slots_without_memory_are_refused() -> None:
    core = IMPLEMENTATIONS["compiled"]
    numbers = memoryview(bytearray(400)).cast("I")
    for filing in (
        Filing(numbers, bytearray(13), bytearray(), 91, 10, 8),
        Filing(numbers, bytearray(2), bytearray(), 20, 10, 8),
        Filing(numbers, bytearray(13), bytearray(), 0, 10, 8),
    ):
        with pytest.raises(AssertionError):
            core.file_rows(filing, ROW.pack(1, 2, 3), 1, 0)
