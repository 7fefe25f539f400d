"""Several ports of one process: one count, one limit of descriptors, one sum of what is held."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.net.admission import DESCRIPTORS_APART
from orbitmq.net.limits import MIB, Limits
from orbitmq.net.server import Server
from orbitmq.net.traffic import Traffic
from orbitmq.wire.command import Command, encode_command
from tests.net.running import HOST, Run, Site, connected, echo, serving, until

FRAME = encode_command(Command(10, body=bytes(2 * MIB)))


@asynccontextmanager
async def second_port(site: Site, limits: Limits | None = None) -> AsyncIterator[Site]:
    """A second server that shares the admission of `site`."""
    server = Server("second", echo, site.turn, registry=site.registry, limits=limits or Limits())
    server.share(site.server.admission)
    port = await server.start(HOST, 0)
    try:
        yield Site(server, port, site.turn, site.registry)
    finally:
        await server.stop()


def test_the_limit_of_connections_counts_over_both_ports(run: Run) -> None:
    """Symptom: connectionsMax=5 let five in at the port and five more at the VIP port."""

    async def scenario() -> None:
        limits = Limits(connections_max=2)
        async with serving(limits=limits) as site, second_port(site, limits) as second:
            async with connected(site.port), connected(second.port):
                await until(lambda: site.server.connections and second.server.connections)
                for port in (site.port, second.port):
                    async with connected(port) as third:
                        assert await third.ended() == b""
            await until(lambda: not site.server.connections | second.server.connections)
            async with connected(second.port) as again:
                again.ask(Command(10))
                assert (await again.answer()).code == 0

    run(scenario())


def test_a_second_port_takes_no_descriptors_that_are_left_for_files(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Symptom: each port took what the system allows, and the store could open no file."""
    monkeypatch.setattr(
        "orbitmq.net.admission.allow_descriptors", lambda wanted: DESCRIPTORS_APART + 1
    )

    async def scenario() -> None:
        async with serving() as site, second_port(site) as second, connected(site.port):
            await until(lambda: site.server.connections)
            async with connected(second.port) as refused:
                assert await refused.ended() == b""

    run(scenario())
    assert caplog.text.count("ulimit -n") == 1


def test_what_both_ports_hold_is_one_sum_and_the_biggest_pays(run: Run) -> None:
    """Symptom: each port could hold as much memory as the process may."""

    async def scenario() -> None:
        limits = Limits(held_bytes_max=3 * MIB)
        async with (
            serving(limits=limits) as site,
            second_port(site, limits) as second,
            connected(second.port) as small,
            connected(site.port) as big,
        ):
            held = (Traffic(site.registry, "second").held, site.traffic.held)
            small.write(FRAME[: MIB + MIB // 2])
            await until(lambda: held[0].value == MIB + MIB // 2)
            big.write(FRAME[:-1])
            await big.ended()
            assert site.closes("memory-limit") == 1
            await until(lambda: held[1].value == 0)
            assert held[0].value == MIB + MIB // 2
            assert len(second.server.connections) == 1

    run(scenario())


def test_a_server_that_is_alone_has_a_limit_of_its_own(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(connections_max=1)
        async with serving(limits=limits) as site, connected(site.port):
            await until(lambda: site.server.connections)
            other = Server("other", echo, site.turn, registry=site.registry, limits=limits)
            port = await other.start(HOST, 0)
            async with connected(port) as client:
                client.ask(Command(10))
                assert (await client.answer()).code == 0
            await other.stop()

    run(scenario())
