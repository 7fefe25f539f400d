"""Streams over two brokers: one joins, goes, comes back elsewhere; every message once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.blocking import Admin
from orbitmq.spark.cluster import QueueFailed
from orbitmq.spark.offsets import starts_in
from orbitmq.spark.topic_stream import TopicStreamReader
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue
from tests.spark.test_topic_queries import Seen, start, wait_for
from tests.spark.topics import COLUMNS, numbers, options_of, rows_of, send

QUICK = {"longPollMs": "50", "routeCacheTtlMs": "0", "fetchOffset.retryIntervalMs": "50"}
ALL = ReadAllAvailable()
UNTIL_S = 60


@pytest.fixture
def first() -> Iterator[EmbeddedBroker]:
    """The broker whose name server both have."""
    with EmbeddedBroker(settings={"brokerName": "first"}) as broker:
        yield broker


class Second:
    """A broker that joins the first one's cluster, and can leave it and come again."""

    def __init__(self, first: EmbeddedBroker, folder: Path) -> None:
        self._settings = {"brokerName": "second", "namesrvAddr": first.namesrv}
        self._folder = folder
        self.broker = EmbeddedBroker(folder=folder, settings=self._settings)

    def join(self) -> None:
        self.broker = EmbeddedBroker(folder=self._folder, settings=self._settings)
        self.broker.start()

    def leave(self) -> None:
        """Go with a word to the name server, which forgets it; `join` comes with new ports."""
        self.broker.stop()


@pytest.fixture
def second(first: EmbeddedBroker, tmp_path: Path) -> Iterator[Second]:
    found = Second(first, tmp_path / "second")
    yield found
    found.leave()


def make_at(first: EmbeddedBroker, topic: str, broker: str) -> list[MessageQueue]:
    with Admin(first.namesrv) as admin:
        admin.create_topic(topic, queue_count=2, broker=broker)
    return [MessageQueue(topic, broker, number) for number in range(2)]


def stream(first: EmbeddedBroker, topic: str, **given: str) -> TopicStreamReader:
    given = {"topic": topic, "startingOffsets": "earliest", **QUICK, **given}
    return TopicStreamReader(options_of(first, is_stream=True, **given), COLUMNS)


