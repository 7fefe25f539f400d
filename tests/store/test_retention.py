"""Retention: what goes, when, and what is said about it.

Method: one check after the other with facts made up; no disk and no clock is involved.
"""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import SettingError
from orbitmq.store.retention import (
    Decision,
    Disk,
    Facts,
    LogFile,
    Retention,
    RetentionSettings,
    parse_hours,
    used_ratio,
)
from orbitmq.world.files import Space

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
GIB = 1 << 30
LOG = Path("store/commitlog")
QUEUES = Path("store/consumequeue")
DEFAULTS = RetentionSettings()


def disk(used: float, total: int = 20 * GIB, folder: Path = LOG) -> Disk:
    return Disk(folder, Space(total, total - int(total * used)))


def facts(
    ages_h: list[float],
    *,
    used: float = 0.5,
    hour: int = 12,
    wall_ms: int = NOW_MS,
    monotonic_s: float = 0.0,
) -> Facts:
    files = [LogFile(n, NOW_MS - int(age * HOUR_MS)) for n, age in enumerate(ages_h)]
    return Facts(files, [disk(used), disk(used, folder=QUEUES)], wall_ms, monotonic_s, hour)


def begun(settings: RetentionSettings = DEFAULTS) -> Retention:
    """A retention whose first check, which removes nothing by age, is over."""
    retention = Retention(settings)
    retention.decide(facts([]))
    return retention


def decide(given_facts: Facts, settings: RetentionSettings = DEFAULTS) -> Decision:
    return begun(settings).decide(given_facts)


def test_nothing_goes_outside_its_hour() -> None:
    assert decide(facts([100, 90, 80])) == Decision([], "", "")


def test_in_its_hour_old_files_go_and_the_last_stays() -> None:
    decision = decide(facts([100, 90, 80], hour=4))
    assert decision == Decision([0, 1], "", "it is 04 o'clock (deleteWhen 04)")


def test_a_file_is_old_at_exactly_its_reserved_time() -> None:
    at = facts([72, 1], hour=4)
    assert decide(at).remove == [0]
    just_before = at._replace(wall_ms=NOW_MS - 1)
    assert decide(just_before).remove == []


def test_the_first_young_file_ends_it_though_older_ones_follow() -> None:
    assert decide(facts([100, 1, 90, 80], hour=4)).remove == [0]


def test_at_most_a_batch_goes_at_once() -> None:
    assert decide(facts([100] * 30, hour=4)).remove == list(range(10))
    assert decide(facts([100] * 30, hour=4), RetentionSettings(batch_max=3)).remove == [0, 1, 2]


def test_files_go_by_number_in_whatever_order_they_are_told() -> None:
    told = facts([100, 90, 80, 1], hour=4)
    assert decide(told._replace(log_files=list(reversed(told.log_files)))).remove == [0, 1, 2]


@pytest.mark.parametrize("hour", [3, 22])
def test_several_hours_can_be_set(hour: int) -> None:
    assert decide(facts([100, 1], hour=hour), RetentionSettings(delete_hours="03;22")).remove == [0]
    assert decide(facts([100, 1], hour=4), RetentionSettings(delete_hours="03;22")).remove == []


def test_a_full_disk_lets_old_files_go_at_any_hour_and_says_how_full() -> None:
    decision = decide(facts([100, 71, 1], used=0.8))
    assert decision.remove == [0]
    assert decision.refusal == ""
    assert decision.reason == (
        "the disk of store/commitlog is 80.0% full, 4.00 of 20.00 GiB free, limit 75% "
        "(diskMaxUsedSpaceRatio)"
    )


def test_the_queues_disk_counts_as_the_logs_does() -> None:
    told = facts([100, 1])._replace(disks=[disk(0.1), disk(0.8, folder=QUEUES)])
    decision = decide(told)
    assert decision.remove == [0]
    assert decision.reason.startswith("the disk of store/consumequeue is 80.0% full")


