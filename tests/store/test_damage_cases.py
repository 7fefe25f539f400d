"""Damages that once cost more than they had to: each test's first line says what went wrong.

Method: the healthy folders and the judge of T5 (see test_damage.py), one damage at a time.
"""

import pytest

from orbitmq.core.state import ENTRY
from tests.store.damage import (
    OPTIONS,
    ROOT,
    Damage,
    Healthy,
    Truth,
    file_damages,
    flip,
    log_path,
    made,
    put_damage,
)
from tests.store.damage_judge import judge
from tests.store.made_folder import SCHEDULE_TOPIC
from tests.store.opened import open_store

CLEAN, KILLED = made()
QUEUE = f"consumequeue/TopicA/0/{0:020d}"
LOG_FILE_SIZE = 4_096


def assert_harmless(healthy: Healthy, damage: Damage, *, missing_for_now: int = 0) -> None:
    """Assert that all promises hold, and how many records only a repair brings back."""
    judgement = judge(healthy, damage)
    assert judgement.violations == []
    assert judgement.counts["records missing until repair"] == missing_for_now


def of_queue(healthy: Healthy, topic: str, queue_id: int) -> list[Truth]:
    """The records of a queue, in order."""
    records = healthy.records.values()
    return [truth for truth in records if truth.is_queued and truth.queue == (topic, queue_id)]


def flip_in(healthy: Healthy, truth: Truth, place: int, bit: int) -> Damage:
    """Turn one bit of a record."""
    at = truth.record.log_offset
    return flip(healthy, log_path(at), at % LOG_FILE_SIZE + place, bit)


def topic_place(truth: Truth) -> int:
    """The place of the last letter of a record's topic."""
    return 88 + len(truth.record.body) + len(truth.record.topic)


