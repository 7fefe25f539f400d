"""No socket is left of a client that is closed, whatever its kind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from orbitmq.aio import Admin, ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer
from orbitmq.app import App
from tests.client.polling import collect
from tests.client.sites import Fresh, fill, make_topic, run
from tests.foreign.judged import System
from tests.net.running import open_descriptors

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
Using = Callable[[str, str, str], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def producing(namesrv: str, topic: str, group: str) -> AsyncIterator[None]:
    async with Producer(namesrv, group) as producer:
        await producer.send(Message(topic, b"x"))
        yield


@asynccontextmanager
async def pushing(namesrv: str, topic: str, group: str) -> AsyncIterator[None]:
    is_there = asyncio.Event()

    async def handle(_message: object) -> None:
        is_there.set()

    async with PushConsumer(namesrv, group, handle, from_where=FIRST) as consumer:
        await consumer.subscribe(topic)
        await is_there.wait()
        yield


@asynccontextmanager
async def pulling(namesrv: str, topic: str, group: str) -> AsyncIterator[None]:
    async with PullConsumer(namesrv, group, from_where=FIRST) as consumer:
        await consumer.subscribe(topic)
        await collect(consumer, 1)
        yield


@asynccontextmanager
async def administering(namesrv: str, topic: str, _group: str) -> AsyncIterator[None]:
    async with Admin(namesrv) as admin:
        assert (await admin.topic_stats(topic)).message_count == 1
        yield


@asynccontextmanager
async def applying(namesrv: str, topic: str, group: str) -> AsyncIterator[None]:
    bodies: asyncio.Queue[str] = asyncio.Queue()
    app = App(namesrv, group)

    @app.listener(topic, from_where=FIRST)
    async def note(text: str) -> None:
        bodies.put_nowait(text)

    async with app:
        assert await bodies.get() == "x"
        await app.send(topic, "y")
        assert await bodies.get() == "y"
        yield


@pytest.mark.parametrize("using", [producing, pushing, pulling, administering, applying])
def test_no_socket_is_left_of_a_closed_client(
    system: System, fresh_name: Fresh, using: Using
) -> None:
    queue = make_topic(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"x"])

    async def main() -> None:
        before = open_descriptors()
        async with using(system.namesrv, queue.topic, fresh_name("Group")):
            assert len(open_descriptors() - before) >= 2  # a name server's and a broker's
        assert open_descriptors() <= before

    run(main())
