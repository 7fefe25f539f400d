"""The key index: recorded files, look-ups, rolls, writing behind, coming back, growing old.

In: the recorded stores and messages made here, on files in memory. Out: what look-ups give and what
the files hold. Crashes are in `test_index_crash.py`.
"""

import errno
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.core import ROW, rows_of
from orbitmq.core.record_keys import keys_in
from orbitmq.errors import DiskFull, ReadFailed, SyncFailed
from orbitmq.store.index_file import EMPTY, IndexFile
from orbitmq.store.index_shape import ENTRY, HEADER, Header, Shape
from orbitmq.store.key_index import NOTHING, PENDING_BYTES, KeyIndex, KeyQuery, find_waiting
from orbitmq.wire.java import index_hash, string_hash
from orbitmq.wire.properties import encode_properties, parse_properties, split_keys
from orbitmq.world.files import SystemFiles
from tests.store.keyed import (
    EVER,
    FIRST_MS,
    GOLDEN_ENTRIES,
    GOLDEN_SLOTS,
    INDEX,
    Model,
    StillClock,
    feed,
    flush,
    golden_index,
    golden_messages,
    key_index,
    message,
    random_messages,
    steps,
)
from tests.world.memory_files import MemoryFiles


def golden_files(name: str) -> MemoryFiles:
    files = MemoryFiles(INDEX)
    for file_name, data in golden_index(name).items():
        files.put(INDEX / file_name, data)
    return files


def golden_sized(files: MemoryFiles) -> KeyIndex:
    return key_index(files, GOLDEN_SLOTS, GOLDEN_ENTRIES)


def contents(files: MemoryFiles) -> list[bytes]:
    return [data for _, data in sorted(files.contents().items())]


def header_of(files: MemoryFiles, name: str) -> Header:
    return Header(*HEADER.unpack_from(files.contents()[INDEX / name]))


# ---- recorded files ------------------------------------------------------------------------------


def test_every_key_of_the_recorded_store_is_found_newest_first() -> None:
    index = golden_sized(golden_files("store-clean"))
    index.load()
    assert index.bad_files() == []
    model = Model(golden_messages())
    assert len(model.keys) > 2_500
    model.check(index, absent=[("TopicA", "nobody"), ("nowhere", "KEY0")])


def test_the_killed_store_is_completed_by_feeding_its_log_again() -> None:
    index = golden_sized(golden_files("store-crashed"))
    index.load()
    assert index.bad_files() == []
    feed(index, golden_messages())
    Model(golden_messages()).check(index)


def test_the_recorded_messages_give_the_recorded_bytes() -> None:
    recorded = list(golden_index("store-crashed").values())
    end_offset = HEADER.unpack_from(recorded[-1])[3]
    files = MemoryFiles(INDEX)
    index = golden_sized(files)
    for number, entry in enumerate(golden_messages()):
        if entry[1] <= end_offset:
            feed(index, [entry])
        if number % 300 == 0:
            flush(index)
    flush(index)
    assert contents(files) == recorded


def test_the_file_made_after_recovery_has_the_recorded_bytes() -> None:
    # The original filed message 1778011, the last of the file before, once more.
    recorded = list(golden_index("store-clean").values())[-1]
    begin_offset = HEADER.unpack_from(recorded)[2]
    files = MemoryFiles(INDEX)
    index = golden_sized(files)
    feed(index, [entry for entry in golden_messages() if entry[1] >= begin_offset])
    flush(index)
    assert contents(files) == [recorded]


def test_loading_a_recorded_folder_changes_nothing() -> None:
    for name in ("store-clean", "store-crashed"):
        files = golden_files(name)
        golden_sized(files).load()
        assert files.ops == []