@pytest.mark.parametrize("bit", range(0, 63, 7))
def test_an_entry_that_leads_behind_the_log_costs_its_message_only(bit: int) -> None:
    """Everything behind it in the queue was passed over: its log file counted as removed."""
    damage = flip(CLEAN, QUEUE, 2 * ENTRY.size + 7 - bit // 8, bit % 8)
    assert_harmless(CLEAN, damage, missing_for_now=1)


@pytest.mark.parametrize("other", [("TopicA", 0, 5), ("TopicA", 1, 2)])
def test_an_entry_that_leads_to_another_record_gives_nothing(other: tuple[str, int, int]) -> None:
    """The other record was given in place of the own one."""
    topic, queue_id, number = other
    wrong = of_queue(CLEAN, topic, queue_id)[number]
    data = bytearray(CLEAN.blobs[QUEUE])
    (log_offset, _, code) = ENTRY.unpack_from(data, 3 * ENTRY.size)
    ENTRY.pack_into(data, 3 * ENTRY.size, wrong.record.log_offset, wrong.size, code)
    cost = frozenset({log_offset})
    damage = Damage(f"an entry leads to {other}", QUEUE, {QUEUE: bytes(data)}, cost_for_now=cost)
    assert_harmless(CLEAN, damage, missing_for_now=1)


@pytest.mark.parametrize("place", [12, 15, 20, 27, -1], ids=lambda place: f"byte {place}")
def test_a_record_that_says_it_belongs_elsewhere_is_not_given(place: int) -> None:
    """It was given, and its number made consumers go on at the wrong place."""
    truth = of_queue(CLEAN, "TopicA", 0)[4]
    damage = flip_in(CLEAN, truth, topic_place(truth) if place < 0 else place, 1)
    judgement = judge(CLEAN, damage)
    assert judgement.violations == []
    assert judgement.counts["records lost"] == 1


def test_a_hole_in_the_newest_part_of_a_queue_is_passed_over() -> None:
    """The rest of the log file was given in its place: the hot path took it for a record."""
    replayed = [truth for truth in KILLED.records.values() if truth.record.log_offset > 16_384]
    for truth in replayed:
        if truth.is_queued:
            assert judge(KILLED, flip_in(KILLED, truth, topic_place(truth), 1)).violations == []


@pytest.mark.parametrize("healthy", [CLEAN, KILLED], ids=["clean", "killed"])
def test_a_record_of_a_queue_that_cannot_be_does_not_stop_the_store(healthy: Healthy) -> None:
    """A slash in the topic stopped the start; a queue below zero was set aside at each start."""
    truth = of_queue(healthy, "TopicA", 0)[-3]
    slash = flip_in(healthy, truth, topic_place(truth) - 4, 6)
    assert b"T/picA" in (slash.changes[slash.path] or b"")
    for damage in (slash, flip_in(healthy, truth, 12, 7)):
        judgement = judge(healthy, damage)
        assert judgement.violations == []
        assert judgement.counts["records lost"] == 1


@pytest.mark.parametrize(("place", "bit"), [(12, 7), (39, 2)], ids=["queue id", "flags"])
def test_the_number_of_a_last_record_that_lost_its_way_stays_taken(place: int, bit: int) -> None:
    """It was given again; its entry stayed in the file, so that the next start disagreed."""
    truth = of_queue(KILLED, SCHEDULE_TOPIC, 2)[-1]
    assert truth.record.log_offset not in KILLED.unfiled
    damage = flip_in(KILLED, truth, place, bit)
    judgement = judge(KILLED, damage)
    assert judgement.violations == []
    assert judgement.counts["with findings"] == 1
    store = open_store(ROOT, put_damage(KILLED, damage), OPTIONS)
    assert store.queue(SCHEDULE_TOPIC, 2).next_offset == truth.record.queue_offset + 1
    store.close()


def test_a_topic_that_is_a_path_leads_nowhere() -> None:
    """Check looked outside of the folder, and failed there."""
    truth = of_queue(CLEAN, "TopicA", 0)[4]
    at = truth.record.log_offset % LOG_FILE_SIZE + topic_place(truth) - 5
    path = log_path(truth.record.log_offset)
    for name in (b"/tmp/x", b"../../", b"a/../b"):
        data = bytearray(CLEAN.blobs[path])
        data[at : at + len(name)] = name
        cost = frozenset({truth.record.log_offset})
        damage = Damage(f"topic {name!r}", path, {path: bytes(data)}, cost, field="topic")
        assert judge(CLEAN, damage).violations == []


@pytest.mark.parametrize("queue", [("TopicA", 0), ("TopicA", 1), ("TopicA", 2), ("TopicB", 1)])
def test_the_last_record_of_a_queue_stays_when_the_one_before_is_lost(
    queue: tuple[str, int],
) -> None:
    """It was left out as well: nothing behind it said that its number is right."""
    truth = of_queue(CLEAN, *queue)[-2]
    assert_harmless(CLEAN, flip_in(CLEAN, truth, topic_place(truth), 1))


@pytest.mark.parametrize("number", [0, 3])
def test_a_code_that_became_an_address_is_made_anew(number: int) -> None:
    """Repair kept it: addresses into the original's extra files are kept, but this was none."""
    damage = flip(CLEAN, QUEUE, number * ENTRY.size + 12, 7)
    assert_harmless(CLEAN, damage)


def named(healthy: Healthy, name: str) -> Damage:
    (damage,) = (damage for damage in file_damages(healthy) if damage.name == name)
    return damage


@pytest.mark.parametrize("healthy", [CLEAN, KILLED], ids=["clean", "killed"])
def test_the_first_file_of_a_queue_is_made_anew(healthy: Healthy) -> None:
    """The queue began behind it, as if retention had removed it."""
    assert_harmless(healthy, named(healthy, f"{QUEUE} removed"))


@pytest.mark.parametrize("change", ["cut to 1", "cut to 2048", "lengthened by 512"])
def test_a_checkpoint_of_another_length_does_not_stop_the_store(change: str) -> None:
    """The store did not start."""
    assert_harmless(CLEAN, named(CLEAN, f"checkpoint {change}"))


def test_a_log_file_far_behind_the_end_is_set_aside() -> None:
    """It stayed after a clean stop, and every start told of files missing before it."""
    far = f"commitlog/{40 * LOG_FILE_SIZE:020d}"
    assert_harmless(CLEAN, named(CLEAN, f"commitlog/{0:020d} copied to {far}"))


def test_a_lost_last_log_file_is_named_after_repair_as_well() -> None:
    """Check blamed the queues: entries of lost records belonged to nothing that it knew."""
    assert_harmless(CLEAN, named(CLEAN, f"commitlog/{4 * LOG_FILE_SIZE:020d} removed"))


def test_what_does_not_belong_into_the_index_is_set_aside_by_repair() -> None:
    """Repair left it there, so that check called the repaired folder damaged."""
    index = min(path for path in CLEAN.blobs if path.startswith("index/"))
    assert_harmless(CLEAN, named(CLEAN, f"{index} copied to index/copy"))
