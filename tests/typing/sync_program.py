"""A user's program that uses every name of the synchronous client, checked by mypy --strict.

In: a name server's address. Out: lines that say what happened. test_every_name checks and runs it.
"""

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import assert_type

import orbitmq
from orbitmq import (
    Admin,
    Averagely,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullResult,
    PushConsumer,
    ReceivedMessage,
    Retry,
    SendResult,
)
from orbitmq.errors import MQError

TOPIC = "EveryNameSync"


class Quiet:
    """Hooks of all kinds that do nothing."""

    def before(self, context: orbitmq.SendContext) -> None:
        context.memo["seen"] = True

    def after(self, context: orbitmq.SendContext) -> None:
        assert context.memo["seen"]

    def before_consume(self, context: orbitmq.ConsumeContext) -> None:
        context.notes["seen"] = True

    def after_consume(self, context: orbitmq.ConsumeContext) -> None:
        assert context.notes["seen"]


class Seeing:
    """An RPC hook."""

    def before(self, address: str, request: orbitmq.Command) -> None:
        assert address

    def after(self, address: str, request: orbitmq.Command, answer: orbitmq.Command) -> None:
        assert answer.is_response


def strategies(queues: Sequence[MessageQueue]) -> list[orbitmq.AllocateStrategy]:
    """Return some."""
    return [
        orbitmq.AveragelyByCircle(),
        orbitmq.ByConfig(list(queues)),
        orbitmq.ByMachineRoom(["room"]),
        orbitmq.ConsistentHash(),
    ]


def nearby(rooms: orbitmq.MachineRoomNearby | None = None) -> orbitmq.MachineRoomNearby | None:
    """Take what a program may bring."""
    return rooms


def stored(store: orbitmq.OffsetStore | None = None) -> orbitmq.OffsetStore | None:
    """Take what a program may bring."""
    return store


def send(namesrv: str) -> SendResult:
    """Send in all ways there are."""
    hook: orbitmq.SendHook = Quiet()
    rpc: orbitmq.RpcHook = Seeing()
    tls: orbitmq.TlsClientSettings | None = None
    producer = Producer(
        namesrv, "every_name", compression=orbitmq.Compression.LZ4, tls=tls, rpc_hooks=[rpc]
    )
    producer.send_hooks.append(hook)
    with producer:
        result = producer.send(Message(TOPIC, b"one", tag="paid"), timeout=5)
        assert_type(result, SendResult)
        assert result.status is orbitmq.SendStatus.SEND_OK
        future = producer.submit(Message(TOPIC, b"two"), queue=result.queue)
        assert_type(future, Future[SendResult])
        future.result(20)
        assert_type(producer.send_batch([Message(TOPIC, b"three")]), list[SendResult])
        producer.send_oneway(Message(TOPIC, b"four"))
        producer.send(Message(TOPIC, b"anywhere"), selector=orbitmq.random_queue)
        producer.flush()
    return result


def push(namesrv: str) -> None:
    """Consume with a handler, then in a loop."""
    first, is_done = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, threading.Event()

    def handle(message: ReceivedMessage) -> None:
        if message.tag == "later":
            raise Retry
        if message.tag == "never":
            raise orbitmq.DeadLetter("no")
        is_done.set()

    hook: orbitmq.ConsumeHook = Quiet()
    consumer = PushConsumer(
        namesrv,
        "every_name_sync",
        handle,
        from_where=first,
        strategy=Averagely(),
        message_model=orbitmq.MessageModel.CLUSTERING,
        offset_store=stored(),
    )
    consumer.consume_hooks.append(hook)
    consumer.subscribe(TOPIC, orbitmq.Selector.tags("paid"))
    with consumer:
        assert is_done.wait(20)
    with PushConsumer(namesrv, "every_name_sync_loop", from_where=first) as looped:
        looped.subscribe(TOPIC)
        for message in looped:
            assert_type(message, ReceivedMessage)
            break


def main(namesrv: str) -> None:
    """Use everything once."""
    with Admin(namesrv) as admin:
        admin.create_topic(TOPIC, queue_count=1)
        result = send(namesrv)
        push(namesrv)
        with PullConsumer(namesrv, "every_name_sync_pull") as consumer:
            pulled = consumer.pull(result.queue, 0)
            assert_type(pulled, PullResult)
            assert pulled.status is orbitmq.PullStatus.FOUND
            consumer.assign([result.queue])
            consumer.seek_to_begin(result.queue)
            assert_type(consumer.poll(timeout=20), list[ReceivedMessage])
        print([strategy.name for strategy in strategies([result.queue])], nearby())
        print("messages", admin.topic_stats(TOPIC).message_count)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except MQError as error:
        sys.exit(str(error))
