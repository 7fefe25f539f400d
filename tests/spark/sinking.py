"""What the tests of the sink share: writing to a topic and reading it with the ordinary client."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq import Admin
from orbitmq.client.message import ReceivedMessage
from orbitmq.spark.sink_keys import TaskKey
from orbitmq.spark.sink_options import sink_options
from orbitmq.spark.sink_writing import SinkCommit, SinkPlan, write_task
from orbitmq.testing import EmbeddedBroker
from tests.foreign.asking import await_queued, await_route

WAIT_S = 60


def write(rows: DataFrame, namesrv: str, topic: str = "", **options: Any) -> None:
    """Write rows with format rocketmq."""
    writer = rows.write.format("rocketmq").option("namesrvAddr", namesrv).mode("append")
    if topic:
        writer = writer.option("topic", topic)
    writer.options(**options).save()


def started(rows: DataFrame, namesrv: str, checkpoint: Path, **options: Any) -> StreamingQuery:
    """Start a streaming query that ends with what is there now."""
    mode = options.pop("mode", "append")
    return (
        rows.writeStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )


def stream(rows: DataFrame, namesrv: str, checkpoint: Path, **options: Any) -> None:
    """Run a streaming query to its end; raises what it failed with."""
    query = started(rows, namesrv, checkpoint, **options)
    try:
        assert query.awaitTermination(WAIT_S), "the query does not end"
    finally:
        query.stop()


def stored(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """Return everything that a topic holds, queue by queue, as soon as its brokers let it be read.

    Originals tell name servers of a new topic, and fill queues, after their answers.
    """
    await_route(namesrv, topic)
    with Admin(namesrv) as admin:
        for broker in admin.topic_route(topic).brokers:
            await_queued(str(broker.master))
        found: list[ReceivedMessage] = []
        for stats in admin.topic_stats(topic).queues:
            queue, offset, end = stats.queue, stats.min_offset, stats.max_offset
            while offset < end:
                peek = admin.peek(queue, offset, 1000)
                found += peek.messages
                assert peek.next_offset > offset
                offset = peek.next_offset
        return found


def bodies(namesrv: str, topic: str) -> list[str]:
    """Return the bodies of all messages in a topic, sorted."""
    return sorted(message.body.decode() for message in stored(namesrv, topic))


@contextmanager
def broker_with(*topics: str) -> Iterator[EmbeddedBroker]:
    """A broker of its own with these topics."""
    with EmbeddedBroker() as broker:
        for topic in topics:
            broker.create_topic(topic)
        yield broker


def plan(broker: EmbeddedBroker | str, columns: Sequence[str], **options: str) -> SinkPlan:
    """What tasks are told of a write with these options and columns."""
    namesrv = broker if isinstance(broker, str) else broker.namesrv
    return SinkPlan(sink_options({"namesrvAddr": namesrv, **options}), tuple(columns))


TASK = TaskKey("query", 0, 0)


def run_task(plan: SinkPlan, batches: Iterable[Any], task: TaskKey = TASK) -> SinkCommit:
    """Do what a task of Spark does."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    return SinkCommit() if first is None else write_task(plan, task, first, rows)


# --- a stream of lines ---


def put(folder: Path, name: str, lines: list[str]) -> None:
    """Add a file to a stream of lines, whole."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("\n".join(lines))
    number = len(list(folder.iterdir()))
    os.utime(hidden, (number, number))  # Spark takes files in the order of their times
    hidden.rename(folder / name)


def lines(spark: SparkSession, folder: Path, *, files_at_a_time: int = 1) -> DataFrame:
    """Return the lines of a folder's files as a stream."""
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", files_at_a_time)
    return reader.load(str(folder)).select(sf.col("value").alias("body"))


def forget_last_commit(checkpoint: Path) -> None:
    """Make Spark repeat the last batch at the next start."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def texts(first: int, count: int) -> list[str]:
    """Return so many lines."""
    return [f"line {number:05d}" for number in range(first, first + count)]
