"""The listener: lines, metrics and commits, of what Spark tells of real and made-up batches."""

import io
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from orbitmq import Admin, Message, Producer
from orbitmq.errors import MQError, SettingError
from orbitmq.metrics import Registry
from orbitmq.spark.listener import LINE_INTERVAL_S, ProgressListener, watch
from orbitmq.testing import EmbeddedBroker


class Terminal(io.StringIO):
    """A text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class SteppedClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def file_stamp(self, wall_ms: int) -> int:
        return wall_ms


def end(offset: int) -> str:
    return json.dumps({"orders": {"broker-a": {"0": offset}}})


def progress(offset: int, latest: int, name: str | None = "sums") -> QueryProgressEvent:
    told: dict[str, Any] = {
        "id": str(uuid.UUID(int=7)),
        "runId": str(uuid.UUID(int=8)),
        "name": name,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 0,
        "batchDuration": 100,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": [
            {
                "description": "x",
                "startOffset": end(0),
                "endOffset": end(offset),
                "latestOffset": end(latest),
                "numInputRows": 5,
                "inputRowsPerSecond": 50.0,
                "processedRowsPerSecond": 50.0,
                "metrics": {},
            }
        ],
        "sink": {"description": "x", "numOutputRows": 5, "metrics": {}},
        "numInputRows": 5,
        "inputRowsPerSecond": 50.0,
        "processedRowsPerSecond": 50.0,
        "observedMetrics": {},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson(told))


IDLE = QueryIdleEvent(uuid.UUID(int=7), uuid.UUID(int=8), "")
ENDED = QueryTerminatedEvent(uuid.UUID(int=7), uuid.UUID(int=8), None, None)


def test_in_a_terminal_one_line_is_written_again_and_again() -> None:
    output = Terminal()
    listener = ProgressListener(output, Registry(), clock=SteppedClock())
    listener.onQueryProgress(progress(5, 10))
    listener.onQueryProgress(progress(10, 10))
    assert output.getvalue().count("\r") == 2
    assert "\n" not in output.getvalue()
    assert "[############] 100%" in output.getvalue()


def test_elsewhere_lines_come_at_most_once_in_a_while() -> None:
    output, clock = io.StringIO(), SteppedClock()
    listener = ProgressListener(output, Registry(), clock=clock)
    for offset in range(3):
        listener.onQueryProgress(progress(offset, 10))
    assert output.getvalue().count("\n") == 1
    clock.now_s += LINE_INTERVAL_S
    listener.onQueryProgress(progress(9, 10))
    first, second = output.getvalue().splitlines()
    assert first.startswith("sums  5 rows  50/s  orders: 10 messages behind")
    assert second.startswith("sums  20 rows")


def test_commits_are_spaced_and_the_last_one_is_never_left_out() -> None:
    committed: list[str] = []
    clock = SteppedClock()
    listener = ProgressListener(None, Registry(), committed.append, clock=clock)
    for offset in (1, 2, 3):
        listener.onQueryProgress(progress(offset, 10))
    assert committed == [end(1)]
    clock.now_s += 60
    listener.onQueryProgress(progress(4, 10))
    listener.onQueryProgress(progress(5, 10))
    listener.onQueryIdle(IDLE)
    listener.onQueryProgress(progress(6, 10))
    listener.onQueryTerminated(ENDED)
    assert committed == [end(1), end(4), end(5), end(6)]


def test_a_failed_commit_is_told_and_counted_and_stops_nothing() -> None:
    def fail(text: str) -> None:
        raise MQError("the broker is away")

    output, registry = io.StringIO(), Registry()
    listener = ProgressListener(output, registry, fail, clock=SteppedClock())
    listener.onQueryProgress(progress(1, 1))
    assert "offsets are not committed: the broker is away" in output.getvalue()
    assert "orbitmq_spark_failed_commits_total 1" in registry.render()
    assert "sums  5 rows" in output.getvalue()


def test_an_idle_query_commits_again_what_a_broker_did_not_take() -> None:
    """Symptom: tools showed a lag until the next message came, after one commit had failed."""
    is_away, committed = True, list[str]()

    def commit(text: str) -> None:
        if is_away:
            raise MQError("the broker is away")
        committed.append(text)

    listener = ProgressListener(None, Registry(), commit, clock=SteppedClock())
    listener.onQueryProgress(progress(4, 4))
    is_away = False
    listener.onQueryIdle(IDLE)
    listener.onQueryIdle(IDLE)
    assert committed == [end(4)]
    is_away = True
    listener.onQueryProgress(progress(5, 5))
    listener.onQueryTerminated(ENDED)
    is_away = False
    listener.commit_pending()
    assert committed == [end(4)], "an ended query may have a follower by now"


def test_other_queries_are_left_alone() -> None:
    output = io.StringIO()
    listener = ProgressListener(output, Registry(), query_name="mine", clock=SteppedClock())
    listener.onQueryProgress(progress(1, 1, "yours"))
    listener.onQueryProgress(progress(1, 1, None))
    assert output.getvalue() == ""


def test_without_a_group_there_is_nobody_to_commit_for(spark: SparkSession) -> None:
    with pytest.raises(SettingError, match="needs the option 'consumerGroup'"):
        watch(spark, commit={"namesrvAddr": "127.0.0.1:1", "topic": "orders"})
    with pytest.raises(SettingError, match="did you mean 'consumerGroup'"):
        watch(spark, commit={"namesrvAddr": "127.0.0.1:1", "topic": "orders", "consumergrup": "x"})


# --- with a real query ---


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def test_a_real_query_is_told_measured_and_committed_to_its_last_batch(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Symptom: a query that has read all lags behind for ever; Spark tells of no last commit."""
    with Producer(broker.namesrv, group="shop") as producer:
        for number in range(30):
            producer.send(Message("orders", b"%d" % number))
    source = {"namesrvAddr": broker.namesrv, "topic": "orders", "consumerGroup": "sums"}
    output = io.StringIO()
    with watch(spark, query_name="sums", commit=source, output=output, metrics_port=0) as watching:
        query = (
            spark.readStream.format("rocketmq")
            .options(**source, startingOffsets="earliest", maxOffsetsPerTrigger="10")
            .load()
            .writeStream.format("noop")
            .queryName("sums")
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        query.processAllAvailable()
        query.stop()
        spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty()
        with urlopen(f"http://127.0.0.1:{watching.metrics_port}/metrics") as answer:
            metrics = answer.read().decode()
    lines = output.getvalue().splitlines()
    assert "messages behind" in lines[0]
    assert lines[-1].startswith("sums  30 rows")
    assert lines[-1].endswith("orders: no lag  ended")
    assert 'orbitmq_spark_rows_total{query="sums"} 30' in metrics
    assert 'orbitmq_spark_lag_messages{query="sums",topic="orders"} 0' in metrics
    with Admin(broker.namesrv) as admin:
        found = admin.progress("sums")
    assert found.lag == 0
    assert sum(queue.offset for queue in found.queues if queue.topic == "orders") == 30


def test_the_end_of_a_watch_commits_what_spark_has_not_told_yet(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Symptom: a query that ended well lags behind by its last batches, in every tool."""
    with Producer(broker.namesrv, group="shop") as producer:
        for number in range(20):
            producer.send(Message("orders", b"%d" % number))
    source = {"namesrvAddr": broker.namesrv, "topic": "orders", "consumerGroup": "ended"}
    with watch(spark, commit=source, output=False):
        query = (
            spark.readStream.format("rocketmq")
            .options(**source, startingOffsets="earliest", commitOffsets="false")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
    with Admin(broker.namesrv) as admin:
        assert admin.progress("ended").lag == 0
