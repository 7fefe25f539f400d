"""Fixtures for all tests: the system under test, started once, and fresh names."""

import itertools
import os
import re
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


PROGRAMMES = re.compile(r"^(T\d+ |exchange: ).*", re.MULTILINE)
"""How the lines begin in which the reliability programmes say what they did."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the programmes counted, also when they passed."""
    reports = terminalreporter.stats.get("passed", [])
    lines = sorted(
        found.group() for report in reports for found in PROGRAMMES.finditer(report.capstdout)
    )
    if lines:
        terminalreporter.section("reliability programmes")
        for line in lines:
            terminalreporter.write_line(line)