@pytest.mark.parametrize("missing", [1, 2])
def test_a_half_filed_last_message_is_completed_without_doubling(missing: int) -> None:
    """Symptom in the original: a message found twice by a key after a kill."""
    recorded = golden_index("store-crashed")
    shape = Shape(GOLDEN_SLOTS, GOLDEN_ENTRIES)
    name, data = list(recorded.items())[-1]
    header = Header(*HEADER.unpack_from(data))
    last = [e for e in golden_messages() if e[1] == header.end_offset]
    assert len(keys_in(last[0][3]).filed) == 3
    # Its last keys are taken out again: the slots name what they named before.
    torn = bytearray(data)
    used_slots = header.used_slots
    for number in range(header.next_number - 1, header.next_number - 1 - missing, -1):
        key_hash, _, _, previous = ENTRY.unpack_from(torn, shape.entry_position(number))
        at = 40 + 4 * (key_hash % GOLDEN_SLOTS)
        torn[at : at + 4] = previous.to_bytes(4, "big")
        used_slots -= not previous
    count = header.next_number - missing
    torn[:40] = HEADER.pack(*header._replace(next_number=count, used_slots=used_slots))
    files = golden_files("store-crashed")
    files.put(INDEX / name, bytes(torn))
    index = golden_sized(files)
    index.load()
    feed(index, [entry for entry in golden_messages() if entry[1] <= header.end_offset])
    flush(index)
    assert files.contents()[INDEX / name] == data


def test_an_entry_that_the_header_does_not_end_with_yet_is_known() -> None:
    """The original counts an entry before it notes its offset and time."""
    messages = [message(0, "a"), message(100, "b"), message(200, "c", store_ms=FIRST_MS + 5_000)]
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, messages)
    flush(index)
    (path,) = files.contents()
    data = files.contents()[path]
    header = Header(*HEADER.unpack_from(data))
    behind = header._replace(end_offset=100, end_ms=FIRST_MS)
    files.put(path, HEADER.pack(*behind) + data[40:])
    again = key_index(files)
    again.load()
    assert again.end_offset == 200
    feed(again, messages)
    flush(again)
    assert files.contents()[path] == data


# ---- entries and chains --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "links", "used"),
    [(10, [0, 0, 2, 0, 1, 5], 3), (13, [0, 1, 2, 0, 3, 5], 2)],
    ids=["every hash its slot", "16 and 29 share a slot"],
)
def test_entries_of_a_slot_are_linked_newest_to_oldest(
    slots: int, links: list[int], used: int
) -> None:
    file = IndexFile(MemoryFiles(), Path("/none"), Shape(slots, 100), EMPTY)
    file.wake()
    rows = [(key_hash, 100 * at, FIRST_MS) for at, key_hash in enumerate((16, 29, 29, 8, 16, 16))]
    assert file.insert(memoryview(b"".join(ROW.pack(*row) for row in rows))) == 6
    part = file.freeze()
    assert part is not None
    assert [entry[3] for entry in ENTRY.iter_unpack(part.entries)] == links
    assert (file.header.used_slots, file.header.next_number) == (used, 7)
    assert [e.log_offset for e in file.chain(16 % slots) if e.key_hash == 16] == [500, 400, 0]


def test_the_unique_id_is_filed_before_the_words_of_keys() -> None:
    properties = encode_properties({"KEYS": "b  a b", "UNIQ_KEY": "u"})
    assert keys_in(properties).filed == ["u", "b", "a", "b"]


def test_ages_are_counted_in_seconds_from_the_first_entry_and_never_below_zero() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files)
    for at, past_ms in enumerate((0, 1_999, -5_000, 2**44)):
        feed(index, [message(at, "k", store_ms=FIRST_MS + past_ms)])
    flush(index)
    (data,) = contents(files)
    start = Shape(20, 30).entry_position(1)
    ages = [entry[2] for entry in ENTRY.iter_unpack(data[start : start + 4 * ENTRY.size])]
    assert ages == [0, 1, 0, 2**31 - 1]


_BYTES = st.lists(
    st.sampled_from([b"UNIQ_KEY", b"KEYS", b"\x01", b"\x02", b" ", b"x", b"\xff", b"KEY", b"a b"]),
    max_size=14,
).map(b"".join)


@settings(deadline=None)
@given(_BYTES)
@example(b"X\x01UNIQ_KEY\x01v")
@example(b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b")
@example(b"UNIQ_KEY\x01\x02KEYS\x01k")
def test_searching_properties_finds_the_keys_that_parsing_finds(properties: bytes) -> None:
    parsed = parse_properties(properties)
    unique = [parsed["UNIQ_KEY"]] if "UNIQ_KEY" in parsed else []
    assert keys_in(properties).filed == unique + split_keys(parsed.get("KEYS", ""))


_UNIQ = st.text(st.sampled_from("0123456789ABCDEF"), min_size=32, max_size=32)


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=9), _UNIQ | st.text(min_size=1, max_size=40))))
@example([("T", "\x00" * 31 + "é")])
def test_hashes_are_those_of_topic_and_key(named: list[tuple[str, str]]) -> None:
    for topic, key in named:
        raw = b"UNIQ_KEY\x01" + key.encode() + b"\x02WAIT\x01true"
        expected = [(index_hash(f"{topic}#{one}"), 7, FIRST_MS) for one in keys_in(raw).filed]
        assert list(ROW.iter_unpack(rows_of(topic, 7, FIRST_MS, raw)[0])) == expected


