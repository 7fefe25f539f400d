"""Hostile peers against a running server: each is dealt with as its case says, nobody else suffers.

Method: the server has the product's sizes and short times. Beside every case a well-behaved client
asks all the time. Afterwards the case's reason is counted, and no task or descriptor is left.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.metrics import Registry
from orbitmq.net.dispatch import Dispatcher
from orbitmq.net.limits import Limits
from orbitmq.world import net
from orbitmq.world.tls import TlsMode, TlsSettings
from tests.net.certificates import Authority
from tests.net.hostile_cases import CASES, HostileCase, WellBehaved
from tests.net.running import HOST, Site, serving, until

LIMITS = Limits(
    first_frame_s=1.0,
    begun_frame_s=1.0,
    blocked_s=1.0,
    idle_s=60.0,
    output_pause_bytes=256 * 1024,
)
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsSettings:
    pair = Authority(Path(tmp_path_factory.mktemp("tls"))).issue("server")
    return TlsSettings(mode=TlsMode.ENFORCING, cert_path=pair.cert_path, key_path=pair.key_path)


def _connect(port: int, *, with_tls: bool) -> Callable[[], socket.socket]:
    def connect() -> socket.socket:
        plain = socket.create_connection((HOST, port), PATIENCE_S)
        if not with_tls:
            return plain
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(plain)

    return connect


@asynccontextmanager
async def _well_behaved(site: Site, *, with_tls: bool) -> AsyncIterator[WellBehaved]:
    connect = _connect(site.port, with_tls=with_tls)
    client = await asyncio.to_thread(lambda: WellBehaved(connect))
    try:
        yield client
    finally:
        await asyncio.to_thread(client.stop)
    client.check()


async def _face(case: HostileCase, site: Site) -> None:
    reason = case.reason or "peer"
    async with _well_behaved(site, with_tls=case.needs_tls) as client:
        await until(lambda: client.answered or client.error)
        before = client.answered
        await asyncio.to_thread(case.act, HOST, site.port, PATIENCE_S)
        await until(lambda: site.closes(reason) >= case.count)
        await until(lambda: client.answered > before + 1 or client.error)
        await until(lambda: len(site.server.connections) == 1)  # the well-behaved one
        assert site.closes(reason) == case.count
        assert site.traffic.closes.total() == case.count  # and nothing for another reason
        assert site.traffic.unasked.value == case.unasked


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_peer_is_dealt_with_and_others_are_served(
    case: HostileCase, tls: TlsSettings
) -> None:
    async def scenario() -> None:
        handle = Dispatcher({}, Registry())
        settings = tls if case.needs_tls else None
        async with serving(handle, limits=LIMITS, tls=settings) as site:
            await _face(case, site)

    net.run(scenario())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop])
def test_all_of_them_at_once_do_not_keep_a_client_from_its_answers(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    cases = [case for case in CASES if not case.needs_tls and case.count == 1]

    async def scenario() -> None:
        handle = Dispatcher({}, Registry())
        async with serving(handle, limits=LIMITS) as site:
            async with _well_behaved(site, with_tls=False):
                await asyncio.gather(
                    *(asyncio.to_thread(case.act, HOST, site.port, PATIENCE_S) for case in cases)
                )
                await until(lambda: site.traffic.opens.value == len(cases) + 1)
                await until(lambda: site.traffic.closes.total() == len(cases))
            for case in cases:
                assert site.closes(case.reason or "peer") >= 1, case.name

    net.run(scenario(), loop_factory)
