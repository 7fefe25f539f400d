"""A real server on a real port, for one test, and a plain client that knows only bytes.

In: a handler and limits. Out: a Site to talk to; when it is left, the server is stopped and nothing
may be left of it: no task, no descriptor.
"""

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from orbitmq.metrics import Registry
from orbitmq.net.connection import Connection, Handler, ReadFrames, Result, cut_next
from orbitmq.net.limits import Limits
from orbitmq.net.proxy_protocol import Proxies
from orbitmq.net.server import Server
from orbitmq.net.traffic import Traffic
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command, decode_command, encode_command, reply_to
from orbitmq.wire.frame import cut_frame
from orbitmq.world.tls import TlsSettings

HOST = "127.0.0.1"
PATIENCE_S = 10.0
"""How long something may take that takes milliseconds on a quiet machine."""

Run = Callable[[Coroutine[Any, Any, None]], None]


def echo(request: Command, connection: Connection) -> Result:
    """Answer with the request's body."""
    return reply_to(request, body=request.body)


@dataclass
class Site:
    """One running server."""

    server: Server
    port: int
    turn: Turn
    registry: Registry

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def traffic(self) -> Traffic:
        return Traffic(self.registry, "test")

    def closes(self, reason: str) -> int:
        return self.traffic.closes.value(reason)

    def connection(self) -> Connection:
        """The one connection that is open."""
        (connection,) = self.server.connections
        return connection


@asynccontextmanager
async def serving(
    handle: Handler = echo,
    *,
    limits: Limits | None = None,
    tls: TlsSettings | None = None,
    read_frames: ReadFrames = cut_next,
    proxies: Proxies | None = None,
) -> AsyncIterator[Site]:
    turn = Turn(asyncio.get_running_loop())
    registry = Registry()
    server = Server(
        "test",
        handle,
        turn,
        registry=registry,
        limits=limits or Limits(),
        read_frames=read_frames,
    )
    descriptors = open_descriptors()
    port = await server.start(HOST, 0, tls, proxies)
    try:
        yield Site(server, port, turn, registry)
    finally:
        await server.stop()
    await nothing_left(descriptors)
    assert registry.level("orbitmq_net_connections", "", {"server": "test"}).value == 0
    assert registry.level("orbitmq_net_laters", "", {"server": "test"}).value == 0
    assert registry.level("orbitmq_net_held_bytes", "", {"server": "test"}).value == 0


def open_descriptors() -> set[str]:
    """Every open descriptor with what it is."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(number + " " + os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # the folder's own descriptor
    return {name for name in found if "socket:" in name}


async def nothing_left(before: set[str]) -> None:
    """Wait until no task but ours and no socket but those of `before` is left."""
    async with asyncio.timeout(PATIENCE_S):
        while open_descriptors() - before or asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.sleep(0.01)


class Client:
    """A connection of which the test sees every byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, request: Command) -> None:
        self.writer.write(encode_command(request))

    async def answer(self) -> Command:
        """Return the next command the other side sent."""
        async with asyncio.timeout(PATIENCE_S):
            prefix = await self.reader.readexactly(4)
            rest = await self.reader.readexactly(struct.unpack(">i", prefix)[0])
        frame = cut_frame(prefix + rest, 0)
        assert frame is not None
        return decode_command(frame)

    async def ended(self) -> bytes:
        """Wait until the other side closes; return what it had sent before."""
        chunks = []
        async with asyncio.timeout(PATIENCE_S):
            try:
                while chunk := await self.reader.read(65536):
                    chunks.append(chunk)
            except OSError:  # reset, or a TLS alert
                pass
        return b"".join(chunks)

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(HOST, port, **options)
    client = Client(reader, writer)
    try:
        yield client
    finally:
        await client.close()


async def until(claim: Callable[[], object]) -> None:
    """Wait until a claim about another party's state holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not claim():
            await asyncio.sleep(0.005)
