"""Every client over TLS, against a cluster that takes nothing else."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import orbitmq
from orbitmq.aio import (
    Admin,
    ConsumeFromWhere,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TlsClientSettings,
)
from orbitmq.app import App
from orbitmq.errors import ConnectFailed
from orbitmq.testing import EmbeddedBroker
from tests.net.certificates import Authority

LIMIT_S = 20.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
FreshName = Callable[[str], str]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def namesrv(authority: Authority) -> Iterator[str]:
    papers = authority.issue("server")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": papers.cert_path,
        "tls.server.keyPath": papers.key_path,
    }
    with EmbeddedBroker(settings=settings) as broker:
        yield broker.namesrv


@pytest.fixture(scope="module")
def tls(authority: Authority) -> TlsClientSettings:
    return TlsClientSettings(trust_cert_path=authority.path)


def test_a_message_goes_round_over_tls(
    namesrv: str, tls: TlsClientSettings, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def main() -> None:
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def handle(message: ReceivedMessage) -> None:
            got.put_nowait(message.body)

        async with Admin(namesrv, tls=tls) as admin:
            await admin.create_topic(topic, queue_count=1)
        body = b"x" * 300_000  # many records
        consumer = PushConsumer(namesrv, group, handle, tls=tls, from_where=FIRST)
        await consumer.subscribe(topic)
        async with Producer(namesrv, "shop", tls=tls, compress_from_bytes=2**30) as producer:
            queue = (await producer.send(Message(topic, body))).queue
            async with consumer, asyncio.timeout(LIMIT_S):
                assert await got.get() == body
        async with PullConsumer(namesrv, fresh_name("Group"), tls=tls) as pulling:
            assert [one.body for one in (await pulling.pull(queue, 0)).messages] == [body]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_synchronous_client_speaks_tls(
    namesrv: str, tls: TlsClientSettings, fresh_name: FreshName
) -> None:
    with orbitmq.Producer(namesrv, "shop", tls=tls) as producer:
        assert producer.send(Message(fresh_name("Topic"), b"x")).message_id


def test_an_application_speaks_tls(
    namesrv: str, tls: TlsClientSettings, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        got: asyncio.Queue[str] = asyncio.Queue()
        app = App(namesrv, fresh_name("app"), tls=tls)

        @app.listener(topic, from_where=FIRST)
        async def hear(body: str) -> None:
            got.put_nowait(body)

        async with app, asyncio.timeout(LIMIT_S):
            await app.send(topic, "over tls")
            assert await got.get() == "over tls"

    asyncio.run(main())


def test_who_does_not_trust_the_cluster_is_told_why(namesrv: str, tmp_path: Path) -> None:
    async def main() -> None:
        stranger = TlsClientSettings(trust_cert_path=Authority(tmp_path, "stranger").path)
        async with Admin(namesrv, tls=stranger) as admin:
            with pytest.raises(ConnectFailed, match="by TLS"):
                await admin.topic_route("T")

    asyncio.run(main())


def test_who_speaks_no_tls_is_told_to(namesrv: str) -> None:
    async def main() -> None:
        async with Admin(namesrv) as admin:
            with pytest.raises(ConnectFailed, match="does it want TLS"):
                await admin.topic_route("T")

    asyncio.run(main())
