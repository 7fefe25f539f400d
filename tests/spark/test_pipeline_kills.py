"""T16: whatever dies under a pipeline, each message is in its sink exactly once.

The form for CI kills 3 times each of driver, worker and broker; `make kills-spark` is the long
one. A failure names the seed; `ORBITMQ_T16_SEED=seed` repeats it.
"""

import os
import time
from pathlib import Path

import pytest

from tests.spark.pipeline_kills import KINDS, judge

KILLS = int(os.environ.get("ORBITMQ_T16_KILLS", "3"))
SEED = int(os.environ.get("ORBITMQ_T16_SEED", "0")) or int(time.time())
LIMIT_S = 1_200 + 60 * KILLS


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.timeout(LIMIT_S)
def test_a_pipeline_under_kills_has_every_message_once_in_its_sink(tmp_path: Path) -> None:
    report = judge(tmp_path / "run", SEED, KILLS)
    print(report.line(SEED))
    assert not report.violations, f"seed {SEED}: {report.violations}"
    assert all(report.kills[kind] >= KILLS for kind in KINDS)
