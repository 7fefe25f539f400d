"""A port that refuses all until a test says so, and then passes everything on.

In: a bound socket, the address of a real server. Out: that server at the port of the socket, while
the block lasts.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def relay(listener: socket.socket, address: str) -> AsyncIterator[None]:
    """Have a bound socket accept connections and pass them on."""
    host, port = address.split(":")
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(host, port)
        writers.extend((writer, their_writer))
        await asyncio.gather(pump(reader, their_writer), pump(their_reader, writer))

    server = await asyncio.start_server(pass_on, sock=listener)
    try:
        yield
    finally:
        server.close()
        for writer in writers:
            writer.close()
