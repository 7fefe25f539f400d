"""What producers and consumers of one name share: from the first start on, and by time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from orbitmq.aio import Message, Producer, PullConsumer, PushConsumer
from orbitmq.client import instance as instances
from orbitmq.client.instance import INNER_PRODUCER_GROUP, join
from orbitmq.client.settings import ClientSettings
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_client import (
    ConsumerData,
    Heartbeat,
    MessageModel,
    SubscriptionData,
    read_heartbeat,
)
from orbitmq.wire.bodies_namesrv import BrokerData, TopicRoute
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, reply_to
from tests.client.name_server_double import name_server_double, route_data
from tests.client.pushing import FreshName, Inbox, becomes, consumer_of, inner, make_topic, run
from tests.client.sites import fill
from tests.client.sites import make_topic as make_queues
from tests.client.test_instance import SomeProducer
from tests.client.test_push_asked import ask
from tests.foreign.judged import System
from tests.net.running import open_descriptors, serving, until

RUNNING_INFO = 307


@dataclass
class Listening:
    """A broker that notes the heartbeats it gets."""

    name: str
    beats: list[Heartbeat] = field(default_factory=list)
    address: str = ""

    def handle(self, request: Command, _connection: Connection) -> Result:
        if request.code == RequestCode.HEART_BEAT:
            self.beats.append(read_heartbeat(request.body))
        return reply_to(request)


@asynccontextmanager
async def listening(name: str) -> AsyncIterator[Listening]:
    broker = Listening(name)
    async with serving(broker.handle) as site:
        broker.address = site.address
        yield broker


def route_to(*brokers: Listening) -> TopicRoute:
    names = [broker.name for broker in brokers]
    datas = [
        BrokerData(cluster="C", broker_name=broker.name, broker_addrs={0: broker.address})
        for broker in brokers
    ]
    return TopicRoute(broker_datas=datas, queue_datas=route_data(*names).queue_datas)


class SomeConsumer:
    """What a heartbeat needs of a consumer; brokers here ask nothing of it."""

    group = "billing"

    def topics(self) -> Collection[str]:
        return ["T"]

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            message_model=MessageModel.BROADCASTING,
            subscription_data_set=[SubscriptionData(topic="T", sub_string="paid")],
        )


def test_all_brokers_hear_every_30_s_who_consumes_what_and_new_ones_are_connected_to() -> None:
    settings = ClientSettings()
    assert (settings.heartbeat_interval_s, settings.route_interval_s) == (30.0, 30.0)

    async def main() -> None:
        async with (
            listening("a") as one,
            listening("b") as other,
            listening("c") as late,
            name_server_double(T=route_to(one, other)) as namesrv,
        ):
            often = ClientSettings(
                namesrv=namesrv.address, heartbeat_interval_s=0.05, route_interval_s=0.05
            )
            instance = await join(often)
            instance.add_consumer(SomeConsumer())  # type: ignore[arg-type]  # brokers ask nothing
            await instance.routes.find("T")
            await until(lambda: min(len(one.beats), len(other.beats)) >= 3)
            assert not late.beats
            namesrv.routes["T"] = route_to(one, other, late)
            await until(lambda: late.beats)
            await instance.leave()
            for beat in (one.beats[-1], other.beats[-1], late.beats[-1]):
                (consumer,) = beat.consumer_data_set
                (subscription,) = consumer.subscription_data_set
                assert beat.client_id == instance.client_id
                assert (consumer.group_name, subscription.topic) == ("billing", "T")
                assert subscription.sub_string == "paid"
                assert consumer.message_model is MessageModel.BROADCASTING
                assert [each.group_name for each in beat.producer_data_set] == [
                    INNER_PRODUCER_GROUP
                ]

    asyncio.run(main())


def test_producers_speak_to_masters_only_and_consumers_to_slaves_as_well() -> None:
    async def main() -> None:
        async with (
            listening("a") as master,
            listening("a") as slave,
            name_server_double(T=route_to(master)) as namesrv,
        ):
            namesrv.routes["T"].broker_datas[0].broker_addrs[1] = slave.address
            instance = await join(ClientSettings(namesrv=namesrv.address))
            instance.add_producer(SomeProducer("shop", "T"))
            await instance.routes.find("T")
            assert await instance.heartbeat() == 1
            assert (len(master.beats), len(slave.beats)) == (1, 0)
            assert instance.remote.idle_addresses() == {master.address, namesrv.address}
            instance.add_consumer(SomeConsumer())  # type: ignore[arg-type]  # brokers ask nothing
            assert await instance.heartbeat() == 2
            assert (len(master.beats), len(slave.beats)) == (2, 1)
            await instance.leave()

    asyncio.run(main())


def test_heartbeats_to_a_broker_go_one_after_the_other_and_the_last_one_has_the_newest() -> None:
    under_way: list[int] = []

    async def main() -> None:
        async with listening("a") as broker, name_server_double(T=route_to(broker)) as namesrv:
            instance = await join(ClientSettings(namesrv=namesrv.address))
            instance.add_consumer(SomeConsumer())  # type: ignore[arg-type]  # brokers ask nothing
            await instance.routes.find("T")
            instance.remote.before_request.append(lambda _address, _request: under_way.append(1))
            instance.remote.after_answer.append(lambda *_words: under_way.append(-1))
            first = asyncio.create_task(instance.heartbeat())
            await asyncio.sleep(0)
            changed = SomeConsumer()
            changed.group = "shipping"
            instance.add_consumer(changed)  # type: ignore[arg-type]  # brokers ask nothing
            assert await asyncio.gather(first, instance.heartbeat(), instance.heartbeat())
            await instance.leave()
            assert under_way[:4] == [1, -1, 1, -1]
            assert len(broker.beats[-1].consumer_data_set) == 2

    asyncio.run(main())


def test_a_changed_route_reaches_producers_and_consumers_and_the_log_and_an_equal_one_nobody(
    system: System, fresh_name: FreshName, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)
    changed = f"the route of topic {topic} has changed"

    async def main() -> None:
        shared = {"instance_name": group}
        async with (
            Producer(system.namesrv, group, instance_name=group) as producer,
            await consumer_of(system, group, topic, Inbox(), **shared) as consumer,
        ):
            assert len(await producer.publish_queues(topic)) == 2
            await becomes(lambda: len(_of(consumer, topic)) == 2, "it has its queues")
            with caplog.at_level(logging.INFO, "orbitmq.client.routes"):
                instance = inner(consumer).instance
                await instance.refresh_routes()
                assert changed not in caplog.text
                await asyncio.to_thread(make_topic, system, topic, 3)
                await becomes_so(instance, topic, 3)
            assert len(await producer.publish_queues(topic)) == 3
            await becomes(lambda: len(_of(consumer, topic)) == 3, "it has the new queue")
            assert "read 2, write 2" in caplog.text
            assert "to broker-a" in caplog.text
            assert caplog.text.count(changed) == 1

    run(main())


def _of(consumer: PushConsumer, topic: str) -> list[int]:
    return [queue.queue_id for queue in consumer.queues() if queue.topic == topic]


async def becomes_so(instance: instances.Instance, topic: str, count: int) -> None:
    """Refresh routes until a topic has so many queues: originals tell name servers later."""
    while len((await instance.routes.find(topic)).subscribe_queues) != count:
        await instance.refresh_routes()
        await asyncio.sleep(0.02)


def test_made_is_not_started_and_the_first_start_makes_the_client_of_its_name(
    system: System, fresh_name: FreshName
) -> None:
    group, topic = fresh_name("group"), fresh_name("Topic")
    make_topic(system, topic)
    before = open_descriptors()
    consumers = [
        kind(system.namesrv, f"{group}{number}", instance_name=group)
        for number, kind in enumerate((PushConsumer, PullConsumer))
    ]
    assert not instances._shared
    assert open_descriptors() == before

    async def main() -> None:
        first = Producer(system.namesrv, group, instance_name=group)
        assert not instances._shared
        await first.start()
        (shared,) = instances._shared.values()
        timers = list(shared._timers)
        for consumer in consumers:
            await consumer.start()
        assert list(instances._shared.values()) == [shared]
        assert shared._timers == timers
        assert (len(shared.producers), len(shared.consumers)) == (1, 2)
        assert shared.client_id.endswith(f"@{group}")
        await first.send(Message(topic, b"x"))
        assert shared.routes.known(topic) is not None
        for client in (first, *consumers):
            await client.close()
        assert not instances._shared

    run(main())


def test_brokers_ask_every_kind_of_consumer_the_same(system: System, fresh_name: FreshName) -> None:
    pushing, pulling = fresh_name("group"), fresh_name("group")
    queue = make_queues(system, fresh_name("Topic"), 1)[0]
    fill(system, queue, [b"one", b"two"])

    async def main() -> None:
        inbox = Inbox()
        options = {"instance_name": pushing}
        async with (
            await consumer_of(system, pushing, queue.topic, inbox, **options) as push,
            PullConsumer(system.namesrv, pulling, instance_name=pushing) as pull,
        ):
            await pull.subscribe(queue.topic)
            for group, kind in ((pushing, b"PASSIVELY"), (pulling, b"ACTIVELY")):
                fields = {"consumerGroup": group, "clientId": push.client_id}
                told = await asyncio.to_thread(ask, system, RUNNING_INFO, **fields)
                assert b"CONSUME_" + kind in told
                assert queue.topic.encode() in told
            await inbox.holds(2)

    run(main())
