"""Topics on any broker: those of OrbitMQ and of the originals are read the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq import Message, Producer
from orbitmq.arrow.columns import arrow_schema
from orbitmq.blocking import Admin
from orbitmq.errors import SettingError
from orbitmq.spark.cluster import QueueFailed, cluster_of
from orbitmq.spark.data_loss import DataLoss
from orbitmq.spark.offsets import nested
from orbitmq.spark.sink_sending import SinkFailed
from orbitmq.spark.topic_choice import topics_of
from orbitmq.spark.topic_options import topic_options
from orbitmq.spark.topic_source import TopicReader
from orbitmq.spark.topic_stream import TopicStreamReader
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.names import is_system_topic
from orbitmq.world.clock import SystemClock
from tests.foreign.asking import await_queued
from tests.foreign.judged import System
from tests.spark.sinking import plan, run_task
from tests.spark.topics import COLUMNS, numbers, rows_of

UNTIL_S = 60
ALL = ReadAllAvailable()
QUICK = {"longPollMs": "500", "routeCacheTtlMs": "0", "fetchOffset.retryIntervalMs": "100"}

Name = Callable[[str], str]


def make(system: System, topic: str, count: int = 2) -> list[MessageQueue]:
    with Admin(system.namesrv) as admin:
        admin.create_topic(topic, read_queue_count=count, write_queue_count=count)
        broker = admin.topic_route(topic).brokers[0].name
    return [MessageQueue(topic, broker, queue_id) for queue_id in range(count)]


def send(system: System, queues: list[MessageQueue], sent: range) -> None:
    with Producer(namesrv=system.namesrv, group="filler") as producer:
        for number in sent:
            message = Message(
                queues[0].topic,
                f"body {number}".encode(),
                tag=f"t{number % 3}",
                properties={"price": str(number)},
            )
            producer.send(message, timeout=20, queue=queues[number % len(queues)])
    await_queued(system.broker)


def read(system: System, schema: Any = COLUMNS, **given: str) -> list[Any]:
    options = topic_options({"namesrvAddr": system.namesrv, **given}, is_stream=False)
    reader = TopicReader(options, schema)
    return rows_of(reader, reader.partitions())


def stream(system: System, **given: str) -> TopicStreamReader:
    found = topic_options({"namesrvAddr": system.namesrv, **QUICK, **given}, is_stream=True)
    return TopicStreamReader(found, COLUMNS)


def step(reader: TopicStreamReader, at: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    return end, numbers(rows_of(reader, reader.partitions(at, end)))


def read_on(
    reader: TopicStreamReader, at: dict[str, Any], count: int
) -> tuple[dict[str, Any], list[int]]:
    """Run micro-batches until so many messages have come."""
    seen: list[int] = []
    while len(seen) < count:
        at, found = step(reader, at)
        seen += found
    return at, sorted(seen)


def test_a_batch_has_every_message_once_and_splits_do_not_matter(
    system: System, fresh_name: Name
) -> None:
    topic = fresh_name("batch")
    send(system, make(system, topic), range(150))
    assert numbers(read(system, topic=topic)) == list(range(150))
    given = {"topic": topic, "maxRecordsPerPartition": "7", "maxPartitions": "3"}
    assert numbers(read(system, **given)) == list(range(150))


def test_brokers_without_name_servers_are_read(system: System, fresh_name: Name) -> None:
    topic = fresh_name("direct")
    send(system, make(system, topic), range(5))
    options = topic_options({"brokerAddr": system.broker, "topic": topic}, is_stream=False)
    reader = TopicReader(options, COLUMNS)
    assert numbers(rows_of(reader, reader.partitions())) == list(range(5))


def test_the_first_progress_of_a_group_is_kept_for_every_queue(
    system: System, fresh_name: Name
) -> None:
    """Symptom: mqadmin showed 0 for a queue; 4.9.7 forgets first offsets that come together."""
    queues = make(system, fresh_name("progress"), 8)
    send(system, queues, range(8))
    for group in [fresh_name("first") for _ in range(10)]:
        given = {"topic": queues[0].topic, "consumerGroup": group}
        reader = stream(system, startingOffsets="earliest", **given)
        reader.commit(read_on(reader, reader.initialOffset(), 8)[0])
        with Admin(system.namesrv) as admin:
            assert [admin.group_offset(group, queue) for queue in queues] == [1] * 8


def test_tags_are_chosen(system: System, fresh_name: Name) -> None:
    topic = fresh_name("tags")
    send(system, make(system, topic), range(30))
    found = numbers(read(system, topic=topic, tags="t1 || t2"))
    assert found == [number for number in range(30) if number % 3]


def test_sql_chooses_by_properties_in_a_batch_and_in_a_stream(
    system: System, fresh_name: Name
) -> None:
    topic = fresh_name("sql")
    queues = make(system, topic)
    send(system, queues, range(40))
    wanted = "price BETWEEN 5 AND 9 OR (TAGS = 't1' AND price > 30)"
    expected = [5, 6, 7, 8, 9, 31, 34, 37]
    split = {"topic": topic, "sql92": wanted, "maxRecordsPerPartition": "6"}
    assert numbers(read(system, topic=topic, sql92=wanted)) == expected
    assert numbers(read(system, **split)) == expected
    reader = stream(system, topic=topic, sql92=wanted, startingOffsets="earliest")
    end, found = step(reader, reader.initialOffset())
    assert found == expected
    send(system, queues, range(50, 53))
    assert step(reader, end)[1] == [52]


def test_a_condition_that_is_none_is_refused_before_a_broker_ignores_it(
    system: System, fresh_name: Name
) -> None:
    """Symptom: an original 4.9.7 gave all messages, as if there were no condition."""
    topic = fresh_name("nosql")
    send(system, make(system, topic), range(3))
    with pytest.raises(SettingError, match=r"option 'sql92': 'price BETWEEN 5 AND' is wrong at "):
        read(system, topic=topic, sql92="price BETWEEN 5 AND")


def test_a_pattern_matches_topics_of_groups_only_if_asked_for(
    system: System, fresh_name: Name
) -> None:
    group = fresh_name("tries")
    send(system, make(system, f"%RETRY%{group}", 1), range(3))
    send(system, make(system, group), range(3, 5))
    given = {"topicsPattern": f".*{group}"}
    schema = arrow_schema(["topic", "body"])
    assert numbers(read(system, schema, **given)) == [3, 4]
    both = read(system, schema, includeSystemTopics="true", **given)
    assert numbers(both) == [0, 1, 2, 3, 4]
    assert {row["topic"] for row in both} == {group, f"%RETRY%{group}"}
    reader = stream(system, startingOffsets="earliest", includeSystemTopics="true", **given)
    assert step(reader, reader.initialOffset())[1] == [0, 1, 2, 3, 4]


def test_a_pattern_for_everything_reads_no_topic_of_the_system_unless_asked_for(
    system: System, fresh_name: Name
) -> None:
    send(system, make(system, fresh_name("own")), range(1))
    options = {"namesrvAddr": system.namesrv, "topicsPattern": ".*"}
    every = topic_options({**options, "includeSystemTopics": "true"}, is_stream=False)
    own = topic_options(options, is_stream=False)
    cluster = cluster_of(own)
    mine, all_of_them = set(topics_of(cluster, own)), set(topics_of(cluster, every))
    assert mine < all_of_them
    assert "SELF_TEST_TOPIC" in all_of_them
    assert not any(is_system_topic(name) or name.startswith("%") for name in mine)


def test_times_and_offsets_are_exact(system: System, fresh_name: Name) -> None:
    topic = fresh_name("times")
    queues = make(system, topic, 1)
    send(system, queues, range(20))
    rows = read(system, arrow_schema(["storeTimestamp"]), topic=topic)
    border = rows[11]["storeTimestamp"]
    before = [number for number, row in enumerate(rows) if row["storeTimestamp"] < border]
    time_ms = str(round(border.timestamp() * 1000))
    assert numbers(read(system, topic=topic, endingTimestamp=time_ms)) == before
    assert numbers(read(system, topic=topic, startingTimestamp=time_ms)) == list(
        range(len(before), 20)
    )
    later = str(SystemClock().wall_ms() + 3_600_000)
    with pytest.raises(SettingError, match="has no message that was stored"):
        read(system, topic=topic, startingTimestamp=later)
    starts = json.dumps(nested({queues[0]: 15}))
    assert numbers(read(system, topic=topic, startingOffsets=starts)) == [15, 16, 17, 18, 19]
    with pytest.raises(DataLoss, match="behind its end, 20"):
        read(system, topic=topic, endingOffsets=json.dumps(nested({queues[0]: 21})))


def test_empty_and_missing_topics_are_told_apart(system: System, fresh_name: Name) -> None:
    topic = fresh_name("empty")
    make(system, topic)
    assert read(system, topic=topic) == []
    with pytest.raises(SettingError, match="does not exist"):
        read(system, topic=fresh_name("missing"))


def test_a_groups_progress_is_kept_and_zero_is_not_nothing(
    system: System, fresh_name: Name
) -> None:
    topic, group = fresh_name("kept"), fresh_name("group")
    queues = make(system, topic)
    send(system, queues, range(8))
    given = {"topic": topic, "consumerGroup": group, "startingOffsets": "earliest"}
    reader = stream(system, **given)
    cluster = cluster_of(topic_options({"namesrvAddr": system.namesrv, **given}, is_stream=True))
    assert set(cluster.group_offsets(group, queues).values()) == {None}
    end, found = step(reader, reader.initialOffset())
    assert found == list(range(8))
    reader.commit(end)
    assert cluster.group_offsets(group, queues) == dict.fromkeys(queues, 4)
    cluster.store_group_offsets(group, {queues[0]: 0})
    assert cluster.group_offsets(group, queues)[queues[0]] == 0


def test_a_start_kept_by_a_new_group_is_the_same_after_a_restart(
    system: System, fresh_name: Name
) -> None:
    """5.x keeps no offset of a group that nobody has made; 4.9 forgets some of its first ones."""
    topic, group = fresh_name("start"), fresh_name("new")
    queues = make(system, topic, 4)
    send(system, queues, range(6))
    given = {"topic": topic, "consumerGroup": group, "initialOffsetStore": "group"}
    start = stream(system, **given).initialOffset()
    assert start == nested(dict(zip(queues, (2, 2, 1, 1), strict=True)))
    send(system, queues, range(6, 14))
    again = stream(system, **given)
    assert again.initialOffset() == start
    assert read_on(again, start, 8)[1] == list(range(6, 14))


def test_a_start_at_the_beginning_is_kept_by_a_new_group(system: System, fresh_name: Name) -> None:
    topic, group = fresh_name("empty"), fresh_name("new")
    queues = make(system, topic, 4)
    given = {"topic": topic, "consumerGroup": group, "initialOffsetStore": "group"}
    start = stream(system, **given).initialOffset()
    assert start == nested(dict.fromkeys(queues, 0))
    send(system, queues, range(4))
    again = stream(system, **given)
    assert again.initialOffset() == start
    assert read_on(again, start, 4)[1] == list(range(4))


def test_a_stream_follows_new_messages_and_new_queues(system: System, fresh_name: Name) -> None:
    topic = fresh_name("grows")
    queues = make(system, topic, 1)
    reader = stream(system, topic=topic, longPollMs="1000")
    at = reader.initialOffset()
    seen: list[int] = []
    send(system, queues, range(3))
    while len(seen) < 3:
        at, found = step(reader, at)
        seen += found
    send(system, make(system, topic, 3), range(3, 9))
    while len(seen) < 9:
        at, found = step(reader, at)
        seen += found
    assert sorted(seen) == list(range(9))
    assert step(reader, at) == (at, [])


def test_a_topic_that_has_fewer_queues_now_is_read_on(system: System, fresh_name: Name) -> None:
    topic = fresh_name("shrinks")
    send(system, make(system, topic, 4), range(8))
    reader = stream(system, topic=topic, startingOffsets="earliest")
    at, found = step(reader, reader.initialOffset())
    assert found == list(range(8))
    send(system, make(system, topic, 2), range(8, 12))
    assert read_on(reader, at, 4)[1] == [8, 9, 10, 11]
    assert numbers(read(system, topic=topic)) == [0, 1, 4, 5, 8, 9, 10, 11]


def test_messages_of_a_queue_that_its_topic_has_no_more_are_told(
    system: System, fresh_name: Name
) -> None:
    topic = fresh_name("shrunk")
    send(system, make(system, topic, 2), range(4))
    reader = stream(system, topic=topic, startingOffsets="earliest")
    at = reader.initialOffset()
    end = reader.latestOffset(at, ALL)
    make(system, topic, 1)
    with pytest.raises(QueueFailed, match=f"queue 1 of topic {topic} at broker .*queueId"):
        rows_of(reader, reader.partitions(at, end))


def test_a_topic_made_again_is_a_loss_that_names_the_queue(
    system: System, fresh_name: Name
) -> None:
    topic = fresh_name("phoenix")
    send(system, make(system, topic, 1), range(5))
    reader = stream(system, topic=topic, startingOffsets="earliest")
    at, _ = step(reader, reader.initialOffset())
    with Admin(system.namesrv) as admin:
        admin.delete_topic(topic)
    queues = make(system, topic, 1)
    send(system, queues, range(7, 8))
    end = cluster_of(
        topic_options({"namesrvAddr": system.namesrv, "topic": topic}, is_stream=True)
    ).max_offsets(queues)[queues[0]]
    if end > 1:
        pytest.skip("this broker goes on with the offsets of the topic that was deleted")
    with pytest.raises(DataLoss, match=f"queue 0 of topic {topic} at broker .* made again"):
        stream(system, topic=topic).latestOffset(at, ALL)
    assert step(stream(system, topic=topic, failOnDataLoss="false"), at)[1] == [7]


def test_a_topic_that_is_deleted_is_a_loss_or_left_out(system: System, fresh_name: Name) -> None:
    topic = fresh_name("deleted")
    queues = make(system, topic, 1)
    send(system, queues, range(8))
    given = {"topic": topic, "startingOffsets": "earliest"}
    reader = stream(system, maxOffsetsPerTrigger="3", **given)
    begin = reader.initialOffset()
    at, found = step(reader, begin)
    assert found == [0, 1, 2]
    with Admin(system.namesrv) as admin:
        admin.delete_topic(topic)
    again = {**given, "rocketmq.client.unitName": "again"}
    for options in (given, again):
        with pytest.raises(
            DataLoss, match=f"queue 0 of topic {topic} at .*: its topic was deleted"
        ):
            stream(system, **options).latestOffset(at, ALL)
    with pytest.raises(DataLoss, match=f"queue 0 of topic {topic}"):
        stream(system, **again).partitions(begin, at)
    tolerant = stream(system, failOnDataLoss="false", **again)
    assert tolerant.partitions(begin, at) == []
    assert step(tolerant, at) == (at, [])


def test_a_topic_made_again_and_grown_past_the_offset_is_a_loss_all_the_same(
    system: System, fresh_name: Name
) -> None:
    topic = fresh_name("taller")
    send(system, make(system, topic, 1), range(5))
    reader = stream(system, topic=topic, startingOffsets="earliest")
    at, _ = step(reader, reader.initialOffset())
    with Admin(system.namesrv) as admin:
        admin.delete_topic(topic)
    queues = make(system, topic, 1)
    send(system, queues, range(10, 18))
    options = topic_options({"namesrvAddr": system.namesrv, "topic": topic}, is_stream=True)
    if cluster_of(options).max_offsets(queues)[queues[0]] != 8:
        pytest.skip("this broker goes on with the offsets of the topic that was deleted")
    with pytest.raises(DataLoss, match=f"queue 0 of topic {topic} at broker .* made again"):
        stream(system, topic=topic).latestOffset(at, ALL)
    tolerant = stream(system, topic=topic, failOnDataLoss="false")
    assert step(tolerant, at)[1] == list(range(10, 18))


def test_a_row_with_a_delivery_time_comes_then_or_is_refused(
    system: System, fresh_name: Name
) -> None:
    topic = fresh_name("timed")
    make(system, topic, 1)
    clock = SystemClock()
    due_ms = clock.wall_ms() + 4_000
    batch = pa.record_batch({"body": ["body 7"], "deliverTimestamp": [due_ms]})
    timed = plan(system.namesrv, batch.schema.names, topic=topic)
    if (system.version or "4.9.7").startswith("4."):  # ours answers as that until it has timers
        with pytest.raises(SinkFailed, match=r"older than 5.0.*delayTimeLevel"):
            run_task(timed, [batch])
        return
    run_task(timed, [batch])
    reader = stream(system, topic=topic, startingOffsets="earliest", longPollMs="1000")
    at, found = step(reader, reader.initialOffset())
    assert found == []
    while not found:
        at, found = step(reader, at)
    assert found == [7]
    assert clock.wall_ms() >= due_ms - 1_000  # its timers count in seconds


def test_spark_itself_reads_a_batch_and_a_stream(
    spark: SparkSession, system: System, fresh_name: Name, tmp_path: Path
) -> None:
    topic = fresh_name("spark")
    send(system, make(system, topic), range(40))
    given = {"namesrvAddr": system.namesrv, "topic": topic, "startingOffsets": "earliest"}
    assert spark.read.format("rocketmq").options(**given).load().count() == 40
    table = fresh_name("seen")
    frame = spark.readStream.format("rocketmq").options(**given, maxOffsetsPerTrigger="15").load()
    writer = frame.writeStream.format("memory").queryName(table)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(UNTIL_S)
    rows = spark.sql(f"SELECT body FROM {table}").collect()
    assert sorted(int(bytes(row["body"]).split()[1]) for row in rows) == list(range(40))
