"""Keys in great number: the loop goes on, memory is bounded, and what counts is found.

Method: messages of 32 KB of keys, as one sender can make them; what one call files is counted, not
timed.
"""

from pathlib import Path

from orbitmq.core import ROW
from orbitmq.core.record_keys import WORDS_MAX
from orbitmq.store.index_shape import ENTRY
from orbitmq.store.key_index import SLICE_BYTES
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import KeyQuery, Store
from tests.store.opened import flush, open_store, stage

ROOMY = StoreOptions(
    log_file_size=1 << 24, queue_file_size=60_000, index_slot_count=5_000, index_entry_count=90_000
)
MANY_WORDS = b"KEYS\x01" + b" ".join(b"%04x" % number for number in range(6_500)) + b"\x02"
NEVER = 2**62


def many_keys(number: int, words: int = 60) -> bytes:
    text = " ".join(f"k{number}-{word}" for word in range(words))
    return f"UNIQ_KEY\x01U{number}\x02KEYS\x01{text}\x02".encode()


def find(store: Store, key: str) -> list[int]:
    return store.lookup(KeyQuery("T", key, 0, NEVER, 10))()


def test_one_turn_files_no_more_than_a_slice_and_the_rest_is_found_all_the_same(
    tmp_path: Path,
) -> None:
    """Symptom: 16 MB of sends with thousands of keys each stopped the loop for 30 s."""
    store = open_store(tmp_path, options=ROOMY)
    index = store._opened.index  # what one call did is not to be seen from outside
    for number in range(600):
        stage(store, 0, b"", many_keys(number))
    store.write_staged()
    assert 0 < index.unwritten_size // ENTRY.size <= SLICE_BYTES // ROW.size
    assert store.dispatch_lag_bytes > 0
    offsets = [find(store, f"k{number}-59") for number in (0, 599)]
    assert [len(found) for found in offsets] == [1, 1]
    assert offsets[0] < offsets[1]
    slices = 0
    while not store.drain_index():
        slices += 1
    assert slices > 3, "as many calls as it takes"
    assert store.dispatch_lag_bytes == 0
    assert [find(store, f"k{number}-59") for number in (0, 599)] == offsets
    store.close()


def test_of_too_many_keys_the_first_are_found_and_the_others_are_counted(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=ROOMY)
    stage(store, 0, b"", MANY_WORDS)
    stage(store, 0, b"", b"KEYS\x01" + " ".join(f"é{n}" for n in range(70)).encode())
    store.write_staged()
    while not store.drain_index():
        pass
    assert [len(find(store, key)) for key in ("0000", f"{WORDS_MAX - 1:04x}")] == [1, 1]
    assert find(store, f"{WORDS_MAX:04x}") == []
    assert [len(find(store, key)) for key in ("é63", "é64")] == [1, 0]
    assert store.unindexed_keys == 6_500 - WORDS_MAX + 70 - WORDS_MAX
    store.close()


def test_what_the_index_holds_in_memory_counts_as_unwritten(tmp_path: Path) -> None:
    """Symptom: sends were taken without end while 66 MB of index entries waited in memory."""
    store = open_store(tmp_path, options=ROOMY)
    for number in range(600):
        stage(store, 0, b"", many_keys(number))
    store.write_staged()
    assert store.unwritten_bytes > 600 * 61 * ROW.size // 2
    while not store.drain_index():
        pass
    assert store.unwritten_bytes == 600 * 20 + 600 * 61 * ENTRY.size
    flush(store)
    assert store.unwritten_bytes == 0
    store.close()


def test_sends_are_refused_while_too_much_waits_for_the_index(tmp_path: Path) -> None:
    options = StoreOptions(
        log_file_size=1 << 24, index_slot_count=100, index_entry_count=9_000, unwritten_bytes_max=0
    )
    store = open_store(tmp_path, options=options)
    stage(store, 0, b"", many_keys(0))
    store.write_staged()
    store.check_age()
    assert "queue and index entries wait to be written" in store.tail.refusal
    flush(store)
    store.check_age()
    assert store.tail.refusal == ""
    store.close()
