"""T16: a large backlog is read in batches of the configured limit, each message once.

The form for CI has few messages; `make nightly-spark` has a million (`ORBITMQ_T16_BACKLOG`).
"""

import os
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from orbitmq import Message, Producer
from orbitmq.testing import EmbeddedBroker

BACKLOG = int(os.environ.get("ORBITMQ_T16_BACKLOG", "3000"))
BATCHES = 3 if BACKLOG < 100_000 else 10
LIMIT = BACKLOG // BATCHES
SENT_AT_ONCE = 1_000
PLACE = ("brokerName", "queueId", "queueOffset")
WAIT_S = 120 + BACKLOG // 1_000


def fill(broker: EmbeddedBroker, topic: str) -> None:
    """Have a backlog in a topic."""
    broker.create_topic(topic)
    with Producer(broker.namesrv, group="filler") as producer:
        for first in range(0, BACKLOG, SENT_AT_ONCE):
            numbers = range(first, min(first + SENT_AT_ONCE, BACKLOG))
            producer.send_batch([Message(topic, b"%d" % number) for number in numbers])


def backlog(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> DataFrame:
    """Return the topic as a stream with a limit."""
    reader = spark.readStream.format("rocketmq").option("namesrvAddr", broker.namesrv)
    reader = reader.option("topic", topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", LIMIT).load()


@pytest.mark.nightly("spark", short=True)
@pytest.mark.timeout(300 + BACKLOG // 200)
def test_a_backlog_is_read_in_batches_of_the_limit(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        fill(broker, "backlog")
        query = (
            backlog(spark, broker, "backlog")
            .select(*PLACE)
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "read"), format="parquet")
        )
        assert query.awaitTermination(WAIT_S), "the query does not end"
    read = [progress["numInputRows"] for progress in query.recentProgress]
    assert max(read) <= LIMIT
    assert sum(read) == BACKLOG
    found = spark.read.parquet(str(tmp_path / "read"))
    assert found.count() == found.distinct().count() == BACKLOG
    print(f"T16 backlog: {BACKLOG} messages in {len(read)} batches, {max(read)} at most")
