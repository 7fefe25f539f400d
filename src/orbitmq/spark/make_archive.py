"""Make the archive that lets Spark start quickly: `python -m orbitmq.spark.make_archive`.

In: nothing. Out: a file of about 200 MB in the user's cache; a line on standard error.

Rules:
1. What is there already is kept. Two that make it at once make the same; the first one stays.
2. A small program runs once, so that the classes of batch, streaming, Parquet and Python workers
   are in the archive; Java writes it when it ends.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitmq.errors import MissingExtra, MQError, WriteFailed
from orbitmq.spark.quick_start import PLAIN_OPTIONS, SILENT, archive_path
from orbitmq.spark.session import JAVA_OPTIONS, session
from orbitmq.world.files import SystemFiles
from orbitmq.world.temporary import make_temporary_folder, remove_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_LIMIT_S = 300.0
"""Java writes the archive when it ends: some seconds, more where others use the machine."""


def make_archive(target: Path) -> None:
    """Make the archive; raises MQError when it cannot be."""
    files = SystemFiles()
    files.make_folder(target.parent)
    folder = make_temporary_folder("orbitmq-archive-")
    made = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        spark = session(
            "archive",
            cores=1,
            uses_internals=True,
            settings={
                JAVA_OPTIONS: f"{PLAIN_OPTIONS} {SILENT} -XX:ArchiveClassesAtExit={made}"
                f" -Dderby.system.home={folder}",
                "spark.driver.memory": "512m",
                "spark.local.dir": str(folder / "local"),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
            },
        )
        _use_what_tests_use(spark, folder)
        _end(spark)
        if files.size(made) is None:
            raise WriteFailed(f"Java made no archive at {made}; start Spark without it", made)
        if files.size(target) is None:
            files.move(made, target)
    finally:
        files.remove(made)
        remove_tree(folder)


def _use_what_tests_use(spark: "SparkSession", folder: Path) -> None:
    def same(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches

    parquet = str(folder / "parquet")
    rows = spark.range(100).selectExpr(
        "id", "cast(id as string) as text", "cast('{\"a\": 1}' as binary) as body"
    )
    rows.mapInArrow(same, rows.schema).write.parquet(parquet)
    stored = spark.read.parquet(parquet)
    stored.selectExpr("id % 3 as part", "from_json(string(body), 'a int').a").groupBy(
        "part"
    ).count().orderBy("part").collect()
    query = (
        spark.readStream.schema(stored.schema)
        .parquet(parquet)
        .mapInArrow(same, stored.schema)
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(int(END_LIMIT_S))


def _end(spark: "SparkSession") -> None:
    """End Spark and return when its Java has ended."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - nothing else knows the process
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(END_LIMIT_S)


def main() -> int:
    """Make the archive if there is none; return the exit code."""
    try:
        target = archive_path()
        if target is None:
            raise MissingExtra("Archives of Spark's classes", "pyspark (and Java)", "spark")
        if SystemFiles().size(target) is None:
            make_archive(target)
            sys.stderr.write(f"made {target}\n")
    except MQError as error:
        sys.stderr.write(f"make_archive: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
