"""`check` on healthy, crashed, growing and foreign folders: what it accepts and what it says.

Method: folders made by `slow_store` and the recorded ones of the original, in memory, changed the
way a kill, a live broker or retention changes them.
"""

import gzip
import io
import tarfile

import pytest
from msgspec.structs import replace

from orbitmq.errors import StoreError
from orbitmq.store.check import check
from orbitmq.store.checkpoint import Checkpoint, Mark, Stamps, encode_checkpoint
from orbitmq.store.index_shape import Shape, find_shape
from orbitmq.store.options import StoreOptions
from orbitmq.store.verdict import FAULTS_MAX, Fault, Level, Verdict
from orbitmq.world.files import AnyPath
from tests.golden.store import FOLDER, store_files
from tests.store.made_folder import (
    BOOT_ID,
    ENTRY_COUNT,
    MESSAGES,
    OPTIONS,
    QUEUE_FILE_SIZE,
    ROOT,
    SLOT_COUNT,
    Sent,
    derived,
    made_folder,
    made_log,
    put_folder,
)
from tests.store.slow_store import assert_derived, build_index, index_files, read_log
from tests.world.memory_files import MemoryFiles

QUEUE = f"consumequeue/TopicA/0/{0:020d}"


def verdict_of(blobs: dict[str, bytes], boot_id: bytes = BOOT_ID) -> Verdict:
    return check(put_folder(blobs), ROOT, OPTIONS, boot_id)


def levels(verdict: Verdict) -> list[Level]:
    return [fault.level for fault in verdict.faults]


def texts(verdict: Verdict, level: Level) -> list[str]:
    return [fault.text for fault in verdict.faults if fault.level is level]


def checkpoint_at(log_offset: int, synced: int = 0) -> bytes:
    written, safe = (Mark(at, 0, 0, "", 0, 0, 0, 0) for at in (log_offset, synced))
    value = Checkpoint(Stamps(1, 1, 1), written, safe, BOOT_ID)
    return encode_checkpoint(value, None).ljust(4_096, b"\0")


# --- the second implementation itself ---


def test_the_slow_store_agrees_with_the_original_on_every_entry() -> None:
    log = assert_derived(store_files(), 500, may_repeat=True)
    assert len(log.records) == 2_105
    assert log.gaps == []


def test_the_slow_store_makes_the_index_files_of_the_original_byte_for_byte() -> None:
    made = build_index(read_log(store_files()).records, 500, 200)
    recorded = index_files(store_files())
    assert len(made) == len(recorded) == 31
    assert made[:30] == recorded[:30]  # the 31st begins with a record that was indexed twice


def test_the_slow_store_notices_a_wrong_queue_entry_and_a_wrong_index_entry() -> None:
    blobs = made_folder()
    assert_derived(blobs, SLOT_COUNT)
    for path in (QUEUE, "index/20261115182457407"):
        wrong = {**blobs, path: blobs[path][::-1]}
        with pytest.raises(AssertionError):
            assert_derived(wrong, SLOT_COUNT)


# --- the original's folders ---


def test_the_recorded_folder_of_the_original_is_healthy() -> None:
    verdict = check(put_folder(store_files()), ROOT, StoreOptions())
    assert verdict.faults == []
    assert verdict.counts["records"] == verdict.counts["queue entries"] == 2_105
    assert verdict.counts["index entries"] == 6_060


def crashed_files() -> dict[str, bytes]:
    packed = io.BytesIO(gzip.decompress((FOLDER / "store-crashed.tar.gz").read_bytes()))
    with tarfile.open(fileobj=packed) as archive:
        contents = {
            member.name.removeprefix("./").partition("/")[2]: archive.extractfile(member)
            for member in archive.getmembers()
            if member.isfile()
        }
        return {name: file.read() for name, file in contents.items() if file is not None}


def test_the_killed_folder_of_the_original_is_healthy_and_one_record_behind() -> None:
    verdict = check(put_folder(crashed_files()), ROOT, StoreOptions())
    assert verdict.is_healthy
    assert texts(verdict, Level.INFO) == [
        "the store runs, or was not stopped cleanly",
        "1 entries are behind the log, recovery adds them",
        "1 records are not in the index yet, recovery adds them",
    ]


@pytest.mark.parametrize("slot_count", [1, 7, 500, 1_003])
def test_the_shape_of_small_index_files_is_found_in_the_files(slot_count: int) -> None:
    files = build_index(read_log(made_folder()).records, slot_count, 40)
    memory = put_folder({f"index/{number:017d}": data for number, data in enumerate(files)})
    paths = [ROOT / "index" / name for name in memory.names(ROOT / "index")]
    assert find_shape(memory, paths, Shape(5_000_000, 20_000_000)) == Shape(slot_count, 40)


