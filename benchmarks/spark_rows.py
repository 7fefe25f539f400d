"""Rows per CPU second into Spark and out of it, in one session.

In: a session and a place with rows. Out: a rate for each kind of read and write. Rules:

1. CPU is that of the JVM, its Python workers and, where it takes part, the broker.
2. A read ends in Spark's `noop` sink: every row and column reaches the JVM, and nothing more.
3. Java is warm before anything counts: many small jobs come first, for what Spark's driver does
   once a job is compiled late; then each kind runs until Java's compilers take next to nothing of a
   pass, `warm_ups_max` times at most. Then kinds take turns; the median round counts. When another
   kind has its turn Java compiles some of it anew, for it had been made for the one before: so a
   turn begins with passes of its kind that do not count, PASSES_BEFORE at most.
4. There are so many rows that the fixed cost of a job (planning, start of tasks: about a second of
   CPU) is not what is measured; to warm up, a part of what is written does, which spares the disk.
   `ready batches` is a source that does nothing (spark_ceiling.py): the most that any source
   written in Python gives this session.
5. Rows that are written have one body and a key of their own: making them takes little, for the
   measure is the sink. Before each round of it free memory is touched, as before every run with a
   server: see machine.py.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks.machine import await_quiet, touch_free_memory
from benchmarks.rounds import say, typical
from benchmarks.servers import Server
from benchmarks.spark_ceiling import Ceiling
from benchmarks.spark_cpu import CpuWatch, Rate
from benchmarks.spark_data import BODY_SIZE, TOPIC, Place

FOUR = "topic string, queueId int, queueOffset bigint, storeTimestamp timestamp"
FOUR_NAMES = ("topic", "queueId", "queueOffset", "storeTimestamp")

PARQUET, PARQUET_FOUR = "Parquet (zstd), all columns", "Parquet (zstd), four header columns"
LOG, LOG_FOUR = "log, all columns", "log, four header columns"
LOG_TOPIC = "log, a topic by its queue files, all columns"
BROKER, BROKER_FOUR = "topic, all columns", "topic, four header columns"
CEILING = "ready batches, all columns"
SINK, SINK_IDEMPOTENT = "Arrow sink", "Arrow sink, idempotent"
BESIDE = {
    CEILING: PARQUET,
    LOG_TOPIC: PARQUET,
    LOG: PARQUET,
    LOG_FOUR: PARQUET_FOUR,
    BROKER: PARQUET,
    BROKER_FOUR: PARQUET_FOUR,
}
"""Which read of the same data each read is compared with."""


COMPILED_SHARE = 0.05
"""Java is warm when its compilers have less than this share of a pass."""

SMALL_JOBS = 60
"""So many rounds of jobs with a few rows leave little of the driver to compile."""

PASSES_BEFORE = 3
"""So often at most a kind runs at the beginning of its turn before it counts."""

WARM_UP_PARTS = 4
"""One of so many parts of the rows is written at a time to warm up."""

Run = Callable[[], None]


class Kind(NamedTuple):
    """Something that is measured: what to run, how many rows, and which broker takes part."""

    run: Run
    row_count: int
    broker: Server | None = None
    is_write: bool = False


def jvm_pid(spark: SparkSession) -> int:
    """Return the process that runs the session's Java."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - nothing else knows the process
    return int(gateway.proc.pid)


