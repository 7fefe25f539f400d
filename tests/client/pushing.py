"""What the push consumer's tests share: an inbox, topics, messages to consume, offsets to look at.

In: a running system. Out: messages in it, and what consumers and brokers say. Every wait has a
limit.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.client.outcomes import Retry
from orbitmq.client.producer import Producer
from orbitmq.client.push import PushConsumer
from orbitmq.client.push_running import RunningPush
from orbitmq.wire.bodies_client import ConsumeFromWhere, MessageQueue
from tests.foreign.asking import await_claim, await_topic
from tests.foreign.judged import System
from tests.wire_client import WireClient

LIMIT_S = 50.0
LOOK_AGAIN_S = 0.02
BROKER_NAME = "broker-a"
MAKE_TOPIC, QUERY_OFFSET, MAX_OFFSET = 17, 14, 30
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

FreshName = Callable[[str], str]


def run(scenario: Coroutine[Any, Any, None], limit_s: float = LIMIT_S) -> None:
    """Run a scenario to its end; nothing but it may be left then."""

    async def alone() -> None:
        async with asyncio.timeout(limit_s):
            await scenario
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    asyncio.run(alone())


async def becomes(claim: Callable[[], bool], what: str, limit_s: float = 40.0) -> None:
    """Return when a claim is true; it is asked again and again."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while not claim():
        assert loop.time() < deadline_s, f"{what}: not so after {limit_s} s"
        await asyncio.sleep(LOOK_AGAIN_S)


class Inbox:
    """A handler that keeps what it gets; `act` may do something else with each message."""

    def __init__(self, act: Callable[[ReceivedMessage], object] | None = None) -> None:
        self.messages: list[ReceivedMessage] = []
        self.times_s: list[float] = []
        self._act = act

    async def __call__(self, message: ReceivedMessage) -> object:
        return self.take(message)

    def take(self, message: ReceivedMessage) -> object:
        """Take a message; safe in any thread."""
        self.times_s.append(time.monotonic())
        self.messages.append(message)
        return self._act(message) if self._act is not None else None

    @property
    def bodies(self) -> list[bytes]:
        """What came, in the order of its coming."""
        return [message.body for message in self.messages]

    async def holds(self, count: int, limit_s: float = 40.0) -> None:
        """Return when so many came, doubled ones included."""
        await becomes(lambda: len(self.messages) >= count, f"{count} messages came", limit_s)


def fail_first(message: ReceivedMessage) -> None:
    """Fail on what comes for the first time."""
    if not message.reconsume_times:
        raise Retry


def make_topic(system: System, topic: str, queue_count: int = 4) -> None:
    """Make a topic and wait until name server and broker know it."""
    with WireClient(system.broker) as client:
        made = client.ask(
            MAKE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queue_count,
            writeQueueNums=queue_count,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )
        assert made.code == 0, made.remark
    await_topic(system.namesrv, topic, BROKER_NAME)


def queue_of(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, BROKER_NAME, queue_id)


async def send(system: System, topic: str, bodies: Iterable[bytes], **fields: Any) -> None:
    """Send messages, spread over the topic's queues, or in order to the one of `queue_id`.

    Further `fields` are of each Message.
    """
    queue_id = fields.pop("queue_id", None)
    messages = [Message(topic, body, **fields) for body in bodies]
    async with Producer(system.namesrv, group="PG-push-tests") as producer:
        if queue_id is None:
            await asyncio.gather(*map(producer.submit, messages))
            return
        for message in messages:
            # One after the other: originals store what is under way together in any order.
            await producer.send(message, queue=queue_of(topic, queue_id))


def numbered(count: int, word: str = "m") -> list[bytes]:
    return [f"{word}-{number}".encode() for number in range(count)]


async def consumer_of(
    system: System, group: str, topic: str, handler: Any = None, /, **options: Any
) -> PushConsumer:
    """Return a consumer of one topic, from the beginning, that is not started yet."""
    options.setdefault("from_where", FIRST)
    selector = options.pop("selector", "*")
    consumer = PushConsumer(system.namesrv, group, handler, **options)
    await consumer.subscribe(topic, selector)
    return consumer


def inner(consumer: PushConsumer) -> RunningPush:
    """Return what is inside of a consumer that runs."""
    return consumer._started()


def committed(system: System, group: str, topic: str, queue_id: int = 0) -> int | None:
    """Return the offset that the broker has for a group, or None."""
    with WireClient(system.broker) as client:
        found = client.ask(QUERY_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id)
        return int(found.fields["offset"]) if found.code == 0 else None


def max_offset(system: System, topic: str, queue_id: int = 0) -> int:
    with WireClient(system.broker) as client:
        return int(client.ask(MAX_OFFSET, topic=topic, queueId=queue_id).fields["offset"])


def stored_count(system: System, topic: str, count: int, queue_id: int = 0) -> None:
    """Wait until a queue has so many messages."""
    await_claim(
        lambda: max_offset(system, topic, queue_id) >= count, f"{topic} has {count} messages", 20
    )
