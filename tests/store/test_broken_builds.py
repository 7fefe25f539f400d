"""The harness can fail: every broken build is caught by the programme that guards its promise."""

import errno

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from orbitmq.errors import StoreError
from tests.store import broken_builds as broken
from tests.store.crash_programme import CrashProgramme, Recording, Sampling
from tests.store.machine import StoreMachine
from tests.store.model import Violation
from tests.store.test_failing_disk import Endurance
from tests.store.workloads import SYNC, Workload, async_flush, sync_flush

FEW = Sampling(1, 1, 100, 1)


def recorded(workload: Workload, build: broken.Build | None = None) -> Recording:
    """Record a workload as a build does it; what is judged afterwards is judged by the good one."""
    with pytest.MonkeyPatch.context() as patch:
        if build is not None:
            build(patch)
        return workload(1)


def run_machine() -> None:
    """T3, short."""
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=100,
            stateful_step_count=30,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def run_failing_syncs() -> None:
    """T11: a sync of the log fails once, at any of the first places."""
    for site in range(1, 12):
        work = Endurance(SYNC, 7)
        work.files.fail("sync", site, errno.EIO)
        work.run()
        work.judge_ends()


def test_what_is_acknowledged_before_it_is_written_is_lost_by_a_kill_and_that_is_seen() -> None:
    recording = recorded(async_flush, broken.acknowledge_before_writing)
    with pytest.raises(Violation, match=r"P1 nothing is lost.*\[asynchronous flush.*kill"):
        CrashProgramme(recording, FEW).run()


def test_what_is_acknowledged_without_a_sync_is_lost_by_a_power_cut_and_that_is_seen() -> None:
    recording = recorded(sync_flush, broken.skip_the_sync)
    with pytest.raises(Violation, match=r"P1 nothing is lost.*\[synchronous flush.*nothing"):
        CrashProgramme(recording, FEW).run()


def test_a_dropped_record_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    broken.drop_one_record(monkeypatch)
    seen = r"P1 nothing is lost|P2 the log is a prefix|P2 nothing is there that was not sent"
    seen += "|the other log are no record"
    with pytest.raises((Violation, StoreError), match=seen):
        run_machine()


def test_two_records_that_changed_places_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    broken.swap_two_records(monkeypatch)
    with pytest.raises(Violation, match=r"P4 messages keep their order|queues and index are what"):
        run_machine()


@pytest.mark.parametrize(
    "build", [broken.answer_a_failed_sync_as_success, broken.believe_the_second_sync]
)
def test_a_failed_sync_that_is_not_believed_is_seen(
    build: broken.Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(monkeypatch)
    with pytest.raises(Violation, match="P1 nothing is lost"):
        run_failing_syncs()


def test_a_queue_offset_that_is_given_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recorded(async_flush)
    broken.reuse_a_queue_offset(monkeypatch)
    with pytest.raises(Violation, match="P3 a queue goes on with its next number"):
        CrashProgramme(recording, FEW).run()


def test_the_good_build_is_not_blamed() -> None:
    run_machine()
    run_failing_syncs()
    CrashProgramme(recorded(sync_flush), FEW).run(range(40))
