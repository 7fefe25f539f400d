"""What name servers are told, when, and what becomes of their answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
import pytest

from orbitmq.broker import registration as registration_module
from orbitmq.broker.registration import Identity, Registration
from orbitmq.config import BrokerSettings
from orbitmq.net.connection import Connection, Result
from orbitmq.net.later import Later
from orbitmq.net.peer import Peer
from orbitmq.net.turn import Turn
from orbitmq.wire.bodies_namesrv import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    body_crc32,
    read_register_body,
)
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.world.net import run
from tests.net.running import serving, until

REGISTER, UNREGISTER, QUERY_VERSION = 103, 104, 322
WHO = Identity(
    cluster="C", name="b", broker_id=0, address="127.0.0.1:10911", ha_address="127.0.0.1:10912"
)
QUICK = BrokerSettings(register_name_server_period=20)


class NameServerDouble:
    """Answers as it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.code = 0
        self.is_changed = True
        self.body = b""
        self.is_hanging = False

    def __call__(self, request: Command, _connection: Connection) -> Result:
        self.asked.append(request)
        if self.is_hanging:
            return Later(60.0, lambda: None)
        if request.code == QUERY_VERSION:
            changed = "true" if self.is_changed else "false"
            return reply_to(request, self.code, "no", fields={"changed": changed})
        return reply_to(request, self.code, "no", body=self.body)

    def count(self, code: int) -> int:
        return sum(request.code == code for request in self.asked)

    def bodies(self) -> list[RegisterBrokerBody]:
        """Give what was registered, in order."""
        return [
            read_register_body(request.body, compressed=request.fields["compressed"] == "true")
            for request in self.asked
            if request.code == REGISTER
        ]


class Broker:
    """The side that registers: a table of topics that can be changed."""

    def __init__(self) -> None:
        self.counter = 1
        self.settings = QUICK
        self.ordered: list[dict[str, str]] = []
        self.registration: Registration

    def topics(self) -> TopicConfigTable:
        config = TopicConfig(topic_name="T", read_queue_count=self.counter, topic_sys_flag=1)
        version = DataVersion(counter=self.counter, timestamp_ms=5)
        return TopicConfigTable(data_version=version, topic_config_table={"T": config})

    def change(self) -> None:
        self.counter += 1
        self.registration.note_change()

    def note_ordered(self, topics: Mapping[str, str]) -> None:
        self.ordered.append(dict(topics))


@asynccontextmanager
async def registering(*servers: NameServerDouble) -> AsyncIterator[Broker]:
    """Keep a broker registered with some name servers."""
    broker = Broker()
    async with asyncio.TaskGroup() as group:
        turn = Turn(asyncio.get_running_loop())
        sites = [serving(server) for server in servers]
        addresses = [(await site.__aenter__()).address for site in sites]
        peers = [Peer(address, turn) for address in addresses]
        broker.registration = Registration(
            WHO, broker.topics, peers, lambda: broker.settings, broker.note_ordered
        )
        keeping = group.create_task(broker.registration.keep_registered())
        try:
            yield broker
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            for peer in peers:
                peer.close()
                await peer.wait_closed()
            for site in reversed(sites):
                await site.__aexit__(None, None, None)


def scenario(*servers: NameServerDouble, act: Callable[[Broker], Awaitable[None]]) -> None:
    """Run one scenario."""

    async def play() -> None:
        async with registering(*servers) as broker:
            await act(broker)

    run(play())


def test_a_registration_says_who_and_what() -> None:
    server = NameServerDouble()

    async def act(broker: Broker) -> None:
        await broker.registration.register()

    scenario(server, act=act)
    request = server.asked[0]
    assert request.fields | {"bodyCrc32": ""} == {
        "brokerName": "b",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "C",
        "haServerAddr": "127.0.0.1:10912",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "",
    }
    assert request.fields["bodyCrc32"] == str(body_crc32(request.body))
    assert server.bodies()[0].topics == Broker().topics()


def test_every_name_server_knows_the_newest_table_when_it_was_told() -> None:
    servers = [NameServerDouble() for _ in range(3)]

    async def act(broker: Broker) -> None:
        for _ in range(20):
            broker.change()
        await broker.registration.told()
        for server in servers:
            assert server.bodies()[-1].topics.data_version.counter == broker.counter
            assert server.count(REGISTER) <= 4  # changes go together

    scenario(*servers, act=act)


