"""Topics and logs in Spark: sources, sinks, a tuned session, progress.

In: options of Spark's readers and writers. Out: rows, or messages in topics.

Rules:
1. Importing this package imports neither Spark nor Arrow; its modules do, or `session` when called.
2. What a query needs of the cluster goes through the client; of a folder, through `orbitmq.store`.
"""

from orbitmq.spark.session import register_formats, session

__all__ = ["register_formats", "session"]
