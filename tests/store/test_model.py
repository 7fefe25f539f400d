"""T3: the store against its model. `make nightly-torture` runs the long form."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store.machine import StoreMachine

IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
RUNS, STEPS = (5_000, 200) if IS_LONG else (200, 50)


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(0 if IS_LONG else 240)
def test_the_store_agrees_with_its_model_whatever_is_done_to_it() -> None:
    StoreMachine.counts.clear()
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=RUNS,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"T3 store against model: {dict(StoreMachine.counts)}")
    assert StoreMachine.counts["runs"] >= RUNS
