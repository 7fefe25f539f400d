"""Loops, addresses, socket settings and descriptors: what world.net promises."""

import asyncio
import resource
import socket
import sys

import pytest
import uvloop

from orbitmq.errors import SettingError
from orbitmq.wire.command import Command
from orbitmq.world import net
from tests.net.running import Run, connected, serving


async def _loop_kind() -> type[asyncio.AbstractEventLoop]:
    return type(asyncio.get_running_loop())


def test_uvloop_is_used_where_it_is_there() -> None:
    assert net.run(_loop_kind()) is uvloop.Loop


def test_without_uvloop_everything_runs_on_asyncio_s_own_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert issubclass(net.run(_loop_kind()), asyncio.SelectorEventLoop)

    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            client.ask(Command(10, body=b"here"))
            assert (await client.answer()).body == b"here"

    net.run(scenario())


def test_no_event_loop_policy_is_installed() -> None:
    before = asyncio.get_event_loop_policy()
    net.run(_loop_kind())
    assert asyncio.get_event_loop_policy() is before


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker-a.example:10911 ", ("broker-a.example", 10911)),
        ("[::1]:10911", ("::1", 10911)),
        ("::1:10911", ("::1", 10911)),
    ],
)
def test_addresses_are_split(address: str, parts: tuple[str, int]) -> None:
    assert net.split_address(address) == parts


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:65536", "host:²"])
def test_what_is_no_address_is_refused_with_the_right_form(address: str) -> None:
    with pytest.raises(SettingError, match="host:port"):
        net.split_address(address)


def test_connections_have_no_delay_and_notice_a_peer_that_is_gone(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.port) as client:
            client.ask(Command(10))
            await client.answer()
            accepted = site.connection()._transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000

    run(scenario())


def test_the_soft_limit_of_descriptors_is_raised_within_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert net.allow_descriptors(200) == 200
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256
        assert net.allow_descriptors(300) == 300
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
        if hard != resource.RLIM_INFINITY:
            assert net.allow_descriptors(hard + 1) == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_machine_whose_name_leads_to_itself_has_another_address_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Debian all machines were 127.0.1.1: clients of one instance name had one id."""
    itself = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_words: itself)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        try:
            datagrams.connect(net.ELSEWHERE)
        except OSError:
            expected = "127.0.1.1"  # a machine without a network
        else:
            expected = datagrams.getsockname()[0]
    assert net.reachable_address("0.0.0.0") == expected
    assert net.reachable_address("this-machine") == "127.0.1.1"


def test_a_machine_without_a_network_is_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_words: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", nothing)
    monkeypatch.setattr(socket, "socket", nothing)
    assert net.reachable_address("0.0.0.0") == "127.0.0.1"


def test_a_name_is_told_to_others_as_an_address() -> None:
    """Symptom: `orbitmq up --host localhost` could not start."""
    assert net.reachable_address("localhost") == "127.0.0.1"
    assert net.reachable_address("192.0.2.7") == "192.0.2.7"
    assert net.reachable_address("::1") == "::1"
    assert net.reachable_address("0.0.0.0").count(".") == 3
    with pytest.raises(SettingError, match="has no IPv4 address"):
        net.reachable_address("no such host.invalid")
