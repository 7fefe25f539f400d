"""The format `rocketmq`: topics as tables and streams, and rows as messages.

In: options and schemas, from Spark. Out: readers and writers.

Rules:
1. Options are read once, by whoever plans: mistakes are reported before anything runs.
2. Readers are sent to workers: they hold options and schemas only, and connect where they read.
3. A batch knows its offsets from its first action on: Spark asks once and keeps the plan.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from orbitmq.spark.cluster import cluster_of
from orbitmq.spark.rows import arrow_schema_of, schema_ddl
from orbitmq.spark.sink_source import TopicSink
from orbitmq.spark.topic_choice import queues_to_read
from orbitmq.spark.topic_looks import record_bytes
from orbitmq.spark.topic_loss import readable
from orbitmq.spark.topic_offsets import Bounds
from orbitmq.spark.topic_options import EARLIEST, TopicOptions, topic_options
from orbitmq.spark.topic_planning import Range, TopicPartition, planned
from orbitmq.spark.topic_reading import read_ranges
from orbitmq.spark.topic_stream import TopicStreamReader


class TopicSource(TopicSink):
    """What `spark.read.format("rocketmq")` makes; its writers are TopicSink's."""

    def schema(self) -> str:
        """Return the columns that the options ask for."""
        options = self._options(is_stream=True)  # also for batches: only they refuse more
        return schema_ddl(options.properties, options.body_format)

    def reader(self, schema: StructType) -> "TopicReader":
        """Return a reader of a batch; raises SettingError."""
        return TopicReader(self._options(is_stream=False), arrow_schema_of(schema))

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of a stream; raises SettingError."""
        return TopicStreamReader(self._options(is_stream=True), arrow_schema_of(schema))

    def _options(self, *, is_stream: bool) -> TopicOptions:
        return topic_options(self.options, is_stream=is_stream)


class TopicReader(DataSourceReader):
    """Reads a batch."""

    def __init__(self, options: TopicOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks; raises MQError that names the option, topic, broker and queue."""
        options = self._options
        cluster = cluster_of(options)
        queues = queues_to_read(cluster, options)
        bounds = Bounds(cluster, options, queues)
        starts, ends = bounds.starts(EARLIEST), bounds.ends()
        ranges = [Range(queue, starts[queue], ends[queue]) for queue in queues]
        ranges = readable(ranges, bounds, fails=options.fail_on_data_loss)
        size = record_bytes(cluster, options, ranges) if options.max_bytes_per_partition else None
        return list(planned(ranges, options, size))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one task, in a worker."""
        if isinstance(partition, TopicPartition):  # an empty plan is one partition of Spark's own
            yield from read_ranges(partition.ranges, self._options, self._schema)
