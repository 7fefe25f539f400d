"""Polls for tests of pull consumers."""

import asyncio

from orbitmq.client.message import ReceivedMessage
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.wire.bodies_client import ConsumeFromWhere, MessageQueue

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"%03d" % number for number in range(start, start + count)]


async def collect(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    """Poll until there are so many messages; the time limit is the test's."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += await consumer.poll()
    assert len(found) == count
    return found


async def turned(consumer: PullConsumer, queues: list[MessageQueue]) -> None:
    """Wait until a consumer has exactly these queues."""
    while consumer.assignment() != sorted(queues):
        await asyncio.sleep(0)
        await consumer.poll(0.05)
