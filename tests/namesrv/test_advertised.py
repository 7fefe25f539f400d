"""Advertised addresses: each client is told the broker's address for the way on which it came."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.config import BrokerSettings
from orbitmq.errors import SettingError
from orbitmq.metrics import Registry
from orbitmq.net.turn import Turn
from orbitmq.wire.advertised import FIELD, Reached, read_advertised
from orbitmq.wire.bodies_namesrv import ClusterInfo, TopicList, TopicRoute
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.fastjson import read_json
from tests.namesrv.conftest import Run
from tests.namesrv.registering import header
from tests.namesrv.serving import LOCAL, Client, Site, ask, connected, name_server, register

INSIDE, OUTSIDE = "127.0.0.1", "127.0.0.2"
TWO_WAYS = "127.0.0.2/32=mq.example:31911,from:127.0.0.3=10.9.9.9:10911"
EVERYWHERE = "0.0.0.0"


# --- the text ---


@pytest.mark.parametrize(
    ("local_ip", "client_ip", "address"),
    [
        ("10.1.2.3", "10.7.7.7", "10.1.2.3:10911"),
        ("192.168.0.9", "172.16.5.5", "172.16.0.1:1"),
        ("192.168.0.9", "8.8.8.8", "mq.example:31911"),
        ("::ffff:10.1.2.3", "8.8.8.8", "10.1.2.3:10911"),
        ("2001:db8::9", "2001:db8::7", "[2001:db8::1]:10911"),
        ("fe80::1", "fe80::2", None),
        ("", "", None),
    ],
)
def test_the_first_entry_that_holds_decides(
    local_ip: str, client_ip: str, address: str | None
) -> None:
    found = read_advertised(
        "10.0.0.0/8=10.1.2.3:10911, from:172.16.0.0/12 = 172.16.0.1:1 ,"
        "0.0.0.0/0=mq.example:31911,2001:db8::/32=[2001:db8::1]:10911"
    )
    assert found is not None
    assert found.address_for(Reached(local_ip, client_ip)) == address


def test_an_address_without_a_port_takes_the_brokers() -> None:
    found = read_advertised("10.0.0.0/8=10.1.2.3,::/0=2001:db8::1,0.0.0.0/0=[::1]:7", 10_911)
    assert str(found) == ("10.0.0.0/8=10.1.2.3:10911,::/0=[2001:db8::1]:10911,0.0.0.0/0=[::1]:7")
    assert read_advertised(str(found)) == found


def test_an_empty_text_advertises_nothing() -> None:
    assert read_advertised("") is None
    assert read_advertised(" , ") is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("10.0.0.0/8", "no = in it"),
        ("10.0.0.1/8=1.2.3.4:5", "host bits set"),
        ("inside=1.2.3.4:5", "does not appear to be"),
        ("10.0.0.0/8=1.2.3.4", "no port"),
        ("10.0.0.0/8=1.2.3.4:0", "no port"),
        ("10.0.0.0/8=1.2.3.4:65536", "no port"),
        ("10.0.0.0/8=[::1", "bracket does not close"),
        ("10.0.0.0/8=a b:5", "neither a name nor an IP address"),
        ("10.0.0.0/8=:5", "neither a name nor an IP address"),
        ("10.0.0.0/8=mq\x1b[31m:5", "neither a name nor an IP address"),
        ("10.0.0.0/8=1.2.3.4:5," * 33, "33 entries, limit 32"),
        ("x" * 4_097, "4097 characters, limit 4096"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_cause(text: str, cause: str) -> None:
    with pytest.raises(SettingError, match=cause) as caught:
        read_advertised(text)
    assert FIELD in str(caught.value)
    assert str(caught.value).isprintable()


# --- the name server ---


@asynccontextmanager
async def reaching(site: Site, local_ip: str, own_ip: str = INSIDE) -> AsyncIterator[Client]:
    """A client that reaches the name server by one of the machine's addresses."""
    streams = await asyncio.open_connection(local_ip, site.port, local_addr=(own_ip, 0))
    client = Client(*streams)
    try:
        yield client
    finally:
        await client.close()


async def told(client: Client, version: int = 407) -> list[str]:
    """The addresses of the master in 105, 106 and 304."""
    route = await ask(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1", version=version)
    cluster = await ask(client, RequestCode.GET_BROKER_CLUSTER_INFO, version=version)
    system = await ask(client, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, version=version)
    datas = read_json(route.body, TopicRoute).broker_datas
    table = read_json(cluster.body, ClusterInfo).broker_addr_table
    broker = read_json(system.body, TopicList).broker_addr
    return [datas[0].broker_addrs[0], table["broker-a"].broker_addrs[0], broker or ""]


@pytest.mark.parametrize("version", [407, 317])
def test_each_client_is_told_the_address_of_its_way(run: Run, tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, bindAddress=EVERYWHERE) as site,
            connected(site.port) as broker,
        ):
            assert (await register(broker, advertisedAddresses=TWO_WAYS)).code == 0
            async with reaching(site, INSIDE) as client:
                assert await told(client, version) == [LOCAL] * 3
            async with reaching(site, OUTSIDE) as client:
                assert await told(client, version) == ["mq.example:31911"] * 3
            async with reaching(site, INSIDE, "127.0.0.3") as client:
                assert await told(client, version) == ["10.9.9.9:10911"] * 3

    run(scenario())


