"""What a micro-batch takes Spark alone: a source and a sink in Python that do nothing.

In: a session. Out: milliseconds of the median micro-batch. Rules:

1. One row each time, without a wait: a batch begins when the one before it has ended.
2. The source is Spark's simple reader, whose rows need no task of Python's: the quickest there is.
   The sink is an Arrow writer.
3. Both are made here: what is inside a function goes to workers as it is, wherever they run.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.streaming.query import StreamingQuery

NAME = "orbitmq_bench_nothing"
LIMIT_S = 600.0
LOOK_S = 0.2
REMEMBERED = 98
"""Batches that Spark tells of: always fewer than `numRecentProgressUpdates`, a hundred."""


def batch_ms(spark: SparkSession, count: int) -> float:
    """Return how long the median of so many batches took; the first ones do not count."""
    spark.dataSource.register(_nothing())
    with tempfile.TemporaryDirectory() as checkpoint:
        rows = spark.readStream.format(NAME).load()
        writer = rows.writeStream.format(NAME).option("checkpointLocation", checkpoint)
        query = writer.start()
        try:
            return statistics.median(_durations_ms(query, count))
        finally:
            query.stop()


def _durations_ms(query: StreamingQuery, count: int) -> list[int]:
    """Wait for so many batches and as many before them; return how long each of the last took."""
    count = min(count, REMEMBERED // 2)
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s:
        done: list[Any] = query.recentProgress
        if len(done) >= 2 * count:
            return [int(each["durationMs"]["triggerExecution"]) for each in done[-count:]]
        if query.exception() is not None:
            break
        time.sleep(LOOK_S)
    raise RuntimeError(f"no {2 * count} batches in {LIMIT_S:g} s: {query.exception()}")


def _nothing() -> type[DataSource]:
    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"at": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[bytes]], dict[str, int]]:
            return iter([(b"x",)]), {"at": start["at"] + 1}

        def readBetweenOffsets(  # noqa: N802 - Spark's name
            self,
            start: dict[str, int],
            end: dict[str, int],
        ) -> Iterator[tuple[bytes]]:
            return iter([(b"x",)] * (end["at"] - start["at"]))

    class Writer(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Nothing(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return "body binary"

        def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802 - Spark's names
            return Reader()

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's names
            return Writer()

    return Nothing
