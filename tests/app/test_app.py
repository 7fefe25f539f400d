"""An application against a broker: consumed, retried, given up, and closed without rest."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orbitmq.aio import Admin, ConsumeFromWhere
from orbitmq.app import App, DeadLetter, with_app
from orbitmq.errors import ClientStateError
from orbitmq.testing import EmbeddedBroker
from tests.app.shop import Order

LIMIT_S = 20.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
FreshName = Callable[[str], str]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as embedded:
        yield embedded


def test_what_one_listener_sends_another_one_consumes(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    orders, shipments = fresh_name("Orders"), fresh_name("Shipments")

    async def main() -> None:
        shipped: asyncio.Queue[tuple[dict[str, int], str]] = asyncio.Queue()
        app = App(broker.namesrv, fresh_name("shop"))

        @app.listener(orders, from_where=FIRST)
        async def ship(order: Order, key: str) -> None:
            await app.send(shipments, {"order": order.id}, keys=[key], tag="out")

        @app.listener(shipments, selector="out", from_where=FIRST)
        async def note(shipment: dict[str, int], key: str) -> None:
            shipped.put_nowait((shipment, key))

        async with app:
            for number in range(3):
                await app.send(orders, Order(number), keys=[str(number)])
            got = [await asyncio.wait_for(shipped.get(), LIMIT_S) for _ in range(3)]
        assert sorted(got, key=str) == [({"order": n}, str(n)) for n in range(3)]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_an_exception_means_a_retry_and_a_dead_letter_is_one_at_once(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("Group")

    async def main() -> None:
        tries: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        app = App(broker.namesrv, fresh_name("app"))

        @app.listener(topic, group=group, from_where=FIRST)
        def handle(body: str, reconsume_times: int) -> None:
            tries_loop.call_soon_threadsafe(tries.put_nowait, (body, reconsume_times))
            if body == "bad":
                raise DeadLetter("never")
            if not reconsume_times:
                raise ValueError("not yet")

        tries_loop = asyncio.get_running_loop()
        async with app:
            await app.send(topic, "bad")
            await app.send(topic, "slow")
            first = [await asyncio.wait_for(tries.get(), LIMIT_S) for _ in range(2)]
            await _advance_until(broker, lambda: not tries.empty())
            assert sorted(first) == [("bad", 0), ("slow", 0)]
            assert await tries.get() == ("slow", 1)
        async with Admin(broker.namesrv) as admin:
            stats = await admin.topic_stats(f"%DLQ%{group}")
            assert stats.message_count == 1

    asyncio.run(main())


async def _advance_until(broker: EmbeddedBroker, is_so: Callable[[], bool]) -> None:
    """Move the broker's time until a retry has come: when it was sent back is not told."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            await asyncio.to_thread(broker.advance, 60)
            await asyncio.sleep(0.05)


def test_an_application_is_started_once(broker: EmbeddedBroker, fresh_name: FreshName) -> None:
    async def main() -> None:
        async with App(broker.namesrv, fresh_name("app")) as app:
            with pytest.raises(ClientStateError, match="running already"):
                await app.start()

    asyncio.run(main())


def test_an_application_runs_inside_an_asgi_lifespan(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        app = App(broker.namesrv, fresh_name("app"))
        steps: list[str] = []

        async def web(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "lifespan":
                steps.append(scope["type"])
                return
            for word in ("startup", "shutdown"):
                assert (await receive())["type"] == f"lifespan.{word}"
                await send({"type": f"lifespan.{word}.complete"})

        asgi = with_app(app, web)
        incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        outgoing: asyncio.Queue[Any] = asyncio.Queue()
        running = asyncio.ensure_future(asgi({"type": "lifespan"}, incoming.get, outgoing.put))
        incoming.put_nowait({"type": "lifespan.startup"})
        assert (await outgoing.get())["type"] == "lifespan.startup.complete"
        await app.send(topic, b"sent while it runs")
        await asgi({"type": "http"}, incoming.get, outgoing.put)
        incoming.put_nowait({"type": "lifespan.shutdown"})
        assert (await outgoing.get())["type"] == "lifespan.shutdown.complete"
        await running
        assert steps == ["http"]
        with pytest.raises(ClientStateError):
            await app.send(topic, b"too late")

    asyncio.run(main())


def test_a_start_that_fails_is_told_to_the_asgi_server() -> None:
    async def main() -> None:
        sent: list[Any] = []

        async def web(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "lifespan.startup.complete"})

        async def send(event: Any) -> None:
            sent.append(event)

        await with_app(App("nowhere"), web)({"type": "lifespan"}, None, send)  # type: ignore[arg-type]  # never called
        assert sent[0]["type"] == "lifespan.startup.failed"
        assert "not an address" in sent[0]["message"]

    asyncio.run(main())


def test_the_lifespan_of_a_framework_starts_and_closes_it(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    async def main() -> None:
        app = App(broker.namesrv, fresh_name("app"))
        async with app.lifespan(object()):
            await app.send(fresh_name("Topic"), b"x")
        with pytest.raises(ClientStateError):
            await app.send("T", b"x")

    asyncio.run(main())


def test_a_framework_that_knows_no_lifespan_runs_the_application_all_the_same(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    """Django's raises, others return; servers then go on, and no listener ever ran."""

    async def raising(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ValueError("only http")

    async def reading(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        raise ValueError("only http")

    async def returning(_scope: Any, _receive: Any, _send: Any) -> None:
        return

    async def main(web: Any) -> None:
        app = App(broker.namesrv, fresh_name("app"))
        incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        outgoing: asyncio.Queue[Any] = asyncio.Queue()
        asgi = with_app(app, web)
        running = asyncio.ensure_future(asgi({"type": "lifespan"}, incoming.get, outgoing.put))
        incoming.put_nowait({"type": "lifespan.startup"})
        async with asyncio.timeout(LIMIT_S):
            assert (await outgoing.get())["type"] == "lifespan.startup.complete"
            await app.send(fresh_name("Topic"), b"x")
            incoming.put_nowait({"type": "lifespan.shutdown"})
            assert (await outgoing.get())["type"] == "lifespan.shutdown.complete"
            await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    for web in (raising, reading, returning):
        asyncio.run(main(web))


def test_a_framework_that_fails_on_its_way_closes_the_application(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    async def web(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.complete"})
        raise ValueError("later")

    async def send(_event: Any) -> None:
        """Take what the server is told."""

    async def main() -> None:
        app = App(broker.namesrv, fresh_name("app"))
        with pytest.raises(ValueError, match="later"):
            await with_app(app, web)({"type": "lifespan"}, None, send)  # type: ignore[arg-type]  # never called
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
