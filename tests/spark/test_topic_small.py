"""Batches of few messages: their rows travel with the plan, once; all others have their tasks."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.errors import OutcomeUnknown
from orbitmq.spark import internals, topic_small
from orbitmq.spark.topic_stream import TopicStreamReader
from orbitmq.testing import EmbeddedBroker
from tests.spark.topics import COLUMNS, make, numbers, options_of, rows_of, send

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a session that uses internals."""
    monkeypatch.setenv(internals.MARK, "1")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def stream(broker: EmbeddedBroker, topic: str, **given: str) -> TopicStreamReader:
    options = options_of(broker, is_stream=True, topic=topic, startingOffsets="earliest", **given)
    return TopicStreamReader(options, COLUMNS)


def planned(reader: TopicStreamReader) -> tuple[list[Any], list[int] | None]:
    """Plan a batch as Spark's runner does; give its partitions and which rows came along."""
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    partitions = reader.partitions(start, end)
    if not isinstance(reader, _SimpleStreamReaderWrapper):
        return partitions, None
    carried = reader.getCache(start, end)
    if carried is None:
        return partitions, None
    batches: list[Any] = list(carried)
    return partitions, numbers([row for batch in batches for row in batch.to_pylist()])


def test_few_rows_of_all_queues_come_along_with_the_plan(broker: EmbeddedBroker) -> None:
    send(broker, make(broker, "few", 4), range(10))
    reader = stream(broker, "few")
    partitions, carried = planned(reader)
    assert len(partitions) == 1
    assert carried == list(range(10))
    assert numbers(rows_of(reader, partitions)) == list(range(10))


def test_a_reader_is_an_ordinary_one_again_when_its_rows_are_taken(broker: EmbeddedBroker) -> None:
    """Symptom: no lag in the progress; Spark asks readers of its simple class for no offsets."""
    send(broker, make(broker, "ordinary"), range(3))
    reader = stream(broker, "ordinary")
    planned(reader)
    assert not isinstance(reader, _SimpleStreamReaderWrapper)
    assert reader.reportLatestOffset()


def test_a_reader_stays_of_its_class_where_no_session_asked_for_more(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(internals.MARK)
    send(broker, make(broker, "plain", 2), range(3))
    reader = stream(broker, "plain")
    partitions, carried = planned(reader)
    assert (type(reader), len(partitions), carried) == (TopicStreamReader, 1, None)
    assert numbers(rows_of(reader, partitions)) == list(range(3))


def test_many_rows_have_their_tasks(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_small, "ROWS_MAX", 5)
    send(broker, make(broker, "many", 3), range(6))
    partitions, carried = planned(stream(broker, "many"))
    assert (len(partitions), carried) == (3, None)


def test_tasks_are_as_options_size_them(broker: EmbeddedBroker) -> None:
    send(broker, make(broker, "sized", 1), range(6))
    partitions, carried = planned(stream(broker, "sized", minPartitions="2"))
    assert (len(partitions), carried) == (2, None)


def test_few_rows_that_are_large_are_read_by_their_task(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_small, "BATCH_BYTES", 1)
    send(broker, make(broker, "large", 2), range(4))
    reader = stream(broker, "large")
    partitions, carried = planned(reader)
    assert carried is None
    assert numbers(rows_of(reader, partitions)) == list(range(4))


def test_what_cannot_be_read_for_now_is_left_to_the_task(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Iterator[Any]:
        raise OutcomeUnknown("the broker is away")

    monkeypatch.setattr(topic_small, "read_ranges", fail)
    send(broker, make(broker, "away", 1), range(2))
    with caplog.at_level(logging.INFO):
        partitions, carried = planned(stream(broker, "away"))
    assert (len(partitions), carried) == (1, None)
    assert "the broker is away" in caplog.text


def test_spark_takes_the_rows_along(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Any
) -> None:
    """A query sees each message once, and its progress still names the newest offsets."""
    send(broker, make(broker, "along", 2), range(8))
    source = spark.readStream.format("rocketmq").option("namesrvAddr", broker.namesrv)
    rows = source.option("topic", "along").option("startingOffsets", "earliest").load()
    writer = rows.writeStream.format("memory").queryName("along")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        found = spark.table("along").select("topic", "queueId", "queueOffset").collect()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()
    assert sorted((row.queueId, row.queueOffset) for row in found) == [
        (queue, offset) for queue in range(2) for offset in range(4)
    ]
    assert progress[0]["sources"][0]["latestOffset"]