def test_a_disk_at_the_limit_is_not_above_it() -> None:
    assert decide(facts([100, 1], used=0.75)).remove == []


def test_above_the_second_ratio_age_does_not_count() -> None:
    decision = decide(facts([2, 1, 0], used=0.86))
    assert decision.remove == [0, 1]
    assert decision.reason.endswith("limit 85% (diskSpaceCleanForciblyRatio)")


def test_without_force_age_always_counts_and_the_reason_says_so() -> None:
    decision = decide(facts([2, 1, 0], used=0.86), RetentionSettings(is_forcible=False))
    assert decision.remove == []
    assert decision.reason == (
        "the disk of store/commitlog is 86.0% full, 2.80 of 20.00 GiB free, limit 75% "
        "(diskMaxUsedSpaceRatio); but no file may go: the oldest is younger than 72 h "
        "(fileReservedTime), and age always counts (cleanFileForciblyEnable=false)"
    )


def test_a_full_disk_with_young_files_says_why_none_goes() -> None:
    decision = decide(facts([2, 1, 0], used=0.8))
    assert decision.remove == []
    assert decision.reason.endswith(
        "but no file may go: the oldest is younger than 72 h (fileReservedTime)"
    )


def test_a_full_disk_with_one_file_says_that_it_stays() -> None:
    decision = decide(facts([200], used=0.95))
    assert decision.remove == []
    assert decision.reason.endswith("but no file may go: the log's last file stays")


def test_no_log_files_at_all_is_no_trouble() -> None:
    assert decide(facts([], used=0.95)).remove == []


def test_writes_are_refused_above_the_third_ratio_with_little_room() -> None:
    assert decide(facts([1], used=0.91)).refusal == (
        "the disk of store/commitlog is 91.0% full, 1.80 of 20.00 GiB free, limit 90% "
        "(diskSpaceWarningLevelRatio) when less than 5 GiB is free (diskFreeBytesLeast); free "
        "space there, or shorten fileReservedTime"
    )


def test_with_much_room_in_bytes_writes_are_taken_whatever_the_ratio() -> None:
    told = facts([1])._replace(disks=[disk(0.98, total=1_000 * GIB)])
    assert decide(told).refusal == ""
    assert decide(told, RetentionSettings(least_free_bytes=21 * GIB)).refusal != ""


def test_little_room_alone_refuses_nothing() -> None:
    assert decide(facts([1])._replace(disks=[disk(0.5, total=4 * GIB)])).refusal == ""


def test_the_queues_disk_refuses_as_well() -> None:
    told = facts([1])._replace(disks=[disk(0.1), disk(0.95, folder=QUEUES)])
    assert decide(told).refusal.startswith("the disk of store/consumequeue is 95.0% full")


def test_a_refusal_ends_by_itself_when_space_returns() -> None:
    retention = Retention(RetentionSettings())
    assert retention.decide(facts([1], used=0.95)).refusal != ""
    assert retention.decide(facts([1], used=0.90)).refusal == ""


def test_asked_by_hand_it_removes_at_any_hour_for_twenty_checks() -> None:
    retention = begun()
    retention.ask_manual()
    decisions = [retention.decide(facts([100, 1])) for _ in range(21)]
    assert [decision.remove for decision in decisions] == [[0]] * 20 + [[]]
    assert decisions[0].reason == "asked by hand, 19 more checks will follow"
    assert decisions[19].reason == "asked by hand, 0 more checks will follow"


def test_asked_by_hand_young_files_stay() -> None:
    retention = begun()
    retention.ask_manual(rounds=1)
    assert retention.decide(facts([71, 1])).remove == []


# --- Clocks (T12) ---


def check(retention: Retention, wall_h: float, monotonic_s: float, used: float = 0.5) -> Decision:
    """A check in the hour of removal; the files were last written at NOW."""
    told = facts([0, 0], hour=4, used=used, monotonic_s=monotonic_s)
    return retention.decide(told._replace(wall_ms=NOW_MS + int(wall_h * HOUR_MS)))


