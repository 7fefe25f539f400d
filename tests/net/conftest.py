"""Every test of the network that takes `run` is run on uvloop and on asyncio's own loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from orbitmq.world import net
from tests.net.running import Run

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a scenario to its end on one of the loops."""

    def run_scenario(scenario: Coroutine[Any, Any, None]) -> None:
        net.run(scenario, LOOPS[request.param])

    return run_scenario
