"""A real name server on a real port, for one test, on the test's own loop and with a hand clock.

In: settings and a folder. Out: a Site to talk to; when it is left, the server is stopped and no
socket or task is left of it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from orbitmq.config import load_settings
from orbitmq.config.namesrv import NamesrvSettings
from orbitmq.metrics import Registry
from orbitmq.namesrv.namesrv import NameServer
from orbitmq.namesrv.state import State
from orbitmq.net.turn import Turn
from orbitmq.wire.bodies_namesrv import RegisterBrokerBody, body_crc32, write_register_body
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_namesrv import RegisterBroker
from orbitmq.world.files import Files
from tests.namesrv.registering import TWO, HandClock, body, header
from tests.net.running import Client, connected, nothing_left, open_descriptors

HOST = "127.0.0.1"
LOCAL = f"{HOST}:10911"


@dataclass
class Site:
    """One running name server."""

    server: NameServer
    port: int
    clock: HandClock
    registry: Registry

    @property
    def state(self) -> State:
        assert self.server._state is not None
        return self.server._state

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@asynccontextmanager
async def name_server(
    folder: Path, files: Files | None = None, **properties: str
) -> AsyncIterator[Site]:
    """Run a name server; `properties` are the original's keys."""
    descriptors = open_descriptors()
    settings, _ = load_settings(NamesrvSettings, {"listenPort": "0", **properties})
    registry, clock = Registry(), HandClock()
    server = NameServer(
        settings,
        folder,
        turn=Turn(asyncio.get_running_loop()),
        registry=registry,
        files=files,
        clock=clock,
    )
    port = await server.start()
    try:
        yield Site(server, port, clock, registry)
    finally:
        await server.stop()
    await nothing_left(descriptors)


async def ask(
    client: Client, code: int, data: bytes = b"", *, version: int = 407, **fields: str
) -> Command:
    """Send one request and give its answer; fields by their wire names."""
    client.ask(Command(int(code), opaque=7, fields=fields, body=data, version=version))
    answer = await client.answer()
    assert answer.opaque == 7
    assert answer.is_response
    return answer


def register_request(
    head: RegisterBroker | None = None,
    data: RegisterBrokerBody | None = None,
    *,
    compressed: bool = False,
    **fields: str,
) -> Command:
    """A registration as a broker sends it; without arguments, of broker-a with two topics."""
    payload = write_register_body(data or body(*TWO), compressed=compressed)
    written = write_header(head or header(address=LOCAL))
    written |= {"compressed": str(compressed).lower(), "bodyCrc32": str(body_crc32(payload))}
    return Command(
        int(RequestCode.REGISTER_BROKER), opaque=7, fields=written | fields, body=payload
    )


async def register(
    client: Client,
    head: RegisterBroker | None = None,
    data: RegisterBrokerBody | None = None,
    *,
    compressed: bool = False,
    **fields: str,
) -> Command:
    """Register a broker over `client` and return the answer."""
    client.ask(register_request(head, data, compressed=compressed, **fields))
    return await client.answer()


__all__ = ["HOST", "LOCAL", "Client", "Site", "ask", "connected", "name_server", "register"]