def test_the_tags_that_brokers_of_5_x_index_as_well_are_accepted() -> None:
    """Their text is `topic#T#tag`; a record that has no keys may have such an entry, too."""
    sent = (Sent("TopicA", 0, "TAGS\x01one"), *MESSAGES[1:2], Sent("TopicA", 0, "TAGS\x01two"))
    blobs = made_folder(sent)
    records = read_log(blobs).records
    tagged = [
        stored._replace(record=replace(stored.record, properties=b"KEYS\x01T#" + tag))
        for stored, tag in zip(records, (b"one", b"", b"two"), strict=True)
    ]
    tagged[1] = records[1]
    (index,) = build_index(tagged, SLOT_COUNT, ENTRY_COUNT)
    assert verdict_of(blobs).faults == []
    assert verdict_of({**blobs, "index/20261115182457407": index}).faults == []


# --- killed folders ---


def killed(mark: int) -> dict[str, bytes]:
    """A folder whose newest entries are missing, with a mark."""
    blobs = {**made_folder(), "abort": b"", "checkpoint": checkpoint_at(mark)}
    blobs[f"consumequeue/TopicA/0/{60:020d}"] = bytes(QUEUE_FILE_SIZE)
    del blobs["index/20261115182457408"]
    return blobs


def test_entries_behind_the_mark_are_information_after_a_kill() -> None:
    verdict = verdict_of(killed(mark=600))
    assert set(levels(verdict)) == {Level.INFO}
    assert "2 entries are behind the log, recovery adds them" in texts(verdict, Level.INFO)


def test_entries_below_the_mark_are_damage_also_after_a_kill() -> None:
    verdict = verdict_of(killed(mark=2_000))
    assert not verdict.is_healthy


def test_after_another_boot_only_the_synced_mark_counts() -> None:
    assert not verdict_of(killed(mark=1_500)).is_healthy
    assert verdict_of(killed(mark=1_500), b"another boot id.").is_healthy


def test_a_missing_entry_with_a_later_one_behind_it_is_damage_also_after_a_kill() -> None:
    blobs = {**made_folder(), "abort": b"", "checkpoint": checkpoint_at(0)}
    blobs[QUEUE] = blobs[QUEUE][:20] + bytes(20) + blobs[QUEUE][40:]
    assert texts(verdict_of(blobs), Level.DAMAGE) == [
        "topic TopicA, queue 0: entries 1 to 1 are missing, later ones are there"
    ]


def test_a_torn_record_at_the_end_is_information_after_a_kill_and_damage_after_a_stop() -> None:
    blobs = made_folder()
    end = read_log(blobs).end_offset
    path = f"commitlog/{1_024:020d}"
    data = bytearray(blobs[path])
    data[end - 1_024 : end - 1_024 + 40] = blobs[f"commitlog/{0:020d}"][:40]
    blobs[path] = bytes(data)
    assert f"the log ends at {end}" in texts(verdict_of(blobs), Level.DAMAGE)[0]
    verdict = verdict_of({**blobs, "abort": b""})
    assert verdict.is_healthy
    assert "a torn write" in texts(verdict, Level.INFO)[-1]


def test_entries_that_point_behind_the_logs_end_are_accepted_after_a_kill_only() -> None:
    blobs = made_folder()
    path = f"consumequeue/TopicA/1/{0:020d}"
    early = (5_000).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    blobs[path] = blobs[path][:40] + early
    assert not verdict_of(blobs).is_healthy
    assert verdict_of({**blobs, "abort": b""}).is_healthy


# --- live folders ---


class GrowingFiles(MemoryFiles):
    """A folder that a broker writes to while it is read: `later` comes after some reads."""

    def __init__(self, later: dict[str, bytes], reads: int) -> None:
        super().__init__(ROOT, ROOT / "commitlog")
        self._later = later
        self._reads = reads

    def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
        self._reads -= 1
        if self._reads == 0:
            for name, data in self._later.items():
                self.make_folder((ROOT / name).parent)
                self.put(ROOT / name, data)
        return super().read_at(path, position, size)


@pytest.mark.parametrize("reads", range(1, 60, 2))
def test_a_folder_that_grows_while_it_is_checked_is_healthy(reads: int) -> None:
    now, later = made_log(MESSAGES[:7]), made_log(MESSAGES)
    before = {**now, **derived(now), "abort": b"", "checkpoint": checkpoint_at(600)}
    after = {**later, **derived(later), "checkpoint": checkpoint_at(900)}
    files = GrowingFiles(after, reads)
    for name, data in before.items():
        files.make_folder((ROOT / name).parent)
        files.put(ROOT / name, data)
    verdict = check(files, ROOT, OPTIONS, BOOT_ID)
    assert texts(verdict, Level.DAMAGE) == []


