"""Damage at rest (T5): whatever is done to a healthy folder, `check` names it.

Method: a small folder is made by `slow_store`; one bit, sector or file of it is changed, and the
verdict must be unhealthy. The fields in which a flip can go unseen, because the format keeps no
second copy of them, are listed here by name, and the test proves the list to be exact.
Short form: every bit of a folder of four records. `make nightly-torture`: of one with ten.
"""

import os
import struct
from collections.abc import Iterator

import pytest

from orbitmq.store.check import check
from orbitmq.store.verdict import Level, Verdict
from orbitmq.wire.record import FIELDS
from tests.store.made_folder import (
    BOOT_ID,
    ENTRY_COUNT,
    MESSAGES,
    OPTIONS,
    QUEUE_FILE_SIZE,
    ROOT,
    SLOT_COUNT,
    Sent,
    made_folder,
    put_folder,
    with_flip,
)
from tests.store.slow_store import Stored, read_log

FEW = (MESSAGES[0], MESSAGES[1], MESSAGES[4], MESSAGES[5])
IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
MEASURED = MESSAGES if IS_LONG else FEW

UNPROTECTED = {
    "flag",
    "born_ms",
    "born_ip",
    "born_port",
    "store_ip",
    "store_port",
    "reconsume_times",
    "prepared_offset",
}
"""No flip in these is seen: nothing else holds them, and no checksum covers them."""

PARTLY = {"sys_flag", "store_ms", "properties"}
"""Seen where queue or index hold a part of them: whether the record has an entry, the second of its
store time, its tag and its keys."""

WHERE = {"queue_id", "topic"}
"""Of a record that is in no queue (prepared, rolled back) only its keys are known elsewhere."""

HOST_BITS, OUTSIDE_QUEUE, COMMITTED = 0x30, 0x4, 0x8


def verdict_of(blobs: dict[str, bytes]) -> Verdict:
    return check(put_folder(blobs), ROOT, OPTIONS, BOOT_ID)


def is_seen(blobs: dict[str, bytes], path: str, position: int, bit: int) -> bool:
    """Whether a flip is named as damage."""
    verdict = verdict_of(with_flip(blobs, path, position, bit))
    return any(fault.level is Level.DAMAGE for fault in verdict.faults)


