"""delivery=idempotent behind a shuffle, with Spark's adaptive execution on.

It joins partitions of a shuffle by the cores that there are, and rows in other partitions are other
rows to the sink. These tests show where that counts, and what docs/guides/spark.md advises.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from orbitmq.spark.session import SHARED_SETTINGS
from orbitmq.testing import EmbeddedBroker
from tests.spark.sinking import bodies, forget_last_commit, lines, put, stream, texts, write

Names = Callable[[str], str]

ROWS = 200
ALL_ONCE = texts(0, ROWS)
IDEMPOTENT = {"delivery": "idempotent", "fenceMs": "0"}
CORES = "spark.sql.adaptive.coalescePartitions.minPartitionNum"
"""What adaptive execution takes for the number of cores; else those that have registered."""
OF_STREAMS = "spark.sql.adaptive.streaming.stateless.enabled"
SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",  # as if rows were many
    "spark.sql.shuffle.partitions": "8",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def adaptive(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session with adaptive execution, as Spark has it by default."""
    before = {name: spark.conf.get(name, None) for name in (*SETTINGS, OF_STREAMS, CORES)}
    for name, text in SETTINGS.items():
        spark.conf.set(name, text)
    yield spark
    for name, found in before.items():
        if found is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, found)


def unshuffled(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("format_string('line %05d', id) as body")


def shuffled(spark: SparkSession) -> DataFrame:
    return unshuffled(spark).repartition("body")


def write_twice(rows: DataFrame, broker: EmbeddedBroker, topic: str, cores: tuple[int, int]) -> int:
    """Make a write with a name, and again on other cores; return how many rows are there twice."""
    for count in cores:
        rows.sparkSession.conf.set(CORES, str(count))
        again = rows.select("*")  # planned anew
        write(again, broker.namesrv, topic, writeId="one", **IDEMPOTENT)
    found = bodies(broker.namesrv, topic)
    assert set(found) == set(ALL_ONCE)
    return sum(count - 1 for count in Counter(found).values())


def stream_twice(rows: DataFrame, broker: EmbeddedBroker, topic: str, checkpoint: Path) -> int:
    """Run a query's batch on one core, and again on four; return how many rows are there twice."""
    for count in (1, 4):
        rows.sparkSession.conf.set(CORES, str(count))
        stream(rows, broker.namesrv, checkpoint, topic=topic, **IDEMPOTENT)
        forget_last_commit(checkpoint)
    found = bodies(broker.namesrv, topic)
    assert set(found) == set(ALL_ONCE)
    return sum(count - 1 for count in Counter(found).values())


def test_a_write_behind_a_shuffle_on_the_same_cores_is_stored_once(
    adaptive: SparkSession, broker: EmbeddedBroker, fresh_name: Names
) -> None:
    assert write_twice(shuffled(adaptive), broker, fresh_name("same"), (4, 4)) == 0


def test_a_write_behind_a_shuffle_on_more_cores_is_partly_stored_again(
    adaptive: SparkSession, broker: EmbeddedBroker, fresh_name: Names
) -> None:
    """What the guide warns of: should this fail, the warning can go."""
    assert write_twice(shuffled(adaptive), broker, fresh_name("more"), (1, 4)) > 0


def test_a_write_with_a_number_of_partitions_is_stored_once_on_any_cores(
    adaptive: SparkSession, broker: EmbeddedBroker, fresh_name: Names
) -> None:
    rows = unshuffled(adaptive).repartition(3, "body")
    assert write_twice(rows, broker, fresh_name("number"), (1, 4)) == 0


def test_a_stream_behind_a_shuffle_on_more_cores_is_stored_once_with_our_settings(
    adaptive: SparkSession, broker: EmbeddedBroker, fresh_name: Names, tmp_path: Path
) -> None:
    """Symptom: Spark 4.3 plans streams adaptively; a restart on more cores stored rows again."""
    put(tmp_path / "in", "0.txt", ALL_ONCE)
    rows = lines(adaptive, tmp_path / "in").repartition("body")
    adaptive.conf.set(OF_STREAMS, "true")  # Spark's default
    assert stream_twice(rows, broker, fresh_name("theirs"), tmp_path / "theirs") > 0
    adaptive.conf.set(OF_STREAMS, SHARED_SETTINGS[OF_STREAMS])
    assert stream_twice(rows, broker, fresh_name("ours"), tmp_path / "ours") == 0
