"""A peer is dialled when needed, again after a failure, and tells sent from not sent."""

import asyncio
import os
import socket

import pytest

from orbitmq.errors import ConnectFailed, ConnectionClosed, RequestTimeout
from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Result
from orbitmq.net.dispatch import Dispatcher
from orbitmq.net.limits import Limits
from orbitmq.net.peer import Peer
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command, reply_to
from tests.net.running import HOST, PATIENCE_S, Run, nothing_left, open_descriptors, serving, until


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


async def _close(peer: Peer) -> None:
    peer.close()
    await peer.wait_closed()


def test_calls_share_one_connection_and_find_their_answers(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            peer = Peer(site.address, site.turn)
            calls = [peer.call(Command(10, body=b"%d" % n), PATIENCE_S) for n in range(50)]
            answers = await asyncio.gather(*calls)
            assert [answer.body for answer in answers] == [b"%d" % n for n in range(50)]
            assert site.traffic.opens.value == 1
            await _close(peer)

    run(scenario())


def test_nobody_there_is_a_connect_failure_that_names_the_address(run: Run) -> None:
    async def scenario() -> None:
        before = open_descriptors()
        address = f"{HOST}:{_free_port()}"
        peer = Peer(address, Turn(asyncio.get_running_loop()))
        for _ in range(2):
            with pytest.raises(ConnectFailed, match=address):
                await peer.call(Command(10), 2.0)
        await _close(peer)
        await nothing_left(before)

    run(scenario())


@pytest.mark.parametrize("address", ["no-port", "a" * 64 + ":9876", "host:0", ":9876", ""])
def test_an_address_that_leads_nowhere_is_a_connect_failure(run: Run, address: str) -> None:
    async def scenario() -> None:
        peer = Peer(address, Turn(asyncio.get_running_loop()))
        with pytest.raises(ConnectFailed):
            await peer.call(Command(10), 2.0)
        await _close(peer)

    run(scenario())


def test_a_peer_dials_again_after_the_other_side_was_away(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            peer = Peer(site.address, site.turn)
            await peer.call(Command(10), PATIENCE_S)
            site.connection().close("test")
            await until(lambda: not site.server.connections)
            await until(lambda: peer._connection is None or peer._connection.closed)
            assert (await peer.call(Command(10, body=b"again"), PATIENCE_S)).body == b"again"
            assert site.traffic.opens.value == 2
            await _close(peer)

    run(scenario())


def test_no_answer_in_time_is_an_unknown_outcome(run: Run) -> None:
    async def scenario() -> None:
        async with serving(lambda request, connection: None) as site:
            peer = Peer(site.address, site.turn)
            with pytest.raises(RequestTimeout, match="it may have been done"):
                await peer.call(Command(10), 0.1)
            await _close(peer)

    run(scenario())


def test_a_connection_that_ends_during_a_call_is_an_unknown_outcome(run: Run) -> None:
    async def scenario() -> None:
        def handle(request: Command, connection: Connection) -> Result:
            connection.close("test")
            return None

        async with serving(handle) as site:
            peer = Peer(site.address, site.turn)
            with pytest.raises(ConnectionClosed):
                await peer.call(Command(10), PATIENCE_S)
            await _close(peer)

    run(scenario())


def test_a_write_that_fails_closes_the_connection_and_the_next_call_dials_again(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            peer = Peer(site.address, site.turn)
            await peer.call(Command(10), PATIENCE_S)
            broken = peer.connection
            assert broken is not None
            number = broken._transport.get_extra_info("socket").fileno()
            with socket.socket(fileno=os.dup(number)) as same:
                same.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionClosed):
                await peer.call(Command(10), PATIENCE_S)
            assert broken.closed
            assert (await peer.call(Command(10, body=b"again"), PATIENCE_S)).body == b"again"
            assert peer.connection is not broken
            assert site.traffic.opens.value == 2
            await _close(peer)

    run(scenario())


def test_a_connection_that_cannot_be_made_in_time_is_a_connect_failure(run: Run) -> None:
    async def scenario() -> None:
        before = open_descriptors()
        with socket.socket() as full:  # a listener whose queue is full answers no further hello
            full.bind((HOST, 0))
            full.listen(0)
            address = f"{HOST}:{full.getsockname()[1]}"
            waiting = [socket.socket() for _ in range(4)]
            for sock in waiting:
                sock.setblocking(False)
                sock.connect_ex((HOST, full.getsockname()[1]))
            turn = Turn(asyncio.get_running_loop())
            peer = Peer(address, turn, limits=Limits(connect_s=0.2))
            with pytest.raises(ConnectFailed, match=r"within 0\.2 s"):
                await peer.call(Command(10), PATIENCE_S)
            impatient = Peer(address, turn)
            with pytest.raises(ConnectFailed, match=r"within 0\.1 s"):
                await impatient.call(Command(10), 0.1)
            await _close(peer)
            await _close(impatient)
            for sock in waiting:
                sock.close()
        await nothing_left(before)

    run(scenario())


def test_requests_of_the_other_side_go_to_the_peer_s_handler(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            registry = Registry()
            handle = Dispatcher(
                {40: lambda request, connection: reply_to(request, body=b"mine")}, registry
            )
            peer = Peer(site.address, site.turn, handle=handle, registry=registry)
            await peer.call(Command(10), PATIENCE_S)
            assert (await site.connection().call(Command(40), PATIENCE_S)).body == b"mine"
            assert (await site.connection().call(Command(41), PATIENCE_S)).code == 3
            assert 'requests_total{server="peer",code="40"} 1' in registry.render()
            await _close(peer)

    run(scenario())


def test_a_closed_peer_dials_no_more_and_ends_its_attempt(run: Run) -> None:
    async def scenario() -> None:
        before = open_descriptors()
        async with serving() as site:
            peer = Peer(site.address, site.turn)
            call = asyncio.create_task(peer.call(Command(10), PATIENCE_S))
            await asyncio.sleep(0)
            peer.close()
            with pytest.raises(ConnectFailed, match="closed"):
                await call
            with pytest.raises(ConnectFailed, match="closed"):
                await peer.call(Command(10), 1.0)
            await peer.wait_closed()
        await nothing_left(before)

    run(scenario())


def test_a_cancelled_caller_does_not_spoil_the_attempt_for_others(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            peer = Peer(site.address, site.turn)
            first = asyncio.create_task(peer.call(Command(10), PATIENCE_S))
            second = asyncio.create_task(peer.call(Command(10, body=b"2"), PATIENCE_S))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).body == b"2"
            assert first.cancelled()
            assert site.traffic.opens.value == 1
            await _close(peer)

    run(scenario())
