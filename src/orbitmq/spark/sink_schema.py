"""Which columns a sink takes, of which types, and what is wrong with those it was given.

In: the schema of the rows to be written, and the options. Out: the columns that are there, or one
SettingError that names every wrong column and what would be right.

Rules:
1. SINK_COLUMNS is the one place that knows names, types and meanings; docs are made from it.
2. A column that nobody knows is an error: a misspelt `tag` must not be dropped in silence.
3. Names are compared as Spark does, in any case.
"""

import difflib
from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql.types import StructType

from orbitmq.arrow.columns import COLUMN_OF
from orbitmq.errors import SettingError
from orbitmq.spark.sink_options import FORMAT, SinkOptions

_WHOLE = ("int", "bigint", "smallint", "tinyint")


class SinkColumn(NamedTuple):
    """One column: its name, the types that it may have in Spark's words, and what it means."""

    name: str
    types: tuple[str, ...]
    meaning: str


SINK_COLUMNS = (
    SinkColumn("body", ("binary", "string"), "What is sent; required, never null or empty."),
    SinkColumn("topic", ("string",), "Where it goes, unless the option `topic` says so."),
    SinkColumn("tags", ("string",), "Its tag."),
    SinkColumn("keys", ("string", "array<string>"), "Its keys, with spaces between them."),
    SinkColumn(
        "properties", ("map<string,string>",), "Its own properties; system ones are left out."
    ),
    SinkColumn("flag", _WHOLE, "A number that nobody interprets."),
    SinkColumn("queueId", _WHOLE, "The queue it goes to; null: any."),
    SinkColumn("brokerName", ("string",), "The broker of that queue."),
    SinkColumn("shardingKey", ("string",), "Rows of one key go to one queue, in their order."),
    SinkColumn("delayTimeLevel", _WHOLE, "Its delay by the broker's table of levels; 0: none."),
    SinkColumn(
        "deliverTimestamp",
        ("timestamp", "bigint"),
        "When it is delivered, as a time or in ms since 1970; brokers of 5.x only.",
    ),
    SinkColumn("msgId", ("string",), "Its unique id; null: one that is made of the row's place."),
)

SINK_COLUMN_OF = {column.name.lower(): column for column in SINK_COLUMNS}


def check_schema(schema: StructType, options: SinkOptions) -> tuple[str, ...]:
    """Return the sink's name of each column of the rows, in their order.

    Raises SettingError that names all wrong columns.
    """
    faults = [*_column_faults(schema), *_set_faults(schema, options)]
    if faults:
        raise SettingError(f"{FORMAT} cannot write these rows: {'; '.join(faults)}")
    return tuple(SINK_COLUMN_OF[field.name.lower()].name for field in schema.fields)


def _column_faults(schema: StructType) -> Iterator[str]:
    """What is wrong with single columns."""
    seen: set[str] = set()
    for field in schema.fields:
        lower = field.name.lower()
        column = SINK_COLUMN_OF.get(lower)
        found = field.dataType.simpleString()
        if column is None:
            yield _unknown(field.name)
        elif found not in column.types:
            yield f"column {field.name!r} is {found}, it must be {' or '.join(column.types)}"
        elif lower in seen:
            yield f"column {field.name!r} is there twice"
        seen.add(lower)


def _unknown(name: str) -> str:
    if name in COLUMN_OF:
        return f"column {name!r} is the broker's to set; leave it out of the select"
    near = difflib.get_close_matches(name.lower(), SINK_COLUMN_OF, 1)
    if near:
        return f"there is no column {name!r}; did you mean {SINK_COLUMN_OF[near[0]].name!r}?"
    there = ", ".join(column.name for column in SINK_COLUMNS)
    return f"there is no column {name!r}; there are {there}"


def _set_faults(schema: StructType, options: SinkOptions) -> Iterator[str]:
    """What is wrong with the columns together, and with the options."""
    there = {field.name.lower() for field in schema.fields}
    if "body" not in there:
        yield "the column 'body' is missing: it is what is sent"
    if "topic" not in there and not options.topic:
        yield "nothing says where to: give the option 'topic' or a column 'topic'"
    if "brokername" in there and "queueid" not in there:
        yield "the column 'queueId' is missing: brokerName alone names no queue"
    if {"delaytimelevel", "delivertimestamp"} <= there:
        yield "columns 'delayTimeLevel' and 'deliverTimestamp' are two answers to one question"
    if options.queue_selector == "column" and "queueid" not in there:
        yield "queueSelector=column needs the column 'queueId'"
    if options.queue_selector == "hash" and "shardingkey" not in there:
        yield "queueSelector=hash needs the column 'shardingKey'"
    if options.is_idempotent:
        yield from _idempotent_faults(there)


def _idempotent_faults(there: set[str]) -> Iterator[str]:
    if "msgid" in there:
        yield (
            "delivery=idempotent makes the ids itself and knows rows by them: leave column"
            " 'msgId' out, or keep it as a property"
        )
    for lower in sorted({"delaytimelevel", "delivertimestamp"} & there):
        yield (
            "delivery=idempotent cannot look up what waits for its time: leave column"
            f" {SINK_COLUMN_OF[lower].name!r} out, or write with delivery=at-least-once"
        )
