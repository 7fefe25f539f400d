"""Recovery after a crash: a kill or a power cut at every operation, and cut off itself."""

import pytest

from orbitmq.store.findings import FindingKind
from tests.store.recovering import (
    BOOT,
    OTHER_BOOT,
    ROOT,
    Run,
    bodies,
    healthy,
    kinds,
    log_bytes,
    reopen,
    run_store,
    same_twice,
)
from tests.store.slow_store import blobs_of
from tests.world.crash_images import all_but_one, everything, nothing, only_one, some
from tests.world.memory_files import MemoryFiles

STEPS = [*"mmmfmmsmmtmmmfmmm"]


@pytest.fixture(scope="module")
def run() -> Run:
    return run_store(STEPS)


def reached(moments: list[tuple[int, int]], upto: int) -> int:
    return max((offset for count, offset in moments if count <= upto), default=0)


def test_a_kill_at_every_operation_loses_nothing_acknowledged(run: Run) -> None:
    """Symptom of others: a message stored but not yet in its queue was missing after a kill."""
    for upto in range(len(run.files.ops) + 1):
        files = run.files.kill_image(upto)
        opened = reopen(files)
        log = healthy(files, opened)
        assert opened.tail.end_offset >= reached(run.acknowledged, upto)
        assert run.log.startswith(log_bytes(blobs_of(files, ROOT))[: log.end_offset])
        assert kinds(opened) <= {FindingKind.TORN_TAIL}
        same_twice(files)


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_at_every_operation_leaves_a_prefix_with_all_that_was_synced(
    run: Run, seed: int
) -> None:
    choosers = [nothing(), everything(), all_but_one(seed), only_one(seed), some(seed)]
    for upto in range(seed % 4, len(run.files.ops) + 1, 4):
        for choose in choosers:
            files = run.files.image(upto, choose)
            opened = reopen(files, boot_id=OTHER_BOOT)
            log = healthy(files, opened)
            end = opened.tail.end_offset
            assert end >= reached(run.synced, upto)
            assert run.log[:end] == log_bytes(blobs_of(files, ROOT))[:end], "the log is a prefix"
            assert not log.gaps
            same_twice(files, boot_id=OTHER_BOOT)


def test_recovery_that_is_cut_off_at_each_of_its_own_writes_is_simply_done_again(
    run: Run,
) -> None:
    files = run.files.image(len(run.files.ops), some(seed=5))
    files.forget_ops()
    opened = reopen(files, boot_id=OTHER_BOOT)
    expected = opened.tail.end_offset
    for upto in range(len(files.ops) + 1):
        for again in (files.kill_image(upto), files.image(upto, some(upto))):
            second = reopen(again, boot_id=OTHER_BOOT)
            healthy(again, second)
            assert second.tail.end_offset == expected
            same_twice(again, boot_id=OTHER_BOOT)


def test_unsynced_records_behind_a_lost_one_go_aside_after_a_power_cut() -> None:
    run = run_store([*"mmt", *"m" * 12])
    end = len(run.files.ops)
    lost = run.files.image(end, everything())
    record = run.log.index(b"0006")
    path = ROOT / "commitlog" / f"{record // 1024 * 1024:020d}"
    data = bytearray(lost.read(path) or b"")
    data[record % 1024] ^= 0xFF
    lost.put(path, bytes(data))
    opened = reopen(lost, boot_id=OTHER_BOOT)
    assert bodies(healthy(lost, opened)) == [0, 1, 3, 4, 5]
    assert FindingKind.CUT_BEHIND in kinds(opened)
    aside = b"".join(data for path, data in lost.contents().items() if "aside" in path.parts)
    assert b"0007" in aside
    assert b"0014" in aside


def test_the_same_loss_without_a_power_cut_costs_one_record() -> None:
    run = run_store([*"mmt", *"m" * 12])
    files = run.files.kill_image(len(run.files.ops))
    record = run.log.index(b"0006")
    path = ROOT / "commitlog" / f"{record // 1024 * 1024:020d}"
    data = bytearray(files.read(path) or b"")
    data[record % 1024] ^= 0xFF
    files.put(path, bytes(data))
    opened = reopen(files, boot_id=BOOT)
    assert bodies(healthy(files, opened)) == [n for n in (0, 1, *range(3, 15)) if n != 6]
    assert kinds(opened) == {FindingKind.DAMAGE}
    same_twice(files)


def test_queues_that_lag_behind_a_roll_get_the_end_of_one_file_and_the_start_of_the_next() -> None:
    """Symptom of others (1434): only the newest file was followed after a kill behind a roll."""
    run = run_store(["m", "t", *"m" * 9])
    assert len(run.log) > 1024
    files = run.files.kill_image(len(run.files.ops))
    opened = reopen(files)
    assert len(healthy(files, opened).records) == 10
    assert sum(queue.next_offset for queue in opened.queues.values()) == 10


def test_a_sync_that_failed_is_not_taken_for_done_by_the_next_start(run: Run) -> None:
    """Recovery writes the tail again: a page that looked clean was on no disk."""
    files = run.files.kill_image(len(run.files.ops))
    files.forget_ops()
    reopen(files)
    marked = run.log.index(b"0015")  # the last message was never synced
    name = f"{marked // 1024 * 1024:020d}"
    written = [op for op in files.ops if op.kind == "write" and op.path.name == name]
    assert any(op.position <= marked % 1024 < op.position + len(op.data) for op in written)


def test_a_folder_that_was_never_written_to_opens_after_a_cut_at_every_operation() -> None:
    run = run_store([])
    for upto in range(len(run.files.ops) + 1):
        for files in (run.files.kill_image(upto), run.files.image(upto, some(upto))):
            opened = reopen(files, boot_id=OTHER_BOOT)
            assert (opened.tail.end_offset, opened.queues, opened.findings) == (0, {}, [])


def test_a_full_disk_stops_recovery_and_the_next_start_goes_on(run: Run) -> None:
    files: MemoryFiles = run.files.kill_image(len(run.files.ops))
    files.fail("write", 1, 28, times=None)
    with pytest.raises(Exception, match="free space"):
        reopen(files)
    files.heal()
    again = MemoryFiles(ROOT)
    for path, data in files.contents().items():
        again.put(path, data)
    opened = reopen(again)
    assert opened.tail.end_offset == len(run.log)
    healthy(again, opened)