def test_a_hash_that_has_no_absolute_value_is_filed_under_zero() -> None:
    key = "000000000000000000000000016I:LBM"
    assert string_hash(f"T#{key}") == -(2**31)
    for raw in (b"UNIQ_KEY\x01" + key.encode(), b"UNIQ_KEY\x01" + key.encode() + b"\x02"):
        assert rows_of("T", 1, 2, raw) == (ROW.pack(0, 1, 2), 0)


def test_a_key_is_found_while_it_waits_and_when_it_is_filed() -> None:
    index = key_index(MemoryFiles(INDEX))
    feed(index, [message(7, "k k"), message(9, "k", topic="U")])
    assert find_waiting(index.waiting(), KeyQuery("T", "k", *EVER, 9)) == [7]
    index.drain()
    assert index.waiting() == b""
    assert index.lookup(KeyQuery("T", "k", *EVER, 12)) == [7]


# ---- look-ups ------------------------------------------------------------------------------------


def test_a_look_up_gives_the_newest_up_to_its_limit() -> None:
    index = key_index(MemoryFiles(INDEX), entries=10)
    for at in range(25):
        feed(index, [message(100 * at, "k")])
    index.drain()
    assert index.lookup(KeyQuery("T", "k", *EVER, 12)) == [100 * at for at in range(24, 12, -1)]


def test_a_message_with_one_key_twice_is_found_once() -> None:
    index = key_index(MemoryFiles(INDEX))
    feed(index, [message(5, "k k")])
    index.drain()
    assert index.lookup(KeyQuery("T", "k", *EVER, 10)) == [5]


def test_a_look_up_keeps_to_its_time_range_within_a_second() -> None:
    index = key_index(MemoryFiles(INDEX), entries=7)
    times = [FIRST_MS + 700 * at for at in range(40)]
    feed(index, [message(at, "k", store_ms=time_ms) for at, time_ms in enumerate(times)])
    index.drain()
    for begin_ms, end_ms in ((times[3], times[30]), (times[20], times[20]), (0, times[2])):
        found = index.lookup(KeyQuery("T", "k", begin_ms, end_ms, 100))
        exact = [at for at, time_ms in enumerate(times) if begin_ms <= time_ms <= end_ms]
        assert set(exact) <= set(found)
        assert all(begin_ms - 1_000 < times[at] < end_ms + 1_000 for at in found)


def test_a_look_up_does_not_touch_files_outside_its_time_range() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files, entries=4)
    times = [FIRST_MS + 10_000 * at for at in range(12)]
    feed(index, [message(at, "k", store_ms=time_ms) for at, time_ms in enumerate(times)])
    flush(index)
    oldest = min(files.contents())
    files.fail("read", lambda op: op.path == oldest, times=None)
    assert index.lookup(KeyQuery("T", "k", times[3], times[-1], 99)) == list(range(11, 2, -1))
    assert index.lookup(KeyQuery("T", "k", *EVER, 9)) == list(range(11, 2, -1)), "enough without it"
    with pytest.raises(ReadFailed):
        index.lookup(KeyQuery("T", "k", *EVER, 99))


def test_messages_are_found_at_every_step_of_a_job() -> None:
    chance = Random(7)
    files = MemoryFiles(INDEX)
    index, model = key_index(files), Model()
    messages = random_messages(chance, 300)
    while messages:
        new, messages = messages[:20], messages[20:]
        feed(index, new)
        model.add(new)
        job = index.freeze()
        assert job is not None
        for _ in steps(job):
            new, messages = messages[:3], messages[3:]
            feed(index, new)
            model.add(new)
            model.check(index)
        index.finish(job)
        model.check(index)


