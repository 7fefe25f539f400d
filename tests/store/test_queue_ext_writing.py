"""Extra units of queue entries: written behind, kept over crashes, never another record's."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import msgspec
import pytest

from orbitmq.core import PullStatus, Queue
from orbitmq.core.state import ENTRY
from orbitmq.errors import StoreError
from orbitmq.store import queue_ext_writing
from orbitmq.store.check import check
from orbitmq.store.layout import file_name
from orbitmq.store.opening import Outside, open_folder
from orbitmq.store.options import StoreOptions
from orbitmq.store.queue_ext import ADDRESS_MAX, Unit, encode_unit
from orbitmq.store.queue_ext_writing import BitMapOf
from orbitmq.store.reading import EntryFilter, gather_cold, snapshot
from orbitmq.store.repair import repair
from orbitmq.store.verdict import Level
from orbitmq.wire.expression import tag_code
from orbitmq.wire.record import scan_records
from tests.store import slow_store
from tests.store.crash_programme import Blobs, CrashProgramme, Recording, Sampling, blobs_of
from tests.store.driven import BOOT, ROOT, Driven
from tests.store.model import Sent
from tests.store.workloads import Sender
from tests.world.crash_images import Unit as Piece
from tests.world.crash_images import everything
from tests.world.memory_files import MemoryFiles

IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
SAMPLING = Sampling(None, 30, 4, 3) if IS_LONG else Sampling(1, 1, 30, 1)
ON = StoreOptions(
    log_file_size=2048,
    queue_file_size=100,
    index_slot_count=5,
    index_entry_count=8,
    is_extended=True,
    extra_file_size=120,
    kept_bytes_max=0,
)
OFF = StoreOptions(log_file_size=2048, queue_file_size=100, index_slot_count=5, index_entry_count=8)
SCHEDULE = ("SCHEDULE_TOPIC_XXXX", 0)
A0 = ("A", 0)


def bits_of(topic: str, properties: bytes) -> bytes:
    """A bit map that no other record has."""
    return crc32(properties, len(topic)).to_bytes(4, "big") if properties else b""


def opened(
    files: MemoryFiles, options: StoreOptions = ON, boot_id: bytes = BOOT, old: Driven | None = None
) -> Driven:
    driven = Driven(
        files,
        options,
        old.model if old is not None else None,
        clock=old.clock if old is not None else None,
        boot_id=boot_id,
    )
    driven.store.bit_maps = lambda: bits_of
    return driven


def made(options: StoreOptions = ON) -> Driven:
    return opened(MemoryFiles(ROOT), options)


def tagged(number: int, place: tuple[str, int] = A0) -> Sent:
    return Sent(place, b"%d" % number, b"n\1%d\2TAGS\1t%d\2" % (number, number % 3), 0)


def send(driven: Driven, *numbers: int) -> None:
    for number in numbers:
        driven.send(tagged(number))
        driven.clock.now_ms += 1


@dataclass
class Filed:
    """An entry as its queue's file has it, and the unit it leads to."""

    log_offset: int
    code: int
    unit: Unit | None
    place: int


def filed(blobs: Blobs, topic: str = "A", queue_id: int = 0) -> list[Filed]:
    """Everything that a queue's files hold, units found by their bare place in the files."""
    found = []
    for _, data in slow_store.files_in(blobs, f"consumequeue/{topic}/{queue_id}"):
        for log_offset, size, code in ENTRY.iter_unpack(data):
            if size > 0:
                place = code + 2**63 if code <= ADDRESS_MAX else -1
                unit = unit_at(blobs, topic, queue_id, place) if place >= 0 else None
                found.append(Filed(log_offset, code, unit, place))
    return found


def unit_at(blobs: Blobs, topic: str, queue_id: int, place: int) -> Unit | None:
    for base, data in slow_store.files_in(blobs, f"consumequeue_ext/{topic}/{queue_id}"):
        if base <= place < base + len(data):
            piece = data[place - base :]
            size = int.from_bytes(piece[:2], "big")
            numbers = [int.from_bytes(piece[at : at + 8], "big", signed=True) for at in (2, 10)]
            assert size == 20 + int.from_bytes(piece[18:20], "big")
            return Unit(numbers[0], numbers[1], piece[20:size])
    return None


def wide_bits_of(topic: str, properties: bytes) -> bytes:
    """So wide that a sector may end between a unit's fixed part and its bits."""
    return bits_of(topic, properties) * 10


