"""`check` beside the real store: open, killed at any operation, and after a clean stop.

Method: a short run of the store on files in memory, small files, so that log, queues and index roll
and the index is written behind. Every kill image of it must be healthy; the same holds for the open
folder between any two steps. `repair` of a kill image gives what the slow store demands.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.store.check import check
from orbitmq.store.opening import Outside
from orbitmq.store.repair import repair
from orbitmq.store.store import Store
from orbitmq.store.verdict import Level, Verdict
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from tests.store.opened import BOOT, SMALL, flush, open_store, send, stage, sync
from tests.store.slow_store import assert_derived, blobs_of
from tests.world.crash_images import nothing, some
from tests.world.memory_files import MemoryFiles

ROOT = Path("/store")
TURNS = 12
PER_TURN = 4
OTHER_BOOT = b"started anew 123"


def turns(store: Store) -> Iterator[None]:
    """Write turn by turn, flush now and then."""
    number = 0
    for turn in range(TURNS):
        for _ in range(PER_TURN):
            properties = f"TAGS\x01tag{number % 3}\x02UNIQ_KEY\x01U{number}\x02KEYS\x01a b{number}"
            stage(store, number % 3, bytes(number), properties.encode())
            number += 1
        store.write_staged()
        yield
        if turn % 3 == 1:
            flush(store, is_thorough=turn % 2 == 1)
            yield
        if turn % 4 == 2:
            sync(store)
            yield


def damages(verdict: Verdict) -> list[tuple[str, int, str]]:
    return [fault[1:4] for fault in verdict.faults if fault.level is Level.DAMAGE]


def run_store(*, has_nameless: bool = True) -> MemoryFiles:
    files = MemoryFiles(ROOT)
    files.has_nameless = has_nameless
    store = open_store(ROOT, files)
    for _ in turns(store):
        pass
    store.close()
    return files


def test_an_open_folder_is_healthy_between_any_two_steps(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in turns(store):
        verdict = check(SystemFiles(), tmp_path, SMALL, BOOT)
        assert damages(verdict) == []
        assert verdict.totals[Level.WARNING] == 0
    store.close()


def test_a_cleanly_stopped_folder_has_nothing_to_say() -> None:
    verdict = check(run_store(), ROOT, SMALL, BOOT)
    assert verdict.faults == []
    assert verdict.counts["records"] == TURNS * PER_TURN
    assert verdict.counts["index entries"] == 3 * TURNS * PER_TURN


@pytest.mark.parametrize("has_nameless", [True, False])
def test_a_folder_killed_at_any_operation_is_healthy(has_nameless: bool) -> None:
    files = run_store(has_nameless=has_nameless)
    for upto in range(1, len(files.ops) + 1):
        image = files.kill_image(upto)
        if image.is_folder(ROOT / "commitlog"):
            verdict = check(image, ROOT, SMALL, BOOT)
            assert damages(verdict) == [], f"after {upto} operations: {files.ops[upto - 1]}"


@pytest.mark.parametrize("has_nameless", [True, False])
def test_a_folder_that_was_opened_after_a_crash_and_closed_is_healthy(has_nameless: bool) -> None:
    """Symptom: index entries of records that a power cut took away were left, and called damage."""
    files = run_store(has_nameless=has_nameless)
    for upto in range(1, len(files.ops) + 1, 5):
        after_power_cut = [files.image(upto, choose) for choose in (nothing(), some(upto))]
        for image in (files.kill_image(upto), *after_power_cut):
            boot_id = OTHER_BOOT if image in after_power_cut else BOOT
            image.has_nameless = has_nameless
            image.make_folder(ROOT)
            open_store(ROOT, image, boot_id=boot_id).close()
            assert damages(check(image, ROOT, SMALL, boot_id)) == [], f"after {upto} operations"


@pytest.mark.parametrize("has_nameless", [True, False])
def test_repair_of_a_killed_folder_gives_what_the_log_demands(has_nameless: bool) -> None:
    files = run_store(has_nameless=has_nameless)
    for upto in range(60, len(files.ops) + 1, 15):
        image = files.kill_image(upto)
        repaired = repair(Outside(image, SystemClock(), BOOT), ROOT, SMALL)
        assert repaired.verdict.is_healthy
        blobs = blobs_of(image, ROOT)
        inside = {path: data for path, data in blobs.items() if not path.startswith("aside/")}
        assert_derived(inside, SMALL.index_slot_count)
        image.forget_ops()
        assert repair(Outside(image, SystemClock(), BOOT), ROOT, SMALL).findings == []
        assert {op.path.name for op in image.ops} == {"lock"}


def test_the_store_goes_on_in_a_repaired_folder() -> None:
    image = run_store().kill_image(len(run_store().ops) - 20)
    repair(Outside(image, SystemClock(), BOOT), ROOT, SMALL)
    store = open_store(ROOT, image)
    end = store.queue("T", 0).next_offset
    send(store, 0, b"more")
    assert store.queue("T", 0).next_offset == end + 1
    store.close()
    assert check(image, ROOT, SMALL, BOOT).is_healthy
