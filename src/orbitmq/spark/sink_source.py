"""The writing half of format `rocketmq`.

In: what Spark asks of a data source. Out: the writers of `sink_writing`.

Rules:
1. The source that reads topics derives from this, so that one name does both.
2. What writes is imported when something is written: readers are planned in processes of their own.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from orbitmq.spark.sink_options import FORMAT


class TopicSink(DataSource):
    """Topics that rows are written to."""

    @classmethod
    def name(cls) -> str:
        """Return what users write in `format(...)`."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """Return the writer of a batch."""
        from orbitmq.spark.sink_writing import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's
        """Return the writer of a stream."""
        from orbitmq.spark.sink_writing import stream_writer

        return stream_writer(self.options, schema)
