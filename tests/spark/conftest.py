"""One Spark session for all tests here: starting one costs seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.spark.cluster import close_clusters
from orbitmq.spark.session import session
from tests.foreign.judged import System, system_under_test


@pytest.fixture(scope="module", autouse=True)
def no_connections_left() -> Iterator[None]:
    """Other tests count the threads of clients: those of the pool end with each file."""
    yield
    close_clusters()


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """OrbitMQ, or the original that ORBITMQ_JUDGE names; both filter by SQL."""
    folder = tmp_path_factory.mktemp("system")
    with system_under_test(folder, "-D", "enablePropertyFilter=true") as judged:
        yield judged


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores, task retries and nothing outside its temporary folder."""
    folder: Path = tmp_path_factory.mktemp("spark")
    spark = session(
        "tests",
        cores=2,
        is_quick_start=True,
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