def assert_units(blobs: Blobs, bit_map_of: BitMapOf = bits_of) -> int:
    """Every address leads to the unit of its own record; gives how many do."""
    log = slow_store.read_log(blobs)
    records = {record.log_offset: record for record, _ in log.records}
    folders = {tuple(path.split("/")[1:3]) for path in blobs if path.startswith("consumequeue/")}
    count = 0
    for topic, queue_id in folders:
        for one in filed(blobs, topic, int(queue_id)):
            if one.place < 0 or one.log_offset not in records:
                continue
            assert one.unit is not None
            record = records[one.log_offset]
            wanted = bit_map_of(topic, record.properties)
            assert one.unit[:2] == (slow_store.code_of(record), record.store_ms)
            assert one.unit.bit_map in (b"", wanted)
            count += 1
    return count


# --- What is written ---


def test_entries_in_files_lead_to_units_with_code_store_time_and_bits() -> None:
    driven = made()
    send(driven, *range(5))
    driven.send(Sent(A0, b"bare", b"", 0))
    driven.flush()
    entries = filed(blobs_of(driven.files))
    first_ms = driven.clock.now_ms - 5
    assert [one.unit for one in entries[:5]] == [
        Unit(
            tag_code(f"t{number % 3}"),
            first_ms + number,
            bits_of("A", b"n\1%d\2TAGS\1t%d\2" % (number, number % 3)),
        )
        for number in range(5)
    ]
    assert entries[5].unit == Unit(0, first_ms + 5, b"")


def test_units_fill_files_as_the_original_fills_them() -> None:
    driven = made()
    send(driven, *range(6))
    driven.flush()
    blobs = blobs_of(driven.files)
    units = [one.unit for one in filed(blobs)]
    pieces = [encode_unit(*unit) for unit in units if unit is not None]
    assert [len(piece) for piece in pieces] == [24] * 6
    first = b"".join(pieces[:4]) + b"\xff\xff"  # four fit before the last 4 bytes, no fifth does
    folder = "consumequeue_ext/A/0/"
    assert blobs[folder + file_name(0)] == first.ljust(120, b"\0")
    assert blobs[folder + file_name(120)] == b"".join(pieces[4:]).ljust(120, b"\0")
    assert [one.place for one in filed(blobs)] == [0, 24, 48, 72, 120, 144]


def test_messages_that_wait_keep_the_time_they_are_due_in_their_entry() -> None:
    driven = made()
    driven.send(Sent(SCHEDULE, b"later", b"DELAY\x011\x02", 0))
    driven.flush()
    (entry,) = filed(blobs_of(driven.files), *SCHEDULE)
    assert entry.code == driven.clock.now_ms + 1_000
    assert not any("consumequeue_ext" in path for path in blobs_of(driven.files))


def test_nothing_is_written_for_a_store_without_extra_units() -> None:
    driven = made(OFF)
    send(driven, 1, 2)
    driven.close()
    blobs = blobs_of(driven.files)
    assert [one.code for one in filed(blobs)] == [tag_code("t1"), tag_code("t2")]
    assert not any("consumequeue_ext" in path for path in blobs)


def test_a_bit_map_that_fits_no_file_leaves_the_entry_without_unit() -> None:
    driven = made(ON)
    driven.store.bit_maps = lambda: lambda _topic, properties: bytes(100 if properties else 0)
    send(driven, 1)
    driven.send(Sent(A0, b"bare", b"", 0))
    driven.flush()
    assert [one.code for one in filed(blobs_of(driven.files))] == [tag_code("t1"), -(2**63)]


def test_on_off_and_on_again_goes_on_behind_the_last_unit() -> None:
    driven = made()
    send(driven, 0, 1)
    driven.close()
    driven = opened(driven.files, OFF, old=driven)
    send(driven, 2, 3)
    driven.close()
    driven = opened(driven.files, ON, old=driven)
    send(driven, 4, 5)
    driven.close()
    blobs = blobs_of(driven.files)
    assert [one.place for one in filed(blobs)] == [0, 24, -1, -1, 48, 72]
    assert assert_units(blobs) == 4
    assert not opened(driven.files, ON, old=driven).store.findings


def test_where_no_unit_is_found_near_a_new_file_begins_and_the_old_one_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_ext_writing, "LOOK_BACK_COUNT", 1)
    driven = made()
    send(driven, 0, 1)
    driven.close()
    driven = opened(driven.files, OFF, old=driven)
    send(driven, 2, 3)
    driven.close()
    driven = opened(driven.files, ON, old=driven)
    send(driven, 4)
    driven.close()
    blobs = blobs_of(driven.files)
    assert [one.place for one in filed(blobs)] == [0, 24, -1, -1, 120]
    assert blobs["consumequeue_ext/A/0/" + file_name(0)][48:52] == b"\xff\xff\0\0"
    assert assert_units(blobs) == 3


