"""The sink on any broker: OrbitMQ and the originals keep the same rows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from orbitmq import Admin
from orbitmq.spark.sink_keys import END, TaskKey
from orbitmq.spark.sink_ledger import group_of
from orbitmq.spark.sink_sending import SinkFailed
from orbitmq.spark.sink_writing import SinkPlan, TopicStreamWriter
from tests.foreign.judged import System
from tests.reliability.processes import wait_until
from tests.spark.sinking import bodies, lines, plan, put, run_task, stored, stream, texts, write

Names = Callable[[str], str]
ROWS = 90


class CutShort(Exception):
    """What ends an attempt in the middle."""


@pytest.fixture
def topic(system: System, fresh_name: Names) -> str:
    """A new topic with four queues."""
    name = fresh_name("sink")
    with Admin(system.namesrv) as admin:
        admin.create_topic(name, queue_count=4)
    return name


def rows() -> list[Any]:
    return [pa.record_batch({"body": texts(start, 10)}) for start in range(0, ROWS, 10)]


def idempotent(system: System, topic: str) -> SinkPlan:
    options = {"delivery": "idempotent", "fenceMs": "300", "batchSize": "4"}
    return plan(system.namesrv, ["body"], topic=topic, **options)


def cut(batches: list[Any], after: int) -> Iterator[Any]:
    yield from batches[:after]
    raise CutShort


def test_batches_carry_everything_that_a_message_has(system: System, topic: str) -> None:
    columns = {
        "body": [b"\x00\xff", b"second"],
        "tags": ["paid", None],
        "keys": ["k1 k2", None],
        "flag": pa.array([5, None], pa.int32()),
        "properties": pa.array([[("colour", "grün")], None], pa.map_(pa.string(), pa.string())),
        "queueId": pa.array([3, 1], pa.int32()),
    }
    batch = pa.record_batch(columns)
    task = TaskKey("query", 4, 2)
    run_task(plan(system.namesrv, batch.schema.names, topic=topic), [batch], task)
    second, first = stored(system.namesrv, topic)
    assert (first.body, first.tag, first.keys, first.flag) == (b"\x00\xff", "paid", ["k1", "k2"], 5)
    assert (first.queue.queue_id, second.queue.queue_id) == (3, 1)
    assert first.properties["colour"] == "grün"
    assert [first.message_id, second.message_id] == [task.id_of(0), task.id_of(1)]


def test_a_topic_is_made_by_writing_to_it(system: System, fresh_name: Names) -> None:
    name = fresh_name("made")
    run_task(plan(system.namesrv, ["body"], topic=name), rows())
    assert bodies(system.namesrv, name) == texts(0, ROWS)


def test_compressed_bodies_are_read_as_they_were(system: System, topic: str) -> None:
    batch = pa.record_batch({"body": ["c" * 9_000, "small"]})
    run_task(plan(system.namesrv, ["body"], topic=topic, compressOver="5000"), [batch])
    assert bodies(system.namesrv, topic) == ["c" * 9_000, "small"]


def test_a_delayed_row_waits_for_its_level(system: System, topic: str) -> None:
    batch = pa.record_batch({"body": ["later"], "delayTimeLevel": pa.array([18], pa.int32())})
    run_task(plan(system.namesrv, batch.schema.names, topic=topic), [batch])
    assert stored(system.namesrv, topic) == []


def test_a_body_that_is_too_large_is_told(system: System, topic: str) -> None:
    batch = pa.record_batch({"body": ["h" * (4 * 1024 * 1024 + 10)]})
    with pytest.raises(SinkFailed, match=f"rows 0 of this task are not stored.*{topic}"):
        run_task(plan(system.namesrv, ["body"], topic=topic), [batch])


def test_a_repeated_task_stores_nothing(system: System, topic: str) -> None:
    made = idempotent(system, topic)
    run_task(made, rows())
    for attempt in (0, 1):
        again = run_task(made, rows(), TaskKey("query", 0, 0, attempt))
        assert again.skipped == ROWS
    assert bodies(system.namesrv, topic) == texts(0, ROWS)


def test_the_last_row_is_found_by_its_key(system: System, topic: str) -> None:
    run_task(idempotent(system, topic), rows())
    key = TaskKey("query", 0, 0).id_of(END)
    with Admin(system.namesrv) as admin:
        wait_until(lambda: admin.messages_by_unique_id(topic, key))  # originals index behind
        (found,) = admin.messages_by_unique_id(topic, key)
    assert [found.body.decode()] == texts(ROWS - 1, 1)


@pytest.mark.parametrize("after", [1, 4, 8])
def test_an_attempt_that_was_cut_short_is_completed(system: System, topic: str, after: int) -> None:
    made = idempotent(system, topic)
    with pytest.raises(CutShort):
        run_task(made, cut(rows(), after))
    run_task(made, rows()[::-1], TaskKey("query", 0, 0, 1))
    assert bodies(system.namesrv, topic) == texts(0, ROWS)


def test_a_committed_batch_that_is_repeated_stores_nothing(
    system: System, topic: str, fresh_name: Names
) -> None:
    made = idempotent(system, topic)
    query = fresh_name("query")
    for batch in range(3):
        done = run_task(made, rows(), TaskKey(query, batch, 0))
        TopicStreamWriter(made).commit([done], batch)
        run_task(made, rows(), TaskKey(query, batch, 0, 1))
    assert len(stored(system.namesrv, topic)) == 3 * ROWS
    with Admin(system.namesrv) as admin:
        queues = admin.topic_stats(topic).queues
        kept = [admin.group_offset(group_of(query, 1), each.queue) or 0 for each in queues]
    assert sum(kept) == 2 * ROWS, "the third batch is looked for behind the second"


def test_spark_writes_a_batch(spark: SparkSession, system: System, topic: str) -> None:
    numbers = spark.range(3_000).select(sf.col("id").cast("string").alias("body"))
    write(numbers, system.namesrv, topic, batchSize=200)
    assert bodies(system.namesrv, topic) == sorted(str(number) for number in range(3_000))


def test_spark_repeats_a_batch_of_a_stream_and_nothing_is_doubled(
    spark: SparkSession, system: System, topic: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(2):
        put(source, f"{number}.txt", texts(number * 100, 100))
    frame = lines(spark, source).repartition(2)
    options = {"topic": topic, "delivery": "idempotent", "fenceMs": 300}
    stream(frame, system.namesrv, checkpoint, **options)
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    stream(frame, system.namesrv, checkpoint, **options)
    assert bodies(system.namesrv, topic) == texts(0, 200)
