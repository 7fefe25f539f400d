"""Addresses that are wrong, or not up yet: errors name them, consumers wait for name servers."""

import asyncio
import http.server
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from orbitmq.aio import Admin, Message, Producer, PullConsumer, PushConsumer
from orbitmq.errors import ConnectFailed, MQError, SettingError
from orbitmq.testing import EmbeddedBroker
from tests.client.producing import run
from tests.client.relay import relay
from tests.net.running import HOST, PATIENCE_S, until

NO_WAIT = 0.0


async def _send(namesrv: str) -> None:
    async with Producer(namesrv, "shop") as producer:
        await producer.send(Message("T", b"x"), timeout=0.3)


async def _submit(namesrv: str) -> None:
    async with Producer(namesrv, "shop") as producer:
        await producer.submit(Message("T", b"x"), timeout=0.3)


async def _push(namesrv: str) -> None:
    options = {"T": "*"}
    async with PushConsumer(namesrv, "g", print, subscriptions=options, start_wait_s=NO_WAIT):
        pass


async def _pull(namesrv: str) -> None:
    async with PullConsumer(namesrv, "g") as consumer:
        await consumer.subscribe("T")


async def _topics(namesrv: str) -> None:
    async with Admin(namesrv, request_timeout_s=0.3) as admin:
        await admin.topics()


async def _create(namesrv: str) -> None:
    async with Admin(namesrv, request_timeout_s=0.3) as admin:
        await admin.create_topic("T")


CALLS = [_send, _submit, _push, _pull, _topics, _create]


async def _refused(call: Callable[[str], Awaitable[None]], namesrv: str) -> MQError:
    with pytest.raises(MQError) as caught:
        await call(namesrv)
    assert namesrv in str(caught.value), caught.value
    return caught.value


def test_the_brokers_port_as_name_server_said_request_type_105_not_supported(
    orbitmq_broker: EmbeddedBroker,
) -> None:
    async def main() -> None:
        for call in CALLS:
            error = await _refused(call, orbitmq_broker.broker)
            assert isinstance(error, SettingError)
            assert "is no name server, but perhaps a broker" in str(error)

    run(main())


@contextmanager
def _web_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer((HOST, 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def _silent_server() -> Iterator[str]:
    with socket.create_server((HOST, 0)) as silent:
        yield f"{HOST}:{silent.getsockname()[1]}"


@pytest.mark.parametrize("serving", [_web_server, _silent_server])
def test_an_http_port_or_a_silent_server_was_not_named(
    serving: Callable[[], AbstractContextManager[str]],
) -> None:
    async def main(address: str) -> None:
        errors = await asyncio.gather(*(_refused(call, address) for call in CALLS))
        for error in errors:
            assert isinstance(error, ConnectFailed)
            assert "is it a name server that runs" in str(error)

    with serving() as address:
        run(main(address))


@pytest.mark.parametrize("scheme", ["http", "https", "rocketmq"])
def test_an_url_as_name_server_said_name_or_service_not_known(scheme: str) -> None:
    async def main() -> None:
        for call in CALLS:
            error = await _refused(call, f"{scheme}://127.0.0.1:9876")
            assert isinstance(error, SettingError)
            assert "write it as host:port alone, without http://" in str(error)

    run(main())


def test_one_wrong_name_server_among_several_is_passed_over(
    orbitmq_broker: EmbeddedBroker,
) -> None:
    async def main() -> None:
        for namesrvs in (
            f"{orbitmq_broker.broker};{orbitmq_broker.namesrv}",
            f"{orbitmq_broker.namesrv};{orbitmq_broker.broker}",
        ):
            async with Admin(namesrvs) as admin:
                for _ in range(3):
                    assert await admin.clusters()

    run(main())


# --- consumers begin before their name server ---


@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer])
def test_consumers_ended_when_the_name_server_was_not_up_yet(
    kind: type[PushConsumer] | type[PullConsumer],
    orbitmq_broker: EmbeddedBroker,
    orbitmq_topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    def waiting() -> list[str]:
        return [text for text in caplog.messages if "waits up to" in text]

    async def main() -> None:
        with socket.socket() as later:  # bound: refuses all until somebody listens
            later.bind((HOST, 0))
            namesrv = f"{HOST}:{later.getsockname()[1]}"
            consumer = kind(namesrv, "waiting", subscriptions={orbitmq_topic: "*"})
            starting = asyncio.create_task(consumer.start())
            await until(waiting)
            assert not starting.done()
            async with relay(later, orbitmq_broker.namesrv):
                await asyncio.wait_for(starting, PATIENCE_S)
                await consumer.close()
            (told,) = waiting()
            assert namesrv in told

    asyncio.run(main())


@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer])
def test_a_close_ends_the_wait_for_name_servers(
    kind: type[PushConsumer] | type[PullConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        consumer = kind("127.0.0.1:1", "waiting", subscriptions={"T": "*"})
        starting = asyncio.create_task(consumer.start())
        await until(lambda: "waits up to" in caplog.text)
        await consumer.close()
        with pytest.raises(ConnectFailed):
            await asyncio.wait_for(starting, PATIENCE_S)

    run(main())


def test_a_start_waits_no_longer_than_it_is_told() -> None:
    async def main() -> None:
        options = {"T": "*"}
        for wait_s in (0.0, 0.2):
            consumer = PushConsumer("127.0.0.1:1", "g", subscriptions=options, start_wait_s=wait_s)
            with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1"):
                await asyncio.wait_for(consumer.start(), PATIENCE_S)

    run(main())
