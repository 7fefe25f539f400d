"""Topics that are deleted under a stream, and brokers that are only away: a loss, or patience."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from orbitmq.blocking import Admin
from orbitmq.client.remote import request
from orbitmq.spark.cluster import QueueFailed, cluster_of
from orbitmq.spark.data_loss import DataLoss
from orbitmq.spark.offsets import nested, offsets_in
from orbitmq.spark.topic_loss import deleted_queues
from orbitmq.spark.topic_stream import TopicStreamReader
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers_namesrv import DeleteTopicInNamesrv
from tests.spark.test_topic_brokers import Second, make_at
from tests.spark.test_topic_queries import UNTIL_S, Seen, start, wait_for
from tests.spark.topics import COLUMNS, make, numbers, options_of, rows_of, send

QUICK = {"longPollMs": "200", "routeCacheTtlMs": "0", "fetchOffset.retryIntervalMs": "20"}
STEPS_MAX = 200
"""More than a stream needs to look at its queues again."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def first() -> Iterator[EmbeddedBroker]:
    """The broker whose name server both have."""
    with EmbeddedBroker(settings={"brokerName": "first"}) as broker:
        yield broker


@pytest.fixture
def second(first: EmbeddedBroker, tmp_path: Path) -> Iterator[Second]:
    found = Second(first, tmp_path / "second")
    found.join()
    yield found
    found.leave()


def stream(broker: EmbeddedBroker, **given: str) -> TopicStreamReader:
    given = {**QUICK, "startingOffsets": "earliest", **given}
    return TopicStreamReader(options_of(broker, is_stream=True, **given), COLUMNS)


