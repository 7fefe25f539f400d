"""T16: whatever dies under a pipeline, each message is in its sink exactly once.

The form for CI kills 3 times each of driver, worker and broker, and an executor of a cluster;
`make nightly-spark` is the long one, which kills batch writes, too, and judges how long restarts
take: on a machine that others use at the same time that would say nothing. A failure names the
seed; `ORBITMQ_T16_SEED=seed` repeats it.
"""

import os
import time
from pathlib import Path

import pytest

from tests.spark.pipeline_kills import KINDS, Report, judge, judge_writes
from tests.spark.standalone import Cluster

LONG = os.environ.get("ORBITMQ_T16_KILLS")
KILLS = int(LONG or "3")
EXECUTOR_KILLS = int(LONG or "1")
SEED = int(os.environ.get("ORBITMQ_T16_SEED", "0")) or int(time.time())
LIMIT_S = 1_200 + 60 * KILLS

pytestmark = [
    pytest.mark.nightly("spark"),
    pytest.mark.slow,
    pytest.mark.timeout(LIMIT_S),
]


def check(report: Report) -> None:
    """Nothing is lost or doubled; in the long form no restart was late."""
    print(report.line(SEED))
    assert not report.violations, f"seed {SEED}: {report.violations}"
    if LONG:
        late_s = report.late_restarts_s()
        assert not late_s, f"seed {SEED}: {late_s} > {report.restart_limit_s():.1f} s"


def test_a_pipeline_under_kills_has_every_message_once_in_its_sink(tmp_path: Path) -> None:
    report = judge(tmp_path / "run", SEED, KILLS)
    check(report)
    assert all(report.kills[kind] >= KILLS for kind in KINDS)


def test_executors_killed_in_the_middle_of_a_batch_lose_and_double_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    report = judge(tmp_path / "run", SEED, EXECUTOR_KILLS, cluster)
    check(report)
    assert report.kills["executor"] == EXECUTOR_KILLS


@pytest.mark.skipif(LONG is None, reason="only in the long form: make nightly-spark")
def test_a_killed_batch_write_that_is_run_again_stores_nothing_twice(tmp_path: Path) -> None:
    check(judge_writes(tmp_path / "run", SEED, KILLS))
