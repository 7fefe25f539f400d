"""For all tests: the system under test, started once, fresh names, and who runs what when.

On an original, only what asks it is played of the client's tests: the others would say the same
again.
"""

import itertools
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import must_run, nightly, reported
from tests.foreign.judged import System, judged_original, system_under_test
from tests.spread import piece_of, rank_of

# No deadline: a busy machine makes an example slow, not wrong. pytest's own limit ends what hangs.
settings.register_profile("orbitmq", deadline=None, max_examples=nightly.property_examples())
settings.load_profile("orbitmq")


OF_THE_CLIENT = [Path(__file__).parent / name for name in ("client", "blocking", "app", "cli")]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make `--nightly PART` and `--report FILE` known."""
    nightly.add_option(parser)
    reported.add_option(parser)


def pytest_configure() -> None:
    """Let programs that tests start be interrupted, though a run in the background is not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes minutes first (tests/spread.py); leave out what asks no original."""
    nightly.choose(config, items)
    if judged_original() is not None:
        left = [each for each in items if each.path.parent in OF_THE_CLIENT]
        left = [each for each in left if not _asks_system(each)]
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [each for each in items if each not in gone]
    items.sort(key=lambda item: rank_of(item.nodeid))


def _asks_system(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "system" in item.fixturenames


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return workers whole pieces, in this order; xdist would begin with the most tests."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = piece_of
    return scheduler


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own, of 1 MiB."""
    with must_run.small_disk(tmp_path / "small", 1) as folder:
        yield folder


PROGRAMMES = re.compile(r"^(T\d+ |exchange: ).*", re.MULTILINE)
"""How the lines begin in which the reliability programmes say what they did."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the programmes counted, also when they passed; write what was asked for."""
    reported.write(terminalreporter.config, terminalreporter.stats)
    reports = terminalreporter.stats.get("passed", [])
    lines = sorted(
        found.group() for report in reports for found in PROGRAMMES.finditer(report.capstdout)
    )
    if lines:
        terminalreporter.section("reliability programmes")
        for line in lines:
            terminalreporter.write_line(line)
