"""A topic read through a broker without Spark: where the CPU of the worker's part goes.

    python -m benchmarks.spark_topic [rows] [--profile] [--spark]

In: how many rows of 1 KiB. Out: rows per CPU second of this process and of the broker, for all
columns and for none but the offsets; with --spark the same into Spark's noop sink. Rule: the broker
is a process of its own, and both are counted.
"""

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.rounds import say
from benchmarks.servers import Server, ours
from benchmarks.spark_cpu import tree_cpu_s
from benchmarks.spark_data import TOPIC, _send
from orbitmq.arrow.columns import arrow_schema
from orbitmq.spark.topic_options import topic_options
from orbitmq.spark.topic_source import TopicReader

ROUNDS = 3


def read(namesrv: str, schema: Any) -> int:
    """Read the topic as tasks do, one after the other; return how many rows there were."""
    options = topic_options({"namesrvAddr": namesrv, "topic": TOPIC}, is_stream=False)
    reader = TopicReader(options, schema)
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


Cpu = dict[str, Callable[[], float]]


def cpu_of(pid: int) -> Callable[[], float]:
    """Return what tells the CPU of a process and its children."""
    return lambda: tree_cpu_s([pid])


def measured(name: str, act: Callable[[], int], cpu: Cpu) -> None:
    """Say what one run took of each process."""
    for _ in range(ROUNDS):
        before = {each: look() for each, look in cpu.items()}
        begin_s = time.monotonic()
        count = act()
        wall_s = time.monotonic() - begin_s
        used = {each: look() - before[each] for each, look in cpu.items()}
        shares = ", ".join(f"{each} {cpu_s / count * 1e6:.2f} us" for each, cpu_s in used.items())
        rate = count / sum(used.values())
        say(f"{name}: {rate:,.0f} rows/s/core, {count / wall_s:,.0f} rows/s; {shares} a row")


def with_spark(server: Server, row_count: int) -> None:
    """The same into Spark."""
    from benchmarks.spark_rows import FOUR, jvm_pid
    from orbitmq.spark.session import session

    spark = session("topic", cores=2, uses_internals=True)
    cpu = {"Spark": cpu_of(jvm_pid(spark)), "broker": cpu_of(server.pids[0])}
    for name, schema in (("all columns", ""), ("four columns", FOUR)):
        source = spark.read.format("rocketmq").option("namesrvAddr", server.namesrv)
        source = source.option("topic", TOPIC)
        if schema:
            source = source.schema(schema)

        def drain(source: Any = source) -> int:
            source.load().write.format("noop").mode("overwrite").save()
            return row_count

        drain()
        measured(f"Spark, {name}", drain, cpu)
    spark.stop()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=200_000)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ours(Path(folder) / "broker", None) as server:
        asyncio.run(_send(server.namesrv, given.rows))
        if given.spark:
            with_spark(server, given.rows)
            return
        cpu: Cpu = {"worker": time.process_time, "broker": cpu_of(server.pids[0])}
        everything, offsets = arrow_schema(), arrow_schema(["queueOffset"])
        measured("all columns", lambda: read(server.namesrv, everything), cpu)
        measured("offsets", lambda: read(server.namesrv, offsets), cpu)
        if given.profile:
            profile = cProfile.Profile()
            profile.runcall(read, server.namesrv, everything)
            pstats.Stats(profile).sort_stats("tottime").print_stats(15)


if __name__ == "__main__":
    main()
