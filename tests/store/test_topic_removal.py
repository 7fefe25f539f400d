"""Removed topics: their queues go at once and for good, whatever happens on the way."""

from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.findings import FindingKind
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import KeyQuery, Store
from tests.store.opened import flush, open_store, read_all, stage, sync
from tests.world.crash_images import Chooser, everything, nothing, some
from tests.world.memory_files import MemoryFiles

ROOT = Path("/store")
NEXT_BOOT = b"after power cut!"
ASYNC = StoreOptions(
    log_file_size=65_536, queue_file_size=100, index_slot_count=10, index_entry_count=200
)
SYNC = StoreOptions(
    log_file_size=65_536,
    queue_file_size=100,
    index_slot_count=10,
    index_entry_count=200,
    is_sync_flush=True,
)


def put(store: Store, topic: str, *bodies: bytes, queue_id: int = 0) -> None:
    """Send messages, one turn each."""
    for body in bodies:
        store.tail.store_ms += 1_000
        stage(store, queue_id, body, b"KEYS\x01" + body, topic=topic)
        store.write_staged()


def remove(store: Store, *topics: str) -> None:
    """Remove topics as the broker does."""
    store.remove_topics(topics)
    job = store.begin_removal()
    assert job is not None
    job.run()
    store.finish_removal(job)


def old(count: int) -> list[bytes]:
    """Return bodies of a first life."""
    return [b"old%d" % number for number in range(count)]


def let_go(store: Store) -> None:
    """Leave a store as a kill does, so that the folder can be opened again."""
    store._opened.lock.release()  # as the operating system would


def bodies(store: Store, topic: str, queue_id: int = 0) -> list[bytes]:
    """Return what a topic's queue holds, without making it."""
    if store.find_queue(topic, queue_id) is None:
        return []
    return read_all(store, queue_id, topic=topic)


# ---- what a removal does -------------------------------------------------------------------------


def test_a_removed_topic_has_no_queue_and_no_file_and_others_stay(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=ASYNC)
    put(store, "T", *old(12))
    put(store, "T", b"x", queue_id=3)
    put(store, "U", b"u0", b"u1")
    flush(store)
    put(store, "T", b"unwritten")
    remove(store, "T")
    assert store.queue_counts() == {"U": 1}
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["U"]
    assert store.unwritten_bytes == 0 or store.find_queue("T", 0) is None
    assert bodies(store, "U") == [b"u0", b"u1"]
    store.close()


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_topic_that_is_made_again_begins_with_number_0_and_keeps_its_lives_apart(
    tmp_path: Path, *, is_flushed: bool
) -> None:
    store = open_store(tmp_path, options=ASYNC)
    put(store, "T", *old(7))
    if is_flushed:
        flush(store, is_thorough=True)
    remove(store, "T")
    put(store, "T", b"new0", b"new1")
    assert bodies(store, "T") == [b"new0", b"new1"]
    store.close()
    again = open_store(tmp_path, options=ASYNC)
    assert again.findings == []
    assert bodies(again, "T") == [b"new0", b"new1"]
    again.close()


def test_a_removed_topic_does_not_come_back_when_queues_are_made_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=ASYNC)
    put(store, "T", *old(7))
    put(store, "U", b"u0")
    remove(store, "T")
    put(store, "U", b"u1")
    store.close()
    (tmp_path / "consumequeue" / "U" / "0" / f"{0:020}").unlink()  # nothing agrees any more
    again = open_store(tmp_path, options=ASYNC)
    assert FindingKind.QUEUE_REBUILT in {finding.kind for finding in again.findings}
    assert again.queue_counts() == {"U": 1}
    assert bodies(again, "U") == [b"u0", b"u1"]
    again.close()


def test_messages_of_a_removed_topic_are_still_found_by_key(tmp_path: Path) -> None:
    """As in the original: the log keeps them until they are old."""
    store = open_store(tmp_path, options=ASYNC)
    put(store, "T", *old(3))
    remove(store, "T")
    found = store.lookup(KeyQuery("T", "old1", 0, 2**62, 10))()
    assert len(found) == 1
    store.close()


