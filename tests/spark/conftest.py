"""One Spark session for all tests here, and each system once: starting one costs seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.spark.cluster import close_clusters
from orbitmq.spark.session import session
from tests.foreign.judged import VERSIONS, System, system_of
from tests.spark.standalone import Cluster, running_cluster

ORIGINAL_MARKS = (
    pytest.mark.nightly("spark"),
    pytest.mark.foreign,
    pytest.mark.timeout(900),
)
"""The first run of all fetches jars; after that an original is there in seconds."""


SESSION_LIMIT_S = 600
"""A test that is ended in the middle of a call of Java leaves a session that nobody can use."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        shares = isinstance(item, pytest.Function) and "spark" in item.fixturenames
        if shares and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SESSION_LIMIT_S))


@pytest.fixture(
    scope="session",
    params=[None, *(pytest.param(version, marks=ORIGINAL_MARKS) for version in VERSIONS)],
    ids=lambda version: version or "orbitmq",
)
def system(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """Any broker: OrbitMQ, then each original; all filter by SQL. Tests of one are in a row."""
    folder = tmp_path_factory.mktemp("system")
    with system_of(request.param, folder, "-D", "enablePropertyFilter=true") as judged:
        yield judged


@pytest.fixture(scope="module", autouse=True)
def no_connections_left() -> Iterator[None]:
    """Other tests count the threads of clients: those of the pool end with each file."""
    yield
    close_clusters()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores, task retries and nothing outside its temporary folder."""
    folder: Path = tmp_path_factory.mktemp("spark")
    spark = session(
        "tests",
        cores=2,
        is_quick_start=True,
        uses_internals=True,
        settings={
            "spark.master": "local[2,3]",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
            "spark.driver.memory": "768m",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, each a process of its own."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
