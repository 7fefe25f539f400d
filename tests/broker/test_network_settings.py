"""Settings of connections: buffers, water marks, and a name server that does not answer in time.

In: a broker, or a port with its limits, with one setting that is not the default. Out: what sockets
and peers see of it.
"""

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from orbitmq.config import BrokerSettings, NamesrvSettings, ServerSettings
from orbitmq.errors import SettingError
from orbitmq.net.connection import Connection, Result
from orbitmq.net.limits import Limits
from orbitmq.net.serving import dial_limits_from, dial_tls_from, limits_from
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.world.net import run
from tests.broker.running import Running, running
from tests.broker.test_registration import REGISTER, NameServerDouble
from tests.net.running import serving, until
from tests.net.test_backpressure import _deaf_client, _until_undrained

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
BODY = bytes(10_000)


def name_server_of(site: Running) -> Connection:
    """The broker's own end of its connection to the one name server."""
    registration = site.broker._registration
    assert registration is not None
    (line,) = registration._lines
    connection = line.peer.connection
    assert connection is not None
    return connection


def test_connections_to_name_servers_have_the_buffers_that_were_set(tmp_path: Path) -> None:
    sizes = {"client_socket_rcv_buf_size": 16_384, "client_socket_snd_buf_size": 32_768}

    async def main() -> None:
        async with serving(NameServerDouble()) as site:
            settings = msgspec.structs.replace(SETTINGS, namesrv_addr=site.address, **sizes)
            async with running(tmp_path, Turn(asyncio.get_running_loop()), settings) as broker:
                dialled = name_server_of(broker)._transport.get_extra_info("socket")
                buffers = [
                    dialled.getsockopt(socket.SOL_SOCKET, option) // 2  # Linux doubles it
                    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)
                ]
                assert buffers == list(sizes.values())

    run(main())


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_name_server_that_does_not_answer_in_time_is_dialled_anew_if_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_closed: bool
) -> None:
    server = NameServerDouble()

    async def main() -> None:
        async with serving(server) as site:
            settings = msgspec.structs.replace(
                SETTINGS,
                namesrv_addr=site.address,
                register_broker_timeout_mills=100,
                client_close_socket_if_timeout=is_closed,
            )
            server.is_hanging = True
            async with running(tmp_path, Turn(asyncio.get_running_loop()), settings) as broker:
                await until(lambda: "will try again" in caplog.text)
                server.is_hanging = False
                before = server.count(REGISTER)
                registration = broker.broker._registration
                assert registration is not None
                registration.note_change()
                await until(lambda: server.count(REGISTER) > before)
                assert len(server.connections) == (2 if is_closed else 1)

    run(main())


@pytest.mark.parametrize("settings_type", [BrokerSettings, NamesrvSettings])
def test_reading_stops_at_the_high_water_mark_and_goes_on_at_the_low_one(
    settings_type: type[ServerSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    high, low = 120_000, 30_000
    settings = settings_type(
        write_buffer_high_water_mark=high,
        write_buffer_low_water_mark=low,
        server_socket_snd_buf_size=16_384,
    )
    left: list[int] = []
    resume = Connection.resume_writing

    def resumed(connection: Connection) -> None:
        left.append(connection._transport.get_write_buffer_size())
        resume(connection)

    def answer(request: Command, connection: Connection) -> Result:
        return reply_to(request, body=BODY)

    monkeypatch.setattr(Connection, "resume_writing", resumed)

    async def main() -> None:
        async with serving(answer, limits=limits_from(settings)) as site:
            client = await _deaf_client(site.port)
            client.write(b"".join(encode_command(Command(10, opaque=n)) for n in range(100)))
            connection = await _until_undrained(site)
            assert high < connection._transport.get_write_buffer_size() < 2 * high
            assert site.traffic.requests.value(10) < 50
            for number in range(100):
                assert (await client.answer()).opaque == number
            assert left
            assert max(left) <= low
            await client.close()

    run(main())


def test_one_water_mark_alone_changes_nothing_and_the_wrong_way_round_is_refused() -> None:
    usual = Limits().output_marks()
    assert limits_from(BrokerSettings(write_buffer_high_water_mark=5_000)).output_marks() == usual
    assert limits_from(BrokerSettings(write_buffer_low_water_mark=5_000)).output_marks() == usual
    both = BrokerSettings(write_buffer_high_water_mark=5_000, write_buffer_low_water_mark=4_000)
    assert dial_limits_from(both).output_marks() == (5_000, 4_000)
    wrong = msgspec.structs.replace(both, write_buffer_low_water_mark=6_000)
    with pytest.raises(SettingError, match="writeBufferLowWaterMark=6000 is above"):
        limits_from(wrong)


def test_name_servers_are_dialled_with_tls_when_the_file_says_so() -> None:
    assert dial_tls_from(BrokerSettings()) is None
    assert dial_tls_from(BrokerSettings(use_tls=True)) is not None
