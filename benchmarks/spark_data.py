"""What the Spark benchmark reads: a topic in a running broker, its store folder, and Parquet.

In: how many rows. Out: a `Place` with all three of them, holding the same messages. Rules:

1. Bodies have 1 KiB and compress to about half, as JSON does; a message has a key, a tag, an id.
2. The broker is `orbitmq up` in a process of its own, so that its CPU can be counted. What is
   written goes to another one: the log that is read stays as it is.
"""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.servers import Server
from orbitmq.aio import Message, Producer

BODY_SIZE = 1_024
BATCH = 64
IN_FLIGHT = 16
TOPIC = "SparkBench"
SEED = 7


@dataclass(frozen=True, slots=True)
class Place:
    """Where the rows are."""

    source: Server
    sink: Server
    store: Path
    parquet: Path
    row_count: int
    """How many there are to be read."""
    sink_row_count: int
    """How many are written at a time, which takes longer."""


def fill(
    spark: SparkSession,
    source: Server,
    sink: Server,
    folder: Path,
    row_count: int,
    sink_row_count: int,
) -> Place:
    """Send the rows to a broker whose files are in `folder`, and write them as Parquet, too."""
    asyncio.run(_send(source.namesrv, row_count))
    store, parquet = folder / "data" / "store", folder / "parquet"
    place = Place(source, sink, store, parquet, row_count, sink_row_count)
    topic = spark.read.format("rocketmq").option("namesrvAddr", source.namesrv)
    frame = topic.option("topic", TOPIC).load()
    frame.write.option("compression", "zstd").parquet(str(place.parquet))
    stored = spark.read.parquet(str(place.parquet)).count()
    if stored != row_count:
        raise RuntimeError(f"{stored} of {row_count} rows came through the broker")
    return place


async def _send(namesrv: str, row_count: int) -> None:
    chance = random.Random(SEED)
    numbers = iter(range(0, row_count, BATCH))

    async def work(producer: Producer) -> None:
        for first in numbers:
            batch = range(first, min(first + BATCH, row_count))
            await producer.send_batch([_message(number, chance) for number in batch], timeout=60)

    async with Producer(namesrv, group="spark-bench") as producer:
        await asyncio.gather(*(work(producer) for _ in range(IN_FLIGHT)))


def _message(number: int, chance: random.Random) -> Message:
    body = chance.randbytes(BODY_SIZE // 2).hex().encode()
    return Message(TOPIC, body, tag=f"Tag{number % 7}", keys=[f"order{number}"])
