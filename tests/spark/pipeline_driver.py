"""The programs that T16 kills: a stream, or one write, from a topic into another, each row once.

In: `python -m tests.spark.pipeline_driver NAMESRV FOLDER MASTER [WRITE]`. Out: `ready` and Spark's
name for the application, when the query runs. A stream ends when it fails, or by a signal. With
WRITE it is a batch write of that `writeId` into the topic of that name, and it ends when all is
written. Messages in the sink say where they came from, in `from`.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from orbitmq.spark.session import session
from tests.spark.standalone import cluster_settings

SOURCE, SINK = "t16-in", "t16-out"
FROM = "from"
BATCH_ROWS = 160
PARTITIONS_ON_CLUSTER = 16
LOCAL = "local[2,8]"
SOURCE_FOLDER = Path(__file__).parents[2] / "src"


def main(namesrv: str, folder: str, master: str, write: str = "") -> None:
    """Run the query until it fails, or the write until it ends."""
    spark = _session(Path(folder), master)
    ready = f"ready {spark.sparkContext.applicationId}"
    source = {"namesrvAddr": namesrv, "topic": SOURCE, "startingOffsets": "earliest"}
    if master != LOCAL:
        source["minPartitions"] = str(PARTITIONS_ON_CLUSTER)
    sink = {
        "namesrvAddr": namesrv,
        "topic": write or SINK,
        "delivery": "idempotent",
        "batchSize": "4",
        "requestsInFlight": "2",
        "fenceMs": "300",
    }
    if write:
        print(ready, flush=True)
        rows = _with_place(spark.read.format("rocketmq").options(**source).load())
        rows.write.format("rocketmq").options(**sink, writeId=write).mode("append").save()
        return
    source["maxOffsetsPerTrigger"] = str(BATCH_ROWS)
    rows = _with_place(spark.readStream.format("rocketmq").options(**source).load())
    sink["checkpointLocation"] = f"{folder}/checkpoint"
    query = rows.writeStream.format("rocketmq").options(**sink).start()
    print(ready, flush=True)
    query.awaitTermination()


def _session(folder: Path, master: str) -> SparkSession:
    settings = {"spark.driver.memory": "512m"}
    if master != LOCAL:
        settings = {
            **cluster_settings(),
            "spark.executorEnv.PYTHONPATH": str(SOURCE_FOLDER),
            "spark.task.maxFailures": "8",
        }
    return session(
        "t16",
        cores=2,
        is_quick_start=master == LOCAL,
        uses_internals=True,
        settings={
            **settings,
            "spark.master": master,
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )


def _with_place(rows: DataFrame) -> DataFrame:
    place = sf.concat_ws(":", "brokerName", "queueId", "queueOffset")
    return rows.select("body", "tags", sf.create_map(sf.lit(FROM), place).alias("properties"))


if __name__ == "__main__":
    main(*sys.argv[1:5])