def test_no_flush_begins_between_the_word_and_the_end_of_a_removal(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=ASYNC)
    put(store, "T", *old(3))
    store.remove_topics({"T"})
    before = store.is_removing
    assert store.begin_flush(is_thorough=False) is None
    job = store.begin_removal()
    assert job is not None
    assert store.begin_removal() is None
    job.run()
    store.finish_removal(job)
    assert (before, store.is_removing) == (True, False)
    flushing = store.begin_flush(is_thorough=False)
    assert flushing is not None
    store.cancel_flush(flushing)
    store.close()


def test_a_flush_that_was_under_way_writes_for_nobody(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=ASYNC)
    put(store, "T", *old(9))
    put(store, "U", b"u0")
    flushing = store.begin_flush(is_thorough=False)
    assert flushing is not None
    store.remove_topics({"T"})
    put(store, "T", b"new0")
    assert store.begin_removal() is None
    flushing.run()
    store.finish_flush(flushing)
    job = store.begin_removal()
    assert job is not None
    job.run()
    store.finish_removal(job)
    store.close()
    again = open_store(tmp_path, options=ASYNC)
    assert again.findings == []
    assert (bodies(again, "T"), bodies(again, "U")) == ([b"new0"], [b"u0"])
    again.close()


def test_what_waits_for_a_sync_does_not_bring_the_topic_back(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=SYNC)
    put(store, "T", *old(2))
    stage(store, 0, b"staged", topic="T")
    store.remove_topics({"T"})
    put(store, "T", b"new0")
    sync(store)
    flush_all = store.begin_removal()
    assert flush_all is not None
    flush_all.run()
    store.finish_removal(flush_all)
    assert bodies(store, "T") == [b"new0"]
    store.close()
    again = open_store(tmp_path, options=SYNC)
    assert again.findings == []
    assert bodies(again, "T") == [b"new0"]
    again.close()


def test_a_removal_that_the_disk_refuses_is_done_again() -> None:
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, ASYNC)
    put(store, "T", *old(12))
    put(store, "U", b"u0")
    flush(store, is_thorough=True)
    store.remove_topics({"T"})
    files.fail("remove", 2)
    job = store.begin_removal()
    assert job is not None
    job.run()
    with pytest.raises(StoreError):
        store.finish_removal(job)
    assert store.is_removing
    files.heal()
    again = store.begin_removal()
    assert again is job
    again.run()
    store.finish_removal(again)
    store.close()
    opened = open_store(ROOT, files, ASYNC)
    assert opened.findings == []
    assert opened.queue_counts() == {"U": 1}


def test_a_note_is_dropped_when_the_log_begins_behind_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=ASYNC)
    put(store, "T", *old(2))
    remove(store, "T")
    note = tmp_path / "config" / "removedTopics.json"
    assert b'"T"' in note.read_bytes()
    store.close()
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    open_store(tmp_path, options=ASYNC).close()
    assert not note.exists()


def test_a_note_never_covers_offsets_that_are_given_again() -> None:
    """A power cut takes the log's end; what is sent there afterwards must stay, rebuilt or not."""
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, ASYNC)
    put(store, "U", b"u0")
    flush(store, is_thorough=True)
    put(store, "T", *old(9))
    remove(store, "T")
    image = files.image(len(files.ops), nothing())
    cut = open_store(ROOT, image, ASYNC, boot_id=NEXT_BOOT)
    put(cut, "T", b"new0", b"new1")
    cut.close()
    for path in [path for path in image.contents() if "consumequeue" in path.parts]:
        image.remove(path)
    again = open_store(ROOT, image, ASYNC, boot_id=NEXT_BOOT)
    assert bodies(again, "T") == [b"new0", b"new1"]


def test_a_note_does_not_cover_what_a_refused_write_made_room_for() -> None:
    """The deletion came in a turn whose write the disk refused: its offsets are given again."""
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, ASYNC)
    put(store, "T", *old(2))
    stage(store, 0, b"refused" * 50, topic="T")
    store.remove_topics({"T"})
    files.fail("write")
    with pytest.raises(StoreError):
        store.write_staged()
    remove(store)
    put(store, "T", b"new0", b"new1")
    store.close()
    for path in [path for path in files.contents() if "consumequeue" in path.parts]:
        files.remove(path)
    again = open_store(ROOT, files, ASYNC)
    assert bodies(again, "T") == [b"new0", b"new1"]


# ---- crashes -------------------------------------------------------------------------------------


