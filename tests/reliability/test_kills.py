"""T6: kills under load cost nothing that was acknowledged, and nothing else goes wrong.

The short form runs with the tests; `make nightly-kills KILLS=2500` the long one, in rounds with
asynchronous and synchronous flush in turn; in every fourth, kills are power cuts. A round
that fails leaves its histories, logs and store in the folder that it names. The seed says which
kind of round it is, and repeats it: `ORBITMQ_KILL_SEED=seed make nightly-kills KILLS=50`.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.reliability.kill_programme import FAULTS, KillProgramme, Plan, Report

KILLS = int(os.environ.get("ORBITMQ_KILLS", "0"))
SEED = int(os.environ.get("ORBITMQ_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
pytestmark = pytest.mark.once
ROUND_KILLS = 50
SHORT_KILLS = 11
"""Twice, with either flush; every kind of fault comes before that."""
SHORT_DELAY_S = 1.0
"""A kill comes sooner than in the nightly."""


@pytest.fixture(autouse=True)
def told_seed() -> None:
    """Say how to repeat this run; pytest shows it with a failure."""
    print(f"repeat it with ORBITMQ_KILL_SEED={SEED}")


def judge(folder: Path, plan: Plan) -> Report:
    """Run a plan; it must find nothing."""
    report = KillProgramme(folder, plan).run()
    assert not report.violations, "\n".join([report.line(), str(folder), *report.violations])
    print(report.line())
    return report


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_sync_flush", [False, True], ids=["async", "sync"])
def test_kills_under_load_cost_nothing_that_was_acknowledged(
    tmp_path: Path, is_sync_flush: bool
) -> None:
    plan = Plan(SEED, SHORT_KILLS, is_sync_flush, delay_s_max=SHORT_DELAY_S)
    report = judge(tmp_path / "run", plan)
    assert len(report.history.kills) >= SHORT_KILLS
    assert report.faults.keys() == set(FAULTS)


@pytest.mark.slow
@pytest.mark.nightly("kills")
@pytest.mark.timeout(0)
def test_many_kills_under_load(tmp_path: Path) -> None:
    done = 0
    for seed in range(SEED, SEED + -(-KILLS // ROUND_KILLS)):
        folder = tmp_path / f"seed{seed}"
        plan = Plan(
            seed,
            min(ROUND_KILLS, KILLS - done),
            is_sync_flush=seed % 2 == 1,
            cuts_power=seed % 4 == 3,
        )
        report = judge(folder, plan)
        done += len(report.history.kills)
        shutil.rmtree(folder)
    print(f"T6 long form: {done} kills in rounds from seed {SEED} on, no violations")
