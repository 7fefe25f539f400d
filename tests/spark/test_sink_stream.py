"""Streaming queries into topics by real Spark: modes, re-executed batches, brokers that die."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from orbitmq.testing import EmbeddedBroker
from tests.spark.sinking import (
    WAIT_S,
    bodies,
    forget_last_commit,
    lines,
    put,
    started,
    stored,
    stream,
    texts,
    write,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_a_re_executed_batch_adds_nothing(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(3):
        put(source, f"{number}.txt", texts(number * 100, 100))
    rows = lines(spark, source).repartition(2)
    options = {"topic": "again", "delivery": "idempotent", "fenceMs": 100}
    stream(rows, broker.namesrv, checkpoint, **options)
    assert bodies(broker.namesrv, "again") == texts(0, 300)
    forget_last_commit(checkpoint)
    put(source, "3.txt", texts(300, 50))
    stream(rows, broker.namesrv, checkpoint, **options)
    assert bodies(broker.namesrv, "again") == texts(0, 350)


def test_a_re_executed_batch_is_stored_again_at_least_once(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put(source, "0.txt", texts(0, 20))
    rows = lines(spark, source)
    stream(rows, broker.namesrv, checkpoint, topic="atleast")
    forget_last_commit(checkpoint)
    stream(rows, broker.namesrv, checkpoint, topic="atleast")
    assert bodies(broker.namesrv, "atleast") == sorted(texts(0, 20) * 2)
    ids = {message.message_id for message in stored(broker.namesrv, "atleast")}
    assert len(ids) == 20, "consumers can tell the copies by their ids"


def test_two_writes_of_foreach_batch_are_stored_once_each(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Once: the second write of the function was taken for a repetition of the first."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put(source, "0.txt", texts(0, 30))
    rows = lines(spark, source)
    options = {"delivery": "idempotent", "fenceMs": 100}

    def both(batch: DataFrame, _number: int) -> None:
        for name in ("a", "b"):
            named = batch.select(sf.concat(sf.lit(name), "body").alias("body"))
            write(named, broker.namesrv, "both", writeId=name, **options)

    for _ in range(2):
        query = (
            rows.writeStream.foreachBatch(both)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
        forget_last_commit(checkpoint)
    wanted = sorted(f"{name}{text}" for name in ("a", "b") for text in texts(0, 30))
    assert bodies(broker.namesrv, "both") == wanted


def test_an_idempotent_write_of_foreach_batch_without_a_name_is_refused(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    put(tmp_path / "in", "0.txt", texts(0, 3))

    def nameless(batch: DataFrame, _number: int) -> None:
        write(batch, broker.namesrv, "nameless", delivery="idempotent")

    query = (
        lines(spark, tmp_path / "in")
        .writeStream.foreachBatch(nameless)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="needs the option 'writeId'"):
        query.awaitTermination(WAIT_S)


def test_complete_mode_appends_the_whole_result_of_each_batch(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    put(source, "0.txt", ["a", "b"])
    put(source, "1.txt", ["b"])
    counts = (
        lines(spark, source)
        .groupBy("body")
        .count()
        .select(sf.concat_ws("=", "body", sf.col("count").cast("string")).alias("body"))
    )
    stream(counts, broker.namesrv, tmp_path / "c", topic="complete", mode="complete")
    assert bodies(broker.namesrv, "complete") == ["a=1", "a=1", "b=1", "b=2"]


def test_update_mode_is_refused(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    put(source, "0.txt", ["a"])
    counts = lines(spark, source).groupBy("body").count().select("body")
    with pytest.raises(PySparkException, match=r"(?i)update"):
        stream(counts, broker.namesrv, tmp_path / "c", topic="update", mode="update")


def test_a_wrong_column_fails_the_query_with_its_name(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    put(source, "0.txt", ["a"])
    rows = lines(spark, source).withColumn("tag", sf.lit("x"))
    with pytest.raises(PySparkException, match="did you mean 'tags'"):
        stream(rows, broker.namesrv, tmp_path / "c", topic="wrong")


def test_a_broker_that_dies_in_the_middle_of_a_query_has_every_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    for number in range(6):
        put(source, f"{number}.txt", texts(number * 500, 500))
    rows = lines(spark, source).repartition(2)
    with EmbeddedBroker() as mortal:
        mortal.create_topic("mortal")
        options = {"topic": "mortal", "delivery": "idempotent", "fenceMs": 100, "batchSize": 10}
        namesrv = mortal.namesrv
        query = started(rows, namesrv, tmp_path / "c", **options)
        while not query.awaitTermination(1):
            mortal.kill()
            mortal.start()
        assert bodies(namesrv, "mortal") == texts(0, 3_000)
