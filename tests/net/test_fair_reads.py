"""One poll reads a bounded piece of each connection, however much a peer has sent.

And of that, requests are handled for a bounded time before it is the turn of others.
"""

import asyncio
import socket
import time
from collections import Counter
from contextlib import AsyncExitStack

from orbitmq.net.connection import Connection, cut_next
from orbitmq.net.limits import Limits
from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.frame import Frame
from tests.net.running import HOST, PATIENCE_S, Run, connected, serving, until

BIG = encode_command(Command(10, flag=2, body=bytes(20_000))) * 500
"""10 MB of one-way requests."""


class Ticks:
    """Counts the turns of the loop while it is running."""

    def __init__(self) -> None:
        self.now = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self.now += 1
        self._handle = self._loop.call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()


def test_a_peer_that_sends_much_is_read_once_in_a_turn_of_the_loop(run: Run) -> None:
    async def scenario() -> None:
        ticks = Ticks()
        reads: Counter[int] = Counter()
        size = 0

        def read_frames(
            connection: Connection, data: bytes, position: int
        ) -> tuple[int, Frame | None]:
            nonlocal size
            reads[ticks.now] += not position
            end, frame = cut_next(connection, data, position)
            size += end - position
            return end, frame

        limits = Limits(handling_s=PATIENCE_S)  # each read is handled in one go, and counts once
        async with serving(read_frames=read_frames, limits=limits) as site:
            with socket.create_connection((HOST, site.port), timeout=PATIENCE_S) as peer:
                for _ in range(4):  # the system's buffers grow with what flows
                    await asyncio.to_thread(peer.sendall, BIG)
                await until(lambda: size == 4 * len(BIG))
            ticks.stop()
        assert max(reads.values()) == 1

    run(scenario())


def test_everything_that_was_sent_is_handled_in_the_end(run: Run) -> None:
    async def scenario() -> None:
        count = 0

        def count_frames(
            connection: Connection, data: bytes, position: int
        ) -> tuple[int, Frame | None]:
            nonlocal count
            position, frame = cut_next(connection, data, position)
            count += frame is not None
            return position, frame

        async with serving(read_frames=count_frames) as site, connected(site.port) as client:
            client.write(BIG)
            async with asyncio.timeout(PATIENCE_S):
                await client.writer.drain()
            await until(lambda: count == 500)

    run(scenario())


def test_a_read_full_of_slow_requests_lets_others_in_between(run: Run) -> None:
    """Symptom: 250 KB of requests that nobody knows held up everybody else for 24 ms."""

    async def scenario() -> None:
        handled: list[str] = []

        def handle(request: Command, _connection: Connection) -> None:
            handled.append(request.fields["of"])
            end_s = time.monotonic() + 0.002
            while time.monotonic() < end_s:
                pass

        first, second = (Command(10, flag=2, fields={"of": name}) for name in ("first", "second"))
        async with (
            serving(handle) as site,
            connected(site.port) as one,
            connected(site.port) as other,
        ):
            one.write(encode_command(first) * 100)
            other.write(encode_command(second))
            await until(lambda: len(handled) == 101)
            assert handled.index("second") < 50
            one.write(encode_command(first))
            await until(lambda: len(handled) == 102)  # and it is read again

    run(scenario())


def test_peers_that_flood_share_the_time_that_one_of_them_would_get(run: Run) -> None:
    """Symptom: a turn took 2 ms for each peer that flooded, and others waited for all of them."""

    async def scenario() -> None:
        now_s, slices = 0.0, Counter[str]()
        took: dict[str, list[int]] = {}

        def handle(request: Command, connection: Connection) -> None:
            nonlocal now_s
            now_s += 0.0001
            slices[connection.peer] += 1

        def read_frames(
            connection: Connection, data: bytes, position: int
        ) -> tuple[int, Frame | None]:
            if not position and slices[connection.peer]:
                took.setdefault(connection.peer, []).append(slices.pop(connection.peer))
            return cut_next(connection, data, position)

        flood = encode_command(Command(10, flag=2)) * 400
        async with serving(handle, read_frames=read_frames) as site, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(site.port)) for _ in range(4)]
            site.server._watch.now_s = lambda: now_s
            for client in clients:
                client.write(flood)
            await until(lambda: sum(slices.values()) + sum(map(sum, took.values())) == 1600)
        # 2 ms are 20 requests: a quarter, the one before the clock is read, and the one too many.
        assert [max(counts[2:40]) <= 7 for counts in took.values()] == [True] * 4

    run(scenario())
