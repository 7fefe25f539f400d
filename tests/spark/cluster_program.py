"""What is submitted to a cluster: where tasks run, a stream that is repeated, another program.

In: `spark-submit cluster_program.py NAMESRV SOURCE TARGET CHECKPOINT PROGRAM ARGUMENT...`. Out: a
line of JSON for every place where a task ran, one for the session, one for the stream (none where
CHECKPOINT is `-`); then what the program says. All in one session: Java starts once.
"""

import importlib
import json
import os
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql import SparkSession

from orbitmq.spark import session

BATCH_ROWS = 120
PARTITIONS = 4
LIMIT_S = 120
NO_STREAM = "-"
PACKAGES = ("orbitmq", "pyarrow", "pandas", "numpy", "lz4", "zstandard", "msgspec")
"""What tasks use, or Spark for them."""


def look(batches: Iterable[Any]) -> Iterator[Any]:
    """Return where a task's Python and its packages are."""
    files = {name: importlib.import_module(name).__file__ for name in PACKAGES}
    place = {"python": sys.executable, "folder": os.getcwd(), "path": sys.path, "files": files}
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"place": [json.dumps(place)]})


def run_stream(spark: SparkSession, namesrv: str, source: str, target: str, place: str) -> int:
    """Copy what is in a topic now, each row once; return how many rows the last batch had."""
    rows = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .option("minPartitions", PARTITIONS)
        .load()
    )
    query = (
        rows.select("body", "tags")
        .writeStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", target)
        .option("delivery", "idempotent")
        .option("checkpointLocation", place)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LIMIT_S), "the stream does not end"
    last = query.lastProgress
    return 0 if last is None else int(last["numInputRows"])


def forget_last_commit(checkpoint: Path) -> int:
    """Have the checkpoint look as if the driver had died before the last commit; give its batch."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    return last


def main(namesrv: str, source: str, target: str, checkpoint: str) -> None:
    """Say where tasks run, and run the stream, if any, twice."""
    spark = session()
    places = spark.range(0, 64, 1, 16).mapInArrow(look, "place string").distinct()
    for row in places.collect():
        print(row.place)
    about = {"zone": spark.conf.get("spark.sql.session.timeZone")}
    print(json.dumps({**about, "master": spark.sparkContext.master}))
    if checkpoint != NO_STREAM:
        run_stream(spark, namesrv, source, target, checkpoint)
        last = forget_last_commit(Path(checkpoint))
        again = run_stream(spark, namesrv, source, target, checkpoint)
        print(json.dumps({"batch": last, "again": again}))


if __name__ == "__main__":
    main(*sys.argv[1:5])
    del sys.argv[1:5]
    runpy.run_path(sys.argv.pop(1), run_name="__main__")
