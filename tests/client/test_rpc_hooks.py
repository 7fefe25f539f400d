"""RPC hooks: of every client, from its first request on."""

import asyncio
from collections.abc import Callable

import pytest

import orbitmq
from orbitmq.aio import Admin, Command, Message, Producer, PullConsumer, PushConsumer
from orbitmq.client.instance import join
from orbitmq.client.settings import ClientSettings
from orbitmq.wire.codes import RequestCode
from tests.foreign.judged import System

FreshName = Callable[[str], str]
ROUTE, HEART_BEAT, SEND = (
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.HEART_BEAT,
    RequestCode.SEND_MESSAGE_V2,
)


class Seen:
    """A hook that remembers codes and adds a field."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answered: list[int] = []

    def before(self, _address: str, request: Command) -> None:
        request.fields["SeenBy"] = "test"
        self.asked.append(request.code)

    def after(self, _address: str, request: Command, answer: Command) -> None:
        assert request.fields["SeenBy"] == "test"
        assert answer.is_response
        self.answered.append(request.code)


@pytest.mark.parametrize("kind", [Producer, PushConsumer, PullConsumer])
def test_hooks_see_every_client_from_its_first_request_on(
    system: System,
    fresh_name: FreshName,
    kind: type[Producer] | type[PushConsumer] | type[PullConsumer],
) -> None:
    seen, group = Seen(), fresh_name("Group")

    async def main() -> None:
        client = kind(system.namesrv, group, rpc_hooks=[seen])
        async with client:
            if isinstance(client, Producer):
                await client.send(Message(fresh_name("Topic"), b"x"))
            else:
                await client.subscribe("TBW102")

    asyncio.run(main())
    assert seen.asked[0] == ROUTE
    assert {HEART_BEAT, ROUTE} <= set(seen.asked)
    assert (SEND in seen.answered) is (kind is Producer)
    assert set(seen.answered) <= set(seen.asked)


def test_hooks_see_what_an_administrator_asks(system: System) -> None:
    seen = Seen()

    async def main() -> None:
        async with Admin(system.namesrv, rpc_hooks=[seen]) as admin:
            await admin.clusters()

    asyncio.run(main())
    assert seen.answered


def test_hooks_of_a_synchronous_client_are_called_too(system: System) -> None:
    seen = Seen()
    with orbitmq.Admin(system.namesrv, rpc_hooks=[seen]) as admin:
        admin.clusters()
    assert seen.answered


def test_members_of_one_instance_share_their_hooks_and_each_is_called_once(system: System) -> None:
    one, other = Seen(), Seen()

    async def main() -> None:
        instances = [
            await join(
                ClientSettings(namesrv=system.namesrv, instance_name="hooked", rpc_hooks=hooks)
            )
            for hooks in ([one], [one, other])
        ]
        await instances[0].routes.find("TBW102")
        for instance in instances:
            await instance.leave()

    asyncio.run(main())
    assert one.asked == other.asked == [ROUTE]
