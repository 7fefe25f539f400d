"""A user's program that uses every name of the asynchronous client, checked by mypy --strict.

In: a name server's address. Out: lines that say what happened. test_every_name checks and runs it.
"""

import asyncio
import sys
from collections.abc import Collection, Sequence
from typing import assert_type

from orbitmq.aio import (
    Admin,
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    Command,
    Compression,
    ConsistentHash,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeHook,
    DeadLetter,
    MachineRoomNearby,
    Message,
    MessageModel,
    MessageQueue,
    OffsetStore,
    Producer,
    PullConsumer,
    PullResult,
    PullStatus,
    PushConsumer,
    ReceivedMessage,
    Retry,
    RpcHook,
    Selector,
    SendContext,
    SendHook,
    SendResult,
    SendStatus,
    TlsClientSettings,
    random_queue,
)
from orbitmq.errors import MQError, SendUnknown

TOPIC = "EveryName"


class Counting:
    """All hooks in one."""

    def __init__(self) -> None:
        self.sends = self.requests = self.calls = 0

    def before(self, address: str, request: Command) -> None:
        self.requests += bool(address) and request.code > 0

    def after(self, address: str, request: Command, answer: Command) -> None:
        assert answer.opaque >= 0


class CountingSends:
    """What is sent."""

    def __init__(self) -> None:
        self.results: list[SendResult | None] = []

    def before(self, context: SendContext) -> None:
        context.memo["topic"] = context.queue.topic

    def after(self, context: SendContext) -> None:
        self.results.append(context.result)


class CountingCalls:
    """What is consumed."""

    def before_consume(self, context: ConsumeContext) -> None:
        context.notes["count"] = len(context.messages)

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.is_success or context.error is not None


class InMemory:
    """An offset store of our own."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    async def load(self) -> None:
        """Nothing is kept anywhere."""

    def update(self, queue: MessageQueue, offset: int, *, increases_only: bool = False) -> None:
        before = self._offsets.get(queue, offset)
        self._offsets[queue] = max(before, offset) if increases_only else offset

    def cached(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def read(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Nothing is kept anywhere."""

    def remove(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    def snapshot(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: place for queue, place in self._offsets.items() if queue.topic == topic}


class Rooms:
    """Everything is in one room."""

    def of_queue(self, queue: MessageQueue) -> str:
        return "room"

    def of_client(self, client_id: str) -> str:
        return "room"


class Everything:
    """A strategy of our own: all queues for everybody."""

    name = "EVERYTHING"

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        return list(queues)


def strategies(queues: Sequence[MessageQueue]) -> list[AllocateStrategy]:
    """Return one of each."""
    return [
        Averagely(),
        AveragelyByCircle(),
        ByConfig(list(queues)),
        ByMachineRoom(["room"]),
        ConsistentHash(virtual_nodes=4),
        MachineRoomNearby(Averagely(), Rooms()),
        Everything(),
    ]


async def send(namesrv: str) -> SendResult:
    """Send in all ways there are."""
    rpc: RpcHook = Counting()
    hook: SendHook = CountingSends()
    tls: TlsClientSettings | None = None
    async with Producer(
        namesrv, "every_name", tls=tls, compression=Compression.ZLIB, rpc_hooks=[rpc]
    ) as producer:
        producer.send_hooks.append(hook)
        try:
            result = await producer.send(Message(TOPIC, b"one", tag="paid", keys=["1"]), timeout=5)
        except SendUnknown as error:
            print(error.attempts)
            raise
        assert_type(result, SendResult)
        assert result.status is SendStatus.SEND_OK
        future = producer.submit(Message(TOPIC, b"two", properties={"amount": "3"}), key="k")
        assert_type(future, "asyncio.Future[SendResult]")
        await future
        await producer.send_oneway(Message(TOPIC, b"three"), queue=result.queue)
        await producer.send(Message(TOPIC, b"anywhere"), selector=random_queue)
        results = await producer.send_batch([Message(TOPIC, b"four"), Message(TOPIC, b"five")])
        assert_type(results, list[SendResult])
        queues = await producer.publish_queues(TOPIC)
        assert_type(queues, list[MessageQueue])
        await producer.flush()
    return result


async def push(namesrv: str) -> None:
    """Consume with a handler."""
    is_done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.reconsume_times > 3:
            raise DeadLetter("too often")
        if message.tag == "later":
            raise Retry(delay_level=1)
        is_done.set()

    hook: ConsumeHook = CountingCalls()
    store: OffsetStore = InMemory()
    consumer = PushConsumer(
        namesrv,
        "every_name_push",
        handle,
        from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        message_model=MessageModel.CLUSTERING,
        strategy=Averagely(),
        offset_store=store,
    )
    consumer.consume_hooks.append(hook)
    consumer.filter_hooks.append(lambda messages, queue: messages)
    await consumer.subscribe(TOPIC, Selector.tags("paid || later"))
    async with consumer:
        await asyncio.wait_for(is_done.wait(), 20)
        assert_type(consumer.queues(), list[MessageQueue])


async def loop(namesrv: str) -> None:
    """Consume in a loop."""
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with PushConsumer(namesrv, "every_name_loop", from_where=first) as consumer:
        await consumer.subscribe(TOPIC)
        async for message in consumer:
            assert_type(message, ReceivedMessage)
            break


async def pull(namesrv: str, queue: MessageQueue) -> None:
    """Poll, and pull."""
    async with PullConsumer(namesrv, "every_name_pull") as consumer:
        pulled = await consumer.pull(queue, 0)
        assert_type(pulled, PullResult)
        assert pulled.status is PullStatus.FOUND
        await consumer.assign([queue])
        await consumer.seek_to_begin(queue)
        messages = await consumer.poll(timeout=20)
        assert_type(messages, list[ReceivedMessage])
        await consumer.commit()


async def main(namesrv: str) -> None:
    """Use everything once."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(TOPIC, queue_count=1)
        result = await send(namesrv)
        await push(namesrv)
        await loop(namesrv)
        await pull(namesrv, result.queue)
        for strategy in strategies([result.queue]):
            print(strategy.name)
        stats = await admin.topic_stats(TOPIC)
        assert_type(stats.message_count, int)
        print("messages", stats.message_count)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except MQError as error:
        sys.exit(str(error))