def test_a_thread_may_look_up_while_the_loop_adds_and_writes(tmp_path: Path) -> None:
    index = KeyIndex(SystemFiles(), tmp_path, StillClock(), slot_count=50, entry_count=500)
    done: list[int] = []
    wrong: list[object] = []
    is_over = False

    def look() -> None:
        rounds = 0
        while not is_over or rounds < 100:
            rounds += 1
            known = len(done)
            found = index.lookup(KeyQuery("T", "k", *EVER, 1_000_000))
            if found != sorted(found, reverse=True) or not set(done[:known]) <= set(found):
                wrong.append((known, found))

    thread = Thread(target=look)
    thread.start()
    try:
        for at in range(3_000):
            feed(index, [message(at, "k" if at % 3 else f"k{at}")])
            index.drain()
            if at % 3:
                done.append(at)
            if at % 97 == 0:
                flush(index)
    finally:
        is_over = True
        thread.join()
    index.close()
    assert wrong == []


# ---- rolls and writing behind --------------------------------------------------------------------


def test_a_full_file_is_followed_by_one_with_a_later_name() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files, entries=4)
    feed(index, [message(at, "k", store_ms=FIRST_MS + at) for at in range(7)])
    flush(index)
    first, second, third = (f"{FIRST_MS + more:017d}" for more in range(3))
    assert header_of(files, first) == Header(FIRST_MS, FIRST_MS + 2, 0, 2, 1, 4)
    assert header_of(files, second) == Header(FIRST_MS + 3, FIRST_MS + 5, 3, 5, 1, 4)
    assert header_of(files, third) == Header(FIRST_MS + 6, FIRST_MS + 6, 6, 6, 1, 2)


def test_the_first_entry_after_a_pause_has_age_zero() -> None:
    index = key_index(MemoryFiles(INDEX), entries=2)
    feed(index, [message(0, "k"), message(1, "k", store_ms=FIRST_MS + 3_600_000)])
    index.drain()
    assert index.lookup(KeyQuery("T", "k", FIRST_MS + 3_600_000, FIRST_MS + 3_600_000, 9)) == [1]


def test_memory_is_let_go_when_a_job_is_finished() -> None:
    index = key_index(MemoryFiles(INDEX))
    feed(index, [message(at, "k") for at in range(100)])
    index.drain()
    assert index.unwritten_size == 100 * ENTRY.size
    flush(index)
    assert index.unwritten_size == 0
    assert index.freeze() is None
    assert [file._slots is None for file in index._index_files] == [True, True, True, False]


def test_added_messages_are_filed_before_they_become_too_many() -> None:
    index = key_index(MemoryFiles(INDEX), entries=10_000)
    for at in range(PENDING_BYTES // ROW.size * 2 + 1):
        feed(index, [message(at, "k")])
        assert len(index._pending) < PENDING_BYTES
    assert index.lookup(KeyQuery("T", "k", *EVER, 1_000_000))[-1] == 0


def test_a_job_that_was_refused_is_written_with_the_next() -> None:
    chance = Random(3)
    files = MemoryFiles(INDEX)
    index, model = key_index(files), Model()
    messages = random_messages(chance, 60)
    for at in range(0, 60, 10):
        feed(index, messages[at : at + 10])
        model.add(messages[at : at + 10])
        job = index.freeze()
        assert job is not None
        files.fail("write", 1 + at // 10, errno.ENOSPC)
        with pytest.raises(DiskFull):
            list(steps(job))
        files.heal()
        model.check(index)
    flush(index)
    fresh = MemoryFiles(INDEX)
    straight = key_index(fresh)
    feed(straight, messages)
    flush(straight)
    assert contents(files) == contents(fresh)


def test_a_failed_sync_is_told() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, [message(1, "k")])
    job = index.freeze()
    assert job is not None
    job.write_entries()
    files.fail("sync")
    with pytest.raises(SyncFailed):
        job.sync()


def test_a_file_is_complete_before_the_next_which_begins_with_the_end_of_the_one_before() -> None:
    """Symptom: after a kill the original indexed the log again into a file without a header."""
    files = MemoryFiles(INDEX)
    index = key_index(files, entries=4)
    feed(index, [message(offset, "k", store_ms=FIRST_MS + offset) for offset in range(1, 6)])
    job = index.freeze()
    assert job is not None
    first, second = job.by_file()
    list(steps(first))
    (name,) = files.names(INDEX)
    complete = Header(FIRST_MS + 1, FIRST_MS + 3, 1, 3, 1, 4)
    assert header_of(files, name) == complete
    second.write_entries()
    before, last = files.names(INDEX)
    assert header_of(files, before) == complete
    assert header_of(files, last) == Header(FIRST_MS + 3, FIRST_MS + 3, 3, 3, 0, 1)
    list(steps(second))
    index.finish(job)
    assert header_of(files, last) == Header(FIRST_MS + 4, FIRST_MS + 5, 4, 5, 1, 3)


def test_slots_are_written_after_the_entries_are_synced_and_only_their_pages() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files, slots=5_000, entries=100)
    feed(index, [message(1, "k")])
    flush(index)
    files.forget_ops()
    feed(index, [message(2, "k")])
    flush(index)
    kinds = [(op.kind, op.position, len(op.data)) for op in files.ops]
    entry_at = Shape(5_000, 100).entry_position(2)
    page = (index_hash("T#k") % 5_000 + 10) // 1024
    start, end = max(40, 4096 * page), min(4096 * (page + 1), 40 + 4 * 5_000)
    assert kinds == [
        ("write", entry_at, ENTRY.size),
        ("sync", 0, 0),
        ("write", start, end - start),
        ("write", 0, 40),
        ("sync", 0, 0),
    ]


