"""Topics as tables: real Spark, a real broker, one test for each thing that can be asked for."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from orbitmq import Message, Producer
from orbitmq.blocking import Admin
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue

QUEUE_COUNT = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"enablePropertyFilter": "true"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def orders(broker: EmbeddedBroker) -> str:
    """A topic with 100 messages in two queues: body, tag, key and price say which one it is."""
    fill(broker, "orders", range(100))
    return "orders"


def fill(broker: EmbeddedBroker, topic: str, numbers: range) -> str:
    with Admin(broker.namesrv) as admin:
        admin.create_topic(topic, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT)
        name = admin.topic_route(topic).brokers[0].name
    with Producer(namesrv=broker.namesrv, group="filler") as producer:
        for number in numbers:
            message = Message(
                topic,
                f"body {number}".encode(),
                tag=f"t{number % 3}",
                keys=[f"k{number}", "all"],
                properties={"price": str(number)},
            )
            queue = MessageQueue(topic, name, number % QUEUE_COUNT)
            producer.send(message, timeout=10, queue=queue)
    return name


def read(
    spark: SparkSession, broker: EmbeddedBroker, schema: str = "", **options: str
) -> DataFrame:
    reader = spark.read.format("rocketmq").option("namesrvAddr", broker.namesrv).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def numbers_of(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row["body"]).split()[1]) for row in frame.select("body").collect())


def test_every_message_of_a_topic_is_one_row_with_all_columns(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    frame = read(spark, broker, topic=orders)
    rows = {bytes(row["body"]): row for row in frame.collect()}
    assert len(rows) == 100
    row = rows[b"body 7"]
    assert (row["topic"], row["queueId"], row["queueOffset"]) == ("orders", 1, 3)
    assert (row["tags"], row["keys"], row["properties"]["price"]) == ("t1", "k7 all", "7")
    assert row["brokerName"]
    assert row["storeTimestamp"].year >= 2025
    assert frame.columns[0] == "topic"
    assert len(frame.columns) == 20


def test_rows_of_a_queue_come_in_its_order(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    rows = read(spark, broker, "queueId int, queueOffset bigint", topic=orders).collect()
    for queue_id in range(QUEUE_COUNT):
        offsets = [row["queueOffset"] for row in rows if row["queueId"] == queue_id]
        assert offsets == list(range(50))


def test_a_schema_of_the_user_chooses_columns_and_their_order(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    frame = read(spark, broker, "keys string, queueId int, body string", topic=orders)
    assert frame.columns == ["keys", "queueId", "body"]
    assert ("k7 all", 1, "body 7") in {tuple(row) for row in frame.collect()}


def test_properties_and_bodies_have_the_shape_that_is_asked_for(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    frame = read(spark, broker, topic=orders, properties="string", bodyFormat="string")
    row = next(row for row in frame.collect() if row["body"] == "body 7")
    assert "price\x017" in row["properties"]
    assert "properties" not in read(spark, broker, topic=orders, properties="none").columns


def test_a_frame_keeps_its_offsets_when_more_is_sent(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    fill(broker, "frozen", range(4))
    frame = read(spark, broker, topic="frozen")
    assert frame.count() == 4
    fill(broker, "frozen", range(4))
    assert frame.count() == 4
    assert read(spark, broker, topic="frozen").count() == 8


def test_one_relation_with_two_filters_gives_the_rows_of_both(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    frame = read(spark, broker, topic=orders)
    both = frame.where("queueId = 0").union(frame.where("queueId = 1"))
    assert both.count() == 100
    assert frame.alias("a").join(frame.alias("b"), "msgId").count() == 100


def test_an_sql_view_reads_a_topic(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders_view USING rocketmq "
        f"OPTIONS (namesrvAddr '{broker.namesrv}', topic '{orders}')"
    )
    count = spark.sql("SELECT count(*) AS n FROM orders_view WHERE tags = 't0'").collect()[0]["n"]
    assert count == 34


@pytest.mark.parametrize("source", ["rocketmq", "rocketmq_log"])
def test_a_table_that_could_not_be_read_later_is_refused_with_what_works(
    spark: SparkSession, source: str
) -> None:
    """Symptom: `rocketmq has no option 'owner'`, which nobody had given."""
    with pytest.raises(Exception, match=f"CREATE TEMPORARY VIEW ... USING {source}"):
        spark.sql(f"CREATE TABLE kept USING {source} OPTIONS (topic 'kept', path 'kept')")


def test_tags_are_chosen_by_the_broker_and_gaps_are_normal(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    frame = read(spark, broker, topic=orders, tags="t0 || t2", minPartitions="6")
    assert numbers_of(frame) == [number for number in range(100) if number % 3 != 1]


def test_sql_chooses_by_properties(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    frame = read(spark, broker, topic=orders, sql92="price BETWEEN 10 AND 14")
    assert numbers_of(frame) == [10, 11, 12, 13, 14]


def test_keys_are_chosen_even_if_nobody_wants_to_see_them(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    frame = read(spark, broker, "body binary", topic=orders, keys="k3, k99,k")
    assert numbers_of(frame) == [3, 99]


def test_an_empty_topic_is_an_empty_table(spark: SparkSession, broker: EmbeddedBroker) -> None:
    fill(broker, "empty", range(0))
    frame = read(spark, broker, topic="empty")
    assert frame.collect() == []
    assert len(frame.columns) == 20


def test_a_pattern_reads_all_topics_that_it_matches(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    fill(broker, "shop-a", range(3))
    fill(broker, "shop-b", range(3))
    fill(broker, "other-shop-a", range(3))
    frame = read(spark, broker, topicsPattern="shop-.*")
    assert {row["topic"] for row in frame.collect()} == {"shop-a", "shop-b"}
    assert read(spark, broker, topicsPattern="no-such-.*").count() == 0
    assert read(spark, broker, topics="shop-a, other-shop-a").count() == 6


def test_a_missing_topic_fails_and_names_option_and_topic(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    with pytest.raises(PySparkException, match="'topic': topic nothing-here does not exist"):
        read(spark, broker, topic="nothing-here").count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a", "topics": "b"}, "only one of the options 'topic' and 'topics'"),
        ({}, "needs one of the options 'topic', 'topics', 'topicsPattern', 'assign'"),
        ({"topic": "orders", "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"topic": "orders", "startingOffsets": "latest"}, "is for streams"),
        ({"topic": "orders", "startingOffsets": "{"}, "'startingOffsets'.*is not of the form"),
        ({"topic": "orders", "minPartitions": "0"}, "'minPartitions': '0' is not right"),
        ({"topicsPattern": "("}, "'topicsPattern': '\\(' is no regular expression"),
        ({"topic": "orders", "startingTimestamp": "soon"}, "'soon' is not right: it is milli"),
        ({"topic": "orders", "startingTimestamp": "--5"}, "'--5' is not right: it is milli"),
        (
            {"topic": "orders", "startingOffsetsByTimestamp": "earliest"},
            "'startingOffsetsByTimestamp': 'earliest' is no JSON of the form",
        ),
        ({"topics": " , "}, "'topics': ' , ' names no topic"),
        ({"topic": "orders", "commitOffsets": "true"}, "'commitOffsets': 'true' is for streams"),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, broker: EmbeddedBroker, orders: str, options: Any, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, broker, **options).count()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("topics string", "there is no column 'topics'"),
        ("queueId string", "column 'queueId' is int32, not string"),
    ],
)
def test_a_wrong_schema_names_the_column(
    spark: SparkSession, broker: EmbeddedBroker, orders: str, schema: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, broker, schema, topic=orders).count()


def test_a_secret_is_in_no_plan(
    spark: SparkSession, broker: EmbeddedBroker, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = read(spark, broker, topic=orders, accessKey="who", secretKey="hush-hush")
    frame.explain(extended=True)
    shown = capsys.readouterr().out
    assert "rocketmq" in shown.lower()
    assert "hush-hush" not in shown
    assert frame.count() == 100


def test_times_are_those_of_storing_in_utc(
    spark: SparkSession, broker: EmbeddedBroker, orders: str
) -> None:
    row = read(spark, broker, "storeTimestamp timestamp", topic=orders).collect()[0]
    age_s = datetime.now(UTC).timestamp() - row["storeTimestamp"].timestamp()
    assert 0 <= age_s < 3600
