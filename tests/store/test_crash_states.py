"""T4: whatever a kill or a power cut leaves, the store opens, keeps its promises, and goes on.

The programme is in crash_programme.py, the workloads in workloads.py. `make nightly-torture` runs
the long form: every piece of every prefix, many random parts, and more workloads made from
other seeds.
"""

import os
from collections import Counter
from collections.abc import Sequence

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.layout import file_name
from tests.store.crash_programme import CrashProgramme, Sampling, recovered_model
from tests.store.driven import ROOT, Driven
from tests.store.model import Model, Sent, judge_queues
from tests.store.workloads import ASYNC, SYNC, WORKLOADS, Workload
from tests.world.crash_images import Chooser, Unit, nothing
from tests.world.memory_files import MemoryFiles

IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
SEEDS = range(1, int(os.environ.get("ORBITMQ_TORTURE_SEEDS", "42")) + 1) if IS_LONG else range(1, 2)
STEP = 1 if IS_LONG else 2
"""Every so many places of a recording are the end of what was done."""
SAMPLING = Sampling(None, 30, 4, 3) if IS_LONG else Sampling(1, 1, 20, 1)


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(0 if IS_LONG else 240)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_every_crash_state_is_recovered_without_loss_or_invention(workload: Workload) -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        recording = workload(seed)
        prefixes = range(seed % STEP, len(recording.files.ops) + 1, STEP)
        counts += CrashProgramme(recording, SAMPLING, seed).run(prefixes)
    print(f"T4 {workload.__name__}, seeds {SEEDS.start} to {SEEDS.stop - 1}: {dict(counts)}")
    assert counts["images"] > (1_000 if IS_LONG else 300)


# ---- what the programmes found, one by one -------------------------------------------------------


def after_power_cut(driven: Driven, choose: Chooser) -> Driven:
    """Return the store that opens after a power cut, judged."""
    image = driven.files.image(len(driven.files.ops), choose)
    again = Driven(image, driven.options, clock=driven.clock, boot_id=b"the next start!!")
    again.model = recovered_model(again, driven.model)
    judge_queues(again.store, again.model)
    return again


def lose_log_sector(files: MemoryFiles, sector: int) -> Chooser:
    """Lose one sector of the log's first file."""
    node = next(op.node for op in files.ops if op.path.parent.name == "commitlog" and op.node)

    def choose(units: Sequence[Unit]) -> list[int]:
        lost = ("sector", node, sector)
        return [0 if unit[:3] == lost else unit.versions for unit in units]

    return choose


def test_a_record_whose_properties_lost_a_sector_is_not_taken_for_whole() -> None:
    """Symptom: the CRC is the body's, so a record with zeros for properties was served."""
    driven = Driven(MemoryFiles(ROOT), ASYNC)
    driven.send(Sent(("A", 0), b"kept"))
    driven.send(Sent(("A", 0), b"torn", b"KEYS\1" + b"k" * 1_000 + b"\2"))
    for sector in (1, 2):
        again = after_power_cut(driven, lose_log_sector(driven.files, sector))
        assert again.store.queue("A", 0).readable_offset == 1


def test_log_files_behind_the_synced_mark_are_not_removed() -> None:
    """Symptom: queues lost entries in a power cut whose records retention had removed already."""
    driven = Driven(MemoryFiles(ROOT), ASYNC)
    for number in range(40):
        driven.send(Sent(("A", 0), b"%d" % number * 40))
    driven.clean()
    assert driven.store.first_offset == 0
    again = after_power_cut(driven, nothing())
    assert again.store.first_offset == 0
    driven.flush(is_thorough=True)
    driven.clean()
    assert driven.store.first_offset == 2 * ASYNC.log_file_size
    assert after_power_cut(driven, nothing()).store.queue("A", 0).readable_offset == 40


def test_queue_files_that_lost_their_length_are_made_whole_without_a_rebuild() -> None:
    """Symptom: of two new queue files the first was found empty, and all queues were made anew."""
    driven = Driven(MemoryFiles(ROOT), ASYNC)
    driven.send(Sent(("A", 0), b"first"))
    driven.flush(is_thorough=True)
    for number in range(14):
        driven.send(Sent(("A", 0), b"%d" % number))
    driven.flush()
    created = [op.node for op in driven.files.ops if op.kind == "create" and "A/0" in str(op.path)]

    def choose(units: Sequence[Unit]) -> list[int]:
        lost = ("size", created[1])
        return [0 if unit[:2] == lost else unit.versions for unit in units]

    again = after_power_cut(driven, choose)
    assert again.store.queue("A", 0).readable_offset == 15
    assert again.store.findings == []


