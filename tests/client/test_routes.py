"""Routes: the queues and addresses in them, and what is said when there is none."""

import asyncio

import msgspec
import pytest

from orbitmq.client.instance import join
from orbitmq.client.routes import route_of, template_route
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import BrokerNotFound, RouteNotFound
from orbitmq.wire.bodies_client import MessageQueue
from tests.client.name_server_double import name_server_double, route_data
from tests.client.test_instance import SomeProducer


def test_queues_are_in_the_order_of_brokers_and_ids() -> None:
    route = route_of("T", route_data("b", "a", queues=2))
    expected = tuple(MessageQueue("T", name, number) for name in "ab" for number in range(2))
    assert route.publish_queues == expected
    assert route.subscribe_queues == expected


@pytest.mark.parametrize(("perm", "sent", "read"), [(2, 4, 0), (4, 0, 4), (6, 4, 4), (0, 0, 0)])
def test_permissions_say_which_queues_can_be_used(perm: int, sent: int, read: int) -> None:
    route = route_of("T", route_data("a", perm=perm))
    assert (len(route.publish_queues), len(route.subscribe_queues)) == (sent, read)


def test_a_broker_without_its_master_is_read_from_but_not_sent_to() -> None:
    route = route_of("T", route_data("a", broker_id=1))
    assert route.publish_queues == ()
    assert len(route.subscribe_queues) == 4


def test_an_order_configuration_fixes_the_queues() -> None:
    data = msgspec.structs.replace(route_data("a", "b"), order_topic_conf="b:1;a:2")
    queues = route_of("T", data).publish_queues
    assert [(queue.broker_name, queue.queue_id) for queue in queues] == [
        ("b", 0),
        ("a", 0),
        ("a", 1),
    ]


def test_a_topic_to_be_made_gets_no_more_queues_than_the_template_has() -> None:
    assert len(template_route("T", route_data("a", queues=8), 4).publish_queues) == 4
    assert len(template_route("T", route_data("a", queues=3), 4).publish_queues) == 3


def test_those_who_ask_at_once_share_one_request() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            await asyncio.gather(*(instance.routes.find("T") for _ in range(20)))
            await instance.leave()
            assert server.asked == ["T"]

    asyncio.run(main())


def test_no_route_explains_itself() -> None:
    async def main() -> None:
        async with name_server_double(Other=route_data("broker-a", "broker-b")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            with pytest.raises(RouteNotFound) as caught:
                await instance.routes.find("Orders")
            await instance.leave()
            assert caught.value.name_servers == (server.address,)
            assert server.address in str(caught.value)
            assert "the brokers broker-a, broker-b but not this topic" in str(caught.value)
            assert "orbitmq topic create Orders" in str(caught.value)

    asyncio.run(main())


def test_no_route_says_that_no_broker_is_there() -> None:
    async def main() -> None:
        async with name_server_double() as server:
            instance = await join(ClientSettings(namesrv=server.address))
            for queue_count in (0, 4):
                with pytest.raises(RouteNotFound, match=r"no broker has registered.*start one"):
                    await instance.routes.find("Orders", queue_count=queue_count)
            await instance.leave()

    asyncio.run(main())


def test_no_route_says_when_topics_are_not_made_by_sending() -> None:
    async def main() -> None:
        async with name_server_double(Other=route_data("broker-a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            with pytest.raises(RouteNotFound, match="autoCreateTopicEnable=false"):
                await instance.routes.find("Orders", queue_count=4)
            await instance.leave()
            assert server.asked == ["Orders", "TBW102"]

    asyncio.run(main())


def test_a_topic_that_exists_by_now_is_no_template_any_more() -> None:
    async def main() -> None:
        async with name_server_double(TBW102=route_data("a", queues=8)) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            assert (await instance.routes.find("T", queue_count=4)).is_template
            server.routes["T"] = route_data("a", queues=2)
            route = await instance.routes.find("T")
            await instance.leave()
            assert not route.is_template
            assert len(route.subscribe_queues) == 2

    asyncio.run(main())


def test_watchers_hear_of_changed_routes_only() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            heard: list[str] = []
            instance.routes.watch(heard.append)
            await instance.routes.find("T")
            await instance.routes.refresh("T")
            server.routes["T"] = route_data("a", "b")
            await instance.routes.refresh("T")
            await instance.leave()
            assert heard == ["T", "T"]

    asyncio.run(main())


def test_a_route_that_is_gone_stays_in_use() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            await instance.routes.find("T")
            del server.routes["T"]
            await instance.routes.refresh_all(["T"])
            route = instance.routes.known("T")
            await instance.leave()
            assert route is not None
            assert len(route.publish_queues) == 4

    asyncio.run(main())


def test_a_broker_that_no_route_has_is_looked_up_again_and_then_named() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            with pytest.raises(BrokerNotFound, match="topic T has no address for broker gone"):
                await instance.routes.master_address(MessageQueue("T", "gone", 0))
            address = await instance.routes.master_address(MessageQueue("T", "a", 0))
            await instance.leave()
            assert address == "127.0.0.1:9000"

    asyncio.run(main())


def test_a_broker_that_has_moved_gets_heartbeats_where_it_is_now() -> None:
    """The route of a topic that nobody uses any more still had its old address."""

    async def main() -> None:
        async with name_server_double(T=route_data("a"), U=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            instance.add_producer(SomeProducer("PG", "T"))
            await instance.routes.find("T")
            await instance.routes.find("U")
            server.routes["T"] = moved = route_data("z", "a")
            del server.routes["U"]
            await instance.refresh_routes()
            addresses = instance.broker_addresses()
            await instance.leave()
            assert addresses == {broker.broker_addrs[0] for broker in moved.broker_datas}

    asyncio.run(main())


def test_routes_that_nobody_uses_are_forgotten_after_a_round() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a"), U=route_data("b")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            instance.add_producer(SomeProducer("PG", "T"))
            await instance.routes.find("T")
            await instance.routes.find("U")
            await instance.refresh_routes()
            assert instance.routes.known("U") is not None  # it was used a moment ago
            await instance.refresh_routes()
            assert instance.routes.known("U") is None
            assert instance.routes.known("T") is not None
            await instance.leave()

    asyncio.run(main())


def test_a_template_whose_broker_is_gone_is_taken_anew() -> None:
    """A topic that no broker has made yet would be sent to the gone broker for ever."""

    async def main() -> None:
        async with name_server_double(TBW102=route_data("a")) as server:
            instance = await join(ClientSettings(namesrv=server.address))
            instance.add_producer(SomeProducer("PG", "T"))
            await instance.routes.find("T", queue_count=4)
            server.routes["TBW102"] = route_data("b")
            await instance.refresh_routes()
            route = instance.routes.known("T")
            await instance.leave()
            assert route is not None
            assert {queue.broker_name for queue in route.publish_queues} == {"b"}

    asyncio.run(main())
