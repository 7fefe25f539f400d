"""Bytes inside a message's body that are a whole record for just that place: no message, ever."""

from collections.abc import Callable

import msgspec
import pytest

from orbitmq.core import LogTail, Queue, Stamp, Walked, append
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_reader import LogReader
from orbitmq.store.log_walk import Damage, LogWalk
from orbitmq.store.store import Store
from orbitmq.wire.record import decode_record
from tests.core.hot import ORIGIN
from tests.store.opened import flush, open_store, read_all, stage, sync
from tests.store.recovering import BOOT, OTHER_BOOT, ROOT, SMALL, reopen
from tests.world.memory_files import MemoryFiles

FOLDER = ROOT / "commitlog"
LOG = FOLDER / f"{0:020d}"
LARGE = msgspec.structs.replace(SMALL, log_file_size=65_536)
FORGED = b"pay 1000000"
ABOVE = b"body"
"""What a body has before the forged record."""


def pay(store: Store, body: bytes) -> None:
    stage(store, 0, body, topic="payments")
    store.write_staged()


def send_forged(store: Store, number: int) -> tuple[int, int]:
    """Send to topic T a body that holds a record of another topic; give where its record lies."""
    start = store.tail.end_offset
    # The body begins behind the fixed fields; fixed_size has the sizes of topic, properties as well
    tail = LogTail(LARGE.log_file_size, start + ORIGIN.fixed_size - 2 + len(ABOVE))
    queue = Queue("payments", 0, number)
    append(tail, queue, ORIGIN, Stamp(0, 0, 1, 0, 0, 0), FORGED, b"")
    stage(store, 0, ABOVE + bytes(tail.staged))
    store.write_staged()
    return start, store.tail.end_offset


def crashed(is_flushed: bool, *, is_followed: bool = True) -> tuple[MemoryFiles, int, int]:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, LARGE, boot_id=BOOT)
    pay(store, b"pay 1")
    start, end = send_forged(store, 1)
    if is_followed:
        pay(store, b"pay 2")
    sync(store)
    if is_flushed:
        flush(store, is_thorough=True)
    return files.kill_image(len(files.ops)), start, end


def change(files: MemoryFiles, edit: Callable[[bytearray], None]) -> None:
    data = bytearray(files.read(LOG) or b"")
    edit(data)
    files.put(LOG, bytes(data))


def payments(files: MemoryFiles, boot_id: bytes = BOOT) -> list[bytes]:
    store = open_store(ROOT, files, LARGE, boot_id=boot_id)
    found = read_all(store, 0, topic="payments")
    store.close()
    return found


def body_of(walk: LogWalk, walked: Walked) -> bytes:
    data = walk.log.read(walked.log_offset, walked.size)
    return decode_record(data)[0].body


def in_first_fields(start: int) -> list[tuple[int, int]]:
    """Return all bits of the fixed fields of a record and of its body's beginning."""
    return [(start + at, bit) for at in range(ORIGIN.fixed_size) for bit in range(8)]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_no_flipped_bit_of_the_outer_record_makes_a_message_of_the_inner_one(
    is_flushed: bool,
) -> None:
    """Symptom: behind damage the log went on inside the damaged message's body."""
    whole, start, _ = crashed(is_flushed)
    for at, bit in in_first_fields(start):
        files = whole.kill_image(len(whole.ops))

        def flip(data: bytearray, at: int = at, bit: int = bit) -> None:
            data[at] ^= 1 << bit

        change(files, flip)
        reopen(files, options=LARGE, is_full_rebuild=True)
        assert payments(files) == [b"pay 1", b"pay 2"], (at - start, bit)


def test_an_entry_that_points_at_a_whole_record_is_not_given_to_one_found_in_a_body() -> None:
    """Symptom: the forged message took the number of the real one, and that one was left out."""
    files, start, _ = crashed(is_flushed=True)

    def blot_head(data: bytearray) -> None:
        data[start : start + ORIGIN.fixed_size - 2] = bytes(ORIGIN.fixed_size - 2)

    change(files, blot_head)
    opened = reopen(files, options=LARGE, is_full_rebuild=True)
    assert payments(files) == [b"pay 1", b"pay 2"]
    assert any(finding.log_offset == start for finding in opened.findings)


def test_a_record_found_in_a_body_without_an_entry_is_none_where_queues_are_complete() -> None:
    files, start, _ = crashed(is_flushed=True, is_followed=False)

    def blot_head(data: bytearray) -> None:
        data[start : start + ORIGIN.fixed_size - 2] = bytes(ORIGIN.fixed_size - 2)

    change(files, blot_head)
    reopen(files, options=LARGE, is_full_rebuild=True)
    assert payments(files) == [b"pay 1"]


@pytest.mark.parametrize("boot_id", [BOOT, OTHER_BOOT])
def test_the_inside_of_a_record_that_was_cut_off_last_is_not_looked_at(boot_id: bytes) -> None:
    """Symptom: the last write was cut off behind the forged record in it, which was whole."""
    files, _, end = crashed(is_flushed=False, is_followed=False)

    def cut(data: bytearray) -> None:
        data[end - 4 : end] = bytes(4)

    change(files, cut)
    assert payments(files, boot_id) == [b"pay 1"]


def test_who_follows_the_log_steps_over_a_record_that_is_damaged_in_place() -> None:
    """Symptom: a follower was given the forged record when the outer one went bad."""
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, LARGE, boot_id=BOOT)
    pay(store, b"pay 1")
    start, end = send_forged(store, 1)
    pay(store, b"pay 2")
    store.close()

    def spoil(data: bytearray) -> None:
        data[start + 50] ^= 0xFF
        data[start + 90] ^= 0xFF

    change(files, spoil)
    again = open_store(ROOT, files, LARGE, boot_id=BOOT)  # stopped cleanly: the log is not read
    reader = LogReader(files, LogFolders(files, (FOLDER,)), again.tail)
    at, places = 0, []
    while at < again.tail.end_offset:
        found, at = reader.records(at)
        places += [record.log_offset for record in found]
    assert places == [0, end]
    again.close()


def test_records_behind_two_bad_ones_are_found_by_their_sizes() -> None:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, LARGE, boot_id=BOOT)
    first, _ = send_forged(store, 0)
    second, end = send_forged(store, 0)
    pay(store, b"pay 1")
    crash = files.kill_image(len(files.ops))

    def flip(data: bytearray) -> None:
        data[first + 88] ^= 1
        data[second + 88] ^= 1

    change(crash, flip)
    opened = reopen(crash, options=LARGE)
    assert [(f.log_offset, f.size) for f in opened.findings] == [(first, end - first)]
    assert payments(crash) == [b"pay 1"]


@pytest.mark.parametrize("is_followed", [True, False])
def test_check_steps_over_a_bad_record_as_recovery_does(is_followed: bool) -> None:
    """Symptom: `store check` named a message that was part of a body."""
    whole, start, end = crashed(is_flushed=True, is_followed=is_followed)
    for at in range(ORIGIN.fixed_size - 2):
        files = whole.kill_image(len(whole.ops))

        def flip(data: bytearray, at: int = at) -> None:
            data[start + at] ^= 1

        change(files, flip)
        walk = LogWalk(files, LogFolders(files, (FOLDER,)))
        found = list(walk.walk())
        seen = [body_of(walk, item) for item in found if isinstance(item, Walked)]
        assert FORGED not in seen
        assert (b"pay 2" in seen) == is_followed
        damage = [item[:2] for item in found if isinstance(item, Damage)]
        assert damage in ([], [(start, end)]), at