def step(reader: TopicStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    end = reader.latestOffset(start, ALL)
    return end, numbers(rows_of(reader, reader.partitions(start, end)))


def read_until(
    reader: TopicStreamReader, at: dict[str, Any], count: int
) -> tuple[dict[str, Any], list[int]]:
    """Return where the stream is when so many messages have come, and which these are."""
    seen: list[int] = []
    while len(seen) < count:
        at, found = step(reader, at)
        seen += found
    return at, sorted(seen)


@pytest.mark.parametrize("where", ["earliest", "latest"])
def test_a_broker_that_joins_is_read_from_where_new_queues_begin(
    first: EmbeddedBroker, second: Second, where: str
) -> None:
    queues = make_at(first, "T", "first")
    send(first, queues, range(4))
    reader = stream(first, "T", newQueueStart=where)
    at, found = step(reader, reader.initialOffset())
    assert found == [0, 1, 2, 3]
    second.join()
    new = make_at(first, "T", "second")
    send(first, new, range(4, 8))
    expected = dict.fromkeys(new, 0 if where == "earliest" else 2)
    while not starts_in(end := reader.latestOffset(at, ALL)):
        pass
    assert starts_in(end) == expected
    found = numbers(rows_of(reader, reader.partitions(at, end)))
    assert found == ([4, 5, 6, 7] if where == "earliest" else [])
    send(first, [*queues, *new], range(8, 16))
    assert read_until(reader, end, 8)[1] == list(range(8, 16))


def test_a_stream_goes_on_with_one_broker_while_the_other_is_away(
    first: EmbeddedBroker, second: Second
) -> None:
    second.join()
    here, there = make_at(first, "T", "first"), make_at(first, "T", "second")
    send(first, [*here, *there], range(8))
    reader = stream(first, "T")
    at, found = step(reader, reader.initialOffset())
    assert found == list(range(8))
    send(first, there, range(8, 12))
    second.broker.kill()
    send(first, here, range(12, 16))
    at, found = read_until(reader, at, 4)
    assert found == [12, 13, 14, 15]
    assert step(reader, at) == (at, [])
    second.broker.start()
    at, found = read_until(reader, at, 4)
    assert found == [8, 9, 10, 11]
    send(first, [*here, *there], range(16, 24))
    assert read_until(reader, at, 8)[1] == list(range(16, 24))


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_progress_at_one_broker_is_kept_while_the_other_is_away(
    first: EmbeddedBroker, second: Second, is_forgotten: bool
) -> None:
    """Symptom: tools showed a growing lag at all brokers as long as one of them was away."""
    second.join()
    there, here = make_at(first, "T", "second"), make_at(first, "T", "first")
    send(first, [*here, *there], range(8))
    reader = stream(first, "T", consumerGroup="lagging")
    at, _ = step(reader, reader.initialOffset())
    if is_forgotten:
        second.leave()
    else:
        second.broker.kill()
    reader.commit(at)
    with Admin(first.namesrv) as admin:
        assert [admin.group_offset("lagging", queue) for queue in here] == [2, 2]


def test_a_broker_that_left_and_came_back_elsewhere_is_read_on(
    first: EmbeddedBroker, second: Second
) -> None:
    second.join()
    here, there = make_at(first, "T", "first"), make_at(first, "T", "second")
    send(first, [*here, *there], range(8))
    reader = stream(first, "T")
    at, found = step(reader, reader.initialOffset())
    assert found == list(range(8))
    before = second.broker.broker
    second.leave()
    assert step(reader, at) == (at, [])
    second.join()
    assert second.broker.broker != before
    send(first, there, range(8, 12))
    assert read_until(reader, at, 4)[1] == [8, 9, 10, 11]


def test_a_batch_waits_for_a_broker_that_left_after_it_was_planned(
    first: EmbeddedBroker, second: Second
) -> None:
    """Symptom: the query failed at once, for the name server knew the broker no more."""
    second.join()
    here, there = make_at(first, "T", "first"), make_at(first, "T", "second")
    send(first, [*here, *there], range(8))
    reader = stream(first, "T")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ALL)
    second.leave()
    # Another unit's connections: they have never heard of the second broker.
    fresh = stream(first, "T", **{"rocketmq.client.unitName": "fresh"})
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: numbers(rows_of(fresh, fresh.partitions(begin, end))))
        with pytest.raises(TimeoutError):
            reading.result(0.5)
        second.join()
        assert reading.result(UNTIL_S) == list(range(8))


def test_a_broker_that_stays_away_ends_the_batch_with_its_name(
    first: EmbeddedBroker, second: Second
) -> None:
    second.join()
    there = make_at(first, "T", "second")
    make_at(first, "T", "first")
    send(first, there, range(4))
    reader = stream(first, "T", pullTimeoutMs="300")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ALL)
    second.leave()
    with pytest.raises(QueueFailed, match="queue 0 of topic T at broker second"):
        rows_of(reader, reader.partitions(begin, end))


def test_a_query_has_every_message_once_while_a_broker_joins_goes_and_comes_back(
    spark: SparkSession, first: EmbeddedBroker, second: Second, tmp_path: Path
) -> None:
    here = make_at(first, "T", "first")
    send(first, here, range(4))
    seen = Seen()
    given = {"topic": "T", "startingOffsets": "earliest"}
    trigger = {"processingTime": "0 seconds"}
    query = start(spark, first, seen, tmp_path / "checkpoint", trigger=trigger, **given)
    try:
        wait_for(query, seen, 4)
        second.join()
        there = make_at(first, "T", "second")
        send(first, [*here, *there], range(4, 12))
        wait_for(query, seen, 12)
        second.leave()
        send(first, here, range(12, 16))
        wait_for(query, seen, 16)
        second.join()
        send(first, [*here, *there], range(16, 24))
        wait_for(query, seen, 24)
    finally:
        query.stop()
    assert seen.numbers == list(range(24))
