"""Rows written to topics in batches by real Spark: what is stored, what is refused and how."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from orbitmq.testing import EmbeddedBroker
from tests.spark.sinking import bodies, stored, write


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(sf.col("id").cast("string").alias("body"))


def expected(count: int) -> list[str]:
    return sorted(str(number) for number in range(count))


def test_rows_of_a_batch_are_messages_of_the_topic(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    write(numbers(spark, 2_500), broker.namesrv, "plain", batchSize=100)
    assert bodies(broker.namesrv, "plain") == expected(2_500)
    queues = {message.queue.queue_id for message in stored(broker.namesrv, "plain")}
    assert len(queues) > 1


def test_all_columns_of_a_row_are_in_its_message(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    rows = spark.sql(
        "select 'fromcolumn' as topic, 'b1' as body, 'paid' as tags, array('k1','k2') as keys,"
        " map('colour','red') as properties, 7 as flag, 2 as queueId, 'u1' as shardingKey"
    )
    broker.create_topic("fromcolumn")
    write(rows, broker.namesrv)
    (message,) = stored(broker.namesrv, "fromcolumn")
    assert (message.body, message.tag, message.keys) == (b"b1", "paid", ["k1", "k2"])
    assert (message.flag, message.queue.queue_id, message.sharding_key) == (7, 2, "u1")
    assert message.properties["colour"] == "red"


def test_an_empty_batch_is_no_error(spark: SparkSession, broker: EmbeddedBroker) -> None:
    broker.create_topic("empty")
    write(numbers(spark, 0), broker.namesrv, "empty")
    assert stored(broker.namesrv, "empty") == []


def test_sql_inserts_into_a_topic(spark: SparkSession, broker: EmbeddedBroker) -> None:
    spark.sql(
        "create temporary view orders_out (body string, tags string) using rocketmq"
        f" options (namesrvAddr '{broker.namesrv}', topic 'inserted')"
    )
    try:
        spark.sql("insert into orders_out select cast(id as string), 'sql' from range(30)")
    finally:
        spark.sql("drop view orders_out")
    assert bodies(broker.namesrv, "inserted") == expected(30)
    assert {message.tag for message in stored(broker.namesrv, "inserted")} == {"sql"}


@pytest.mark.parametrize(
    ("select", "options", "said"),
    [
        ("id", {}, "column 'body' is missing"),
        ("id as body", {}, "column 'body' is bigint, it must be binary or string"),
        ("'x' as body, 'y' as tag", {}, "did you mean 'tags'"),
        ("'x' as body", {"batchSiz": "7"}, "did you mean 'batchSize'"),
        ("'x' as body", {"delivery": "transactional"}, "comes with a later version"),
    ],
)
def test_a_write_that_cannot_be_is_refused_before_any_task_runs(
    spark: SparkSession,
    broker: EmbeddedBroker,
    select: str,
    options: dict[str, str],
    said: str,
) -> None:
    rows = spark.range(3).selectExpr(*select.split(", "))
    with pytest.raises(PySparkException, match=said):
        write(rows, broker.namesrv, "refused", **options)


def test_mode_overwrite_is_refused_with_the_mode_to_use(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    writer = numbers(spark, 3).write.format("rocketmq").mode("overwrite")
    with pytest.raises(PySparkException, match="append"):
        writer.options(namesrvAddr=broker.namesrv, topic="over").save()


def failing_once(rows: DataFrame, flag: Path, at: int) -> DataFrame:
    """Rows of which one fails its task the first time."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if str(at) in batch.column(0).to_pylist() and not flag.exists():
                flag.touch()
                raise RuntimeError("the task fails in its middle")
            yield batch

    return rows.mapInArrow(fail, rows.schema)


@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent"])
def test_a_task_that_failed_midway_is_repeated(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, delivery: str
) -> None:
    topic = f"repeated-{delivery}"
    broker.create_topic(topic)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        rows = failing_once(numbers(spark, 1_000), tmp_path / "failed", 333)
        write(rows, broker.namesrv, topic, delivery=delivery, fenceMs=200, batchSize=20)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "4000")
    assert (tmp_path / "failed").exists()
    found = bodies(broker.namesrv, topic)
    assert sorted(set(found)) == expected(1_000)
    if delivery == "idempotent":
        assert len(found) == 1_000


def test_a_named_write_made_again_stores_nothing(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    for _ in range(2):
        write(numbers(spark, 300), broker.namesrv, "named", delivery="idempotent", writeId="daily")
    assert bodies(broker.namesrv, "named") == expected(300)


def test_speculation_is_refused_where_two_attempts_would_double_rows(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    spark.sparkContext.setLocalProperty("spark.speculation", "true")
    try:
        with pytest.raises(PySparkException, match=r"set spark.speculation=false"):
            write(numbers(spark, 3), broker.namesrv, "speculated", delivery="idempotent")
    finally:
        spark.sparkContext.setLocalProperty("spark.speculation", "false")
