"""The beginning and the end of an instance when they are disturbed: cancelled, or met half-way."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.client import instance as instances
from orbitmq.client.instance import join
from orbitmq.client.settings import ClientSettings
from orbitmq.errors import ConnectFailed, MQError
from orbitmq.net.connection import Connection
from orbitmq.net.peer import Peer
from orbitmq.net.turn import Turn
from orbitmq.wire.command import Command
from orbitmq.world.tls import TlsClientSettings
from tests.client.name_server_double import name_server_double, route_data
from tests.net.running import open_descriptors, serving

NOBODY = "127.0.0.1:1"


@asynccontextmanager
async def _silent() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A server that takes requests and answers none; the event says that one has come."""
    is_asked = asyncio.Event()

    def handle(_request: Command, _connection: Connection) -> None:
        is_asked.set()

    async with serving(handle) as site:
        yield site.address, is_asked


def _tasks_left() -> set[str]:
    return {repr(task) for task in asyncio.all_tasks() - {asyncio.current_task()}}


def test_a_close_while_a_route_is_asked_for_dials_no_other_name_server() -> None:
    async def main() -> None:
        async with _silent() as (one, one_asked), _silent() as (other, other_asked):
            before = open_descriptors()
            instance = await join(ClientSettings(namesrv=f"{one};{other}"))
            asking = asyncio.create_task(instance.routes.find("T"))
            is_asked = [asyncio.create_task(each.wait()) for each in (one_asked, other_asked)]
            await asyncio.wait(is_asked, return_when=asyncio.FIRST_COMPLETED)
            await instance.leave()
            for task in is_asked:
                task.cancel()
            with pytest.raises(MQError):
                await asking
            await asyncio.sleep(0.05)  # as long as a dial would take
            assert [one_asked.is_set(), other_asked.is_set()].count(True) == 1
            assert open_descriptors() == before

    asyncio.run(main())


def test_a_close_while_a_route_is_asked_for_leaves_no_task_and_no_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with _silent() as (address, is_asked):
            known = asyncio.all_tasks()
            instance = await join(ClientSettings(namesrv=address))
            asking = asyncio.create_task(instance.routes.find("T"))
            await is_asked.wait()
            asking.cancel()
            await asyncio.wait([asking])
            await instance.leave()
            assert asyncio.all_tasks() <= known

    asyncio.run(main())
    gc.collect()
    assert not caplog.records


def test_a_route_is_waited_for_three_seconds_at_most() -> None:
    async def main() -> None:
        async with _silent() as (address, _):
            instance = await join(ClientSettings(namesrv=address))
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            with pytest.raises(ConnectFailed, match="no name server says where topic T is"):
                await instance.routes.find("T")
            assert 2.9 < loop.time() - begun_s < 6
            await instance.leave()

    asyncio.run(main())


def test_a_close_while_it_dials_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(*_words: object) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)  # an end takes a turn or two

    async def main() -> None:
        monkeypatch.setattr("orbitmq.net.peer.dial", endless)
        peer = Peer(NOBODY, Turn(asyncio.get_running_loop()))
        calling = asyncio.create_task(peer.connect(5.0))
        await asyncio.sleep(0)
        peer.close()
        await peer.wait_closed()
        assert asyncio.all_tasks() <= {asyncio.current_task(), calling}
        with pytest.raises(ConnectFailed, match="this peer is closed"):
            await calling

    asyncio.run(main())


def test_a_cancelled_call_stays_cancelled_when_its_peer_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def endless(*_words: object) -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        monkeypatch.setattr("orbitmq.net.peer.dial", endless)
        peer = Peer(NOBODY, Turn(asyncio.get_running_loop()))
        calling = asyncio.create_task(peer.connect(5.0))
        await asyncio.sleep(0)
        calling.cancel()
        peer.close()
        await asyncio.wait([calling])
        assert calling.cancelled()
        await peer.wait_closed()

    asyncio.run(main())


def test_a_cancelled_start_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def main() -> None:
        for name in ("", "named"):
            settings = ClientSettings(namesrv=NOBODY, instance_name=name)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(join(settings), 0)
            starting = asyncio.create_task(join(settings))
            await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
            assert _tasks_left() == set()
        assert not instances._shared

    asyncio.run(main())


def test_one_cancelled_start_does_not_part_those_who_share_an_instance() -> None:
    async def main() -> None:
        settings = ClientSettings(namesrv=NOBODY, instance_name="shared")
        given_up = asyncio.create_task(join(settings))
        patient = asyncio.create_task(join(settings))
        await asyncio.sleep(0)
        given_up.cancel()
        one, other = await patient, await join(settings)
        assert one is other
        await one.leave()
        await other.leave()
        assert _tasks_left() == set()

    asyncio.run(main())


def test_a_cancelled_close_still_closes_sockets_and_timers() -> None:
    async def main() -> None:
        async with name_server_double(T=route_data("a")) as server:
            known = asyncio.all_tasks()
            instance = await join(ClientSettings(namesrv=server.address))
            await instance.routes.find("T")
            connection = instance.remote.peer(server.address).connection
            assert connection is not None
            stubborn = instance.spawn(_stubborn())
            await asyncio.sleep(0)
            closing = asyncio.create_task(instance.leave())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing, stubborn])
            assert closing.cancelled()
            assert asyncio.all_tasks() <= known
            assert connection.closed

    asyncio.run(main())


async def _stubborn() -> None:
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tls": TlsClientSettings(checks_server=False)}, {}),
        ({"client_ip": "10.0.0.1"}, {"client_ip": "10.0.0.2"}),
    ],
)
def test_instances_of_one_name_but_another_way_are_two(
    one: dict[str, object], other: dict[str, object]
) -> None:
    async def main() -> None:
        settings = [
            ClientSettings(namesrv=NOBODY, instance_name="shared", **options)  # type: ignore[arg-type]  # of the parameters
            for options in (one, other)
        ]
        first, second = [await join(each) for each in settings]
        assert first is not second
        await first.leave()
        await second.leave()

    asyncio.run(main())


def test_two_clusters_of_the_environment_are_two_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        settings = ClientSettings(instance_name="shared")
        monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
        one = await join(settings)
        monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:2")
        other = await join(settings)
        assert one is not other
        await one.leave()
        await other.leave()
        assert not instances._shared

    asyncio.run(main())


def test_work_of_an_instance_may_close_it() -> None:
    """A handler that a broker has called directly closes its consumer, the last of its instance."""

    async def main() -> None:
        instance = await join(ClientSettings(namesrv=NOBODY))
        work = instance.spawn(instance.leave())
        await asyncio.wait_for(work, 5.0)
        assert _tasks_left() == set()

    asyncio.run(main())
