"""Followers: each goes through the log in order, under its name, from where it stood."""

from pathlib import Path

from orbitmq.core import Stamp, Walked, append
from orbitmq.store.follow import entry_code
from orbitmq.store.followers import Follower
from orbitmq.store.index_keys import message_keys
from orbitmq.store.options import DELAYS_MS
from orbitmq.store.store import Store
from orbitmq.wire.expression import tag_code
from tests.core.hot import ORIGIN
from tests.store.opened import flush, open_store, send, stage

PROPERTIES = b"UNIQ_KEY\x01U7\x02KEYS\x01a b\x02TAGS\x01red\x02"


def read_on(follower: Follower) -> list[Walked]:
    """Return everything there is behind a follower's position, and advance."""
    found: list[Walked] = []
    while True:
        records, position = follower.read()
        if position == follower.position:
            return found
        found += records
        follower.advance(position)


def queue_offsets(records: list[Walked]) -> list[tuple[int, int]]:
    return [(record.queue_id, record.queue_offset) for record in records]


def test_a_follower_gets_all_that_is_known_of_a_record(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stage(store, 0, b"first")
    store.tail.store_ms = 1_700_000_000_123
    start = store.tail.end_offset
    stamp = Stamp(9, 1, 5, 0, 0, tag_code("red"))
    append(store.tail, store.queue("Orders", 3), ORIGIN, stamp, b"body", PROPERTIES)
    size = store.tail.end_offset - start
    store.write_staged()
    _, record = read_on(store.follower("one"))
    assert record == Walked(start, size, "Orders", 3, 0, 1, 1_700_000_000_123, PROPERTIES)
    assert entry_code(record, DELAYS_MS) == tag_code("red")
    assert message_keys(record.properties) == ["U7", "a", "b"]
    store.close()


def test_records_come_in_log_order_over_all_files_and_not_before_they_may_be_seen(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    follower = store.follower("one")
    for number in range(40):
        send(store, number % 3, bytes(500))
    stage(store, 0, b"only staged")
    found = read_on(follower)
    assert queue_offsets(found) == [(number % 3, number // 3) for number in range(40)]
    assert found[-1].log_offset > 3 * 4_096
    store.write_staged()
    assert len(read_on(follower)) == 1
    store.close()


def reopened(store: Store, folder: Path) -> Store:
    store.close()
    return open_store(folder)


def test_each_follower_takes_up_where_it_ended_and_a_new_one_at_the_first_record(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    send(store, 0, b"0", b"1")
    assert len(read_on(store.follower("quick"))) == 2
    lazy = store.follower("lazy")
    lazy.read()  # read but not dealt with
    send(store, 0, b"2")
    flush(store, is_thorough=True)
    store = reopened(store, tmp_path)
    assert queue_offsets(read_on(store.follower("quick"))) == [(0, 2)]
    assert len(read_on(store.follower("lazy"))) == 3
    assert len(read_on(store.follower("new"))) == 3
    store.close()
