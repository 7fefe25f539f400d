"""A log outside the store folder: crashes at every operation, strays, wrong places.

Method: the real store on files in memory, killed and cut after each of its operations.
"""

from pathlib import Path

import msgspec
import pytest

from orbitmq.errors import StoreError
from orbitmq.store.check import check
from orbitmq.store.opening import Outside
from orbitmq.store.repair import repair
from orbitmq.world.clock import SystemClock
from tests.store.opened import flush, open_store, read_all, sync
from tests.store.recovering import (
    BOOT,
    OTHER_BOOT,
    ROOT,
    SLOTS,
    SMALL,
    message,
    reopen,
)
from tests.store.slow_store import assert_derived, blobs_of, read_log
from tests.world.crash_images import all_but_one, everything, nothing, only_one, some
from tests.world.memory_files import MemoryFiles

DISK = Path("/disk")
LOG = DISK / "made" / "log"
ELSEWHERE = msgspec.structs.replace(SMALL, log_folders=(LOG,))


def blobs(files: MemoryFiles) -> dict[str, bytes]:
    """Both folders, as one whose log is in its place."""
    logs = {f"commitlog/{path}": data for path, data in blobs_of(files, LOG).items()}
    return {**blobs_of(files, ROOT), **logs}


def written_store(steps: str) -> tuple[MemoryFiles, list[tuple[int, int]]]:
    """Do steps on a new folder; give its files and after how many operations what was synced."""
    files = MemoryFiles(ROOT, DISK)
    store = open_store(ROOT, files, ELSEWHERE, boot_id=BOOT)
    synced: list[tuple[int, int]] = []
    for number, step in enumerate(steps):
        if step == "m":
            message(store, number, queue_id=number % 3)
            continue
        if step == "s":
            sync(store)
        else:
            flush(store, is_thorough=True)
        synced.append((len(files.ops), store.durable_offset))
    return files, synced


def test_every_crash_from_the_very_first_start_on_keeps_what_was_synced() -> None:
    files, synced = written_store("mmsmmmtmmmmmm")
    whole = b"".join(data for _, data in sorted(blobs_of(files, LOG).items()))
    assert len(blobs_of(files, LOG)) >= 2
    for upto in range(len(files.ops) + 1):
        choosers = [nothing(), everything(), all_but_one(upto), only_one(upto), some(upto)]
        images = [files.image(upto, choose) for choose in choosers]
        for image in (*images, files.kill_image(upto)):
            opened = reopen(image, boot_id=OTHER_BOOT, options=ELSEWHERE)
            log = assert_derived(blobs(image), SLOTS)
            least = max((offset for count, offset in synced if count <= upto), default=0)
            assert opened.tail.end_offset == log.end_offset >= least
            found = b"".join(data for _, data in sorted(blobs_of(image, LOG).items()))
            assert found[: log.end_offset] == whole[: log.end_offset]


def test_a_store_whose_log_is_elsewhere_is_opened_again_and_checked() -> None:
    files, _ = written_store("mmmmmmt")
    store = open_store(ROOT, files.kill_image(len(files.ops)), ELSEWHERE)
    assert [len(read_all(store, queue_id)) for queue_id in range(3)] == [2, 2, 2]
    store.close()
    assert not files.is_folder(ROOT / "commitlog")
    assert check(files, ROOT, ELSEWHERE, BOOT).is_healthy


def test_damage_is_named_with_the_whole_path_and_strays_go_aside() -> None:
    files, _ = written_store("mmmmmmt")
    files = files.kill_image(len(files.ops))
    files.put(LOG / "stray", b"x")
    verdict = check(files, ROOT, ELSEWHERE, BOOT)
    assert [fault.path for fault in verdict.faults if "stray" in fault.path] == [str(LOG / "stray")]
    outside = Outside(files, SystemClock(), BOOT)
    assert repair(outside, ROOT, ELSEWHERE).verdict.is_healthy
    assert files.read(ROOT / "aside" / "1-commitlog-stray") == b"x"
    assert len(read_log(blobs(files)).records) == 6


def test_a_log_inside_the_root_under_another_name_is_no_stranger() -> None:
    options = msgspec.structs.replace(SMALL, log_folders=(ROOT / "mine" / "log",))
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, options)
    message(store, 1)
    store.close()
    assert [fault.text for fault in check(files, ROOT, options, BOOT).faults] == []


@pytest.mark.parametrize("name", ["consumequeue", "index/log", "config", "aside/x"])
def test_a_log_among_other_files_of_the_store_is_refused(name: str) -> None:
    options = msgspec.structs.replace(SMALL, log_folders=(ROOT / name,))
    with pytest.raises(StoreError, match="holds other files of the store"):
        open_store(ROOT, MemoryFiles(ROOT), options)


@pytest.mark.parametrize("log", [ROOT, ROOT.parent])
def test_a_log_around_the_root_is_refused_and_nothing_is_moved(log: Path) -> None:
    """Everything in a log folder that is no log file would be set aside: the store itself."""
    files = MemoryFiles(ROOT)
    open_store(ROOT, files).close()
    before = files.contents()
    with pytest.raises(StoreError, match="and no file of a log; choose a folder"):
        open_store(ROOT, files, msgspec.structs.replace(SMALL, log_folders=(log,)))
    assert files.contents() == before


def test_a_store_that_was_refused_lets_go_of_both_folders() -> None:
    files = MemoryFiles(ROOT, DISK)
    first = open_store(ROOT, files, ELSEWHERE)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"another broker has the log folder {LOG} open"):
            open_store(Path("/other"), files, ELSEWHERE)
    first.close()
    open_store(Path("/other"), files, ELSEWHERE).close()


def test_a_lost_log_is_begun_anew_only_when_asked() -> None:
    files, _ = written_store("mmt")
    files = files.kill_image(len(files.ops))
    files.remove(LOG / f"{0:020d}")
    with pytest.raises(StoreError, match="mount its disk") as refused:
        open_store(ROOT, files, ELSEWHERE)
    assert f"remove {ROOT / 'checkpoint'}" in str(refused.value)
    files.remove(ROOT / "checkpoint")
    store = open_store(ROOT, files, ELSEWHERE)
    assert store.tail.end_offset == 0
    assert files.names(ROOT / "aside"), "the queues of the lost log"
