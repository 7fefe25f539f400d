"""Options of topics: what is refused before anything runs, and what only streams use."""

import logging
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from orbitmq.errors import SettingError
from orbitmq.spark.log_source import LogSource
from orbitmq.spark.options import is_for_streams, option_fields
from orbitmq.spark.topic_options import TopicOptions, topic_options
from orbitmq.spark.topic_source import TopicSource

GIVEN = {"namesrvAddr": "127.0.0.1:9", "topic": "T"}
FOR_STREAMS = {
    "newQueueStart": "latest",
    "maxOffsetsPerTrigger": "3",
    "maxBytesPerTrigger": "1000",
    "minOffsetsPerTrigger": "2",
    "maxTriggerDelay": "5s",
    "initialOffsetStore": "/somewhere/start.json",
    "longPollMs": "500",
    "routeCacheTtlMs": "500",
}
NO_COLUMNS = StructType()

both = pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "batch"])


@both
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"longPollMs": "1001"}, "'longPollMs': '1001' is 1000 at most"),
        ({"endingOffsets": "earliest"}, "'endingOffsets': 'earliest' leaves nothing to read"),
        ({"initialOffsetStore": "start.json"}, "'start.json' is none of checkpoint, group and no"),
        ({"tags": "a", "sql92": "a = 1"}, "give only one of the options 'tags' and 'sql92'"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "1"},
            "give only one of the options 'startingOffsets' and 'startingTimestamp'",
        ),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestamp": "{}"},
            "only one of the options 'startingTimestamp' and 'startingOffsetsByTimestamp'",
        ),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay': 'soon' is no duration"),
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger': '0' is not right"),
        ({"newQueueStart": "middle"}, "'newQueueStart': 'middle' .* one of earliest, latest"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "3"},
            "'minOffsetsPerTrigger': '5' is more than 'maxOffsetsPerTrigger', 3",
        ),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    given: dict[str, str], said: str, is_stream: bool
) -> None:
    with pytest.raises(SettingError, match=said):
        topic_options({**GIVEN, **given}, is_stream=is_stream)


@pytest.mark.parametrize("given", [{"commitOffsets": "true"}, {"startingOffsets": "latest"}])
def test_what_a_batch_cannot_do_is_refused(given: dict[str, str]) -> None:
    topic_options({**GIVEN, **given}, is_stream=True)
    with pytest.raises(SettingError, match=f"{next(iter(given))!r}: .* is for streams"):
        topic_options({**GIVEN, **given}, is_stream=False)


@both
def test_a_batch_says_once_which_options_have_no_effect(
    caplog: pytest.LogCaptureFixture, is_stream: bool
) -> None:
    """Symptom: a batch with `maxOffsetsPerTrigger` read everything, and nobody was told."""
    source = TopicSource({**GIVEN, **{name.upper(): text for name, text in FOR_STREAMS.items()}})
    with caplog.at_level(logging.WARNING):
        source.schema()
        if is_stream:
            source.streamReader(NO_COLUMNS)
        else:
            source.reader(NO_COLUMNS)
    quoted = ", ".join(map(repr, FOR_STREAMS))
    told = f"rocketmq: only streams have a use for {quoted}: no effect in a batch"
    assert caplog.messages == ([] if is_stream else [told])


def test_every_option_that_only_streams_use_is_looked_at_here() -> None:
    fields = option_fields(TopicOptions).items()
    assert [name for name, field in fields if is_for_streams(field)] == list(FOR_STREAMS)


@both
def test_a_batch_of_a_log_says_once_which_options_have_no_effect(
    caplog: pytest.LogCaptureFixture, is_stream: bool
) -> None:
    source = LogSource({"path": "/nowhere", "maxBytesPerTrigger": "1000"})
    with caplog.at_level(logging.WARNING):
        source.schema()
        if is_stream:
            source.streamReader(NO_COLUMNS)
        else:
            source.reader(NO_COLUMNS)
    told = "rocketmq_log: only streams have a use for 'maxBytesPerTrigger': no effect in a batch"
    assert caplog.messages == ([] if is_stream else [told])
    with pytest.raises(SettingError, match="'maxBytesPerTrigger': 'much'"):
        LogSource({"path": "/nowhere", "maxBytesPerTrigger": "much"}).reader(NO_COLUMNS)


@pytest.mark.parametrize("set_up", ["", "import logging; logging.basicConfig()"])
def test_a_warning_is_seen_where_nobody_has_set_up_logging(set_up: str) -> None:
    """Symptom: Spark's processes told nobody of options without effect, nor of lost messages."""
    options = {**GIVEN, "maxOffsetsPerTrigger": "3"}
    program = f"""
{set_up}
from pyspark.sql.types import StructType
from orbitmq.spark.topic_source import TopicSource
TopicSource({options!r}).reader(StructType())
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stderr.count(b"only streams have a use for 'maxOffsetsPerTrigger'") == 1


def test_a_batch_without_such_options_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        topic_options({**GIVEN, "minPartitions": "3"}, is_stream=False)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("given", "schema", "said"),
    [
        ({"maxOffsetPerTrigger": "3"}, "", "did you mean 'maxOffsetsPerTrigger'"),
        ({"maxTriggerDelay": "soon"}, "", "'maxTriggerDelay': 'soon' is no duration"),
        ({}, "price int", "there is no column 'price'"),
        ({}, "queueId string", "column 'queueId' is int32, not string"),
    ],
)
def test_a_stream_with_a_wrong_option_or_schema_is_refused_by_name(
    spark: SparkSession, given: dict[str, str], schema: str, said: str
) -> None:
    reader = spark.readStream.format("rocketmq").options(**GIVEN, **given)
    if schema:
        reader = reader.schema(schema)
    with pytest.raises(PySparkException, match=said):
        reader.load().writeStream.format("noop").start().processAllAvailable()
