"""Zeros in properties: when they are what a crash left unwritten, and when they were sent."""

from pathlib import Path

import msgspec
import pytest

from orbitmq.store.findings import FindingKind
from orbitmq.store.opening import Opened
from orbitmq.store.store import Store
from tests.store.opened import open_store, read_all, stage, sync
from tests.store.recovering import BOOT, OTHER_BOOT, ROOT, SMALL, kinds, reopen
from tests.world.memory_files import MemoryFiles

LOG = ROOT / "commitlog" / f"{0:020d}"
LARGE = msgspec.structs.replace(SMALL, log_file_size=65_536)
ENDED = b"CLUSTER\x01c\x02"


def write(store: Store, body: bytes, properties: bytes = ENDED) -> tuple[int, int]:
    """Write and sync a message; give where its properties begin and end in the log."""
    stage(store, 0, body, properties)
    store.write_staged()
    sync(store)
    end = store.tail.end_offset
    return end - len(properties), end


def crashed(files: MemoryFiles) -> MemoryFiles:
    return files.kill_image(len(files.ops))


def bodies(files: MemoryFiles, boot_id: bytes) -> list[bytes]:
    store = open_store(ROOT, files, LARGE, boot_id=boot_id)
    found = read_all(store, 0)
    assert store.findings == []
    store.close()
    return found


def open_again(files: MemoryFiles, boot_id: bytes) -> Opened:
    return reopen(files, boot_id=boot_id, options=LARGE)


def blot(files: MemoryFiles, start: int, end: int) -> None:
    """Let a part of the log be as if it had never been written."""
    data = bytearray(files.read(LOG) or b"")
    data[start:end] = bytes(end - start)
    files.put(LOG, bytes(data))


@pytest.mark.parametrize("boot_id", [BOOT, OTHER_BOOT])
@pytest.mark.parametrize("zeros", [b"\0", b"\0" * 300, b"\0" * 500])
def test_messages_with_zeros_in_their_properties_are_not_lost(zeros: bytes, boot_id: bytes) -> None:
    """Symptom: a NUL where a sector ends cut the log there; what was acknowledged behind it went.

    After a power cut all of the log behind that place, after a kill the message itself.
    """
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, LARGE, boot_id=BOOT)
    sent = [b"%03d" % number for number in range(60)]
    for body in sent:  # of so many, some lie across the end of a sector wherever that is
        write(store, body, b"x\x01" + zeros + b"\x02" + ENDED)
    assert bodies(crashed(files), boot_id) == sent


def test_a_message_whose_properties_end_with_zeros_is_kept_when_anything_was_written_behind_it(
    tmp_path: Path,
) -> None:
    """Symptom: the same, for a whole sector of zeros: a kill has never left that inside a log."""
    store = open_store(tmp_path, options=LARGE)
    write(store, b"first", b"x\x01" + b"\0" * 1500)
    write(store, b"second", b"y\x01" + b"\0" * 1500 + b"\x02")
    again = MemoryFiles(ROOT)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            again.put(ROOT / path.relative_to(tmp_path), path.read_bytes())
    store.close()
    assert bodies(again, BOOT) == [b"first", b"second"]


@pytest.mark.parametrize("lost", [1, 40, 600, 1499])
def test_the_last_write_cut_off_in_its_properties_by_a_kill_leaves_no_message(lost: int) -> None:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, LARGE, boot_id=BOOT)
    write(store, b"first")
    _, end = write(store, b"second", b"x\x01" + b"v" * 1500)
    torn = crashed(files)
    blot(torn, end - lost, end)
    opened = open_again(torn, BOOT)
    assert opened.queues["T", 0].next_offset == 1
    assert kinds(opened) == {FindingKind.TORN_TAIL}


def test_a_sector_of_properties_lost_in_a_power_cut_ends_the_log_wherever_it_lies() -> None:
    """Records behind it prove nothing: sectors come to the disk in any order."""
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, LARGE, boot_id=BOOT)
    write(store, b"first")
    start, end = write(store, b"second", b"x\x01" + b"v" * 1500)
    write(store, b"third")
    for sector in range(start // 512 + 1, end // 512 + 1):
        torn = crashed(files)
        blot(torn, sector * 512, sector * 512 + 512)
        opened = open_again(torn, OTHER_BOOT)
        assert opened.queues["T", 0].next_offset == 1
        is_third_there = sector < end // 512
        expected = FindingKind.CUT_BEHIND if is_third_there else FindingKind.TORN_TAIL
        assert kinds(opened) == {expected}
