"""Light queues in the store: staged with a record, taken back with it, followed in raw bytes."""

from pathlib import Path

import pytest

from orbitmq.core import append_copies
from orbitmq.core.state import ENTRY
from orbitmq.errors import DiskFull, StoreError
from orbitmq.store.reading import snapshot
from orbitmq.store.store import Store
from tests.store.opened import flush, open_store, send, stage
from tests.store.refusing import RefusingFiles

A, B = "%LMQ%a", "%LMQ%b"


def stage_light(store: Store, body: bytes, *names: str) -> None:
    """Stage a message of T that is in light queues as well."""
    lights = [store.queue(name, 0) for name in names]
    numbers = ",".join(str(queue.next_offset) for queue in lights)
    queues = f"INNER_MULTI_DISPATCH\x01{','.join(names)}"
    properties = f"{queues}\x02INNER_MULTI_QUEUE_OFFSET\x01{numbers}"
    begin = store.tail.end_offset
    own = stage(store, 0, body, properties.encode())
    log_offset, _, code = ENTRY.unpack(own.entries[-ENTRY.size :])
    assert log_offset >= begin
    append_copies(store.tail, lights, log_offset, code)


def fill(store: Store) -> None:
    for number in range(40):
        stage_light(store, b"%d" % number * 50, *((A, B) if number % 2 else (A,)))
        if number % 3 == 0:
            store.write_staged()
    store.write_staged()


def found_in(store: Store, name: str) -> list[int]:
    """Where the records lie that a queue has."""
    queue = store.find_queue(name, 0)
    assert queue is not None
    view, entries = snapshot(queue), b""
    while len(entries) < queue.readable_offset * ENTRY.size:  # at most one file at a time
        number = len(entries) // ENTRY.size
        entries += store.reader.entries(view, number, queue.readable_offset - number)
    return [log_offset for log_offset, _, _ in ENTRY.iter_unpack(entries)]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_light_queues_are_there_after_reopening_and_count_no_message_twice(
    tmp_path: Path, is_flushed: bool
) -> None:
    store = open_store(tmp_path)
    fill(store)
    assert store.message_count == 40
    own = found_in(store, "T")
    assert (found_in(store, A), found_in(store, B)) == (own, own[1::2])
    flush(store)
    assert store.unwritten_bytes == 0
    fill(store)
    own = found_in(store, "T")
    store.close(is_flushed=is_flushed)
    again = open_store(tmp_path)
    assert again.findings == []
    assert (found_in(again, "T"), found_in(again, A)) == (own, own)
    assert found_in(again, B) == own[1::2]
    again.close()


def test_a_refused_turn_is_taken_back_in_light_queues_too(tmp_path: Path) -> None:
    files = RefusingFiles()
    store = open_store(tmp_path, files)
    stage_light(store, b"kept", A)
    store.write_staged()
    files.room[0] = 10
    stage_light(store, b"refused", A, B)
    with pytest.raises(DiskFull):
        store.write_staged()
    files.room[0] = 1 << 30
    light, other = store.queue(A, 0), store.queue(B, 0)
    assert (light.next_offset, other.next_offset, other.put_bytes) == (1, 0, 0)
    stage_light(store, b"next", A, B)
    store.write_staged()
    assert store.message_count == 2
    assert (len(found_in(store, A)), len(found_in(store, B))) == (2, 1)
    store.close()


def test_a_log_in_raw_bytes_brings_light_queues_along(tmp_path: Path) -> None:
    store = open_store(tmp_path / "other")
    fill(store)
    own, end = {name: found_in(store, name) for name in ("T", A, B)}, store.tail.end_offset
    store.close()
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "other/commitlog").iterdir()))
    replica = open_store(tmp_path / "replica")
    for at in range(0, end, 777):
        replica.append_raw(at, data[at : min(at + 777, end)])
    assert {name: found_in(replica, name) for name in own} == own
    assert replica.message_count == 40
    replica.close()


def test_raw_bytes_with_another_number_in_a_light_queue_are_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path / "other")
    stage_light(store, b"x", A)
    store.write_staged()
    end = store.tail.end_offset
    store.close()
    data = (tmp_path / "other/commitlog" / f"{0:020d}").read_bytes()[:end]
    replica = open_store(tmp_path / "replica")
    replica.queue(A, 0).next_offset = 5
    with pytest.raises(StoreError, match="number 0 of topic %LMQ%a, queue 0, where 5 is due"):
        replica.append_raw(0, data)
    replica.queue(A, 0).next_offset = 0
    send(replica, 0, b"own")
    replica.close()
