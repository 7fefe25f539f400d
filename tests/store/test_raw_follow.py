"""Another broker's log with a file that it had lost: one blank record, longer than any message."""

from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import Store
from orbitmq.wire.record import RECORD_SIZE_MAX, encode_blank
from tests.store.opened import open_store, read_all, send

FILE_SIZE = RECORD_SIZE_MAX + 4096
OPTIONS = StoreOptions(log_file_size=FILE_SIZE, is_indexed=False)
BLANK = encode_blank(FILE_SIZE)


@pytest.fixture
def records(tmp_path: Path) -> bytes:
    """The bytes of two records that begin in the second file, behind one that was lost."""
    other = open_store(tmp_path / "other", options=OPTIONS)
    other.append_raw(0, BLANK)
    for _ in range(FILE_SIZE // (1 << 20)):
        other.append_raw(other.raw_offset, bytes(1 << 20))
    other.append_raw(other.raw_offset, bytes(FILE_SIZE - other.raw_offset))
    assert other.tail.end_offset == FILE_SIZE
    send(other, 0, b"first", b"second")
    size = other.tail.end_offset - FILE_SIZE
    other.close()
    data = (tmp_path / "other" / "commitlog" / f"{FILE_SIZE:020d}").read_bytes()
    return data[:size]


def give(store: Store, data: bytes, piece: int) -> None:
    for at in range(0, len(data), piece):
        store.append_raw(store.raw_offset, data[at : at + piece])


@pytest.mark.parametrize("piece", [1 << 20, (1 << 20) + 3, 3 << 24])
def test_a_replica_gets_past_a_file_that_was_lost(
    tmp_path: Path, records: bytes, piece: int
) -> None:
    """Symptom: "are no record" for a blank above 32 MiB, for ever."""
    store = open_store(tmp_path / "replica", options=OPTIONS)
    give(store, BLANK.ljust(FILE_SIZE, b"\0") + records, piece)
    assert store.tail.end_offset == store.raw_offset == FILE_SIZE + len(records)
    assert read_all(store, 0) == [b"first", b"second"]
    first = tmp_path / "replica" / "commitlog" / f"{0:020d}"
    assert first.stat().st_size == FILE_SIZE
    with first.open("rb") as file:
        assert file.read(100) == BLANK.ljust(100, b"\0")
    again = (tmp_path / "replica" / "commitlog" / f"{FILE_SIZE:020d}").read_bytes()
    assert again[: len(records)] == records
    store.close()
    reopened = open_store(tmp_path / "replica", options=OPTIONS)
    assert reopened.findings == []
    assert read_all(reopened, 0) == [b"first", b"second"]
    reopened.close()


def test_what_has_come_of_a_long_blank_takes_no_memory_and_is_forgotten_by_a_send(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path, options=OPTIONS)
    store.append_raw(0, BLANK + bytes(1 << 20))
    assert (store.tail.end_offset, store.raw_offset) == (0, 8 + (1 << 20))
    send(store, 0, b"own way")
    assert store.raw_offset == store.tail.end_offset
    assert read_all(store, 0) == [b"own way"]
    store.close()


def test_bytes_that_are_no_record_behind_a_long_blank_are_refused_and_may_come_again(
    tmp_path: Path, records: bytes
) -> None:
    store = open_store(tmp_path / "replica", options=OPTIONS)
    with pytest.raises(StoreError, match=f"log offset {FILE_SIZE} .* are no record"):
        give(store, BLANK.ljust(FILE_SIZE, b"\0") + b"x" * 100, FILE_SIZE + 100)
    assert store.raw_offset == FILE_SIZE
    store.append_raw(FILE_SIZE, records)
    assert read_all(store, 0) == [b"first", b"second"]
    store.close()
