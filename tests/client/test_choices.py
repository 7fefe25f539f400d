"""What programs choose: topics as a map, queues by a function, tags, properties, keys."""

import asyncio
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from orbitmq.aio import (
    Command,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    Selector,
    TlsClientSettings,
    random_queue,
)
from orbitmq.app import App
from orbitmq.client.consume_hooks import ConsumeReturn
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import Retry
from orbitmq.client.queue_choice import queue_of_key
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import LocalProtocolError, SettingError
from tests.behaviour.test_filters import changed
from tests.client.producing import stored
from tests.client.pushing import (
    FIRST,
    FreshName,
    Inbox,
    becomes,
    consumer_of,
    make_topic,
    run,
    send,
)
from tests.client.test_push_concurrent import Witness
from tests.foreign.judged import System

KINDS = [PushConsumer, PullConsumer]


@pytest.mark.parametrize("kind", KINDS)
def test_subscriptions_may_be_given_as_a_map(
    system: System, fresh_name: FreshName, kind: Any
) -> None:
    paid, all_of, priced = (fresh_name("Topic") for _ in range(3))
    wanted = {paid: "paid || free", all_of: "*", priced: Selector("price > 3", "SQL92")}
    for topic in wanted:
        make_topic(system, topic, 1)

    async def main() -> None:
        async with kind(
            system.namesrv, fresh_name("group"), subscriptions=wanted, from_where=FIRST
        ) as consumer:
            for tag in ("paid", "open", "free"):
                await send(system, paid, [tag.encode()], tag=tag)
            await send(system, all_of, [b"any"])
            for price in ("2", "4"):
                await send(system, priced, [b"%s" % price.encode()], properties={"price": price})
            found = []
            async for message in consumer:
                found.append(message.body)
                if len(found) == 4:
                    break
        assert sorted(found) == [b"4", b"any", b"free", b"paid"]

    with changed(system, enablePropertyFilter="true"):
        run(main())


def test_push_and_pull_consumers_are_configured_by_the_same_client_settings() -> None:
    options: dict[str, Any] = {
        "brokers": "127.0.0.1:2",
        "namespace": "shop",
        "instance_name": "one",
        "unit_name": "u",
        "client_ip": "10.0.0.1",
        "tls": TlsClientSettings(checks_server=False),
        "request_timeout_s": 7.0,
        "route_interval_s": 8.0,
        "heartbeat_interval_s": 9.0,
        "namesrv_lookup": "http://127.0.0.1:1/list",
        "use_vip_channel": True,
        "rpc_hooks": (RpcHookOfNobody(),),
    }
    assert set(options) | {"namesrv"} == set(ClientSettings.__struct_fields__)
    for kind in (Producer, *KINDS):
        settings = kind("127.0.0.1:1", "group", **options).settings
        assert settings.namesrv == "127.0.0.1:1"
        assert {name: getattr(settings, name) for name in options} == options


class RpcHookOfNobody:
    """A hook that does nothing."""

    def before(self, address: str, request: Command) -> None:
        """See a request."""

    def after(self, address: str, request: Command, answer: Command) -> None:
        """See an answer."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_with_what_cannot_be_subscribed_is_refused_when_the_consumer_is_made(
    kind: Any,
) -> None:
    for wanted in ({"a b": "*"}, {"orders": "||"}):
        with pytest.raises(LocalProtocolError):
            kind("127.0.0.1:1", "billing", subscriptions=wanted)


def test_a_listener_with_a_map_of_topics_is_refused() -> None:
    app = App("127.0.0.1:1")
    with pytest.raises(SettingError, match="one function for each topic"):
        app.listener("orders", subscriptions={"bills": "*"})(lambda body: None)


def by_weight(weight: int, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Choose by the queues, the message and an argument."""
    return queues[(weight + int(message.body)) % len(queues)]


def test_a_queue_is_chosen_by_a_function_by_a_hash_or_at_random(
    system: System, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    make_topic(system, topic, 4)

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            queues = await producer.publish_queues(topic)
            for weight in (0, 3):
                chosen = partial(by_weight, weight)
                sent = await producer.send(Message(topic, b"2"), selector=chosen)
                assert sent.queue == queues[(weight + 2) % 4]
            hashed = await producer.send(Message(topic, b"x"), key="order-1")
            assert hashed.queue == queue_of_key(queues, "order-1")
            results = await asyncio.gather(
                *(producer.send(Message(topic, b"x"), selector=random_queue) for _ in range(80))
            )
            ids = [result.queue.queue_id for result in results]
            assert set(ids) == {0, 1, 2, 3}
            assert any((one + 1) % 4 != two for one, two in itertools.pairwise(ids))  # not in turn

    run(main())


def test_a_message_gets_its_tag_when_it_is_made_or_later_and_properties_by_name(
    system: System, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        first, later = Message(topic, b"x", tag="paid"), Message(topic, b"x")
        later.tag = "shipped"
        later.properties["region"] = "north"
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            results = [await producer.send(message) for message in (first, later)]
        found = stored(system.broker, results)
        assert [message.tag for message in found] == ["paid", "shipped"]
        assert found[1].properties["region"] == "north"
        assert "region" not in found[0].properties

    run(main())


def test_keys_that_share_a_queue_are_told_apart_by_the_message(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 2)
    keys = ["order-1", "order-3", "order-5"]
    steps = [(step, key) for step in range(4) for key in keys]

    async def main() -> None:
        async with Producer(system.namesrv, group=fresh_name("PG")) as producer:
            sent = [
                await producer.send(Message(topic, b"%d" % step, sharding_key=key))
                for step, key in steps
            ]
        assert len({result.queue for result in sent}) < len(keys)
        inbox = Inbox()
        async with await consumer_of(system, group, topic, inbox, is_orderly=True):
            await inbox.holds(len(steps))
        seen: dict[str, list[bytes]] = {key: [] for key in keys}
        for message in inbox.messages:
            seen[message.sharding_key].append(message.body)
        assert seen == {key: [b"0", b"1", b"2", b"3"] for key in keys}

    run(main())


def test_a_call_that_takes_too_long_is_called_so_and_its_status_stays(
    system: System, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("group")
    make_topic(system, topic, 1)

    async def main() -> None:
        async def slow(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.15)
            if message.body != b"good":
                raise Retry()

        witness = Witness()
        await send(system, topic, [b"good", b"bad"], queue_id=0)
        options = {"consume_timeout_s": 0.1, "consume_threads": 1}
        consumer = await consumer_of(system, group, topic, slow, **options)
        consumer.consume_hooks.append(witness)
        async with consumer:
            await becomes(lambda: len(witness.seen) >= 4, "two calls were seen")
        assert witness.seen[1] == ("after", True, ConsumeReturn.TIME_OUT)
        assert witness.seen[3] == ("after", False, ConsumeReturn.TIME_OUT)

    run(main())
