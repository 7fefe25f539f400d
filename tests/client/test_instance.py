"""What producers and consumers share: heartbeats, goodbyes, connections, and nothing left over."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.client.instance import Instance, join
from orbitmq.client.remote import request
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import ClientStateError, RequestFailed
from orbitmq.wire.bodies_consume import ProducerConnections
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.headers_consume import GetProducerConnections
from tests.foreign.judged import System
from tests.net.running import open_descriptors

FreshName = Callable[[str], str]


class SomeProducer:
    """The least that joins an instance."""

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self._topic = topic

    def topics(self) -> list[str]:
        return [self._topic]


async def _joined(system: System, group: str, **options: Any) -> tuple[Instance, SomeProducer]:
    instance = await join(ClientSettings(namesrv=system.namesrv, **options))
    member = SomeProducer(group, "TBW102")
    instance.add_producer(member)
    await instance.routes.find("TBW102")
    return instance, member


async def _known_ids(instance: Instance, system: System, group: str) -> list[str]:
    """Return the client ids that the broker knows in a producer group."""
    asked = request(
        RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnections(producer_group=group)
    )
    try:
        answer = await instance.remote.ask(system.broker, asked)
    except RequestFailed:
        return []
    return [one.client_id for one in read_json(answer.body, ProducerConnections).connection_set]


def test_brokers_know_a_client_from_its_heartbeat_to_its_goodbye(
    system: System, fresh_name: FreshName
) -> None:
    group = fresh_name("PG")

    async def main() -> None:
        instance, member = await _joined(system, group)
        assert await instance.heartbeat() == 1
        assert await _known_ids(instance, system, group) == [instance.client_id]
        await instance.remove_producer(member)
        assert await _known_ids(instance, system, group) == []
        await instance.leave()

    asyncio.run(main())


def test_a_goodbye_beside_a_heartbeat_leaves_no_member_that_nobody_is(
    system: System, fresh_name: FreshName, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int]] = []

    async def main() -> None:
        instance, member = await _joined(system, fresh_name("PG"))
        assert await instance.heartbeat() == 1
        ask = instance.remote.ask

        async def noted(address: str, asked: Command, **options: Any) -> Command:
            told.append(("asked", asked.code))
            answer = await ask(address, asked, **options)
            told.append(("answered", asked.code))
            return answer

        monkeypatch.setattr(instance.remote, "ask", noted)
        beat = asyncio.create_task(instance.heartbeat())
        while not told:
            await asyncio.sleep(0)
        await instance.remove_producer(member)
        await beat
        await instance.leave()

    asyncio.run(main())
    beat, goodbye = int(RequestCode.HEART_BEAT), int(RequestCode.UNREGISTER_CLIENT)
    assert told.index(("answered", beat)) < told.index(("asked", goodbye))


def test_a_new_connection_is_introduced_without_waiting_for_the_next_heartbeat(
    system: System, fresh_name: FreshName
) -> None:
    group = fresh_name("PG")

    async def main() -> None:
        instance, member = await _joined(system, group)
        await instance.heartbeat()
        connection = instance.remote.peer(system.broker).connection
        assert connection is not None
        connection.drop("test")
        while not await _known_ids(instance, system, group):
            await asyncio.sleep(0.01)
        await instance.remove_producer(member)
        await instance.leave()

    asyncio.run(main())


def test_one_group_joins_an_instance_once(system: System, fresh_name: FreshName) -> None:
    group = fresh_name("PG")

    async def main() -> None:
        instance, _ = await _joined(system, group)
        with pytest.raises(ClientStateError, match=f"group {group} is running .* already"):
            instance.add_producer(SomeProducer(group, "TBW102"))
        await instance.leave()

    asyncio.run(main())


def test_instances_of_one_name_are_one(system: System) -> None:
    async def main() -> None:
        settings = ClientSettings(namesrv=system.namesrv, instance_name="shared")
        one, other = await asyncio.gather(join(settings), join(settings))
        assert one is other
        assert one.client_id.endswith("@shared")
        await one.leave()
        await one.routes.find("TBW102")  # the other one still uses it
        await other.leave()
        fresh = await join(settings)
        assert fresh is not one
        await fresh.leave()

    asyncio.run(main())


def test_instances_without_a_name_have_ids_of_their_own(system: System) -> None:
    async def main() -> None:
        settings = ClientSettings(namesrv=system.namesrv, unit_name="u1")
        one, other = await join(settings), await join(settings)
        assert one.client_id != other.client_id
        assert one.client_id.endswith("@u1")
        await one.leave()
        await other.leave()

    asyncio.run(main())


def test_nothing_is_left_of_an_instance(system: System, fresh_name: FreshName) -> None:
    group = fresh_name("PG")

    async def main() -> None:
        before = open_descriptors()
        instance, member = await _joined(system, group)
        await instance.heartbeat()
        await instance.remove_producer(member)
        await instance.leave()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert open_descriptors() == before

    asyncio.run(main())
