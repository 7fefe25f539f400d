"""Columns that a sink takes, and each wrong one by its symptom."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.errors import SettingError
from orbitmq.spark.sink_options import sink_options
from orbitmq.spark.sink_schema import check_schema

TYPES: dict[str, DataType] = {
    "array<string>": ArrayType(StringType()),
    "bigint": LongType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "string": StringType(),
    "timestamp": TimestampType(),
}


def schema(ddl: str) -> StructType:
    """Return the schema of a list of `name type`, without a session."""
    pairs = (each.split(" ") for each in ddl.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def check(ddl: str, **given: str) -> tuple[str, ...]:
    options = sink_options({"namesrvAddr": "localhost:9876", **given})
    return check_schema(schema(ddl), options)


def test_all_columns_together_are_taken_by_their_names_in_any_case() -> None:
    found = check(
        "BODY binary, topic string, tags string, keys array<string>,"
        " properties map<string,string>, flag int, queueid int, brokerName string,"
        " shardingKey string, delayTimeLevel int, msgId string"
    )
    assert found[0] == "body"
    assert found[6] == "queueId"


@pytest.mark.parametrize(
    ("ddl", "given", "said"),
    [
        ("topic string", {}, "the column 'body' is missing"),
        ("body string", {}, "give the option 'topic' or a column 'topic'"),
        ("body int", {"topic": "t"}, "column 'body' is int, it must be binary or string"),
        ("body string, tag string", {"topic": "t"}, "no column 'tag'; did you mean 'tags'"),
        ("body string, zzzz int", {"topic": "t"}, "no column 'zzzz'; there are body, topic"),
        ("body string, queueOffset bigint", {"topic": "t"}, "'queueOffset' is the broker's to set"),
        ("body string, brokerName string", {"topic": "t"}, "brokerName alone names no queue"),
        ("body string, queueId string", {"topic": "t"}, "'queueId' is string"),
        ("body string, properties string", {"topic": "t"}, "must be map<string,string>"),
        (
            "body string, delayTimeLevel int, deliverTimestamp timestamp",
            {"topic": "t"},
            "two answers",
        ),
        ("body string", {"topic": "t", "queueSelector": "column"}, "needs the column 'queueId'"),
        ("body string", {"topic": "t", "queueSelector": "hash"}, "needs the column 'shardingKey'"),
        (
            "body string, msgId string",
            {"topic": "t", "delivery": "idempotent"},
            "leave column 'msgId' out",
        ),
        (
            "body string, delayTimeLevel int",
            {"topic": "t", "delivery": "idempotent"},
            "leave column 'delayTimeLevel' out",
        ),
    ],
)
def test_a_wrong_schema_is_told_by_its_columns(ddl: str, given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        check(ddl, **given)


def test_every_wrong_column_is_named_at_once() -> None:
    with pytest.raises(SettingError, match=r"'flags'.*'tags' is int.*'body' is missing"):
        check("flags int, tags int", topic="t")
