"""Rows per CPU second into Spark and out of it, in one session.

In: a session and a place with rows. Out: a rate for each kind of read and write. Rules:

1. CPU is that of the JVM, its Python workers and, where it takes part, the broker.
2. A read ends in Spark's `noop` sink: every row and column reaches the JVM, and nothing more.
3. Kinds take turns; of several rounds the median one counts, after one that does not count.
4. Rows that are written are made by little more than a copy: the measure is the sink.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks.machine import await_quiet
from benchmarks.rounds import say, typical
from benchmarks.servers import Server
from benchmarks.spark_cpu import CpuWatch, Rate
from benchmarks.spark_data import BODY_SIZE, TOPIC, Place

FOUR = "topic string, queueId int, queueOffset bigint, storeTimestamp timestamp"
FOUR_NAMES = ("topic", "queueId", "queueOffset", "storeTimestamp")

PARQUET, PARQUET_FOUR = "Parquet (zstd), all columns", "Parquet (zstd), four header columns"
LOG, LOG_FOUR = "log, all columns", "log, four header columns"
LOG_TOPIC = "log, a topic by its queue files, all columns"
BROKER, BROKER_FOUR = "topic, all columns", "topic, four header columns"
SINK, SINK_IDEMPOTENT = "Arrow sink", "Arrow sink, idempotent"
BESIDE = {
    LOG_TOPIC: PARQUET,
    LOG: PARQUET,
    LOG_FOUR: PARQUET_FOUR,
    BROKER: PARQUET,
    BROKER_FOUR: PARQUET_FOUR,
}
"""Which read of the same data each read is compared with."""


Run = Callable[[], None]


class Kind(NamedTuple):
    """Something that is measured: what to run, and which broker takes part."""

    run: Run
    broker: Server | None = None


def jvm_pid(spark: SparkSession) -> int:
    """Give the process that runs the session's Java."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - nothing else knows the process
    return int(gateway.proc.pid)


def measure(
    spark: SparkSession, place: Place, rounds: int, quiet_limit_s: float
) -> dict[str, Rate]:
    """Give the rate of each kind."""
    kinds = _kinds(spark, place)
    for name, kind in kinds.items():
        say(f"{name}, to warm up")
        kind.run()
    found: dict[str, list[Rate]] = {name: [] for name in kinds}
    for number in range(rounds):
        for name, kind in kinds.items():
            pids = [jvm_pid(spark), *(kind.broker.pids if kind.broker else ())]
            others = await_quiet(quiet_limit_s)
            begin_s, used = time.monotonic(), CpuWatch(pids)
            kind.run()
            cpu_s, wall_s = used.cpu_s(), time.monotonic() - begin_s
            found[name].append(Rate(place.row_count, cpu_s, wall_s, others))
            say(f"round {number + 1}, {name}: {found[name][-1].rows_per_core_s:,.0f} rows/s/core")
    return {name: typical(rates) for name, rates in found.items()}


def _kinds(spark: SparkSession, place: Place) -> dict[str, Kind]:
    parquet = spark.read.parquet(str(place.parquet))
    log = {"path": str(place.store)}
    topic = {"namesrvAddr": place.source.namesrv, "topic": TOPIC}
    rows = _rows(spark, place.row_count)

    def read(source: str, options: dict[str, str], schema: str | None = None) -> Run:
        reader = spark.read.format(source).options(**options)
        return lambda: _drain((reader.schema(schema) if schema else reader).load())

    return {
        PARQUET: Kind(lambda: _drain(parquet)),
        LOG: Kind(read("rocketmq_log", log)),
        LOG_TOPIC: Kind(read("rocketmq_log", {**log, "topic": TOPIC})),
        BROKER: Kind(read("rocketmq", topic), place.source),
        PARQUET_FOUR: Kind(lambda: _drain(parquet.select(*FOUR_NAMES))),
        LOG_FOUR: Kind(read("rocketmq_log", log, FOUR)),
        BROKER_FOUR: Kind(read("rocketmq", topic, FOUR), place.source),
        SINK: Kind(lambda: _write(rows, place.sink, "at-least-once"), place.sink),
        SINK_IDEMPOTENT: Kind(lambda: _write(rows, place.sink, "idempotent"), place.sink),
    }


def _rows(spark: SparkSession, count: int) -> DataFrame:
    number = "lpad(string(id), 16, '0')"
    body = f"concat({number}, repeat('x', {BODY_SIZE - 16})) as body"
    return spark.range(count).selectExpr(body, "'Tag' as tags", "concat('order', id) as keys")


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _write(rows: DataFrame, server: Server, delivery: str) -> None:
    # A topic of its own: an idempotent write looks for itself in what a topic got before.
    name = f"SparkBenchOut-{time.time_ns()}"
    options = {"namesrvAddr": server.namesrv, "topic": name, "delivery": delivery}
    if delivery == "idempotent":
        options["writeId"] = name
    rows.write.format("rocketmq").options(**options).mode("append").save()


def ratio(rates: dict[str, Rate], name: str) -> float | None:
    """Give rows per CPU second against Parquet's; None for what has no such read."""
    beside = BESIDE.get(name)
    if beside is None or beside not in rates or name not in rates:
        return None
    return rates[name].rows_per_core_s / rates[beside].rows_per_core_s


def names_of(rates: dict[str, Rate]) -> Sequence[str]:
    """Give the kinds in the order of the tables."""
    return list(rates)