def test_a_clock_that_jumped_forward_removes_nothing_until_a_second_check() -> None:
    retention = Retention(RetentionSettings())
    assert check(retention, 0, 0).remove == []
    jumped = check(retention, 100, 10)
    assert jumped.remove == []
    assert jumped.reason == (
        "it is 04 o'clock (deleteWhen 04); but the wall clock jumped forward since the last check: "
        "nothing is removed until the next one finds the same"
    )
    assert check(retention, 100, 20).remove == [0]


def test_the_first_check_after_a_start_removes_nothing_by_age() -> None:
    """Symptom: a machine that started with its clock years ahead lost its log at once."""
    retention = Retention(RetentionSettings())
    first = check(retention, 9 * 365 * 24, 5)
    assert first.remove == []
    assert first.reason == (
        "it is 04 o'clock (deleteWhen 04); but this is the first check after the start, and the "
        "wall clock may be wrong: nothing is removed until the next one finds the same"
    )
    assert check(retention, 0, 15).remove == [], "the clock was put right"
    assert check(Retention(RetentionSettings()), 0, 5, used=0.86).remove == [0], "age is no matter"


def test_a_clock_that_jumped_and_came_back_removed_nothing() -> None:
    retention = Retention(RetentionSettings())
    walls_h = [0, 100, 0, 100, 0]
    assert [check(retention, wall, 10 * n).remove for n, wall in enumerate(walls_h)] == [[]] * 5


def test_time_that_really_passed_is_no_jump() -> None:
    retention = Retention(RetentionSettings())
    check(retention, 0, 0)
    assert check(retention, 73, 73 * 3600).remove == [0]


def test_a_clock_that_stands_still_or_goes_back_makes_nothing_old() -> None:
    retention = Retention(RetentionSettings())
    check(retention, 0, 0)
    assert check(retention, 0, 100 * 3600).remove == []
    assert check(retention, -24, 101 * 3600).remove == []


def test_a_disk_that_is_about_to_be_full_does_not_wait_for_the_clock() -> None:
    retention = Retention(RetentionSettings())
    check(retention, 0, 0)
    assert check(retention, 100, 10, used=0.86).remove == [0]


@settings(deadline=None)
@given(
    ages_h=st.lists(st.floats(0, 200), max_size=30),
    used=st.floats(0, 1),
    hour=st.integers(0, 23),
    is_forcible=st.booleans(),
)
def test_what_goes_is_always_the_oldest_part_without_the_last_file(
    ages_h: list[float], used: float, hour: int, is_forcible: bool
) -> None:
    remove = decide(
        facts(ages_h, used=used, hour=hour), RetentionSettings(is_forcible=is_forcible)
    ).remove
    assert remove == list(range(len(remove)))
    assert len(remove) <= min(10, max(0, len(ages_h) - 1))
    if not (is_forcible and used > 0.84):
        assert all(ages_h[number] > 71.99 for number in remove)


def test_hours_are_read_with_blanks_and_empty_parts() -> None:
    assert parse_hours("04") == {4}
    assert parse_hours(" 4 ; 23;;0 ") == {0, 4, 23}
    assert parse_hours("") == frozenset()


@pytest.mark.parametrize("text", ["24", "4,5", "-1", "vier", "04;99", "٤"])
def test_what_is_no_hour_is_refused_with_its_setting(text: str) -> None:
    with pytest.raises(SettingError, match=r"deleteWhen .* is no hour from 00 to 23"):
        parse_hours(text)


def test_a_disk_without_size_is_not_full() -> None:
    assert used_ratio(Space(0, 0)) == 0.0


def test_removal_by_force_on_a_nearly_full_disk_did_not_say_so() -> None:
    assert decide(facts([2, 1, 0], used=0.86)).is_forced
    assert not decide(facts([100, 1, 0], used=0.80, hour=4)).is_forced
