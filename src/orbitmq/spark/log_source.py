"""The format `rocketmq_log`: a store folder as a table or a stream, without a broker.

In: options and schemas, from Spark. Out: readers.

Rules:
1. Options are read once, by whoever plans: mistakes are reported before anything runs.
2. Readers are sent to workers: they hold options and schemas only, and open files where they read.
3. A batch knows its range of the log from its first action on, also when a broker writes on.
4. Spark imports this twice for each query, in new processes, to make and to plan it: what only
   workers need is imported where they read.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from orbitmq.spark.internals import shorten_rest
from orbitmq.spark.log_files import find_log, warn_of_missing_topics
from orbitmq.spark.log_options import FORMAT, LogOptions, log_options
from orbitmq.spark.log_planning import LogPartition, planned, whole_span
from orbitmq.spark.log_rows import log_arrow_schema, log_schema_ddl
from orbitmq.spark.log_stream import LogStreamReader
from orbitmq.spark.options import warn_of_streams_options
from orbitmq.world.files import SystemFiles


class LogSource(DataSource):
    """What `spark.read.format("rocketmq_log")` makes."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns that the options ask for."""
        return log_schema_ddl(log_options(self.options))

    def reader(self, schema: StructType) -> "LogReader":
        """Return a reader of a batch; raises SettingError."""
        options = log_options(self.options)
        warn_of_streams_options(LogOptions, self.options, FORMAT)
        return LogReader(options, log_arrow_schema(schema, options))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of a stream; raises SettingError."""
        options = log_options(self.options)
        return LogStreamReader(options, log_arrow_schema(schema, options))


class LogReader(DataSourceReader):
    """Reads a batch."""

    def __init__(self, options: LogOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks; raises SettingError when there is no log."""
        files = SystemFiles()
        log = find_log(files, self._options.path)
        warn_of_missing_topics(files, log, self._options.chosen_topics)
        span = whole_span(files, log, self._options)
        return list(planned(files, log, self._options, span))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one task, in a worker."""
        if isinstance(partition, LogPartition):  # an empty plan is one partition of Spark's own
            from orbitmq.spark.log_reading import LogReading

            shorten_rest()
            reading = LogReading(self._options, self._schema)
            for log_range in partition.ranges:
                yield from reading.batches(log_range)
