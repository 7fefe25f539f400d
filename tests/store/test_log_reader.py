"""Reading the log: its records in order, from any offset on, as far as they may be seen."""

from pathlib import Path

from orbitmq.core import Stamp, Walked, append
from orbitmq.core.record_keys import keys_in
from orbitmq.store.follow import entry_code
from orbitmq.store.options import DELAYS_MS
from orbitmq.store.store import Store
from orbitmq.wire.expression import tag_code
from tests.core.hot import ORIGIN
from tests.store.opened import open_store, send, stage

PROPERTIES = b"UNIQ_KEY\x01U7\x02KEYS\x01a b\x02TAGS\x01red\x02"


def read_from(store: Store, log_offset: int) -> list[Walked]:
    """Return everything there is from a log offset on."""
    found: list[Walked] = []
    while True:
        records, next_offset = store.log.records(log_offset)
        if next_offset == log_offset:
            return found
        found += records
        log_offset = next_offset


def queue_offsets(records: list[Walked]) -> list[tuple[int, int]]:
    return [(record.queue_id, record.queue_offset) for record in records]


def test_all_that_is_known_of_a_record_is_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stage(store, 0, b"first")
    store.tail.store_ms = 1_700_000_000_123
    start = store.tail.end_offset
    stamp = Stamp(9, 1, 5, 0, 0, tag_code("red"))
    append(store.tail, store.queue("Orders", 3), ORIGIN, stamp, b"body", PROPERTIES)
    size = store.tail.end_offset - start
    store.write_staged()
    _, record = read_from(store, 0)
    assert record == Walked(start, size, "Orders", 3, 0, 1, 1_700_000_000_123, PROPERTIES)
    assert entry_code(record, DELAYS_MS) == tag_code("red")
    assert keys_in(record.properties).filed == ["U7", "a", "b"]
    store.close()


def test_records_come_in_log_order_over_all_files_and_not_before_they_may_be_seen(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    for number in range(40):
        send(store, number % 3, bytes(500))
    stage(store, 0, b"only staged")
    found = read_from(store, 0)
    assert queue_offsets(found) == [(number % 3, number // 3) for number in range(40)]
    assert found[-1].log_offset > 3 * 4_096
    store.write_staged()
    assert len(read_from(store, found[-1].log_offset)) == 2
    store.close()
