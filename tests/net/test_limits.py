"""Silent, slow and too many peers: each is closed by one sweep, with its reason."""

import asyncio

import pytest

from orbitmq.config import BrokerSettings, NamesrvSettings
from orbitmq.net.limits import Limits
from orbitmq.net.serving import limits_from
from orbitmq.wire.command import Command, encode_command
from tests.net.running import Run, connected, serving, until

FRAME = encode_command(Command(10, opaque=1, body=bytes(100)))
SHORT = Limits(first_frame_s=0.2, begun_frame_s=0.3, idle_s=0.5, blocked_s=0.5)


@pytest.mark.parametrize("sent", [b"", FRAME[:2], FRAME[:50]])
def test_a_peer_without_a_first_whole_frame_is_closed(run: Run, sent: bytes) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serving(limits=SHORT) as site, connected(site.port) as client:
            begin_s = loop.time()
            client.write(sent)
            assert await client.ended() == b""
            assert loop.time() - begin_s > 0.15
            assert site.closes("first-frame-timeout") == 1

    run(scenario())


def test_a_frame_that_is_not_ended_in_time_closes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=SHORT) as site, connected(site.port) as client:
            client.write(FRAME + FRAME[:30])
            await client.answer()
            await client.ended()
            assert site.closes("frame-timeout") == 1

    run(scenario())


def test_one_byte_at_a_time_does_not_stretch_the_limit_of_a_frame(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=SHORT) as site, connected(site.port) as client:
            client.write(FRAME)
            await client.answer()
            ended = asyncio.create_task(client.ended())
            for byte in encode_command(Command(10, body=bytes(10_000))):
                if ended.done():
                    break
                client.write(bytes([byte]))
                await asyncio.sleep(0.01)
            await ended
            assert site.closes("frame-timeout") == 1

    run(scenario())


def test_a_busy_connection_whose_reads_end_inside_frames_is_not_closed(run: Run) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serving(limits=SHORT) as site, connected(site.port) as client:
            client.write(FRAME[:60])
            begin_s = loop.time()
            while loop.time() - begin_s < 1.2:  # four times the limit of a frame
                client.write(FRAME[60:] + FRAME[:60])
                await client.answer()
            assert not site.connection().closed

    run(scenario())


def test_an_idle_peer_is_closed_and_a_talking_one_is_not(run: Run) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with (
            serving(limits=SHORT) as site,
            connected(site.port) as idle,
            connected(site.port) as talking,
        ):
            idle.write(FRAME)
            await idle.answer()
            ended = asyncio.create_task(idle.ended())
            begin_s = loop.time()
            while not ended.done():
                talking.write(FRAME)
                await talking.answer()
                await asyncio.sleep(0.02)
            assert loop.time() - begin_s > 0.4
            assert site.closes("idle") == 1
            assert len(site.server.connections) == 1

    run(scenario())


def test_servers_let_a_connection_be_idle_for_120_s_unless_told_otherwise() -> None:
    assert limits_from(NamesrvSettings()).idle_s == 120.0
    assert limits_from(BrokerSettings()).idle_s == 120.0
    shorter = NamesrvSettings(server_channel_max_idle_time_seconds=7)
    assert limits_from(shorter).idle_s == 7.0


def test_connections_past_their_number_are_closed_at_once(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(connections_max=2)
        async with (
            serving(limits=limits) as site,
            connected(site.port) as one,
            connected(site.port),
        ):
            await until(lambda: len(site.server.connections) == 2)
            async with connected(site.port) as third:
                assert await third.ended() == b""
            assert site.closes("connections-limit") == 1
            one.write(FRAME)
            await one.answer()
            await one.close()
            await until(lambda: len(site.server.connections) == 1)
            async with connected(site.port) as fourth:
                fourth.write(FRAME)
                await fourth.answer()

    run(scenario())


def test_a_smaller_frame_limit_is_kept(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(frame_size_max=1_000)
        async with serving(limits=limits) as site, connected(site.port) as client:
            head = len(encode_command(Command(10)))
            client.ask(Command(10, body=bytes(1_000 - head)))
            await client.answer()
            client.ask(Command(10, body=bytes(1_001 - head)))
            await client.ended()
            assert site.closes("frame-oversize") == 1

    run(scenario())


def test_one_timer_watches_over_all_connections(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=SHORT) as site:
            watch = site.server._watch
            timers = [watch._timer]
            async with connected(site.port), connected(site.port), connected(site.port):
                await until(lambda: len(site.server.connections) == 3)
                timers.append(watch._timer)
            await until(lambda: not site.server.connections)
            timers.append(watch._timer)
            assert [timer is not None for timer in timers] == [False, True, False]

    run(scenario())


def test_time_limits_are_looked_at_often_enough_and_not_too_often() -> None:
    assert Limits().sweep_s() == 1.0
    assert Limits(blocked_s=2.0).sweep_s() == 0.4
    assert Limits(first_frame_s=100, linger_s=100).sweep_s() == 1.0
    assert Limits(idle_s=0.001).sweep_s() == 0.005
