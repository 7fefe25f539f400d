"""The most that any Python source gives Spark: batches that are ready, sent again and again.

In: a store folder and how many rows. Out: rows of the same columns as a log's. Rules:

1. A worker decodes one batch once; what is measured is Spark's part: sending, and rows of batches.
2. Workers find this module because they start in the folder of the benchmark.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from orbitmq.arrow.decode import BatchDecoder
from orbitmq.arrow.starts import walk
from orbitmq.spark.internals import shorten_rest
from orbitmq.spark.log_reading import BATCH_BYTES, BATCH_ROWS
from orbitmq.spark.rows import arrow_schema_of, schema_ddl
from orbitmq.world.mapped import mapped

TASK_ROWS = 55_000
"""About as many as a task of the log has."""

_ready: dict[str, Any] = {}


class Ceiling(DataSource):
    """What `spark.read.format("bench_ceiling")` makes; options `file` and `rows`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "bench_ceiling"

    def schema(self) -> str:
        """Return the columns of a message."""
        return schema_ddl()

    def reader(self, schema: StructType) -> "CeilingReader":
        """Return a reader."""
        return CeilingReader(schema, str(self.options["file"]), int(self.options["rows"]))


class CeilingReader(DataSourceReader):
    """Gives the first batch of a log file until there are enough rows."""

    def __init__(self, schema: StructType, file: str, rows: int) -> None:
        self._schema = arrow_schema_of(schema)
        self._file = file
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return tasks by their numbers of rows."""
        return [
            InputPartition(min(TASK_ROWS, self._rows - begin))
            for begin in range(0, self._rows, TASK_ROWS)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the batch again and again."""
        shorten_rest()  # as ours do
        left = int(partition.value)
        batch = self._batch()
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows

    def _batch(self) -> Any:
        key = f"{self._file} {self._schema}"
        if key not in _ready:
            view = mapped(Path(self._file)) or memoryview(b"")
            starts = walk(view, 0, BATCH_BYTES, base=0, count_max=BATCH_ROWS)
            _ready[key] = BatchDecoder(self._schema).decode(view, starts.positions).batch
        return _ready[key]
