"""The program that T16 kills: a streaming query from one topic into another, each row once.

In: `python -m tests.spark.pipeline_driver NAMESRV FOLDER`. Out: `ready` when the query runs; it
ends when the query fails, or by a signal. Messages in the sink say where they came from, in `from`.
"""

import sys
from pathlib import Path

from pyspark.sql import functions as sf

from orbitmq.spark.session import session

SOURCE, SINK = "t16-in", "t16-out"
FROM = "from"
BATCH_ROWS = 160


def main(namesrv: str, folder: Path) -> None:
    """Run the query until it fails."""
    spark = session(
        "t16",
        cores=2,
        is_quick_start=True,
        settings={
            "spark.master": "local[2,8]",
            "spark.driver.memory": "512m",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    rows = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .load()
    )
    place = sf.concat_ws(":", "brokerName", "queueId", "queueOffset")
    query = (
        rows.select("body", "tags", sf.create_map(sf.lit(FROM), place).alias("properties"))
        .writeStream.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", SINK)
        .option("delivery", "idempotent")
        .option("batchSize", 4)
        .option("requestsInFlight", 2)
        .option("fenceMs", 300)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    print("ready", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
