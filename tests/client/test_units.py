"""Unit mode on a running system: what a client says of itself reaches the topics that it makes."""

from collections.abc import Awaitable, Callable

import pytest

from orbitmq.client.admin import Admin
from orbitmq.client.message import Message
from orbitmq.client.producer import Producer
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.push import PushConsumer
from orbitmq.wire.command import Command
from tests.client.administering import administer, eventually
from tests.foreign.judged import System

Fresh = Callable[[str], str]


def _leave_alone(_address: str, _request: Command) -> None:
    """Be a hook, so that requests are written the way hooks want them."""


async def _send(producer: Producer, topic: str) -> None:
    await producer.send(Message(topic, b"x"))


async def _send_hooked(producer: Producer, topic: str) -> None:
    producer.remote.before_request.append(_leave_alone)
    await producer.send(Message(topic, b"x"))


async def _send_batch(producer: Producer, topic: str) -> None:
    await producer.send_batch([Message(topic, b"x")])


async def _send_oneway(producer: Producer, topic: str) -> None:
    await producer.send_oneway(Message(topic, b"x"))


@pytest.mark.parametrize("send", [_send, _send_hooked, _send_batch, _send_oneway])
def test_a_producer_in_unit_mode_made_topics_that_were_in_no_unit(
    system: System, fresh_name: Fresh, send: Callable[[Producer, str], Awaitable[None]]
) -> None:
    ours, other = fresh_name("Unit"), fresh_name("Plain")

    async def act(admin: Admin) -> None:
        for topic, unit_mode in ((other, False), (ours, True)):
            group = fresh_name("PG")
            async with Producer(system.namesrv, group, unit_mode=unit_mode) as producer:
                await send(producer, topic)

        async def listed() -> bool:
            return ours in await admin.unit_topics()

        await eventually(listed)
        assert other not in await admin.unit_topics()
        assert other in await admin.topics()

    administer(system, act)


@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer])
def test_the_retry_topic_of_a_consumer_in_unit_mode_is_subscribed_by_units(
    system: System, fresh_name: Fresh, kind: type[PushConsumer | PullConsumer]
) -> None:
    topic, ours, other = fresh_name("Topic"), fresh_name("Unit"), fresh_name("Plain")

    async def act(admin: Admin) -> None:
        await admin.create_topic(topic)
        for group, unit_mode in ((other, False), (ours, True)):
            consumer = kind(system.namesrv, group, unit_mode=unit_mode)
            await consumer.subscribe(topic)
            await consumer.start()
            await consumer.close()

        async def listed() -> bool:
            return f"%RETRY%{ours}" in await admin.unit_topics("subscribed")

        await eventually(listed)
        assert f"%RETRY%{ours}" in await admin.unit_topics("subscribed by others")
        for which in ("subscribed", "subscribed by others"):
            assert f"%RETRY%{other}" not in await admin.unit_topics(which)

    administer(system, act)
