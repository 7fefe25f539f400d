"""The columns of a message in Arrow and Spark: one table of names, types and meanings.

In: which columns are wanted. Out: an Arrow schema that Spark takes as it is.

Rules:
1. COLUMNS is the one place that knows names, order and types; sources, docs and tests read it.
2. Types are those that Spark makes of its own: no dictionaries, views, large or unsigned types.
   Times are microseconds in UTC, though the log has milliseconds.
3. A field that is not nullable is in every stored record.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from orbitmq.errors import SettingError


class Column(NamedTuple):
    """One column: its name, its type in Spark's DDL, and what it holds."""

    name: str
    ddl: str
    meaning: str
    is_nullable: bool = False
    is_long: bool = False
    """Whether a value may take more room than a few words: its record's body or properties."""


COLUMNS = (
    Column("topic", "string", "The topic the message is stored in."),
    Column(
        "brokerName",
        "string",
        "The broker of its queue; null if nobody knows it.",
        is_nullable=True,
    ),
    Column("queueId", "int", "The queue's number at its broker."),
    Column("queueOffset", "bigint", "Its place in the queue, counted from 0."),
    Column("physicalOffset", "bigint", "Its first byte in the broker's log."),
    Column("size", "int", "Bytes of the whole record."),
    Column("tags", "string", "Its tag; null without one.", is_nullable=True, is_long=True),
    Column(
        "keys",
        "string",
        "Its keys with spaces between them; null without any.",
        is_nullable=True,
        is_long=True,
    ),
    Column(
        "msgId", "string", "The unique id its producer gave it.", is_nullable=True, is_long=True
    ),
    Column(
        "properties", "map<string,string>", "All properties, system ones included.", is_long=True
    ),
    Column("body", "binary", "What was sent.", is_long=True),
    Column("flag", "int", "The producer's own number."),
    Column("sysFlag", "int", "Bits of the system: compression, transaction, host widths."),
    Column("crc", "int", "CRC-32 of the stored body, without its highest bit."),
    Column("bornTimestamp", "timestamp", "When the producer made it."),
    Column("bornHost", "string", "The producer's address and port."),
    Column("storeTimestamp", "timestamp", "When the broker stored it."),
    Column("storeHost", "string", "The broker's address and port."),
    Column("reconsumeTimes", "int", "How often consumers sent it back."),
    Column("preparedTransactionOffset", "bigint", "Where its half message lies, or 0."),
)

RAW = Column("raw", "binary", "The whole record as it is stored.", is_long=True)
"""A column that is there only when it is asked for; it is in no default schema."""

COLUMN_OF = {column.name: column for column in COLUMNS}

_OTHER_TYPES = {"body": "string", "properties": "string"}
"""Columns that a schema may have with another type than the usual one."""

_ARROW_OF: dict[str, Any] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True)),
}
"""Arrow's type of each DDL type above."""


def arrow_type(ddl: str) -> Any:
    """Return Arrow's type of one of the DDL types in COLUMNS."""
    return _ARROW_OF[ddl]


def arrow_schema(names: Iterable[str] = tuple(COLUMN_OF), **other_types: str) -> Any:
    """Return the schema of these columns, in this order.

    `other_types` gives columns another DDL type: `body="string"`, `properties="string"`.
    Raises SettingError for a name that is none of COLUMNS.
    """
    return pa.schema([_field(name, other_types.get(name)) for name in names])


def _field(name: str, other_type: str | None) -> Any:
    column = RAW if name == RAW.name else COLUMN_OF.get(name)
    if column is None:
        raise SettingError(f"there is no column {name!r}; there are {', '.join(COLUMN_OF)}")
    return pa.field(name, arrow_type(other_type or column.ddl), nullable=column.is_nullable)


def are_short(schema: Any) -> bool:
    """Whether all columns of a schema are short, so that many rows of them take little room."""
    long_names = {column.name for column in (*COLUMNS, RAW) if column.is_long}
    return long_names.isdisjoint(schema.names)


def check_schema(schema: Any) -> None:
    """Raise SettingError for a column that no record has, or one of another type."""
    for field in schema:
        if field.name == RAW.name:
            allowed = [arrow_type(RAW.ddl)]
        elif field.name in COLUMN_OF:
            kinds = (COLUMN_OF[field.name].ddl, _OTHER_TYPES.get(field.name))
            allowed = [arrow_type(kind) for kind in kinds if kind]
        else:
            known = ", ".join((*COLUMN_OF, RAW.name))
            raise SettingError(f"there is no column {field.name!r}; there are {known}")
        if field.type not in allowed:
            right = " or ".join(map(str, allowed))
            raise SettingError(f"column {field.name!r} is {right}, not {field.type}")
