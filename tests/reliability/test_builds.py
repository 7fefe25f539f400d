"""The harness can fail: each broken build of the broker is caught, by the checker that guards it.

A kill takes nothing that the kernel has, so two of the builds are only seen by a power cut: for
them, and for the good build beside them, a kill also takes what the broker had not synced. One of
them runs with `make test`, the others in the nightly.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reliability.kill_programme import LOAD, KillProgramme, Plan, Report

SLOW_DISK = ("slow_sync:0.4",)
SHORT_WAIT = (("syncFlushTimeout", "100"),)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def run(folder: Path, plan: Plan) -> Report:
    """Run a plan and say what it did."""
    report = KillProgramme(folder / "run", plan).run()
    print(report.line().replace("T6 ", "run: ", 1), "\n".join(report.violations))
    found = sorted({text.partition(":")[0] for text in report.violations})
    print(f"T6 build {', '.join(plan.builds)}: {', '.join(found) or 'nothing'} found")
    return report


def caught(report: Report, *checkers: str) -> None:
    """Each of these checkers has found something."""
    found = {text.partition(":")[0] for text in report.violations}
    assert found.issuperset(checkers), report.violations or "nothing was found"


def broken(*builds: str, kills: int) -> Plan:
    """A short run: it need not wait for what never comes."""
    return Plan(1, kills, builds=builds, delay_s_max=1.0, drain_limit_s=4.0, clients=LOAD)


@pytest.mark.nightly("kills")
def test_what_is_acknowledged_before_it_is_written_is_lost_and_that_is_seen(
    tmp_path: Path,
) -> None:
    report = run(tmp_path, broken("acknowledge_before_writing", kills=3))
    if not any(text.startswith("client:") for text in report.violations):
        caught(report, "lost")  # else a consumer was given zeros first, and ended


@pytest.mark.nightly("kills")
def test_a_dropped_record_is_seen(tmp_path: Path) -> None:
    caught(run(tmp_path, broken("drop_one_record", kills=2)), "lost", "hole")


def test_two_records_that_changed_places_are_seen(tmp_path: Path) -> None:
    caught(run(tmp_path, broken("swap_two_records", kills=1)), "inconsistent offset")


@pytest.mark.nightly("kills")
def test_a_queue_offset_that_is_given_twice_is_seen(tmp_path: Path) -> None:
    caught(run(tmp_path, broken("reuse_a_queue_offset", kills=3)), "inconsistent offset", "lost")


def power_cuts(*builds: str) -> Plan:
    plan = broken(*builds, kills=3)
    return replace(plan, is_sync_flush=True, cuts_power=True, settings=SHORT_WAIT)


@pytest.mark.nightly("kills")
def test_what_is_acknowledged_without_a_sync_is_lost_by_a_power_cut_and_that_is_seen(
    tmp_path: Path,
) -> None:
    caught(run(tmp_path, power_cuts("skip_the_sync")), "lost")


@pytest.mark.nightly("kills")
def test_a_timeout_that_is_answered_as_success_is_seen(tmp_path: Path) -> None:
    caught(run(tmp_path, power_cuts("answer_a_timeout_as_success", *SLOW_DISK)), "lost")


@pytest.mark.nightly("kills")
def test_power_cuts_on_a_slow_disk_cost_the_good_build_nothing_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    report = run(tmp_path, replace(power_cuts(*SLOW_DISK), drain_limit_s=30.0))
    assert not report.violations, "\n".join([str(tmp_path), *report.violations])
    kinds = Counter(event.kind for event in report.history.events if event.op == "send")
    assert min(kinds["ok"], kinds["unknown"], report.blotted_bytes) > 0
