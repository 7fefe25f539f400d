"""The rows of our sources: which columns, of which types, as Spark and as Arrow.

In: the options about rows, or the schema that a user gave. Out: a schema in Spark's DDL, and the
Arrow schema that batches must have to the letter.

Rule: a user's schema chooses columns and their order; names and types must be those of COLUMNS.
"""

from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.arrow.columns import COLUMNS, check_schema


def schema_ddl(properties: str = "map", body_format: str = "binary") -> str:
    """Return the columns that a source has if the user does not choose."""
    types = {"body": body_format, "properties": _PROPERTIES_DDL.get(properties, "")}
    return ", ".join(
        f"{column.name} {types.get(column.name, column.ddl)}"
        + ("" if column.is_nullable else " NOT NULL")
        for column in COLUMNS
        if types.get(column.name, column.ddl)
    )


_PROPERTIES_DDL = {"map": "map<string,string>", "string": "string"}


def arrow_schema_of(schema: StructType) -> Any:
    """Return what batches must look like; raises SettingError for a column that no message has."""
    found = to_arrow_schema(schema, timezone="UTC")
    check_schema(found)
    return found
