"""Messages of 10 MB in Spark: read from a topic, from a log, written to a topic."""

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from orbitmq import Message, Producer
from orbitmq.spark.log_source import LogSource
from orbitmq.testing import EmbeddedBroker
from tests.spark.sinking import stored, write
from tests.spark.topics import make

MOST = 12 << 20
BODIES = [random.Random(1).randbytes(10_000_000), b"small", bytes(MOST)]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"maxMessageSize": str(MOST), "mappedFileSizeCommitLog": str(64 << 20)}
    with EmbeddedBroker(settings=settings) as broker:
        (queue,) = make(broker, "large", 1)
        with Producer(
            namesrv=broker.namesrv,
            group="fill",
            message_bytes_max=MOST,
            compress_from_bytes=2 * MOST,
        ) as producer:
            for body in BODIES:
                producer.send(Message("large", body), timeout=20, queue=queue)
        yield broker


def test_a_topic_gives_them(spark: SparkSession, broker: EmbeddedBroker) -> None:
    reader = spark.read.format("rocketmq").option("namesrvAddr", broker.namesrv)
    rows = reader.option("topic", "large").load().orderBy("queueOffset").collect()
    assert [bytes(row["body"]) == body for row, body in zip(rows, BODIES, strict=True)] == [
        True
    ] * 3


def test_a_log_gives_them(spark: SparkSession, broker: EmbeddedBroker) -> None:
    spark.dataSource.register(LogSource)
    reader = spark.read.format("rocketmq_log").option("topic", "large")
    rows = reader.load(str(broker.folder / "store")).orderBy("queueOffset").collect()
    assert [bytes(row["body"]) == body for row, body in zip(rows, BODIES, strict=True)] == [
        True
    ] * 3


def test_a_topic_takes_them_and_knows_them_again(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    """Symptom: a write made again failed at the records above 4.26 MB that it had stored."""
    make(broker, "written", 1)
    rows = spark.createDataFrame([(bytearray(body),) for body in BODIES], "body binary")
    for _ in range(2):
        write(rows.coalesce(1), broker.namesrv, "written", delivery="idempotent", writeId="w")
    found = stored(broker.namesrv, "written")
    assert [each.body == body for each, body in zip(found, BODIES, strict=True)] == [True] * 3