def test_an_index_that_is_off_takes_nothing_and_keeps_what_it_has() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, [message(1, "k")])
    flush(index)
    off = key_index(files, is_on=False)
    off.restore(index.state())
    feed(off, [message(2, "k")])
    assert off.freeze() is None
    assert off.lookup(KeyQuery("T", "k", *EVER, 9)) == [1]
    assert off.state() == index.state()


# ---- coming back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_an_index_set_back_to_a_mark_and_fed_again_is_the_same(seed: int) -> None:
    chance = Random(seed)
    files = MemoryFiles(INDEX)
    index = key_index(files, chance.choice((1, 7, 2_000)), chance.choice((5, 30, 400)))
    messages = random_messages(chance, 120)
    marks = [(0, index.state())]
    at = 0
    while at < len(messages):
        if chance.random() < 0.2:
            at, mark = chance.choice(marks)
            index.restore(mark)
            assert index.bad_files() == []
            marks = [known for known in marks if known[0] <= at]
            Model(messages[:at]).check(index)
        more = chance.randrange(1, 15)
        feed(index, messages[max(0, at - chance.randrange(3)) : at + more])
        at = min(at + more, len(messages))
        if chance.random() < 0.5:
            flush(index)
            marks.append((at, index.state()))
    Model(messages).check(index)


def test_a_slot_from_the_future_is_turned_back_on_the_disk_before_anything_new() -> None:
    """Symptom: after a power cut a key led into the chain of another one."""
    files = MemoryFiles(INDEX)
    index = key_index(files, slots=2_000, entries=100)
    feed(index, [message(at, f"k{at % 4}") for at in range(8)])
    flush(index)
    mark, before = index.state(), contents(files)
    feed(index, [message(at, f"k{at % 4}") for at in range(8, 20)])
    flush(index)
    again = key_index(files, slots=2_000, entries=100)
    again.restore(mark)
    start = Shape(2_000, 100).entry_position(9)
    assert contents(files)[0][:start] == before[0][:start]
    feed(again, [message(at, f"other{at}") for at in range(8, 20)])
    Model(message(at, f"k{at % 4}") for at in range(8)).check(again)


def test_feeding_the_log_from_its_start_adds_only_what_is_new() -> None:
    messages = random_messages(Random(1), 50)
    files = MemoryFiles(INDEX)
    index = key_index(files, entries=1_000)
    feed(index, messages[:30])
    flush(index)
    again = key_index(files, entries=1_000)
    again.restore(index.state())
    feed(again, messages)
    feed(index, messages[30:])
    assert again.state() == index.state()


