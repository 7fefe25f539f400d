"""Fixtures for all tests: the system under test, started once, and fresh names."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.foreign.judged import System, system_under_test


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """OrbitMQ as a process of its own, or the original that ORBITMQ_JUDGE names."""
    with system_under_test(tmp_path_factory.mktemp("system")) as judged:
        yield judged


@pytest.fixture(scope="session")
def fresh_name() -> Callable[[str], str]:
    """A maker of topic and group names that no other test uses."""
    numbers = itertools.count(1)
    return lambda word: f"{word}_{os.getpid()}_{next(numbers)}"
