"""Streams with little to do: how late the newest row comes, and what an idle query costs.

In: a session and a broker. Out: milliseconds from a send to the copy's arrival, and cores. Rules:

1. The query copies a topic into a topic, as users do: source, micro-batch, sink, acknowledgement. A
   consumer that holds a pull on the copy takes the time.
2. A message is sent when the one before it has come, so batches are small.
3. An idle query is one to which nothing comes; JVM and Python processes are counted. Of IDLE_PARTS
   stretches the median one counts, as of rounds: what is left of earlier work ends in one of them.
4. Beside it stands what Spark alone takes for a micro-batch (spark_floor.py), in the same session.
"""

import queue
import statistics
import tempfile
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import spark_floor
from benchmarks.rounds import say
from benchmarks.spark_cpu import CpuWatch
from benchmarks.spark_rows import jvm_pid
from orbitmq import Admin, ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage

WARM_UP = 10
ARRIVAL_LIMIT_S = 60.0
SETTLE_S = 5.0
IDLE_PARTS = 3
FROM, TO = "SparkBenchLate", "SparkBenchLateCopy"


@dataclass(frozen=True, slots=True)
class Lateness:
    """From a send to the arrival of its copy."""

    count: int
    half_ms: float
    most_ms: float
    alone_ms: float = 0.0
    """What a micro-batch takes Spark with a source and a sink that do nothing."""


@dataclass(frozen=True, slots=True)
class IdleQuery:
    """What a query costs to which nothing comes."""

    cores: float
    seconds: float


def measure(
    spark: SparkSession, namesrv: str, count: int, idle_s: float
) -> tuple[Lateness, IdleQuery]:
    """Measure both with one query."""
    with Admin(namesrv) as admin:
        for topic in (FROM, TO):
            admin.create_topic(topic, queue_count=1)
    arrived: queue.SimpleQueue[float] = queue.SimpleQueue()

    def take(message: ReceivedMessage) -> None:
        arrived.put(time.monotonic() - float(message.body))

    consumer = PushConsumer(
        namesrv,
        group="spark-bench-late",
        handler=take,
        from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TO)
    with (
        tempfile.TemporaryDirectory() as checkpoint,
        consumer,
        Producer(namesrv, group="spark-bench") as producer,
    ):
        query = _copying(spark, namesrv, checkpoint)
        try:
            say(f"newest row to sink, {count} times")
            late_s = sorted(_late_s(producer, arrived, count + WARM_UP)[WARM_UP:])
            say(f"an idle query, {idle_s:g} s")
            idle = _idle(spark, idle_s)
        finally:
            query.stop()
    say("micro-batches of Spark alone")
    alone_ms = spark_floor.batch_ms(spark, count)
    half, most = late_s[len(late_s) // 2], late_s[int(len(late_s) * 0.99)]
    return Lateness(count, half * 1e3, most * 1e3, alone_ms), idle


def _copying(spark: SparkSession, namesrv: str, checkpoint: str) -> StreamingQuery:
    source = spark.readStream.format("rocketmq").option("namesrvAddr", namesrv)
    return (
        source.option("topic", FROM)
        .option("startingOffsets", "earliest")
        .schema("body binary")
        .load()
        .writeStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", TO)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def _late_s(producer: Producer, arrived: "queue.SimpleQueue[float]", count: int) -> list[float]:
    found = []
    for _ in range(count):
        producer.send(Message(FROM, str(time.monotonic()).encode()))
        found.append(arrived.get(timeout=ARRIVAL_LIMIT_S))
    return found


def _idle(spark: SparkSession, idle_s: float) -> IdleQuery:
    pid = jvm_pid(spark)
    time.sleep(min(SETTLE_S, idle_s))
    cores = [_idle_cores(pid, idle_s / IDLE_PARTS) for _ in range(IDLE_PARTS)]
    return IdleQuery(statistics.median(cores), idle_s)


def _idle_cores(pid: int, seconds: float) -> float:
    begin_s, used = time.monotonic(), CpuWatch([pid])
    time.sleep(seconds)
    return used.cpu_s() / (time.monotonic() - begin_s)