def step(reader: TopicStreamReader, at: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    return end, numbers(rows_of(reader, reader.partitions(at, end)))


def delete(broker: EmbeddedBroker, topic: str) -> None:
    with Admin(broker.namesrv) as admin:
        assert admin.delete_topic(topic)


# --- a topic that is deleted ---


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_stream_whose_topic_is_deleted_fails_instead_of_standing_still(
    broker: EmbeddedBroker, limit: str
) -> None:
    """Symptom: it gave the same offset for ever; what it had not read was lost without an error."""
    queues = make(broker, f"deleted-{limit}", 1)
    send(broker, queues, range(8))
    given = {limit: "3" if limit == "maxOffsetsPerTrigger" else "700"}
    reader = stream(broker, topic=queues[0].topic, **given)
    at, found = step(reader, reader.initialOffset())
    assert 0 < len(found) < 8
    delete(broker, queues[0].topic)

    def go_on() -> None:
        end = at
        for _ in range(STEPS_MAX):
            end, _ = step(reader, end)

    with pytest.raises(DataLoss, match=f"topic deleted-{limit} at broker .*'failOnDataLoss'"):
        go_on()


@pytest.mark.parametrize("chosen", ["topic", "topicsPattern"])
def test_a_stream_that_starts_again_after_its_topic_was_deleted_fails(
    broker: EmbeddedBroker, chosen: str
) -> None:
    queues = make(broker, f"missed-{chosen}", 2)
    send(broker, queues, range(8))
    given = {chosen: queues[0].topic}
    reader = stream(broker, maxOffsetsPerTrigger="3", **given)
    at, _ = step(reader, reader.initialOffset())
    delete(broker, queues[0].topic)
    message = f"queue 0 of topic missed-{chosen} at broker .*: its topic was deleted.* offset 2 on"
    with pytest.raises(DataLoss, match=message):
        stream(broker, **given).latestOffset(at, reader.getDefaultReadLimit())


def test_a_stream_told_to_go_on_says_once_that_a_topic_was_deleted_and_reads_the_others(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    gone, kept = make(broker, "leaving", 1), make(broker, "staying", 1)
    for queues in (gone, kept):
        send(broker, queues, range(4))
    given = {"topics": "leaving,staying", "failOnDataLoss": "false", "consumerGroup": "lenient"}
    at = nested({gone[0]: 3, kept[0]: 3})
    delete(broker, "leaving")
    reader = stream(broker, **given)
    with caplog.at_level(logging.WARNING):
        for number in range(4, 8):
            at, found = step(reader, at)
            assert found == [number - 1]
            reader.commit(at)
            send(broker, kept, [number])
    assert offsets_in(at)[gone[0]] == 3
    told = [line for line in caplog.messages if "leaving" in line]
    assert len(told) == 1, told
    assert "its topic was deleted" in told[0]
    assert not [line for line in caplog.messages if "progress" in line]


def test_a_deleted_topic_that_is_made_again_is_read_from_its_beginning(
    broker: EmbeddedBroker,
) -> None:
    queues = make(broker, "returning", 1)
    send(broker, queues, range(4))
    reader = stream(broker, topic="returning", failOnDataLoss="false")
    at, _ = step(reader, reader.initialOffset())
    delete(broker, "returning")
    reader = stream(broker, topic="returning", failOnDataLoss="false")
    assert step(reader, at) == (at, [])
    send(broker, make(broker, "returning", 1), range(10, 17))
    found: list[int] = []
    for _ in range(STEPS_MAX):
        if not found:
            at, found = step(reader, at)
    assert found == list(range(10, 17))


# --- a batch that was planned before ---


@pytest.mark.parametrize("is_known", [True, False], ids=["route known", "started again"])
def test_a_planned_batch_of_a_topic_deleted_since_is_a_loss_or_left_out(
    broker: EmbeddedBroker, is_known: bool
) -> None:
    """Symptom: with failOnDataLoss=false the query failed for ever, on every start."""
    name = f"planned-{is_known}"
    gone, kept = make(broker, name, 1), make(broker, f"kept-{is_known}", 1)
    for queues in (gone, kept):
        send(broker, queues, range(3))
    given = {"topics": f"{name},kept-{is_known}"}
    reader = stream(broker, **given)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    delete(broker, name)
    given |= {} if is_known else {"rocketmq.client.unitName": "started-again"}
    with pytest.raises(DataLoss, match=f"queue 0 of topic {name} at broker"):
        stream(broker, **given).partitions(begin, end)
    tolerant = stream(broker, failOnDataLoss="false", **given)
    assert numbers(rows_of(tolerant, tolerant.partitions(begin, end))) == [0, 1, 2]
    send(broker, kept, [3])
    assert step(tolerant, end)[1] == [3]


@pytest.mark.parametrize("is_known", [True, False], ids=["route known", "another worker"])
def test_a_task_whose_topic_is_deleted_before_it_reads_is_a_loss_or_empty(
    broker: EmbeddedBroker, is_known: bool
) -> None:
    queues = make(broker, f"read-{is_known}", 1)
    send(broker, queues, range(3))
    given = {"topic": queues[0].topic, "pullTimeoutMs": "300", "minPartitions": "1"}
    reader = stream(broker, **given)
    begin = reader.initialOffset()
    tasks = reader.partitions(begin, reader.latestOffset(begin, reader.getDefaultReadLimit()))
    delete(broker, queues[0].topic)
    given |= {} if is_known else {"rocketmq.client.unitName": "another-worker"}
    with pytest.raises(DataLoss, match=f"topic read-{is_known} at .*: its topic was deleted"):
        rows_of(stream(broker, **given), tasks)
    assert rows_of(stream(broker, failOnDataLoss="false", **given), tasks) == []


# --- a broker that is only away ---


@pytest.mark.parametrize("is_killed", [False, True], ids=["left", "killed"])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_whose_only_broker_is_away_is_not_taken_for_deleted(
    first: EmbeddedBroker,
    second: Second,
    is_killed: bool,
    fails: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The name server knows the topic as little as one that was deleted."""
    queues = make_at(first, "T", "second")
    send(first, queues, range(4))
    given = {"topic": "T", "failOnDataLoss": fails, "pullTimeoutMs": "300"}
    reader = stream(first, **given)
    begin = reader.initialOffset()
    at, found = step(reader, begin)
    assert found == [0, 1, 2, 3]
    send(first, queues, range(4, 8))
    if is_killed:
        second.broker.kill()
    else:
        second.leave()
    with caplog.at_level(logging.WARNING):
        again = stream(first, **given)
        for each in (reader, again):
            assert each.latestOffset(at, each.getDefaultReadLimit()) == at
        with pytest.raises(QueueFailed, match="of topic T at broker second"):
            again.partitions(begin, at)
    assert not [line for line in caplog.messages if "deleted" in line]
    if is_killed:
        second.broker.start()
    else:
        second.join()
    for _ in range(STEPS_MAX):
        at, found = step(reader, at)
        if found:
            break
    assert found == [4, 5, 6, 7]


def test_a_topic_that_only_the_name_server_has_forgotten_is_not_taken_for_deleted(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    queues = make(broker, "unlisted", 1)
    send(broker, queues, range(2))
    at = nested({queues[0]: 1})
    cluster = cluster_of(options_of(broker, topic="unlisted"))

    async def forget() -> int:
        header = DeleteTopicInNamesrv(topic="unlisted")
        asked = request(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        return (await (await cluster.instance()).name_servers.call(asked, 3.0)).code

    assert cluster.wait(forget()) == ResponseCode.SUCCESS
    reader = stream(broker, topic="unlisted")
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
    assert "they do not know it" in caplog.text, "nothing was forgotten: this test shows nothing"


def test_another_broker_at_the_address_of_one_that_is_away_proves_nothing(
    first: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(first, topic="T")
    cluster = cluster_of(options)
    away, here = MessageQueue("T", "away", 0), MessageQueue("T", "first", 0)

    async def clusters() -> list[Any]:
        """What a name server says that has not noticed yet: the first one has the address now."""
        entry = (await asked())[0]
        (broker,) = entry.brokers
        old = type(broker)(cluster=entry.name, name="away", addresses=broker.addresses)
        return [type(entry)(name=entry.name, brokers=(old, broker))]

    admin = cluster.wait(cluster.admin())
    asked = admin.clusters
    monkeypatch.setattr(admin, "clusters", clusters)
    assert deleted_queues(cluster, options, [away, here]) == {here}


# --- real queries ---


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_whose_topic_is_deleted_fails_or_goes_on_with_the_others(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, fails: str
) -> None:
    gone, kept = make(broker, f"q-gone-{fails}", 1), make(broker, f"q-kept-{fails}", 1)
    send(broker, gone, range(4))
    seen = Seen()
    given = {
        "topics": f"{gone[0].topic},{kept[0].topic}",
        "startingOffsets": "earliest",
        "failOnDataLoss": fails,
    }
    trigger = {"processingTime": "0 seconds"}
    query = start(spark, broker, seen, tmp_path, trigger=trigger, **given)
    try:
        wait_for(query, seen, 4)
        delete(broker, gone[0].topic)
        if fails == "true":
            with pytest.raises(StreamingQueryException, match=f"{gone[0].topic}.*failOnDataLoss"):
                query.awaitTermination(UNTIL_S)
        else:
            send(broker, kept, range(4, 8))
            wait_for(query, seen, 8)
    finally:
        query.stop()
    assert seen.numbers == list(range(4 if fails == "true" else 8))


def test_a_query_goes_on_after_a_batch_that_was_planned_before_its_topic_was_deleted(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Symptom: every start failed alike, whatever failOnDataLoss said."""
    gone, kept = make(broker, "q-planned", 1), make(broker, "q-rest", 1)
    send(broker, gone, range(4))
    send(broker, kept, range(10, 14))
    given = {
        "topics": "q-planned,q-rest",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "4",
    }
    first, again = Seen(), Seen()
    start(spark, broker, first, tmp_path, **given).awaitTermination(UNTIL_S)
    assert [found for _, found in first.batches] == [[0, 1, 10, 11], [2, 3, 12, 13]]
    (tmp_path / "commits" / "1").unlink()
    delete(broker, "q-planned")
    with pytest.raises(StreamingQueryException, match=r"topic q-planned.*'failOnDataLoss'"):
        start(spark, broker, again, tmp_path, **given).awaitTermination(UNTIL_S)
    send(broker, kept, [14])
    given["failOnDataLoss"] = "false"
    start(spark, broker, again, tmp_path, **given).awaitTermination(UNTIL_S)
    assert [found for _, found in again.batches] == [[12, 13], [14]]