@pytest.mark.parametrize("shape", [(20, 30), (2_000, 400)])
def test_an_index_that_knows_of_lost_records_is_cut_to_the_log(shape: tuple[int, int]) -> None:
    messages = random_messages(Random(11), 40)
    for at in range(0, 41, 3):
        files, fresh = MemoryFiles(INDEX), MemoryFiles(INDEX)
        index, straight = key_index(files, *shape), key_index(fresh, *shape)
        feed(index, messages)
        flush(index)
        again = key_index(files, *shape)
        again.load()
        again.cut(messages[at][1] if at < 40 else messages[-1][1] + 1)
        assert again.bad_files() == []
        feed(straight, messages[:at])
        flush(straight)
        assert again.state()[1:4] == straight.state()[1:4]
        others = random_messages(Random(12), 20, messages[at][1] if at < 40 else 100_000)
        feed(again, others)
        Model([*messages[:at], *others]).check(again)


def test_clearing_removes_every_file() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, [message(at, "k") for at in range(100)])
    flush(index)
    index.clear()
    assert files.contents() == {}
    assert (index.state(), index.end_offset) == (NOTHING, -1)


def damage(files: MemoryFiles, which: int, position: int, data: bytes) -> Path:
    path = sorted(files.contents())[which]
    old = files.contents()[path]
    files.put(path, old[:position] + data + old[position + len(data) :])
    return path


SHAPE = Shape(20, 30)
DAMAGES = {
    "counts": (36, (31).to_bytes(4, "big"), "impossible counts"),
    "slots": (32, (-1).to_bytes(4, "big", signed=True), "impossible counts"),
    "first entry": (SHAPE.entry_position(1), bytes(20), "its first entry is not"),
    "last entry": (SHAPE.entry_position(29), bytes(20), "its last entry is not"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_does_not_agree_with_its_header_is_named(name: str) -> None:
    position, data, reason = DAMAGES[name]
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, [message(1 + at, "k") for at in range(70)])
    flush(index)
    path = damage(files, 1, position, data)
    for take in (KeyIndex.load, lambda one: one.restore(index.state())):
        again = key_index(files)
        take(again)
        ((bad_path, bad_reason),) = again.bad_files()
        assert bad_path == path
        assert reason in bad_reason


def test_files_of_another_size_or_name_are_named_and_not_touched() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, [message(at, "k") for at in range(10)])
    flush(index)
    files.put(INDEX / "notes.txt", b"x")
    files.put(INDEX / "20200101000000000", bytes(77))
    again = key_index(files)
    again.load()
    names = {path.name: reason for path, reason in again.bad_files()}
    assert set(names) == {"notes.txt", "20200101000000000"}
    assert "77 bytes" in names["20200101000000000"]
    assert again.lookup(KeyQuery("T", "k", *EVER, 99)) == list(range(9, -1, -1))


def test_a_mark_whose_file_is_gone_or_short_of_it_is_not_believed() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, [message(at, "k") for at in range(10)])
    flush(index)
    state = index.state()
    for false in (state._replace(index_name="2" * 17), state._replace(index_end_offset=4)):
        again = key_index(files)
        again.restore(false)
        assert len(again.bad_files()) == 1


def test_a_slot_that_leads_nowhere_makes_the_file_unusable() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, [message(at, "k") for at in range(3)])
    flush(index)
    damage(files, 0, 40, (25).to_bytes(4, "big"))
    again = key_index(files)
    again.restore(index.state())
    assert "names an entry behind the last" in again.bad_files()[0].reason


def test_a_file_that_cannot_be_read_is_named() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files)
    feed(index, [message(at, "k") for at in range(3)])
    flush(index)
    files.fail("read", times=None)
    index.load()
    assert len(index.bad_files()) == 1


# ---- growing old ---------------------------------------------------------------------------------


def test_files_whose_records_are_gone_are_expired_but_never_the_last() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files, entries=11)
    feed(index, [message(at, "k") for at in range(35)])
    assert index.expired(1_000) == []
    flush(index)
    paths = sorted(files.contents())
    assert index.expired(0) == []
    assert index.expired(10) == paths[:1]
    assert index.expired(1_000) == paths[:3]
    index.forget(paths[:2])
    for path in paths[:2]:
        files.remove(path)
    assert index.lookup(KeyQuery("T", "k", *EVER, 99)) == list(range(34, 19, -1))


def test_a_look_up_passes_over_a_file_that_was_just_removed() -> None:
    files = MemoryFiles(INDEX)
    index = key_index(files, entries=11)
    feed(index, [message(at, "k") for at in range(25)])
    flush(index)
    files.remove(min(files.contents()))
    assert index.lookup(KeyQuery("T", "k", *EVER, 99)) == list(range(24, 9, -1))
