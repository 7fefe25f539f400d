"""The sizes a folder was written with: kept in the checkpoint, told by the files, never guessed."""

from pathlib import Path

import msgspec
import pytest

from orbitmq.store.checkpoint import FileSizes, read_checkpoint
from orbitmq.store.findings import FindingKind
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import Store
from orbitmq.world.files import SystemFiles
from tests.store.opened import flush, open_store, read_all, send

LARGE = StoreOptions(
    log_file_size=65_536, queue_file_size=1000, index_slot_count=10, index_entry_count=20
)
COUNT = 40
BODY = b"b" * 900


def set_to(log_file_size: int, queue_file_size: int = 1000) -> StoreOptions:
    return msgspec.structs.replace(
        LARGE, log_file_size=log_file_size, queue_file_size=queue_file_size
    )


def closed(folder: Path) -> Path:
    """Fill a part of one log file; give its path."""
    store = open_store(folder, options=LARGE)
    send(store, 0, *[BODY] * COUNT)
    store.close()
    return folder / "commitlog" / f"{0:020d}"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def without_block(folder: Path) -> None:
    """Leave of the checkpoint what the original writes."""
    path = folder / "checkpoint"
    path.write_bytes(path.read_bytes()[:24].ljust(4096, b"\0"))


def kinds(store: Store) -> set[FindingKind]:
    return {finding.kind for finding in store.findings}


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize("setting", [8_192, 1 << 20])
@pytest.mark.parametrize("position", [300, 900 * COUNT])
def test_a_lone_damaged_log_file_is_not_cut_to_a_size_that_was_set_later(
    tmp_path: Path, setting: int, position: int, is_ours: bool
) -> None:
    """Symptom: one flipped bit, and a log of 500 messages lost 380 of them."""
    path = closed(tmp_path)
    flip(path, position)
    if not is_ours:
        without_block(tmp_path)
    store = open_store(tmp_path, options=set_to(setting))
    assert store.tail.file_size == LARGE.log_file_size
    assert kinds(store) <= {FindingKind.DAMAGE, FindingKind.QUEUE_REBUILT}
    assert len(read_all(store, 0)) == COUNT - 1
    store.close()


def test_a_lone_log_file_that_was_cut_gets_the_length_that_the_checkpoint_knows(
    tmp_path: Path,
) -> None:
    path = closed(tmp_path)
    path.write_bytes(path.read_bytes()[:50_000])
    store = open_store(tmp_path, options=set_to(1 << 20))
    assert (store.tail.file_size, path.stat().st_size) == (65_536, 65_536)
    assert kinds(store) == {FindingKind.WRONG_SIZE}
    assert len(read_all(store, 0)) == COUNT
    store.close()


def test_a_lone_log_file_whose_last_record_is_damaged_is_not_cut_where_records_are(
    tmp_path: Path,
) -> None:
    """Symptom: such a file did not end as files end, so the size that is set was taken."""
    path = closed(tmp_path)
    without_block(tmp_path)
    flip(path, len(path.read_bytes().rstrip(b"\0")) - 10)
    store = open_store(tmp_path, options=set_to(8_192))
    assert store.tail.file_size == LARGE.log_file_size
    assert len(read_all(store, 0)) == COUNT - 1
    store.close()


def test_a_checkpoint_of_another_folder_does_not_cut_a_log_that_goes_on_behind_its_size(
    tmp_path: Path,
) -> None:
    closed(tmp_path / "here")
    other = open_store(tmp_path / "other", options=set_to(16_384))
    other.close()
    checkpoint = (tmp_path / "other" / "checkpoint").read_bytes()
    (tmp_path / "here" / "checkpoint").write_bytes(checkpoint)
    store = open_store(tmp_path / "here", options=set_to(16_384))
    assert store.tail.file_size == 65_536
    assert len(read_all(store, 0)) == COUNT
    store.close()


def test_a_lone_queue_file_that_was_cut_gets_the_length_that_the_checkpoint_knows(
    tmp_path: Path,
) -> None:
    closed(tmp_path)
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:860])
    store = open_store(tmp_path, options=set_to(65_536, 2000))
    assert path.stat().st_size == 1000
    assert len(read_all(store, 0)) == COUNT
    store.close()


def test_every_flush_keeps_the_sizes_in_the_checkpoint(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=LARGE)
    for is_thorough in (False, True, False):
        send(store, 0, b"body")
        flush(store, is_thorough=is_thorough)
        checkpoint = read_checkpoint(SystemFiles(), tmp_path / "checkpoint")
        assert checkpoint is not None
        assert checkpoint.sizes == FileSizes(65_536, 1000)
    store.close()
