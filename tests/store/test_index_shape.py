"""How many slots and entries index files have, told from the files alone.

Method: real stores with counts of their own; `check`, `dump` and `repair` get the original's.
"""

from pathlib import Path

import pytest

from orbitmq.store.check import check
from orbitmq.store.dump import Seen, Wanted, dump
from orbitmq.store.index_shape import Shape, find_shape
from orbitmq.store.opening import Outside
from orbitmq.store.options import StoreOptions
from orbitmq.store.repair import repair
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from tests.store.opened import BOOT, open_store, stage

FILES = SystemFiles()
DEFAULT = StoreOptions()
SHAPES = [(500_000, 2_000_000), (1_000, 300_000), (7, 400), (1, 1_000)]


def filled(folder: Path, shape: tuple[int, int], count: int) -> None:
    options = StoreOptions(
        log_file_size=1 << 20,
        queue_file_size=6_000,
        index_slot_count=shape[0],
        index_entry_count=shape[1],
    )
    store = open_store(folder, options=options)
    for number in range(count):
        stage(store, 0, b"x" * 100, b"KEYS\x01k%d\x02" % number)
    store.write_staged()
    store.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 2, 300])
def test_the_counts_are_told_from_the_files(
    tmp_path: Path, shape: tuple[int, int], count: int
) -> None:
    """Symptom: check called such an index damaged, repair made it anew with the wrong size."""
    filled(tmp_path, shape, count)
    names = FILES.names(tmp_path / "index")
    before = {name: (tmp_path / "index" / name).stat().st_size for name in names}
    paths = [tmp_path / "index" / name for name in names]
    assert find_shape(FILES, paths, Shape(5_000_000, 20_000_000)) == Shape(*shape)
    assert check(FILES, tmp_path, DEFAULT, BOOT).faults == []
    found = list(dump(FILES, tmp_path, Wanted(topic="T", key="k0"), DEFAULT))
    assert [isinstance(item, Seen) for item in found] == [True]
    assert repair(Outside(FILES, SystemClock(), BOOT), tmp_path, DEFAULT).findings == []
    names = FILES.names(tmp_path / "index")
    assert {name: (tmp_path / "index" / name).stat().st_size for name in names} == before


def test_an_index_that_tells_nothing_is_named_with_the_settings_to_give(tmp_path: Path) -> None:
    filled(tmp_path, (1_000, 300_000), 20)
    for path in (tmp_path / "index").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    faults = check(FILES, tmp_path, DEFAULT, BOOT).faults
    assert any("-D maxHashSlotNum=" in fault.text for fault in faults)