def measure(
    spark: SparkSession, place: Place, warm_ups_max: int, rounds: int, quiet_limit_s: float
) -> dict[str, Rate]:
    """Return the rate of each kind."""
    pid = jvm_pid(spark)
    say("small jobs, to warm up")
    for _ in range(SMALL_JOBS if warm_ups_max > 1 else 1):
        for small in _small_jobs(spark, place):
            small()
    to_warm_up = _kinds(spark, place, place.sink_row_count // WARM_UP_PARTS)
    for name, kind in to_warm_up.items():
        say(f"{name}, to warm up")
        _warm_up(spark, kind, pid, warm_ups_max)
    kinds = _kinds(spark, place, place.sink_row_count)
    found: dict[str, list[Rate]] = {name: [] for name in kinds}
    for number in range(rounds):
        for name, kind in kinds.items():
            _warm_up(spark, to_warm_up[name], pid, min(PASSES_BEFORE, warm_ups_max))
            if kind.is_write and quiet_limit_s:
                touch_free_memory()
            others = await_quiet(quiet_limit_s)
            found[name].append(_rate(kind, pid, others))
            say(f"round {number + 1}, {name}: {found[name][-1].rows_per_core_s:,.0f} rows/s/core")
    return {name: typical(rates) for name, rates in found.items()}


def _rate(kind: Kind, pid: int, others_cores: float = 0.0) -> Rate:
    begin_s, used = time.monotonic(), CpuWatch([pid, *(kind.broker.pids if kind.broker else ())])
    kind.run()
    cpu_s, wall_s = used.cpu_s(), time.monotonic() - begin_s
    return Rate(kind.row_count, cpu_s, wall_s, others_cores)


def _small_jobs(spark: SparkSession, place: Place) -> list[Run]:
    """Return a write and reads of a few rows; the write comes first."""
    topic = {"namesrvAddr": place.sink.namesrv, "topic": "SparkBenchFew"}
    written = _rows(spark, 10).write.format("rocketmq").options(**topic).mode("append")
    few = spark.read.format("rocketmq").options(**topic)
    log = spark.read.format("rocketmq_log").option("path", str(place.store))
    log = log.option("endingPhysicalOffset", "20000")
    return [written.save, lambda: _drain(few.load()), lambda: _drain(log.load())]


def _warm_up(spark: SparkSession, kind: Kind, pid: int, times_max: int) -> None:
    for _ in range(times_max):
        before_s = _compiled_s(spark)
        cpu_s = _rate(kind, pid).cpu_s
        if _compiled_s(spark) - before_s < COMPILED_SHARE * cpu_s:
            return


def _compiled_s(spark: SparkSession) -> float:
    """Return how long Java's compilers have worked so far."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - nothing else knows its beans
    beans = jvm.java.lang.management.ManagementFactory
    return float(beans.getCompilationMXBean().getTotalCompilationTime()) / 1000


def _kinds(spark: SparkSession, place: Place, sink_count: int) -> dict[str, Kind]:
    parquet = spark.read.parquet(str(place.parquet))
    log = {"path": str(place.store)}
    topic = {"namesrvAddr": place.source.namesrv, "topic": TOPIC}
    count = place.row_count
    rows = _rows(spark, sink_count)
    spark.dataSource.register(Ceiling)
    ready = {"file": str(next((place.store / "commitlog").iterdir())), "rows": str(count)}

    def read(source: str, options: dict[str, str], schema: str | None = None) -> Run:
        reader = spark.read.format(source).options(**options)
        return lambda: _drain((reader.schema(schema) if schema else reader).load())

    def written(delivery: str) -> Kind:
        sink = place.sink
        return Kind(lambda: _write(rows, sink, delivery), sink_count, sink, is_write=True)

    return {
        PARQUET: Kind(lambda: _drain(parquet), count),
        CEILING: Kind(read(Ceiling.name(), ready), count),
        LOG: Kind(read("rocketmq_log", log), count),
        LOG_TOPIC: Kind(read("rocketmq_log", {**log, "topic": TOPIC}), count),
        BROKER: Kind(read("rocketmq", topic), count, place.source),
        PARQUET_FOUR: Kind(lambda: _drain(parquet.select(*FOUR_NAMES)), count),
        LOG_FOUR: Kind(read("rocketmq_log", log, FOUR), count),
        BROKER_FOUR: Kind(read("rocketmq", topic, FOUR), count, place.source),
        SINK: written("at-least-once"),
        SINK_IDEMPOTENT: written("idempotent"),
    }


def _rows(spark: SparkSession, count: int) -> DataFrame:
    body = f"repeat('x', {BODY_SIZE}) as body"  # a constant, made once
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
    """Return rows per CPU second against Parquet's; None for what has no such read."""
    beside = BESIDE.get(name)
    if beside is None or beside not in rates or name not in rates:
        return None
    return rates[name].rows_per_core_s / rates[beside].rows_per_core_s


def names_of(rates: dict[str, Rate]) -> Sequence[str]:
    """Return the kinds in the order of the tables."""
    return list(rates)