class Lived(NamedTuple):
    """A store that lived through a removal, and what was true after how many operations."""

    files: MemoryFiles
    begun: int
    removed: int
    acknowledged: list[tuple[int, bytes]]
    """Messages of the second life."""


def live(options: StoreOptions) -> Lived:
    """Fill two topics, remove one, make it again."""
    files = MemoryFiles(ROOT)
    store = open_store(ROOT, files, options)
    put(store, "T", *old(12))
    put(store, "T", b"old-a", b"old-b", queue_id=1)
    put(store, "U", b"u0", b"u1")
    flush(store, is_thorough=True)
    put(store, "U", b"u2")
    put(store, "T", b"old-c")
    sync(store)
    flush(store)
    begun = len(files.ops)
    remove(store, "T")
    removed = len(files.ops)
    acknowledged = []
    for number in range(8):
        put(store, "T", b"new%d" % number)
        sync(store)
        acknowledged.append((len(files.ops), b"new%d" % number))
        if number in (1, 6):
            flush(store, is_thorough=number == 6)
    return Lived(files, begun, removed, acknowledged)


def judge(lived: Lived, image: MemoryFiles, op_count: int, boot_id: bytes) -> None:
    """Open what a crash left; hold it to what was promised; go on with it."""
    store = open_store(ROOT, image, ASYNC, boot_id=boot_id)
    found = bodies(store, "T")
    promised = [body for at, body in lived.acknowledged if at <= op_count]
    everything_new = [body for _, body in lived.acknowledged]
    if op_count >= lived.removed:
        assert found == everything_new[: len(found)]
        assert len(found) >= len(promised)
        assert store.find_queue("T", 1) is None
    else:
        assert found in ([], [*old(12), b"old-c"])
    assert bodies(store, "U") == [b"u0", b"u1", b"u2"]
    kinds = {finding.kind for finding in store.findings}
    assert FindingKind.QUEUE_REBUILT not in kinds, store.findings
    put(store, "T", b"later")
    store.close()
    again = open_store(ROOT, image, ASYNC, boot_id=boot_id)
    assert again.findings == []
    assert bodies(again, "T") == [*found, b"later"]
    let_go(again)


def test_a_kill_at_any_moment_leaves_the_topic_whole_or_gone_and_its_new_life_complete() -> None:
    lived = live(ASYNC)
    for op_count in range(lived.begun, len(lived.files.ops) + 1):
        judge(lived, lived.files.kill_image(op_count), op_count, b"the same machine")


CHOICES = {
    "nothing": nothing(),
    "everything": everything(),
    **{f"some {seed}": some(seed) for seed in range(6)},
}


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_a_power_cut_at_any_moment_leaves_the_topic_whole_or_gone(choose: Chooser) -> None:
    lived = live(ASYNC)
    for op_count in range(lived.begun, len(lived.files.ops) + 1):
        judge(lived, lived.files.image(op_count, choose), op_count, NEXT_BOOT)


# ---- folders of the original ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_clean", "has_table", "is_back"),
    [(True, True, False), (False, True, True), (True, False, True)],
)
def test_a_topic_that_the_original_removed_stays_away_if_that_is_sure(
    tmp_path: Path, *, is_clean: bool, has_table: bool, is_back: bool
) -> None:
    """4.9.7 itself brings the queue back after a kill, and does not after a clean stop."""
    store = open_store(tmp_path, options=ASYNC)
    put(store, "T", *old(3))
    put(store, "U", b"u0")
    store.close()
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    (tmp_path / "consumequeue" / "T" / "0").rmdir()  # the topic's own folder stays
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:24] + bytes(4_072))  # nothing of ours
    if has_table:
        (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"U":{}}}')
    if not is_clean:
        (tmp_path / "abort").touch()
    again = open_store(tmp_path, options=ASYNC)
    assert bodies(again, "U") == [b"u0"]
    assert bodies(again, "T") == (old(3) if is_back else [])
    again.close()


def test_a_removal_that_a_start_finishes_can_be_cut_off_as_well() -> None:
    """Recovery does nothing that a second recovery would not do."""
    lived = live(ASYNC)
    for op_count in range(lived.begun + 1, lived.removed, 4):
        image = lived.files.kill_image(op_count)
        image.forget_ops()
        let_go(open_store(ROOT, image, ASYNC))
        for cut in range(0, len(image.ops), 5):
            judge(lived, image.kill_image(cut), op_count, b"the same machine")