def bits(path: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    for position in range(start, end):
        for bit in range(8) if IS_LONG else sorted({position % 8, position * 3 % 8}):
            yield path, position, bit


def field_at(stored: Stored, place: int) -> str:
    """The name of the field that holds the byte at `place` of a record."""
    for field in FIELDS:
        if field.position <= place < field.position + field.size:
            return field.name
    rest = place - 88 - len(stored.record.body)
    topic_end = 1 + len(stored.record.topic.encode())
    if rest < 0:
        return "body"
    return (
        "topic" if rest < topic_end else "properties_size" if rest < topic_end + 2 else "properties"
    )


def log_bits(blobs: dict[str, bytes]) -> Iterator[tuple[str, int, int, Stored, int]]:
    """Every bit of every record: file, position, bit, the record, the byte's place in it."""
    for stored in read_log(blobs).records:
        start = stored.record.log_offset - stored.record.log_offset % OPTIONS.log_file_size
        first = stored.record.log_offset - start
        for path, position, bit in bits(f"commitlog/{start:020d}", first, first + stored.size):
            yield path, position, bit, stored, position - first


def test_the_folder_is_healthy_before_it_is_damaged() -> None:
    for messages in (FEW, MESSAGES):
        verdict = verdict_of(made_folder(messages))
        assert verdict.is_healthy
        assert verdict.faults == []


@pytest.mark.slow
@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(0 if IS_LONG else 600)
def test_every_bit_of_the_log_that_something_else_knows_is_seen() -> None:
    blobs = made_folder(MEASURED)
    seen: dict[str, set[bool]] = {}
    for path, position, bit, stored, place in log_bits(blobs):
        name = field_at(stored, place)
        if stored.record.sys_flag & OUTSIDE_QUEUE and name in WHERE:
            continue
        is_named = is_seen(blobs, path, position, bit)
        seen.setdefault(name, set()).add(is_named)
        if name == "sys_flag" and not is_named:
            assert not is_known_bit(stored, 1 << (8 * (39 - place) + bit))
        if name == "properties" and not is_named:
            assert not is_looked_up(stored, place)
    assert {name for name, answers in seen.items() if answers == {False}} == UNPROTECTED
    assert {name for name, answers in seen.items() if len(answers) == 2} == PARTLY


def is_known_bit(stored: Stored, bit: int) -> bool:
    """Whether a bit of the sysFlag decides on layout, queue entry or index entries."""
    record = stored.record
    if bit == COMMITTED:  # with the other bit it means rolled back: not indexed
        return bool(record.sys_flag & OUTSIDE_QUEUE) and b"KEY" in record.properties
    return bool(bit & (HOST_BITS | OUTSIDE_QUEUE))


def is_looked_up(stored: Stored, place: int) -> bool:
    """Whether a byte of the properties belongs to what queue or index know: tag or keys."""
    properties = stored.record.properties
    at = place - (stored.size - len(properties))
    start = properties.rfind(b"\x02", 0, at) + 1
    is_queued = not stored.record.sys_flag & OUTSIDE_QUEUE
    is_indexed = is_queued or not stored.record.sys_flag & COMMITTED
    names = ((b"TAGS",) if is_queued else ()) + ((b"KEYS", b"UNIQ_KEY") if is_indexed else ())
    return properties.startswith(names, start) and properties[at] != 2


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(0 if IS_LONG else 600)
def test_every_bit_between_and_behind_records_is_seen() -> None:
    blobs = made_folder(MESSAGES)
    first = [stored for stored in read_log(blobs).records if stored.record.log_offset < 1_024]
    end = read_log(blobs).end_offset - 1_024
    blank = first[-1].record.log_offset + first[-1].size
    files = [f"commitlog/{start:020d}" for start in (0, 1_024, 2_048)]
    ranges = [(files[0], blank, blank + 24), (files[0], 1_000, 1_024), (files[1], end, end + 24)]
    ranges += [(files[1], 1_000, 1_024), (files[2], 0, 24), (files[2], 1_000, 1_024)]
    unseen = [flip for where in ranges for flip in bits(*where) if not is_seen(blobs, *flip)]
    assert unseen == []


@pytest.mark.slow
@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(0 if IS_LONG else 600)
def test_every_bit_of_every_queue_file_is_seen() -> None:
    blobs = made_folder(MESSAGES)
    paths = [path for path in blobs if path.startswith("consumequeue/")]
    flips = [flip for path in paths for flip in bits(path, 0, QUEUE_FILE_SIZE)]
    assert [flip for flip in flips if not is_seen(blobs, *flip)] == []


@pytest.mark.slow
@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(0 if IS_LONG else 600)
def test_every_bit_of_every_index_file_is_seen() -> None:
    blobs = made_folder(MEASURED)
    size = 40 + 4 * SLOT_COUNT + 20 * ENTRY_COUNT
    paths = [path for path in blobs if path.startswith("index/")]
    flips = [flip for path in paths for flip in bits(path, 0, size)]
    assert [flip for flip in flips if not is_seen(blobs, *flip)] == []


def test_every_bit_of_our_block_in_the_checkpoint_is_seen() -> None:
    blobs = made_folder(FEW)
    flips = list(bits("checkpoint", 72, 64 + 204))
    assert [flip for flip in flips if not is_seen(blobs, *flip)] == []


# --- bigger damage ---

LOG, QUEUE, INDEX = (
    f"commitlog/{0:020d}",
    f"consumequeue/TopicA/0/{0:020d}",
    "index/20261115182457407",
)


def damaged_paths(blobs: dict[str, bytes]) -> set[str]:
    """What the verdict calls damaged."""
    verdict = verdict_of(blobs)
    return {fault.path for fault in verdict.faults if fault.level is Level.DAMAGE}


@pytest.mark.parametrize("sector", [0, 512])
def test_a_zeroed_sector_of_the_log_is_named(sector: int) -> None:
    blobs = made_folder()
    data = blobs[LOG]
    blobs[LOG] = data[:sector] + bytes(512) + data[sector + 512 :]
    assert LOG in damaged_paths(blobs)


def test_two_swapped_sectors_of_the_log_are_named() -> None:
    blobs = made_folder()
    data = blobs[LOG]
    blobs[LOG] = data[512:1_024] + data[:512]
    assert LOG in damaged_paths(blobs)


def test_an_old_sector_of_a_queue_file_is_named() -> None:
    blobs = made_folder()
    blobs[QUEUE] = blobs[QUEUE][:40] + bytes(20)
    assert damaged_paths(blobs) == {QUEUE}


@pytest.mark.parametrize("path", [LOG, QUEUE, INDEX, "checkpoint"])
@pytest.mark.parametrize("change", [-20, 20])
def test_a_file_of_another_length_is_named(path: str, change: int) -> None:
    blobs = made_folder()
    blobs[path] = blobs[path][:change] if change < 0 else blobs[path] + bytes(change)
    assert path in damaged_paths(blobs)


def test_a_missing_log_file_in_the_middle_is_named() -> None:
    blobs = made_folder((*MESSAGES, *MESSAGES))
    gone = f"commitlog/{1_024:020d}"
    del blobs[gone]
    assert gone in damaged_paths(blobs)


def test_a_missing_last_log_file_is_named() -> None:
    blobs = made_folder()
    for start in (1_024, 2_048):
        del blobs[f"commitlog/{start:020d}"]
    assert "commitlog" in damaged_paths(blobs)


@pytest.mark.parametrize("path", [QUEUE, "checkpoint", f"consumequeue/TopicA/1/{0:020d}"])
def test_a_missing_file_is_named(path: str) -> None:
    blobs = made_folder()
    del blobs[path]
    assert any(name.startswith(path) for name in damaged_paths(blobs))


@pytest.mark.parametrize("count", [1, 2])
def test_missing_index_files_are_named(count: int) -> None:
    blobs = made_folder()
    for path in [path for path in blobs if path.startswith("index/")][:count]:
        del blobs[path]
    assert "index" in damaged_paths(blobs)


def test_a_missing_mark_of_an_unclean_stop_makes_missing_entries_damage() -> None:
    blobs = made_folder()
    blobs[QUEUE] = bytes(QUEUE_FILE_SIZE)
    blobs[f"consumequeue/TopicA/0/{60:020d}"] = bytes(QUEUE_FILE_SIZE)
    assert damaged_paths(blobs) == {QUEUE, f"consumequeue/TopicA/0/{60:020d}"}


@pytest.mark.parametrize(
    ("path", "copy"),
    [
        (LOG, "commitlog/00000000000000001000"),
        (LOG, f"commitlog/{3_072:020d}"),
        (LOG, "commitlog/copy"),
        (QUEUE, "consumequeue/TopicA/0/00000000000000000070"),
        (QUEUE, f"consumequeue/TopicA/0/{120:020d}"),
        (QUEUE, "consumequeue/TopicA/01/00000000000000000000"),
        (INDEX, "index/20261115182457499"),
        (INDEX, "index/copy"),
    ],
)
def test_a_file_copied_under_a_wrong_name_is_named(path: str, copy: str) -> None:
    blobs = made_folder()
    blobs[copy] = blobs[path]
    assert any(copy.startswith(name) for name in damaged_paths(blobs))


@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerOffset", "delayOffset"])
@pytest.mark.parametrize("data", [b"", bytes(64), b"{", b"[1]", b'{"offsetTable":7}'])
def test_a_damaged_table_is_named(name: str, data: bytes) -> None:
    blobs = made_folder()
    path = f"config/{name}.json"
    blobs[path] = data
    assert damaged_paths(blobs) == {path}


def test_damage_in_the_log_costs_no_further_finding_in_queues_and_index() -> None:
    blobs = made_folder()
    third = read_log(blobs).records[2].record.log_offset
    verdict = verdict_of(with_flip(blobs, LOG, third + 90, 0))
    damages = [fault for fault in verdict.faults if fault.level is Level.DAMAGE]
    assert [(fault.path, fault.position) for fault in damages] == [(LOG, third)]
    assert "CRC" in damages[0].text
    warnings = [fault.text for fault in verdict.faults if fault.level is Level.WARNING]
    assert warnings == [
        "the numbers 1 to 1 are lost by damage in the log",
    ]


def test_many_damaged_records_cost_no_further_finding_either() -> None:
    """More of them than the index check looks ahead for."""
    blobs = made_folder(MESSAGES[:3] * 16)
    zeroed = [f"commitlog/{start:020d}" for start in (1_024, 2_048, 3_072, 4_096)]
    blobs |= {path: bytes(1_024) for path in zeroed}
    verdict = verdict_of(blobs)
    damages = [fault for fault in verdict.faults if fault.level is Level.DAMAGE]
    assert [(fault.path, fault.position) for fault in damages] == [(zeroed[0], 0)]
    assert "log offsets 1024 to 5120 (4096 bytes)" in damages[0].text


def test_damage_that_ends_inside_a_later_file_is_one_damage() -> None:
    blobs = made_folder()
    second = f"commitlog/{1_024:020d}"
    records = [stored.record.log_offset for stored in read_log(blobs).records]
    first, after = [offset for offset in records if offset >= 1_024][:2]
    blobs[LOG] = blobs[LOG][: records[2]] + bytes(1_024 - records[2])
    blobs[second] = bytes(after - 1_024) + blobs[second][after - 1_024 :]
    assert first == 1_024
    verdict = verdict_of(blobs)
    damages = [fault.text for fault in verdict.faults if fault.level is Level.DAMAGE]
    assert len(damages) == 1
    assert damages[0].startswith(f"log offsets {records[2]} to {after} ")
    assert verdict.counts["records"] == 2 + len([offset for offset in records if offset >= after])


def test_a_body_full_of_records_is_not_taken_for_the_log() -> None:
    """Damage is followed by the next record that says where it lies, not by one inside a body."""
    inner = made_folder(FEW)[LOG][:400]
    blobs = made_folder((FEW[0], Sent("TopicA", 0, "UNIQ_KEY\x01U\x02", 0, inner), FEW[1]))
    second, third = (stored.record.log_offset for stored in read_log(blobs).records[1:])
    verdict = verdict_of(with_flip(blobs, LOG, second + 4, 0))
    texts = [fault.text for fault in verdict.faults if fault.level is Level.DAMAGE]
    assert f"log offsets {second} to {third} " in texts[0]


def test_a_flipped_size_does_not_make_the_check_read_without_end() -> None:
    blobs = made_folder()
    data = bytearray(blobs[LOG])
    struct.pack_into(">i", data, 0, 2**31 - 1)
    blobs[LOG] = bytes(data)
    assert damaged_paths(blobs) >= {LOG}
