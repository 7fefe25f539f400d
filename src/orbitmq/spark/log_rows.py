"""The rows of a log: records, and with `onCorruptRecord=quarantine` its damage, too.

In: batches of records, and ranges that are none. Out: batches of the schema that Spark expects.

Rules:
1. Quarantine: a damaged range is a row. Its `damage` says why, `physicalOffset` and `size` where it
   is, `raw` (with includeRaw) has its bytes, up to RAW_BYTES_MAX; all other columns are null.
2. Hence every other column may be null then, and a schema of the user's must have `damage`.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.arrow.columns import RAW, Column, check_schema
from orbitmq.errors import SettingError
from orbitmq.spark.log_damage import BadRange
from orbitmq.spark.log_options import FORMAT, LogOptions
from orbitmq.spark.rows import schema_ddl
from orbitmq.wire.record import RECORD_SIZE_MAX

DAMAGE = Column(
    "damage",
    "string",
    "Why these bytes of the log are no record; null in records.",
    is_nullable=True,
)
RAW_BYTES_MAX = RECORD_SIZE_MAX
SIZE_MAX = 2**31 - 1


def log_schema_ddl(options: LogOptions) -> str:
    """Return the columns that the options ask for."""
    ddl = schema_ddl(options.properties, options.body_format)
    if options.include_raw:
        ddl += f", {RAW.name} {RAW.ddl} NOT NULL"
    if options.on_corrupt_record == "quarantine":
        ddl = ddl.replace(" NOT NULL", "") + f", {DAMAGE.name} {DAMAGE.ddl}"
    return ddl


def log_arrow_schema(schema: StructType, options: LogOptions) -> Any:
    """Return what batches must look like; raises SettingError for what a log cannot give."""
    found = to_arrow_schema(schema, timezone="UTC")
    names = found.names
    if options.on_corrupt_record != "quarantine":
        check_schema(found)
        return found
    if DAMAGE.name not in names:
        raise SettingError(
            f"{FORMAT}: onCorruptRecord=quarantine needs the column {DAMAGE.name!r} "
            f"({DAMAGE.ddl}) in the schema: without it damage could not be told from records"
        )
    check_schema(found.remove(found.get_field_index(DAMAGE.name)))
    strict = [field.name for field in found if not field.nullable]
    if strict:
        raise SettingError(
            f"{FORMAT}: with onCorruptRecord=quarantine column {strict[0]!r} must be nullable"
        )
    return found


class LogRows:
    """Makes batches of the schema that Spark expects."""

    def __init__(self, schema: Any, options: LogOptions) -> None:
        self._schema = schema
        has_damage = options.on_corrupt_record == "quarantine"
        self._place = schema.get_field_index(DAMAGE.name) if has_damage else -1
        self.record_schema = schema.remove(self._place) if self._place >= 0 else schema
        """What records are decoded to."""

    def of_records(self, batch: Any) -> Any:
        """Return a batch of records."""
        if self._place < 0:
            return batch
        columns = list(batch.columns)
        columns.insert(self._place, pa.nulls(batch.num_rows, pa.string()))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def of_damage(self, bad: BadRange, part: bytes | memoryview) -> Any:
        """Return the row of a damaged range."""
        values = {
            DAMAGE.name: bad.why,
            "physicalOffset": bad.begin,
            "size": min(bad.end - bad.begin, SIZE_MAX),
            RAW.name: bytes(part[:RAW_BYTES_MAX]),
        }
        columns = [pa.array([values.get(field.name)], type=field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
