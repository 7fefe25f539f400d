"""What brokers are told of a write, and what Spark refuses before there is one."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orbitmq.spark.cluster import cluster_of
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from tests.spark.sinking import bodies, plan, run_task

PRODUCER_GROUP = "a"
"""The short name of the field in a request that sends."""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, ("SPARK_SINK", 10.0)),
        ({"producerGroup": "loaders", "sendTimeoutMs": "4321"}, ("loaders", 4.321)),
        ({"producerGroup": "loaders", "namespace": "shop"}, ("shop%loaders", 10.0)),
    ],
)
def test_a_request_says_which_group_sends_and_waits_as_long_as_asked_for(
    orbitmq_broker: EmbeddedBroker,
    fresh_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    told: tuple[str, float],
) -> None:
    topic = fresh_name("told")
    made = plan(orbitmq_broker, ["body"], topic=topic, **given)
    cluster = cluster_of(made.options)
    instance = cluster.wait(cluster.instance())
    ask = instance.remote.call
    asked: list[tuple[str, float]] = []

    async def noted(address: str, command: Command, timeout_s: float) -> Command:
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            asked.append((command.fields[PRODUCER_GROUP], timeout_s))
        return await ask(address, command, timeout_s)

    monkeypatch.setattr(instance.remote, "call", noted)
    run_task(made, [pa.record_batch({"body": ["x", "y"]})])
    assert set(asked) == {told}


@pytest.mark.parametrize("mode", [None, "ignore"])
def test_a_write_without_the_mode_append_is_refused_and_stores_nothing(
    spark: SparkSession,
    orbitmq_broker: EmbeddedBroker,
    fresh_name: Callable[[str], str],
    mode: str | None,
) -> None:
    topic = fresh_name("moded")
    orbitmq_broker.create_topic(topic)
    rows = spark.range(3).selectExpr("string(id) as body")
    writer = rows.write.format("rocketmq").option("namesrvAddr", orbitmq_broker.namesrv)
    with pytest.raises(PySparkException, match=r"(?i)mode"):
        (writer if mode is None else writer.mode(mode)).option("topic", topic).save()
    assert bodies(orbitmq_broker.namesrv, topic) == []
