"""Fixtures that the tests with foreign clients share: one system under test for all of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.foreign.compat import ORIGINAL, OURS, Played, original_system, our_system
from tests.foreign.compat_java import CLIENTS, JavaPlays
from tests.foreign.judged import System, namesrv_under_test, system_under_test
from tests.foreign.stores import SMALL, DataFolder

# The first run fetches jars and builds programs; after that a test takes seconds.
LIMIT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("foreign") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """OrbitMQ, or the original that ORBITMQ_JUDGE names."""
    with system_under_test(tmp_path_factory.mktemp("system")) as judged:
        yield judged


@pytest.fixture(scope="session")
def compat_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """OrbitMQ with the settings of the compatibility programs."""
    with our_system(tmp_path_factory.mktemp("compat")) as judged:
        yield judged


@pytest.fixture(scope="session")
def compat_original() -> Iterator[System]:
    """The original 4.9.7 that the same programs are played on."""
    with original_system("4.9.7") as judged:
        yield judged


@pytest.fixture(scope="session")
def java_plays(compat_ours: System) -> JavaPlays:
    """What the Java programs stated, each run made when it is first asked for."""
    return JavaPlays(compat_ours)


@pytest.fixture(params=[(c, s) for c in CLIENTS for s in (OURS, ORIGINAL)], ids="-".join)
def java_run(request: pytest.FixtureRequest, java_plays: JavaPlays) -> Played:
    """What one client's run stated on one system."""
    client, system = request.param
    return java_plays.of(client)[system]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server for the originals of this module."""
    with namesrv_under_test(tmp_path_factory.mktemp("namesrv")) as address:
        yield address


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> DataFolder:
    """A folder that changes hands, for brokers with the SIZES of the module or small ones."""
    return DataFolder(tmp_path / "data", getattr(request.module, "SIZES", SMALL))


@pytest.fixture(scope="session")
def fresh_name() -> Callable[[str], str]:
    """A maker of topic and group names that no other test uses."""
    numbers = itertools.count(1)
    return lambda word: f"{word}_{os.getpid()}_{next(numbers)}"