def test_a_folder_made_for_the_store_is_on_the_disk_before_anything_is_acknowledged() -> None:
    """Symptom: a synced log was gone with the name of the folder above it."""
    driven = Driven(MemoryFiles(), SYNC)
    driven.send(Sent(("A", 0), b"kept"))
    driven.sync()
    assert after_power_cut(driven, nothing()).store.queue("A", 0).readable_offset == 1


def test_a_log_file_made_ahead_is_on_the_disk_with_its_name_before_it_is_acknowledged() -> None:
    """Symptom: the file was there when the writer came, its name not yet on the disk."""
    driven = Driven(MemoryFiles(ROOT), SYNC)
    driven.send(Sent(("A", 0), bytes(3_000)))
    driven.sync()
    file_size = driven.store.tail.file_size
    path = driven.store.folder.log_in_root / file_name(file_size)
    driven.files.open_big(path, file_size, is_mapped=False).close()  # its folder is not synced
    driven.send(Sent(("A", 0), bytes(3_000)))
    driven.sync()
    assert after_power_cut(driven, nothing()).store.queue("A", 0).readable_offset == 2


def test_no_file_is_made_ahead_for_what_is_only_staged() -> None:
    """Symptom: the file after the next was there, the next one was not: a hole in the log."""
    driven = Driven(MemoryFiles(ROOT), ASYNC)
    for _ in range(3):
        driven.stage(Sent(("A", 0), bytes(1_500)))
    assert driven.store.begin_reserve() is None


def test_bytes_of_another_log_go_on_behind_messages_that_wait_for_their_sync() -> None:
    """Symptom: messages sent here and not synced were followed once more, and refused."""
    driven = Driven(MemoryFiles(ROOT), SYNC)
    driven.send(Sent(("A", 0), b"sent here"))
    (message,) = driven.model.add(driven.store.tail.store_ms, Sent(("A", 0), b"sent there"))
    driven.append_raw(message.data)
    driven.sync()
    judge_queues(driven.store, driven.model)
    assert driven.store.queue("A", 0).readable_offset == 2


def test_bytes_of_another_log_that_are_no_record_are_refused_and_the_right_ones_go_on() -> None:
    driven = Driven(MemoryFiles(ROOT), ASYNC)
    driven.send(Sent(("A", 0), b"kept"))
    at = driven.store.raw_offset
    with pytest.raises(StoreError, match=f"the bytes at log offset {at} .* are no record"):
        driven.append_raw(bytes(200))
    messages = driven.model.add(1, Sent(("A", 0), b"one"), Sent(("A", 0), b"two"))
    other = Model(ASYNC.log_file_size)
    other.add(driven.store.tail.store_ms, Sent(("A", 0), b"kept"))
    other.queues["A", 0].append(messages[0])
    (wrong,) = other.add(1, Sent(("A", 0), b"one"))
    with pytest.raises(StoreError, match="is number 2 of topic A, queue 0, where 1 is due"):
        driven.append_raw(wrong.data)
    data = b"".join(message.data for message in messages)
    driven.append_raw(data[:150])
    driven.append_raw(data[150:])
    judge_queues(driven.store, driven.model)
    assert driven.store.queue("A", 0).readable_offset == 3


def test_a_record_that_came_in_pieces_is_written_as_a_whole() -> None:
    """Symptom: a power cut left a record with zeros in its middle, where its CRC does not look."""
    driven = Driven(MemoryFiles(ROOT), ASYNC)
    driven.send(Sent(("A", 0), b"kept"))
    end = driven.store.tail.end_offset
    (message,) = driven.model.add(1, Sent(("A", 0), b"in pieces", b"KEYS\1k\2"))
    for at in range(len(message.data) - 1):
        driven.append_raw(message.data[at : at + 1])
        assert driven.store.tail.end_offset == end
    driven.append_raw(message.data[-1:])
    judge_queues(driven.store, driven.model)
    assert driven.store.queue("A", 0).readable_offset == 2