# --- retention and deleted topics ---


def test_entries_of_removed_log_files_are_not_judged() -> None:
    blobs = made_folder()
    del blobs[f"commitlog/{0:020d}"]
    verdict = verdict_of(blobs)
    assert texts(verdict, Level.DAMAGE) == []
    assert verdict.counts["records"] < len(MESSAGES)


def test_records_of_a_deleted_topic_need_no_queue() -> None:
    messages = (*MESSAGES, Sent("Gone", 0, "UNIQ_KEY\x01Ua\x02"))
    blobs = made_folder(messages)
    del blobs[f"consumequeue/Gone/0/{0:020d}"]
    verdict = verdict_of(blobs)
    assert verdict.is_healthy
    assert texts(verdict, Level.INFO) == [
        "the log holds records of 1 queues of topics that were deleted"
    ]


def test_a_topic_that_was_deleted_and_made_again_is_healthy() -> None:
    log = made_log((*MESSAGES[:3], *MESSAGES[5:8], *MESSAGES[:1]))
    blobs = {**log, **derived(log)}
    first_life = [stored for stored in read_log(log).records if stored.record.queue_id == 0]
    assert verdict_of(blobs).is_healthy
    again = made_again(log, first_life[-1].record.log_offset)
    assert verdict_of({**again, **derived(again)}).is_healthy


def made_again(log: dict[str, bytes], log_offset: int) -> dict[str, bytes]:
    """The log with the queue offset of one record set to 0."""
    start = log_offset - log_offset % 1_024
    path = f"commitlog/{start:020d}"
    data = bytearray(log[path])
    data[log_offset - start + 20 : log_offset - start + 28] = bytes(8)
    return {**log, path: bytes(data)}


# --- what it says ---


def test_a_fault_names_file_position_and_what_to_do() -> None:
    blobs = made_folder()
    blobs[QUEUE] = blobs[QUEUE][:20] + bytes(8) + blobs[QUEUE][28:]
    second = read_log(blobs).records[2].record.log_offset
    assert verdict_of(blobs).faults == [
        Fault(
            Level.DAMAGE,
            QUEUE,
            20,
            "topic TopicA, queue 0: entry 1 is not what the log says: log offset 0 instead of "
            f"{second}",
            "`orbitmq store repair` makes it anew from the log",
        )
    ]


def test_faults_are_listed_up_to_a_limit_and_counted_beyond() -> None:
    verdict = Verdict(ROOT)
    for number in range(FAULTS_MAX + 5):
        verdict.damage(ROOT / "commitlog", number, "x")
    assert len(verdict.faults) == FAULTS_MAX
    assert verdict.totals[Level.DAMAGE] == FAULTS_MAX + 5


def test_unknown_names_and_times_that_go_back_are_warnings() -> None:
    log = made_log(MESSAGES[3:5])
    path = f"commitlog/{0:020d}"
    data = bytearray(log[path])
    data[56:64] = (2**42).to_bytes(8, "big")  # the store time of the first of two
    log[path] = bytes(data)
    blobs = {**log, **derived(log), "config/strange.json": b"{}", "strange": b""}
    verdict = verdict_of(blobs)
    assert verdict.is_healthy
    assert [fault.path for fault in verdict.faults if fault.level is Level.WARNING] == [
        "strange",
        "config/strange.json",
        path,
    ]


def test_an_offset_beyond_a_queues_end_and_a_damaged_backup_are_warnings() -> None:
    blobs = made_folder()
    blobs["config/consumerOffset.json"] = b'{"offsetTable":{"TopicA@G":{0:99}}}'
    blobs["config/consumerOffset.json.bak"] = b"{"
    verdict = verdict_of(blobs)
    assert verdict.is_healthy
    assert len(texts(verdict, Level.WARNING)) == 2
    assert "group G is at 99 of topic TopicA, queue 0, which ends at 5" in texts(
        verdict, Level.WARNING
    )


def test_a_folder_without_a_log_is_refused() -> None:
    files = MemoryFiles(ROOT)
    with pytest.raises(StoreError, match="is no store folder"):
        check(files, ROOT, OPTIONS)


def test_progress_tells_how_far_the_log_is() -> None:
    told: list[tuple[str, int, int]] = []
    check(
        put_folder(made_folder()),
        ROOT,
        OPTIONS,
        BOOT_ID,
        lambda *step: told.append(step),
    )
    end = read_log(made_folder()).end_offset
    assert ("log", end, end) in told


def test_check_changes_nothing() -> None:
    files = put_folder(made_folder())
    files.forget_ops()
    check(files, ROOT, OPTIONS, BOOT_ID)
    assert files.ops == []