def test_without_them_every_answer_is_byte_for_byte_the_same(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, bindAddress=EVERYWHERE) as site,
            connected(site.port) as broker,
        ):
            await register(broker)
            bodies = []
            for local_ip in (INSIDE, OUTSIDE):
                async with reaching(site, local_ip) as client:
                    route = await ask(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
                    bodies.append(route.body)
            assert bodies[0] == bodies[1]
            assert b'"brokerAddrs":{"0":"127.0.0.1:10911"}' in bodies[0]
            assert b"dvertised" not in bodies[0]

    run(scenario())


def test_a_proxys_word_says_by_which_address_the_client_came(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, proxyProtocolEnable="true", proxyProtocolFrom=INSIDE) as site,
            connected(site.port) as broker,
        ):
            await register(broker, advertisedAddresses="203.0.113.0/24=mq.example:31911")
            async with connected(site.port) as client:
                client.write(b"PROXY TCP4 198.51.100.7 203.0.113.80 5000 9876\r\n")
                assert await told(client) == ["mq.example:31911"] * 3

    run(scenario())


def test_the_next_registration_replaces_them(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, bindAddress=EVERYWHERE) as site,
            connected(site.port) as broker,
        ):
            await register(broker, advertisedAddresses="127.0.0.0/8=mq.example:1")
            async with reaching(site, INSIDE) as client:
                assert (await told(client))[0] == "mq.example:1"
                await register(broker, advertisedAddresses="127.0.0.0/8=mq.example:2")
                assert (await told(client))[0] == "mq.example:2"
                await register(broker)
                assert (await told(client))[0] == LOCAL

    run(scenario())


def test_a_slave_is_told_its_masters_own_addresses(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as master:
            await register(master, advertisedAddresses="0.0.0.0/0=mq.example:1")
            async with connected(site.port) as slave:
                head = header(address="127.0.0.1:10921", broker_id=1)
                answer = await register(slave, head, advertisedAddresses="0.0.0.0/0=mq.example:2")
                assert answer.fields["masterAddr"] == LOCAL
                assert answer.fields["haServerAddr"] == f"ha-{LOCAL}"
                route = await ask(slave, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
                (data,) = read_json(route.body, TopicRoute).broker_datas
                assert data.broker_addrs == {0: "mq.example:1", 1: "mq.example:2"}

    run(scenario())


def test_a_registration_with_unusable_addresses_is_refused_and_changes_nothing(
    run: Run,
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as broker:
            answer = await register(broker, advertisedAddresses="nowhere=1.2.3.4:5")
            assert answer.code == 1
            assert "advertisedAddresses" in (answer.remark or "")
            assert site.state.routes.broker_count == 0

    run(scenario())


def test_they_are_in_the_log_when_a_broker_is_new(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with name_server(tmp_path) as site, connected(site.port) as broker:
            await register(broker, advertisedAddresses=TWO_WAYS)

    run(scenario())
    assert f"advertised {TWO_WAYS.replace('127.0.0.3=', '127.0.0.3/32=')}" in caplog.text


# --- our broker ---


def broker_settings(namesrv: str, advertised: str) -> BrokerSettings:
    return BrokerSettings(namesrv_addr=namesrv, listen_port=0, advertised_addresses=advertised)


def test_our_broker_registers_its_addresses_with_its_real_port(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path / "namesrv", bindAddress=EVERYWHERE) as site:
            turn = Turn(asyncio.get_running_loop())
            settings = broker_settings(site.address, "127.0.0.2=mq.example,127.0.0.3=[::1]:7")
            broker = Broker(settings, tmp_path / "store", turn, Registry())
            await broker.start()
            try:
                port = broker.address.rpartition(":")[2]
                for local_ip, expected in [
                    (INSIDE, broker.address),
                    (OUTSIDE, f"mq.example:{port}"),
                    ("127.0.0.3", "[::1]:7"),
                ]:
                    async with reaching(site, local_ip) as client:
                        answer = await ask(client, RequestCode.GET_BROKER_CLUSTER_INFO)
                        table = read_json(answer.body, ClusterInfo).broker_addr_table
                        assert table["broker-a"].broker_addrs == {0: expected}
            finally:
                await broker.stop()

    run(scenario())


def test_our_broker_refuses_to_start_with_unusable_addresses(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        broker = Broker(broker_settings("", "here=1.2.3.4"), tmp_path, turn, Registry())
        with pytest.raises(SettingError, match=r"advertisedAddresses.*here"):
            await broker.start()
        await broker.stop()

    run(scenario())
