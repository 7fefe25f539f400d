"""Copy a topic and count a store folder: one program for this machine and for a cluster.

    python examples/spark/copy_orders.py 127.0.0.1:9876 orders orders_copy data/store
    spark-submit --master spark://... examples/spark/copy_orders.py (the same arguments)

`session()` gives a local session, or the submitted one; nothing else differs.
"""

import sys

from orbitmq.spark import session


def main(namesrv: str, source: str, target: str, store: str) -> None:
    """Copy `source` to `target`, and count what lies in the folder `store`."""
    spark = session("copy-orders")
    topic = spark.read.format("rocketmq").option("namesrvAddr", namesrv).option("topic", source)
    writer = (
        topic.load()
        .select("body", "tags", "keys")
        .write.format("rocketmq")
        .option("namesrvAddr", namesrv)
        .option("topic", target)
    )
    writer.mode("append").save()
    print("copied", topic.option("topic", target).load().count())
    stored = spark.read.format("rocketmq_log").schema("topic string").option("path", store).load()
    print("stored", stored.count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:5])
