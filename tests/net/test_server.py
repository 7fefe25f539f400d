"""Starting and stopping a server."""

import asyncio

import pytest

from orbitmq.errors import ConnectionClosed, SettingError
from orbitmq.metrics import Registry
from orbitmq.net.admission import DESCRIPTORS_APART
from orbitmq.net.connection import Connection, Result
from orbitmq.net.later import Later
from orbitmq.net.limits import Limits
from orbitmq.net.server import Server
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command, encode_command, reply_to
from tests.net.running import HOST, PATIENCE_S, Run, connected, echo, serving, until


def test_a_stop_writes_the_answers_under_way_then_closes(run: Run) -> None:
    async def scenario() -> None:
        stops: list[asyncio.Task[None]] = []

        def handle(request: Command, connection: Connection) -> Result:
            if request.opaque == 99:  # the stop comes in the middle of a turn
                stops.append(asyncio.create_task(site.server.stop()))
            return reply_to(request, body=bytes(10_000))

        async with serving(handle) as site, connected(site.port) as client:
            client.write(b"".join(encode_command(Command(10, opaque=n)) for n in range(100)))
            for number in range(100):
                assert (await client.answer()).opaque == number
            assert await client.ended() == b""
            await asyncio.gather(*stops)
            assert site.closes("stop") == 1
            assert not site.server.connections

    run(scenario())


def test_a_stopped_server_takes_no_connection_and_may_be_stopped_again(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            await site.server.stop()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(HOST, site.port)
            await site.server.stop()

    run(scenario())


def test_a_stop_cancels_owed_answers_and_fails_calls(run: Run) -> None:
    async def scenario() -> None:
        cancelled: list[int] = []

        def handle(request: Command, connection: Connection) -> Result:
            return Later(PATIENCE_S, lambda: None, lambda: cancelled.append(request.opaque))

        async with serving(handle) as site, connected(site.port) as client:
            client.ask(Command(11, opaque=5))
            await until(lambda: site.traffic.laters.value == 1)
            call = asyncio.create_task(site.connection().call(Command(39), PATIENCE_S))
            await client.answer()
            await site.server.stop()
            assert cancelled == [5]
            with pytest.raises(ConnectionClosed, match="stop"):
                await call

    run(scenario())


def test_a_stop_does_not_wait_for_a_peer_that_does_not_read(run: Run) -> None:
    async def scenario() -> None:
        def handle(request: Command, connection: Connection) -> Result:
            return reply_to(request, body=bytes(1_000_000))

        limits = Limits(linger_s=0.2, output_pause_bytes=100_000)
        async with serving(handle, limits=limits) as site, connected(site.port, limit=1) as client:
            for _ in range(30):
                client.ask(Command(10))
            await until(lambda: site.server.connections)
            connection = site.connection()
            await until(lambda: connection.is_undrained)
            async with asyncio.timeout(PATIENCE_S):
                await site.server.stop()
            assert site.closes("stop") == 1

    run(scenario())


def test_a_port_in_use_is_refused_with_its_address_and_what_to_do(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            second = Server("second", echo, site.turn, registry=Registry())
            with pytest.raises(SettingError) as caught:
                await second.start(HOST, site.port)
            assert f"127.0.0.1:{site.port}" in str(caught.value)
            assert "choose another" in str(caught.value)
            await second.stop()

    run(scenario())


def test_a_host_that_is_not_ours_is_refused(run: Run) -> None:
    async def scenario() -> None:
        server = Server("x", echo, Turn(asyncio.get_running_loop()), registry=Registry())
        with pytest.raises(SettingError, match=r"cannot listen on 192\.0\.2\.1:0"):
            await server.start("192.0.2.1", 0)

    run(scenario())


def test_connections_are_fewer_when_the_system_allows_fewer_descriptors(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "orbitmq.net.admission.allow_descriptors", lambda wanted: DESCRIPTORS_APART + 1
    )

    async def scenario() -> None:
        async with serving() as site, connected(site.port):
            await until(lambda: len(site.server.connections) == 1)
            async with connected(site.port) as second:
                await second.ended()
            assert site.closes("connections-limit") == 1

    run(scenario())
    assert "ulimit -n" in caplog.text


def test_two_servers_share_a_turn_and_count_apart(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            second = Server("second", echo, site.turn, registry=site.registry)
            port = await second.start(HOST, 0)
            async with connected(port) as client:
                client.ask(Command(10))
                await client.answer()
            await second.stop()
            text = site.registry.render()
            assert 'orbitmq_net_frames_total{server="second"} 1' in text
            assert 'orbitmq_net_frames_total{server="test"} 0' in text

    run(scenario())
