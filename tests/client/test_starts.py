"""Starts of every client that meet another start or a close: one wins, and nothing is left."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbitmq.aio import Admin, Producer, PullConsumer, PushConsumer
from orbitmq.client.instance import join
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import ClientStateError
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_namesrv import BrokerData, TopicRoute
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, reply_to
from tests.client.name_server_double import NameServerDouble, name_server_double, route_data
from tests.foreign.judged import System
from tests.net.running import serving

FreshName = Callable[[str], str]
KINDS = [Producer, PushConsumer, PullConsumer]


def _nothing_is_left() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_is_taken_is_told_as_such(
    system: System, fresh_name: FreshName, kind: Any
) -> None:
    group = fresh_name("Group")

    async def main() -> None:
        one = kind(system.namesrv, group, instance_name="one")
        other = kind(system.namesrv, group, instance_name="one")
        await one.start()
        with pytest.raises(ClientStateError, match=f"group {group} is running in this instance"):
            await other.start()
        await other.close()
        await one.close()
        assert _nothing_is_left()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_two_starts_at_once_are_one_and_a_refusal(
    system: System, fresh_name: FreshName, kind: Any
) -> None:
    async def main() -> None:
        client = kind(system.namesrv, fresh_name("Group"))
        results = await asyncio.gather(client.start(), client.start(), return_exceptions=True)
        assert [isinstance(result, ClientStateError) for result in results] == [False, True]
        await client.close()
        assert _nothing_is_left()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_is_closed_while_it_starts_does_not_run(
    system: System, fresh_name: FreshName, kind: Any
) -> None:
    async def main() -> None:
        client = kind(system.namesrv, fresh_name("Group"))
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ClientStateError, match="closed while it started"):
            await starting
        assert _nothing_is_left()

    asyncio.run(main())


@asynccontextmanager
async def _silent_broker() -> AsyncIterator[tuple[NameServerDouble, asyncio.Event]]:
    """A cluster whose broker does not answer heartbeats; the event says that one has come."""
    has_beaten = asyncio.Event()

    def handle(request: Command, _connection: Connection) -> Result:
        if request.code == RequestCode.HEART_BEAT:
            has_beaten.set()
            return None
        return reply_to(request)

    async with serving(handle) as site, name_server_double() as namesrv:
        data = BrokerData(cluster="C", broker_name="a", broker_addrs={0: site.address})
        queues = route_data("a").queue_datas
        namesrv.routes["T"] = TopicRoute(broker_datas=[data], queue_datas=queues)
        yield namesrv, has_beaten


def test_a_start_that_is_cancelled_in_its_heartbeat_leaves_the_shared_instance() -> None:
    """Its group stayed taken, and brokers went on to hear of it."""

    async def main() -> None:
        async with _silent_broker() as (namesrv, has_beaten):
            settings = ClientSettings(namesrv=namesrv.address, instance_name="shared")
            instance = await join(settings)
            await instance.routes.find("T")
            producer = Producer(namesrv.address, "shop", instance_name="shared")
            starting = asyncio.create_task(producer.start())
            await has_beaten.wait()
            starting.cancel()
            await asyncio.wait([starting])
            assert starting.cancelled()
            assert instance.producers == {}
            await instance.leave()

    asyncio.run(main())


def test_an_admin_that_is_closed_while_it_starts_leaves_nothing(system: System) -> None:
    async def main() -> None:
        admin = Admin(system.namesrv)
        starting = asyncio.create_task(admin.start())
        await asyncio.sleep(0)
        await admin.close()
        with pytest.raises(ClientStateError, match="closed while it started"):
            await starting
        assert _nothing_is_left()

    asyncio.run(main())
