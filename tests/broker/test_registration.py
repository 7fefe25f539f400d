"""What name servers are told, when, and what becomes of their answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker import registration as registration_module
from orbitmq.broker.registration import Identity, Registration
from orbitmq.config import BrokerSettings, load_settings
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
from orbitmq.wire.ready_tables import TopicRows, write_row
from orbitmq.world.net import run
from tests.broker.running import Running, running
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
        self.connections: set[Connection] = set()

    def __call__(self, request: Command, connection: Connection) -> Result:
        self.asked.append(request)
        self.connections.add(connection)
        if self.is_hanging:
            return Later(60.0, lambda: None)
        if request.code == QUERY_VERSION:
            changed = "true" if self.is_changed else "false"
            return reply_to(request, self.code, "no", fields={"changed": changed})
        return reply_to(request, self.code, "no", body=self.body)

    def count(self, code: int) -> int:
        return sum(request.code == code for request in self.asked)

    def bodies(self) -> list[RegisterBrokerBody]:
        """Return what was registered, in order."""
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

    def topics(self) -> TopicRows:
        config = TopicConfig(topic_name="T", read_queue_count=self.counter, topic_sys_flag=1)
        version = DataVersion(counter=self.counter, timestamp_ms=5)
        return TopicRows(version, {"T": config}, [write_row("T", config)])

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
        await broker.registration.told()

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
    version, configs, _ = Broker().topics()
    whole = TopicConfigTable(data_version=version, topic_config_table=configs)
    assert server.bodies()[0].topics == whole


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
        await broker.registration.told()
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


def test_all_registrations_go_over_one_lasting_connection_each() -> None:
    servers = [NameServerDouble() for _ in range(2)]

    async def act(_broker: Broker) -> None:
        for server in servers:
            await until(lambda: server.count(REGISTER) >= 4)  # noqa: B023 - awaited in its round
            assert len(server.connections) == 1

    scenario(*servers, act=act)


@pytest.mark.parametrize(
    ("given_ms", "obeyed_ms"),
    [(9_999, 10_000), (10_000, 10_000), (45_000, 45_000), (90_000, 60_000)],
)
def test_a_broker_registers_every_30_s_or_every_10_to_60_s_as_set(
    given_ms: int, obeyed_ms: int
) -> None:
    assert BrokerSettings().register_name_server_period == 30_000
    settings, _ = load_settings(BrokerSettings, {"registerNameServerPeriod": str(given_ms)})
    assert settings.register_name_server_period == obeyed_ms


def test_a_compressed_registration_says_so_and_can_be_read() -> None:
    server = NameServerDouble()

    async def act(broker: Broker) -> None:
        broker.settings = msgspec.structs.replace(QUICK, compressed_register=True)
        await broker.registration.told()

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
        await broker.registration.told()

    scenario(server, act=act)
    assert server.bodies()[-1].topics.topic_config_table["T"].perm == told


def test_the_answers_table_says_which_topics_are_ordered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = NameServerDouble()

    async def act(broker: Broker) -> None:
        await broker.registration.told()
        assert broker.ordered == []
        server.body = write_json(KVTable(table={"T": "b:4"}), standard=False)
        await broker.registration.told()
        assert broker.ordered[-1] == {"T": "b:4"}
        server.body = b"{nonsense"
        await broker.registration.told()
        assert broker.ordered[-1] == {"T": "b:4"}

    scenario(server, act=act)
    assert any("name server" in record.getMessage() for record in caplog.records)


def ordering(*topics: str) -> NameServerDouble:
    """Return a name server that calls these topics ordered."""
    server = NameServerDouble()
    server.body = write_json(KVTable(table=dict.fromkeys(topics, "b:4")), standard=False)
    return server


def test_the_first_name_server_that_answers_says_which_topics_are_ordered() -> None:
    first, second = ordering("One"), ordering("Two")

    async def act(broker: Broker) -> None:
        await broker.registration.told()
        await broker.registration.told()
        assert broker.ordered[-2:] == [{"One": "b:4"}] * 2
        first.code = 1
        await broker.registration.told()
        await broker.registration.told()
        assert broker.ordered[-1] == {"Two": "b:4"}
        first.code = 0
        await broker.registration.told()
        await broker.registration.told()
        assert broker.ordered[-1] == {"One": "b:4"}

    scenario(first, second, act=act)


def test_name_servers_that_disagree_about_order_make_no_storm(tmp_path: Path) -> None:
    """Symptom: 820 registrations a second, for ever, the order of both topics back and forth."""
    servers = [ordering("One"), ordering("Two")]

    async def play() -> None:
        async with serving(servers[0]) as one, serving(servers[1]) as two:
            settings = BrokerSettings(
                listen_port=0,
                mapped_file_size_commit_log=1 << 20,
                namesrv_addr=f"{one.address};{two.address}",
            )
            async with running(tmp_path, one.turn, settings) as site:
                await see_order_settled(site)
                counts = [server.count(REGISTER) for server in servers]
                for _ in range(20):  # the loop does what it has to do meanwhile
                    assert (await site.ask(21)).code == 0
                assert [server.count(REGISTER) for server in servers] == counts

    run(play())


async def see_order_settled(site: Running) -> None:
    """Make two topics; the name servers' tables name one of them each."""
    topics = site.broker._context.topics
    registration = site.broker._registration
    assert registration is not None
    for name in ("One", "Two"):
        topics.put(TopicConfig(topic_name=name))
    for _ in range(5):
        await registration.told()
    one, two = topics.find("One"), topics.find("Two")
    assert one is not None
    assert two is not None
    assert (one.order, two.order) == (True, False)
    version = topics.snapshot().data_version
    for _ in range(5):
        await registration.told()
    assert topics.snapshot().data_version == version


def test_a_goodbye_goes_to_every_name_server() -> None:
    servers = [NameServerDouble() for _ in range(2)]

    async def act(broker: Broker) -> None:
        await broker.registration.unregister(5)

    scenario(*servers, act=act)
    for server in servers:
        goodbye = next(request for request in server.asked if request.code == UNREGISTER)
        assert goodbye.fields["brokerAddr"] == "127.0.0.1:10911"
