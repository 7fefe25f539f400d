"""Streaming queries over topics: real Spark, real checkpoints, runs that break and go on."""

from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq.blocking import Admin
from orbitmq.testing import EmbeddedBroker
from tests.spark.topics import make, send

UNTIL_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


class Seen:
    """What a query's batches had, by batch; the next one may be told to fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.batches: list[tuple[int, list[int]]] = []
        self.fails = fails
        self.news: SimpleQueue[int] = SimpleQueue()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("body").collect()
        self.batches.append((batch_id, sorted(int(bytes(row["body"]).split()[1]) for row in rows)))
        self.news.put(batch_id)
        if self.fails:
            raise RuntimeError("told to fail")

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, found in self.batches for number in found)


def start(
    spark: SparkSession,
    broker: EmbeddedBroker,
    seen: Seen,
    checkpoint: Path,
    *,
    trigger: Any = None,
    **options: str,
) -> StreamingQuery:
    given = {"namesrvAddr": broker.namesrv, "routeCacheTtlMs": "200", **options}
    frame = spark.readStream.format("rocketmq").options(**given).load()
    writer = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def wait_for(query: StreamingQuery, seen: Seen, count: int) -> None:
    """Wait until so many messages were seen, at least in one batch."""
    while True:
        try:
            seen.news.get(timeout=UNTIL_S)
        except Empty:
            raise AssertionError(f"{seen.batches} {query.exception()}") from None
        if len(seen.numbers) >= count:
            return


def test_a_query_goes_on_where_its_checkpoint_is_and_a_repeated_batch_is_the_same(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    queues = make(broker, "q-exact")
    send(broker, queues, range(10))
    given = {"topic": "q-exact", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    first, second, third = Seen(), Seen(), Seen()
    start(spark, broker, first, tmp_path, **given).awaitTermination(UNTIL_S)
    assert first.numbers == list(range(10))
    assert [len(found) for _, found in first.batches] == [4, 4, 2]
    commits = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    start(spark, broker, second, tmp_path, **given).awaitTermination(UNTIL_S)
    assert second.batches == first.batches[-1:]
    send(broker, queues, range(10, 13))
    start(spark, broker, third, tmp_path, **given).awaitTermination(UNTIL_S)
    assert third.numbers == [10, 11, 12]


def test_the_very_first_batch_that_fails_is_read_again_as_it_was(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    queues = make(broker, "q-first")
    send(broker, queues, range(3))
    given = {"topic": "q-first", "startingOffsets": "earliest"}
    failing, again = Seen(fails=True), Seen()
    with pytest.raises(StreamingQueryException):
        start(spark, broker, failing, tmp_path, **given).awaitTermination(UNTIL_S)
    assert failing.batches == [(0, [0, 1, 2])]
    assert not list((tmp_path / "commits").glob("[0-9]*"))
    send(broker, queues, range(3, 5))
    start(spark, broker, again, tmp_path, topic="q-first").awaitTermination(UNTIL_S)
    assert again.batches == [(0, [0, 1, 2]), (1, [3, 4])]


def test_a_query_whose_first_batch_failed_begins_where_latest_was_then(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Symptom: what came between the failure and the restart was passed over."""
    queues = make(broker, "q-latest")
    send(broker, queues, range(3))
    failing, again = Seen(fails=True), Seen()
    trigger = {"processingTime": "0 seconds"}
    with pytest.raises(StreamingQueryException):
        start(spark, broker, failing, tmp_path, trigger=trigger, topic="q-latest").awaitTermination(
            UNTIL_S
        )
    assert failing.batches == [(0, [])]
    assert not list((tmp_path / "commits").glob("[0-9]*"))
    send(broker, queues, range(3, 6))
    start(spark, broker, again, tmp_path, topic="q-latest").awaitTermination(UNTIL_S)
    assert again.numbers == [3, 4, 5]


def test_a_batch_behind_latest_that_fails_is_read_again_though_latest_has_moved(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    queues = make(broker, "q-second")
    send(broker, queues, range(3))
    seen = Seen()
    trigger = {"processingTime": "0 seconds"}
    query = start(spark, broker, seen, tmp_path, trigger=trigger, topic="q-second")
    wait_for(query, seen, 0)  # the empty first batch: the query stands at the end
    seen.fails = True
    send(broker, queues, range(3, 6))
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(UNTIL_S)
    failed = seen.numbers
    send(broker, queues, range(6, 8))
    again = Seen()
    start(spark, broker, again, tmp_path, topic="q-second").awaitTermination(UNTIL_S)
    assert failed
    assert set(failed) <= set(again.numbers)
    assert again.numbers == list(range(3, 8))


def test_a_running_query_takes_new_messages_and_new_queues_and_shows_its_lag(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    queues = make(broker, "q-live", 1)
    send(broker, queues, [0])
    seen = Seen()
    trigger = {"processingTime": "0 seconds"}
    given = {"topic": "q-live", "startingOffsets": "earliest"}
    query = start(spark, broker, seen, tmp_path, trigger=trigger, **given)
    try:
        wait_for(query, seen, 1)
        send(broker, make(broker, "q-live", 3), [1, 2, 3])
        wait_for(query, seen, 4)
        progress = query.lastProgress
    finally:
        query.stop()
    assert seen.numbers == [0, 1, 2, 3]
    assert progress is not None
    assert "q-live" in str(progress["sources"][0]["latestOffset"])


def test_a_query_whose_topic_was_made_again_fails_and_names_the_queue(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    queues = make(broker, "q-phoenix", 1)
    send(broker, queues, range(5))
    given = {"topic": "q-phoenix", "startingOffsets": "earliest"}
    start(spark, broker, Seen(), tmp_path, **given).awaitTermination(UNTIL_S)
    with Admin(broker.namesrv) as admin:
        admin.delete_topic("q-phoenix")
    send(broker, make(broker, "q-phoenix", 1), [7])
    with pytest.raises(StreamingQueryException, match=r"queue 0 of topic q-phoenix.*made again"):
        start(spark, broker, Seen(), tmp_path, **given).awaitTermination(UNTIL_S)
    seen = Seen()
    tolerant = {**given, "failOnDataLoss": "false"}
    start(spark, broker, seen, tmp_path, **tolerant).awaitTermination(UNTIL_S)
    assert seen.numbers == [7]
