"""Scenarios of the name server run on the loop that the product uses."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from orbitmq.world import net

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def run() -> Run:
    """Run a scenario to its end."""
    return net.run