def test_one_that_hangs_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_module, "TOLD_S", 0.3)
    hanging, healthy = NameServerDouble(), NameServerDouble()
    hanging.is_hanging = True

    async def act(broker: Broker) -> None:
        for _ in range(3):
            broker.change()
            await broker.registration.told()
            assert healthy.bodies()[-1].topics.data_version.counter == broker.counter
        assert len(hanging.asked) == 1

    scenario(hanging, healthy, act=act)


def test_one_that_refuses_is_reported_once_and_once_more_when_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    server = NameServerDouble()
    server.code = 1

    async def act(broker: Broker) -> None:
        await until(lambda: server.count(REGISTER) >= 3)
        server.code = 0
        count = server.count(REGISTER)
        await until(lambda: server.count(REGISTER) >= count + 3)

    scenario(server, act=act)
    words = [record.getMessage() for record in caplog.records]
    assert sum("will try again" in word for word in words) == 1
    assert sum("answers again" in word for word in words) == 1


def test_without_force_only_what_is_not_known_is_registered_again() -> None:
    server = NameServerDouble()
    server.is_changed = False

    async def act(broker: Broker) -> None:
        broker.settings = msgspec.structs.replace(QUICK, force_register=False)
        await broker.registration.register()
        before = server.count(REGISTER)
        await until(lambda: server.count(QUERY_VERSION) >= 5)
        assert server.count(REGISTER) - before <= 1  # the round that was begun with force
        known = server.count(REGISTER)
        broker.change()
        await until(lambda: server.count(REGISTER) > known)
        known = server.count(REGISTER)
        server.is_changed = True
        await until(lambda: server.count(REGISTER) > known)

    scenario(server, act=act)


def test_with_force_it_is_registered_every_period_without_asking() -> None:
    server = NameServerDouble()

    async def act(_broker: Broker) -> None:
        await until(lambda: server.count(REGISTER) >= 4)
        assert server.count(QUERY_VERSION) == 0

    scenario(server, act=act)


def test_a_compressed_registration_says_so_and_can_be_read() -> None:
    server = NameServerDouble()

    async def act(broker: Broker) -> None:
        broker.settings = msgspec.structs.replace(QUICK, compressed_register=True)
        await broker.registration.register()

    scenario(server, act=act)
    last = server.bodies()[-1].topics.topic_config_table["T"]
    assert server.asked[-1].fields["compressed"] == "true"
    assert (last.read_queue_count, last.perm) == (1, 6)


@pytest.mark.parametrize(("permission", "told"), [(6, 6), (4, 4), (2, 2), (0, 0)])
def test_topics_have_the_brokers_permission_while_it_is_not_whole(
    permission: int, told: int
) -> None:
    server = NameServerDouble()

    async def act(broker: Broker) -> None:
        broker.settings = msgspec.structs.replace(QUICK, broker_permission=permission)
        await broker.registration.register()

    scenario(server, act=act)
    assert server.bodies()[-1].topics.topic_config_table["T"].perm == told


def test_the_answers_table_says_which_topics_are_ordered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = NameServerDouble()

    async def act(broker: Broker) -> None:
        await broker.registration.register()
        assert broker.ordered == []
        server.body = write_json(KVTable(table={"T": "b:4"}), standard=False)
        await broker.registration.register()
        assert broker.ordered[-1] == {"T": "b:4"}
        server.body = b"{nonsense"
        await broker.registration.register()
        assert broker.ordered[-1] == {"T": "b:4"}

    scenario(server, act=act)
    assert any("name server" in record.getMessage() for record in caplog.records)


def test_a_goodbye_goes_to_every_name_server() -> None:
    servers = [NameServerDouble() for _ in range(2)]

    async def act(broker: Broker) -> None:
        await broker.registration.unregister()

    scenario(*servers, act=act)
    for server in servers:
        goodbye = next(request for request in server.asked if request.code == UNREGISTER)
        assert goodbye.fields["brokerAddr"] == "127.0.0.1:10911"
