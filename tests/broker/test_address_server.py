"""Name servers from an address server: asked when none are named, and followed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker import address_server, broker
from orbitmq.broker.address_server import url_of
from orbitmq.config import BrokerSettings, load_settings
from orbitmq.net.turn import Turn
from orbitmq.world.net import run
from tests.broker.running import running
from tests.broker.test_registration import REGISTER, NameServerDouble
from tests.net.running import serving, until

SETTINGS = BrokerSettings(
    bind_address="127.0.0.1",
    listen_port=0,
    mapped_file_size_commit_log=1 << 20,
    fetch_namesrv_addr_by_address_server=True,
)


class ListDouble:
    """Answers HTTP with a text that the test sets, and keeps what was asked for."""

    def __init__(self) -> None:
        self.text = ""
        self.asked: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split()[1].decode())
        body = self.text.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()


@asynccontextmanager
async def listed() -> AsyncIterator[tuple[ListDouble, BrokerSettings]]:
    """An address server, and settings that name it."""
    double = ListDouble()
    async with await asyncio.start_server(double.answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield (
            double,
            msgspec.structs.replace(SETTINGS, rocketmq_namesrv_domain=f"127.0.0.1:{port}"),
        )


def new_turn() -> Turn:
    return Turn(asyncio.get_running_loop())


def test_a_broker_registers_with_the_name_servers_of_the_list(tmp_path: Path) -> None:
    one, two = NameServerDouble(), NameServerDouble()

    async def main() -> None:
        async with listed() as (double, settings), serving(one) as first, serving(two) as second:
            double.text = f"{first.address};{second.address}\n"
            async with running(tmp_path, new_turn(), settings):
                assert [one.count(REGISTER) > 0, two.count(REGISTER) > 0] == [True, True]
            assert double.asked == ["/rocketmq/nsaddr"]

    run(main())


def test_a_list_that_comes_late_or_changes_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker, "LOOK_UP_S", 0.02)
    monkeypatch.setattr(address_server, "INTERVAL_S", 0.05)
    one, two, three = NameServerDouble(), NameServerDouble(), NameServerDouble()

    async def main() -> None:
        async with (
            listed() as (double, settings),
            serving(one) as first,
            serving(two) as second,
            serving(three) as third,
            running(tmp_path, new_turn(), settings),
        ):
            await until(lambda: "lists no name server; will ask again" in caplog.text)
            double.text = f"{first.address};{second.address}"
            await until(lambda: one.count(REGISTER) and two.count(REGISTER))
            (kept,), (left,) = two.connections, one.connections
            double.text = f"{second.address};{third.address}"
            await until(lambda: three.count(REGISTER) and left.closed)
            asked = len(double.asked)
            double.text = "no address"
            await until(lambda: len(double.asked) > asked + 3)
            assert not kept.closed, "a bad list changes nothing"
        assert caplog.text.count("no list of name servers") == 2, "each silence is told once"

    run(main())


@pytest.mark.parametrize(
    ("namesrv_addr", "is_on"), [("named", True), ("", False)], ids=["named", "off"]
)
def test_who_is_told_his_name_servers_or_may_not_ask_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namesrv_addr: str, is_on: bool
) -> None:
    monkeypatch.setattr(broker, "LOOK_UP_S", 0.01)
    server = NameServerDouble()

    async def main() -> None:
        async with listed() as (double, settings), serving(server) as site:
            changed = msgspec.structs.replace(
                settings,
                namesrv_addr=site.address if namesrv_addr else "",
                fetch_namesrv_addr_by_address_server=is_on,
            )
            async with running(tmp_path, new_turn(), changed) as started:
                for _ in range(20):
                    await started.ask(28)
            assert (double.asked, server.count(REGISTER) > 0) == ([], bool(namesrv_addr))

    run(main())


@pytest.mark.parametrize(
    ("properties", "url"),
    [
        ({}, "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"),
        ({"rocketmq.namesrv.domain": "names"}, "http://names:8080/rocketmq/nsaddr"),
        (
            {"rocketmq.namesrv.domain": "names:80", "rocketmq.namesrv.domain.subgroup": "shop"},
            "http://names:80/rocketmq/shop",
        ),
    ],
)
def test_the_address_of_the_list_is_made_as_the_original_makes_it(
    properties: dict[str, str], url: str
) -> None:
    settings, _ = load_settings(BrokerSettings, properties)
    assert url_of(settings) == url