@pytest.mark.parametrize("look_back_count", [1, 100])
def test_where_files_of_units_were_lost_no_place_is_used_again(
    monkeypatch: pytest.MonkeyPatch, look_back_count: int
) -> None:
    monkeypatch.setattr(queue_ext_writing, "LOOK_BACK_COUNT", look_back_count)
    driven = made()
    send(driven, *range(6))
    driven.close()
    driven = opened(driven.files, OFF, old=driven)
    send(driven, 6, 7)
    driven.close()
    for start in (0, 120):
        driven.files.remove(ROOT / "consumequeue_ext" / "A" / "0" / file_name(start))
    driven = opened(driven.files, ON, old=driven)
    send(driven, 8)
    driven.flush()
    entries = filed(blobs_of(driven.files))
    assert [one.unit is None for one in entries] == [True] * 8 + [False]
    assert entries[-1].place > entries[5].place
    assert cold(driven, EntryFilter(frozenset({tag_code("t2")}))) == [
        b"%d" % n for n in (*range(6), 8)
    ]


def test_units_that_no_entry_leads_to_are_taken_away_before_the_next_one() -> None:
    driven = made()
    send(driven, 0)
    driven.flush()
    folder = ROOT / "consumequeue_ext" / "A" / "0"
    stray = encode_unit(7, 7, b"\1\2")
    path = folder / file_name(0)
    whole = driven.files.read(path) or b""
    files = driven.files.kill_image(len(driven.files.ops))
    files.put(path, whole[:24] + stray + whole[24 + len(stray) :])
    files.put(folder / file_name(120), stray.ljust(120, b"\0"))
    again = opened(files, old=driven)
    send(again, 1)
    again.flush()
    blobs = blobs_of(files)
    assert [one.place for one in filed(blobs)] == [0, 24]
    assert blobs["consumequeue_ext/A/0/" + file_name(0)][48:] == bytes(72)
    assert "consumequeue_ext/A/0/" + file_name(120) not in blobs
    assert assert_units(blobs) == 2


def test_a_flush_that_is_done_again_writes_no_unit_twice() -> None:
    driven = made()
    send(driven, 0, 1)
    driven.files.fail("write", lambda op: op.path.parts[2] == "consumequeue")
    with pytest.raises(StoreError):
        driven.flush()
    driven.files.heal()
    send(driven, 2)
    driven.flush()
    send(driven, 3)
    driven.flush()
    blobs = blobs_of(driven.files)
    assert [one.place for one in filed(blobs)] == [0, 24, 48, 72]
    assert assert_units(blobs) == 4


def test_a_record_that_cannot_be_read_back_gets_an_entry_without_unit() -> None:
    driven = made()
    send(driven, 0, 1)
    driven.files.fail("read", lambda op: op.path.parts[2] == "commitlog")
    driven.flush()
    assert [one.place for one in filed(blobs_of(driven.files))] == [-1, 0]
    assert cold(driven, EntryFilter()) == [b"0", b"1"]


# --- Reading ---


def cold(driven: Driven, chosen: EntryFilter) -> list[bytes]:
    queue = driven.store.queue(*A0)
    bodies, offset = [], 0
    while offset < queue.readable_offset:  # a look ends where a queue's file does
        found = gather_cold(driven.store.reader, snapshot(queue), offset, 32, chosen)
        bodies += [record.body for record in scan_records(b"".join(found.parts))]
        offset = found.next_offset
    return bodies


def test_old_messages_are_found_by_tag_through_their_units() -> None:
    driven = made()
    send(driven, *range(7))
    driven.flush()
    assert cold(driven, EntryFilter(frozenset({tag_code("t1")}))) == [b"1", b"4"]
    assert cold(driven, EntryFilter()) == [b"%d" % number for number in range(7)]


def test_a_record_that_its_unit_rules_out_is_not_read() -> None:
    driven = made()
    send(driven, *range(4))
    driven.flush()
    wanted = bits_of("A", b"n\0012\2TAGS\1t2\2")
    looked: list[bytes] = []

    def accepts(record: memoryview) -> bool:
        looked.append(next(scan_records(record)).body)
        return True

    chosen = EntryFilter(None, accepts, lambda unit: unit.bit_map == wanted)
    assert cold(driven, chosen) == [b"2"]
    assert looked == [b"2"]


def test_an_entry_without_unit_is_never_ruled_out() -> None:
    driven = made(OFF)
    send(driven, 0, 1)
    driven.flush()
    assert cold(driven, EntryFilter(None, None, lambda _unit: False)) == [b"0", b"1"]


# --- Crashes ---


