"""A peer that does not read is not read from, holds a bounded amount, and is closed in the end."""

import asyncio
import socket

from orbitmq.net.connection import Connection, Parts, Result
from orbitmq.net.limits import MIB, Limits
from orbitmq.wire.command import Command, encode_command, reply_to
from tests.net.running import HOST, PATIENCE_S, Client, Run, Site, connected, serving, until

BODY = bytes(100_000)


def answer_big(request: Command, connection: Connection) -> Result:
    return reply_to(request, body=BODY)


async def _deaf_client(port: int) -> Client:
    """A client with a small receive buffer, that reads nothing by itself."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
    deaf.setblocking(False)
    await asyncio.get_running_loop().sock_connect(deaf, (HOST, port))
    reader, writer = await asyncio.open_connection(sock=deaf, limit=1)
    return Client(reader, writer)


async def _until_undrained(site: Site) -> Connection:
    await until(lambda: site.server.connections)
    connection = site.connection()
    await until(lambda: connection.is_undrained)
    return connection


def test_a_peer_that_does_not_read_is_not_read_from(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(output_pause_bytes=200_000)
        async with serving(answer_big, limits=limits) as site:
            client = await _deaf_client(site.port)
            client.write(b"".join(encode_command(Command(10, opaque=n)) for n in range(500)))
            connection = await _until_undrained(site)
            handled = site.traffic.requests.value(10)
            assert handled < 500  # the rest of the read is kept, not handled
            assert connection.held_bytes < limits.output_pause_bytes + 2 * len(BODY) + 100_000
            assert site.traffic.held.value == connection.held_bytes
            for number in range(500):  # it reads at last, and gets everything in order
                assert (await client.answer()).opaque == number
            assert site.traffic.requests.value(10) == 500
            await client.close()

    run(scenario())


def test_output_that_one_read_causes_is_bounded_even_for_a_peer_that_reads(run: Run) -> None:
    async def scenario() -> None:
        sizes: list[int] = []
        limits = Limits(output_pause_bytes=200_000)

        def handle(request: Command, connection: Connection) -> Result:
            sizes.append(connection._output.size)
            return reply_to(request, body=BODY)

        async with serving(handle, limits=limits) as site, connected(site.port) as client:
            client.write(b"".join(encode_command(Command(10, opaque=n)) for n in range(300)))
            for number in range(300):
                assert (await client.answer()).opaque == number
            assert max(sizes) <= limits.output_pause_bytes

    run(scenario())


def test_a_peer_that_never_reads_is_closed_after_the_limit(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(output_pause_bytes=200_000, blocked_s=0.3)
        async with serving(answer_big, limits=limits) as site:
            client = await _deaf_client(site.port)
            client.write(b"".join(encode_command(Command(10)) for _ in range(500)))
            connection = await _until_undrained(site)
            await until(lambda: connection.closed)
            assert site.closes("slow-reader") == 1
            await until(lambda: not site.server.connections)
            assert site.traffic.held.value == 0
            await client.close()

    run(scenario())


def test_a_peer_that_reads_in_time_again_and_again_is_not_closed(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(output_pause_bytes=100_000, blocked_s=0.5)
        async with serving(answer_big, limits=limits) as site:
            client = await _deaf_client(site.port)
            loop = asyncio.get_running_loop()
            begin_s = loop.time()
            while loop.time() - begin_s < 1.5:
                client.write(b"".join(encode_command(Command(10)) for _ in range(100)))
                await _until_undrained(site)
                for _ in range(100):
                    await client.answer()
            assert not site.connection().closed
            await client.close()

    run(scenario())


def test_output_past_its_limit_closes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(output_pause_bytes=100_000, output_bytes_max=2 * MIB)
        async with serving(answer_big, limits=limits) as site:
            client = await _deaf_client(site.port)
            client.write(b"".join(encode_command(Command(10)) for _ in range(500)))
            connection = await _until_undrained(site)
            parts: Parts = [bytes(100_000)]
            for _ in range(25):  # what others want to tell it
                connection.send_parts(parts)
                await asyncio.sleep(0)
            await until(lambda: connection.closed)
            assert site.closes("slow-reader") == 1
            await client.close()

    run(scenario())


def test_when_all_hold_too_much_the_one_that_holds_most_is_closed(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(held_bytes_max=1_000_000)
        async with (
            serving(limits=limits) as site,
            connected(site.port) as big,
            connected(site.port) as small,
        ):
            frame = encode_command(Command(10, body=bytes(2_000_000)))
            small.write(frame[:200_000])
            await until(lambda: site.traffic.held.value >= 200_000)
            big.write(frame[:900_000])
            await big.ended()
            assert site.closes("memory-limit") == 1
            assert site.traffic.held.value == 200_000
            small.write(frame[200_000:900_000])
            await until(lambda: site.traffic.held.value == 900_000)
            assert len(site.server.connections) == 1

    run(scenario())


def test_a_call_waits_while_the_other_side_does_not_read(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(output_pause_bytes=100_000)
        async with serving(answer_big, limits=limits) as site:
            client = await _deaf_client(site.port)
            client.write(b"".join(encode_command(Command(10, opaque=n)) for n in range(200)))
            connection = await _until_undrained(site)
            call = asyncio.create_task(connection.call(Command(39, body=b"asked"), PATIENCE_S))
            await asyncio.sleep(0)
            assert not connection._output.size  # not even queued
            asked = None
            for _ in range(201):
                command = await client.answer()
                if not command.is_response:
                    asked = command
                    client.ask(reply_to(command, body=b"answered"))
            assert asked is not None
            assert (await call).body == b"answered"
            await client.close()

    run(scenario())
