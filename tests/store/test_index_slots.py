"""The slots of an index file against a dictionary: links, copies for the disk, coming back.

In: places of entries, at random. Out: what slots say, and what a file holds. Whole files, crashes
and wrong slots are in `test_key_index.py` and `test_index_crash.py`.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.core import ROW
from orbitmq.store.index_shape import ENTRY, HEADER_SIZE, SLOT_SIZE, Shape
from orbitmq.store.index_slots import PAGE_SIZE, Slots, write_runs
from tests.store.keyed import INDEX
from tests.world.memory_files import MemoryFiles

SHAPE = Shape(5_000, 100)
PATH = INDEX / "20261118000000000"
hashes = st.integers(0, 2**31 - 1) | st.integers(0, 20)


def written(files: MemoryFiles, slots: Slots) -> list[tuple[int, int]]:
    """Write what has changed; give first page and number of pages of each piece."""
    runs = slots.freeze()
    write_runs(files.open_big(PATH, SHAPE.file_size, is_mapped=False), SHAPE, runs)
    return [(first, len(pages) // PAGE_SIZE) for first, pages in runs]


def filed(slots: Slots, keys: Sequence[int], number: int) -> list[int]:
    """File entries of these hashes, numbered from `number`; return what each is linked to."""
    entries, rows = bytearray(), b"".join(ROW.pack(key_hash, 1, 2) for key_hash in keys)
    used = slots.file(memoryview(rows), entries, number, 0)
    links = [entry[3] for entry in ENTRY.iter_unpack(entries)]
    assert used == links.count(0)
    return links


@given(st.lists(st.lists(hashes, max_size=40), max_size=5))
def test_each_entry_is_linked_to_the_one_before_it_in_its_slot(batches: list[list[int]]) -> None:
    slots, model, number = Slots(SHAPE), dict[int, int](), 1
    for batch in batches:
        expected = []
        for at, key_hash in enumerate(batch, number):
            expected.append(model.get(key_hash % SHAPE.slot_count, 0))
            model[key_hash % SHAPE.slot_count] = at
        assert filed(slots, batch, number) == expected
        number += len(batch)
    assert all(slots.value(slot) == at for slot, at in model.items())
    files = MemoryFiles(INDEX)
    written(files, slots)
    again = Slots.read(files, PATH, SHAPE)
    assert again.used_count() == len(model)
    assert dict(again.beyond(1)) == model


def test_what_is_frozen_stays_as_it_was_while_entries_come() -> None:
    files, slots = MemoryFiles(INDEX), Slots(SHAPE)
    filed(slots, [7], 1)
    runs = slots.freeze()
    filed(slots, [7], 2)
    write_runs(files.open_big(PATH, SHAPE.file_size, is_mapped=False), SHAPE, runs)
    assert Slots.read(files, PATH, SHAPE).value(7) == 1
    assert slots.value(7) == 2


def test_pages_that_were_not_written_are_frozen_again() -> None:
    slots = Slots(SHAPE)
    filed(slots, [0, 1_500, 2_600], 1)
    runs = slots.freeze()
    assert slots.freeze() == []
    slots.take_back(runs)
    assert written(MemoryFiles(INDEX), slots) == [(0, 3)]


@pytest.mark.parametrize(
    ("keys", "pieces"),
    [([0], [(0, 1)]), ([0, 2_600], [(0, 1), (2, 1)]), ([0, 1_500, 2_600, 3_500], [(0, 5)])],
)
def test_only_pages_that_changed_are_written_unless_nearly_all_did(
    keys: list[int], pieces: list[tuple[int, int]]
) -> None:
    files, slots = MemoryFiles(INDEX), Slots(SHAPE)
    filed(slots, keys, 1)
    assert written(files, slots) == pieces
    data = files.contents()[PATH]
    numbers = {data[HEADER_SIZE + SLOT_SIZE * key :][:SLOT_SIZE] for key in keys}
    assert numbers == {number.to_bytes(SLOT_SIZE, "big") for number in range(1, len(keys) + 1)}
    assert data[:HEADER_SIZE] == bytes(HEADER_SIZE)
    assert data[SHAPE.entry_position(0) :] == bytes(len(data) - SHAPE.entry_position(0))