def extended(seed: int) -> Recording:
    """Light and thorough flushes, clean restarts, with and without extra units."""
    options = msgspec.structs.replace(ON, extra_file_size=1_200)
    recording = Recording("extra units", options, MemoryFiles(ROOT.parent))
    sender = Sender(seed)
    for run in range(2):
        driven = recording.open()
        driven.store.bit_maps = lambda: wide_bits_of
        for number in range(12):
            sender.turn(driven)
            if number % 3 == 1:
                driven.flush(is_thorough=number % 2 == 0)
            if number == 5:
                driven.clean()
        if run == 0:
            driven.close()
        recording.done(driven)
    return recording


class UnitsProgramme(CrashProgramme):
    """Judges units as well."""

    def _judge_derived(self, driven: Driven) -> None:
        super()._judge_derived(driven)
        self.counts["units"] += assert_units(blobs_of(driven.files), wide_bits_of)


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(0 if IS_LONG else 240)
def test_after_every_crash_each_address_leads_to_the_unit_of_its_record() -> None:
    recording, step = extended(1), 1 if IS_LONG else 4
    counts = UnitsProgramme(recording, SAMPLING, 1).run(
        range(0, len(recording.files.ops) + 1, step)
    )
    print(f"T4 extra units: {dict(counts)}")
    least = 300 if IS_LONG else 60
    assert min(counts["images"], counts["units"]) > least


def test_after_a_power_cut_no_unit_behind_the_synced_mark_is_believed() -> None:
    driven = made()
    send(driven, 0, 1)
    driven.flush(is_thorough=True)
    send(driven, 2, 3)
    driven.flush()
    driven.sync()
    torn = next(
        op.node for op in driven.files.ops if "consumequeue_ext" in str(op.path) and op.node
    )

    def choose(pieces: Sequence[Piece]) -> list[int]:
        return [0 if piece.node == torn else piece.versions for piece in pieces]

    for chooser in (everything(), choose):
        image = driven.files.image(len(driven.files.ops), chooser)
        again = opened(image, boot_id=b"the next start!!")
        blobs = blobs_of(image)
        assert [one.place for one in filed(blobs)] == [0, 24, -1, -1]
        assert cold(again, EntryFilter(frozenset({tag_code("t0")}))) == [b"0", b"3"]


def test_after_a_kill_units_are_kept() -> None:
    driven = made()
    send(driven, 0, 1)
    driven.flush()
    image = driven.files.kill_image(len(driven.files.ops))
    again = opened(image, old=driven)
    send(again, 2)
    again.flush()
    assert [one.place for one in filed(blobs_of(image))] == [0, 24, 48]


def test_queues_made_anew_keep_the_addresses_of_units_that_fit() -> None:
    driven = made()
    send(driven, *range(6))
    driven.close()
    before = filed(blobs_of(driven.files))
    outside = Outside(driven.files, driven.clock, BOOT)
    again = open_folder(outside, ROOT, ON, is_full_rebuild=True)
    again.close()
    again.lock.release()
    assert filed(blobs_of(driven.files)) == before


# --- Checking ---


def test_a_check_finds_units_healthy_and_names_one_that_says_something_else() -> None:
    driven = made()
    send(driven, *range(6))
    driven.close()
    files, clock = driven.files, driven.clock
    assert check(files, ROOT, ON, BOOT).is_healthy
    path = ROOT / "consumequeue_ext" / "A" / "0" / file_name(0)
    whole = bytearray(files.read(path) or b"")
    whole[24 + 9] ^= 1  # the code in the second unit
    files.put(path, bytes(whole))
    verdict = check(files, ROOT, ON, BOOT)
    damages = [fault.text for fault in verdict.faults if fault.level is Level.DAMAGE]
    assert len(damages) == 1
    assert "entry 1 is not what the log says: code" in damages[0]
    repair(Outside(files, clock, BOOT), ROOT, ON)
    assert check(files, ROOT, ON, BOOT).is_healthy
    assert [one.place for one in filed(blobs_of(files))] == [0, -1, 48, 72, 120, 144]


# --- Retention ---


def test_files_of_units_go_with_the_messages_they_belong_to() -> None:
    driven = made()
    for number in range(60):
        send(driven, number)
        if number % 7 == 0:
            driven.flush(is_thorough=True)
    driven.flush(is_thorough=True)
    folder = ROOT / "consumequeue_ext" / "A" / "0"
    before = driven.files.names(folder)
    driven.clean()
    after = driven.files.names(folder)
    assert 1 <= len(after) < len(before)
    assert after == before[-len(after) :]
    queue: Queue = driven.store.queue(*A0)
    assert queue.min_offset > 0
    left = filed(blobs_of(driven.files))[-(queue.readable_offset - queue.min_offset) :]
    assert all(one.unit is not None for one in left)
    found = gather_cold(driven.store.reader, snapshot(queue), queue.min_offset, 32)
    assert found.status is PullStatus.FOUND
