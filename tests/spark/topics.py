"""Topics for tests of Spark sources: filled, grown, forgotten by retention, made again."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from orbitmq import Message, Producer
from orbitmq.arrow.columns import arrow_schema
from orbitmq.blocking import Admin
from orbitmq.spark.cluster import cluster_of
from orbitmq.spark.topic_options import TopicOptions, topic_options
from orbitmq.spark.topic_source import TopicReader
from orbitmq.spark.topic_stream import TopicStreamReader
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue

QUEUE_COUNT = 2
UNTIL_S = 30.0
SMALL_FILES = {
    "mappedFileSizeCommitLog": "131072",
    "mappedFileSizeConsumeQueue": "200",
    "fileReservedTime": "0",
    "cleanResourceInterval": "100",
}
"""Settings of a broker whose old messages can be made to go: see `forget_old`."""


def hours_but_now() -> str:
    """Return all hours in which no test runs: nothing is deleted unless it is asked for."""
    hour = time.localtime().tm_hour
    return ";".join(f"{one:02d}" for one in range(24) if one not in (hour, (hour + 1) % 24))


def forgetful_broker() -> EmbeddedBroker:
    """Return a broker whose old messages go when `forget_old` says so."""
    return EmbeddedBroker(settings={**SMALL_FILES, "deleteWhen": hours_but_now()})


def make(broker: EmbeddedBroker, topic: str, queue_count: int = QUEUE_COUNT) -> list[MessageQueue]:
    """Make a topic, or give it another number of queues; give its queues."""
    with Admin(broker.namesrv) as admin:
        admin.create_topic(topic, read_queue_count=queue_count, write_queue_count=queue_count)
        name = admin.topic_route(topic).brokers[0].name
    return [MessageQueue(topic, name, queue_id) for queue_id in range(queue_count)]


def send(
    broker: EmbeddedBroker, queues: list[MessageQueue], numbers: Iterable[int], size: int = 0
) -> None:
    """Send messages to queues in turn; body, tag, key and price say which one each is."""

    with Producer(namesrv=broker.namesrv, group="filler") as producer:
        for number in numbers:
            message = Message(
                queues[0].topic,
                f"body {number}".encode().ljust(size),
                tag=f"t{number % 3}",
                keys=[f"k{number}", "all"],
                properties={"price": str(number)},
            )
            producer.send(message, timeout=10, queue=queues[number % len(queues)])


def forget_old(broker: EmbeddedBroker, queue: MessageQueue) -> int:
    """Have the broker delete its old files; return the queue's first offset from now on."""
    cluster = cluster_of(TopicOptions(namesrv_addr=broker.namesrv))
    with Admin(broker.namesrv) as admin:
        admin.delete_expired_files()

    async def first() -> int:
        async with asyncio.timeout(UNTIL_S):
            while True:
                found = await asyncio.to_thread(cluster.min_offsets, [queue])
                if found[queue] > 0:
                    return found[queue]
                await asyncio.sleep(0.02)

    return asyncio.run(first())


def options_of(broker: EmbeddedBroker, *, is_stream: bool = False, **given: str) -> TopicOptions:
    """Return a source's options, with the address of a broker."""
    return topic_options({"namesrvAddr": broker.namesrv, **given}, is_stream=is_stream)


COLUMNS = arrow_schema(["queueId", "queueOffset", "body"])


def rows_of(reader: TopicReader | TopicStreamReader, partitions: Iterable[Any]) -> list[Any]:
    """Return the rows of all tasks, without Spark."""
    return [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


def numbers(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return which messages rows are, in order."""
    return sorted(int(row["body"].split()[1]) for row in rows)


def read_batch(broker: EmbeddedBroker, schema: pa.Schema = COLUMNS, **given: str) -> list[Any]:
    """Return the rows of a batch, without Spark."""
    options = topic_options({"namesrvAddr": broker.namesrv, **given}, is_stream=False)
    reader = TopicReader(options, schema)
    return rows_of(reader, reader.partitions())
