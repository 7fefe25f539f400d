"""`dump` gives what was recorded of the original's log, whatever way it gets there.

Method: the recorded folder in memory; all records, then the same ones by topic, queue, time and
key, are compared with the list that was written down when the store was recorded.
"""

from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.dump import Seen, Wanted, describe, dump, keys_of
from orbitmq.store.log_walk import Damage
from orbitmq.store.options import StoreOptions
from orbitmq.world.files import AnyPath
from tests.golden.store import store_files, stored_records
from tests.store.made_folder import OPTIONS, ROOT, made_folder, put_folder, with_flip
from tests.store.slow_store import read_log
from tests.world.memory_files import MemoryFiles


def dumped(files: MemoryFiles, wanted: Wanted) -> list[dict[str, Any]]:
    found = list(dump(files, ROOT, wanted, StoreOptions()))
    assert not [damage for damage in found if isinstance(damage, Damage)]
    return [describe(seen) for seen in found if isinstance(seen, Seen)]


@pytest.fixture(scope="module")
def golden() -> MemoryFiles:
    return put_folder(store_files())


def test_all_records_are_given_as_they_were_written_down(golden: MemoryFiles) -> None:
    assert dumped(golden, Wanted()) == list(stored_records())


def test_records_are_chosen_by_topic_and_queue(golden: MemoryFiles) -> None:
    wanted = [
        record
        for record in stored_records()
        if record["topic"] == "TopicA" and record["queue_id"] == 1
    ]
    assert dumped(golden, Wanted(topic="TopicA", queue_id=1)) == wanted != []


def test_records_are_chosen_by_time_and_log_offset(golden: MemoryFiles) -> None:
    times = sorted({record["store_timestamp"] for record in stored_records()})
    begin, end = times[100], times[300]
    wanted = [
        record
        for record in stored_records()
        if begin <= record["store_timestamp"] <= end and record["offset"] >= 200_000
    ]
    assert dumped(golden, Wanted(from_ms=begin, to_ms=end, from_offset=200_000)) == wanted != []


@pytest.mark.parametrize("key", ["order207", "user4", "7F0000011C3F5FFD2B274C3DC0E00002", "none"])
@pytest.mark.parametrize("topic", ["TopicFill", "TopicA"])
def test_records_are_found_by_key(golden: MemoryFiles, topic: str, key: str) -> None:
    wanted = [
        record
        for record in stored_records()
        if record["topic"] == topic
        and key in (record["properties"].get("UNIQ_KEY"), *record["properties"]["KEYS"].split(" "))
    ]
    assert dumped(golden, Wanted(topic=topic, key=key)) == wanted


def test_a_key_is_looked_up_without_reading_the_log(golden: MemoryFiles) -> None:
    reads: list[Path] = []

    class Watched(MemoryFiles):
        def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
            reads.append(Path(path))
            return super().read_at(path, position, size)

    files = Watched(ROOT, ROOT / "commitlog")
    for path, data in store_files().items():
        files.make_folder((ROOT / path).parent)
        files.put(ROOT / path, data)
    wanted = Wanted(topic="TopicFill", key="7F00000121295FFD2B274C3E919700CF")
    assert len(list(dump(files, ROOT, wanted, OPTIONS))) == 1
    logs = {path.name for path in reads if path.parent.name == "commitlog"}
    assert logs == {"00000000000000524288", "00000000000001703936"}  # its own, and the newest


def test_records_that_the_index_does_not_hold_yet_are_found_by_key() -> None:
    blobs = made_folder()
    for path in [path for path in blobs if path.startswith("index/")][1:]:
        del blobs[path]
    found = list(dump(put_folder(blobs), ROOT, Wanted(topic="TopicA", key="k1"), OPTIONS))
    offsets = [seen.record.log_offset for seen in found if isinstance(seen, Seen)]
    wanted = [
        stored.record.log_offset
        for stored in read_log(blobs).records
        if "k1" in keys_of(stored.record) and stored.record.topic == "TopicA"
    ]
    assert offsets == wanted
    assert len(wanted) == 3


def test_damage_is_given_between_the_records_around_it() -> None:
    blobs = made_folder()
    records = [stored.record.log_offset for stored in read_log(blobs).records]
    flipped = with_flip(blobs, f"commitlog/{0:020d}", records[2] + 90, 3)
    found = list(dump(put_folder(flipped), ROOT, Wanted(), OPTIONS))
    places = [
        (one.start, one.end) if isinstance(one, Damage) else one.record.log_offset for one in found
    ]
    assert places == [*records[:2], (records[2], records[3]), *records[3:]]


def test_a_damaged_chain_of_the_index_ends_the_look_up() -> None:
    blobs = made_folder()
    path = "index/20261115182457407"
    data = bytearray(blobs[path])
    for number in range(1, 9):  # each entry is its own predecessor
        at = 40 + 4 * 7 + 20 * number
        data[at + 16 : at + 20] = number.to_bytes(4, "big")
    blobs[path] = bytes(data)
    found = list(dump(put_folder(blobs), ROOT, Wanted(topic="TopicA", key="k1"), OPTIONS))
    assert len(found) <= 3


def test_a_folder_without_a_log_is_refused() -> None:
    with pytest.raises(StoreError, match="is no store folder"):
        list(dump(MemoryFiles(ROOT), ROOT, Wanted(), OPTIONS))
