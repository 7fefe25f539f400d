"""An application against a broker: consumed, retried, given up, and closed without rest."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.aio import Admin, ConsumeFromWhere, Message, MessageModel, Producer, Selector
from orbitmq.app import App, DeadLetter, with_app
from orbitmq.errors import ClientStateError, ConnectFailed, RequestFailed
from orbitmq.testing import EmbeddedBroker
from tests.app.shop import Order
from tests.foreign.judged import System

LIMIT_S = 20.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
FreshName = Callable[[str], str]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as embedded:
        yield embedded


@pytest.fixture
def namesrv(system: System) -> str:
    """Of OrbitMQ or of an original; `broker` is for what only it can do."""
    return system.namesrv


def test_what_one_listener_sends_another_one_consumes(namesrv: str, fresh_name: FreshName) -> None:
    orders, shipments = fresh_name("Orders"), fresh_name("Shipments")

    async def main() -> None:
        shipped: asyncio.Queue[tuple[dict[str, int], str]] = asyncio.Queue()
        app = App(namesrv, fresh_name("shop"))

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


def test_an_application_sends_one_way_together_and_from_plain_functions(
    namesrv: str, fresh_name: FreshName
) -> None:
    orders, notes = fresh_name("Orders"), fresh_name("Notes")

    async def main() -> None:
        noted: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        app = App(namesrv, fresh_name("shop"))

        @app.listener(orders, from_where=FIRST)
        def forward(order: str, key: str) -> None:
            sent = app.send_blocking(notes, f"{order} forwarded", keys=[key], timeout=LIMIT_S)
            assert sent.queue.topic == notes

        @app.listener(notes, from_where=FIRST)
        async def note(text: str, key: str) -> None:
            noted.put_nowait((text, key))

        async with app:
            await app.send_oneway(orders, "one way", keys=["0"])
            together = [app.message(orders, f"batch {n}", keys=[str(n)]) for n in (1, 2, 3)]
            results = await app.send_batch(together, key="same queue", timeout=LIMIT_S)
            assert len({result.queue for result in results}) == 1
            assert [result.queue_offset - results[0].queue_offset for result in results] == [
                0,
                1,
                2,
            ]
            got = [await asyncio.wait_for(noted.get(), LIMIT_S) for _ in range(4)]
            with pytest.raises(ClientStateError, match=r"`await app\.send"):
                app.send_blocking(orders, "on the loop")
        batch = {(f"batch {n} forwarded", str(n)) for n in (1, 2, 3)}
        assert set(got) == {("one way forwarded", "0"), *batch}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_an_application_s_send_waits_no_longer_than_it_is_told() -> None:
    """It always waited as long as the producer's default."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with App(f"127.0.0.1:{silent.getsockname()[1]}") as app:
                with pytest.raises(ConnectFailed, match=r"within 0\.05 s"):
                    await app.send("Topic", b"x", timeout=0.05)

    asyncio.run(main())


def test_a_listener_that_broadcasts_gets_what_another_program_got_as_well(
    namesrv: str, fresh_name: FreshName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where broadcasting members keep their offsets
    topic = fresh_name("Topic")

    async def main() -> None:
        got: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

        def program(number: int) -> App:
            app = App(namesrv, "everywhere")

            @app.listener(topic, message_model=MessageModel.BROADCASTING, from_where=FIRST)
            async def hear(text: str) -> None:
                got.put_nowait((number, text))

            return app

        async with program(0) as first, program(1):
            await first.send(topic, "to all")
            heard = [await asyncio.wait_for(got.get(), LIMIT_S) for _ in range(2)]
        assert sorted(heard) == [(0, "to all"), (1, "to all")]

    asyncio.run(main())


def test_an_orderly_listener_keeps_the_order_and_concurrency_is_what_was_asked_for(
    namesrv: str, fresh_name: FreshName
) -> None:
    ordered, free = fresh_name("Ordered"), fresh_name("Free")

    async def main() -> None:
        came: list[int] = []
        at_work: list[int] = []
        all_came, all_at_work = asyncio.Event(), asyncio.Event()
        app = App(namesrv, fresh_name("app"))

        @app.listener(ordered, is_orderly=True, from_where=FIRST)
        async def follow(number: int, reconsume_times: int) -> None:
            if number == 3 and not reconsume_times:
                raise ValueError("the others have to wait")
            came.append(number)
            if len(came) == 6:
                all_came.set()

        @app.listener(free, consume_threads=3, from_where=FIRST)
        async def meet(number: int) -> None:
            at_work.append(number)
            if len(at_work) == 3:
                all_at_work.set()
            await all_at_work.wait()  # nobody goes on before all three are there

        async with app, asyncio.timeout(LIMIT_S):
            for number in range(6):
                await app.send(ordered, number, sharding_key="one queue")
            for number in range(3):
                await app.send(free, number)
            await all_came.wait()
            await all_at_work.wait()
        assert came == [0, 1, 2, 3, 4, 5]

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


def test_an_application_is_started_once(namesrv: str, fresh_name: FreshName) -> None:
    async def main() -> None:
        async with App(namesrv, fresh_name("app")) as app:
            with pytest.raises(ClientStateError, match="running already"):
                await app.start()

    asyncio.run(main())


def test_an_application_runs_inside_an_asgi_lifespan(namesrv: str, fresh_name: FreshName) -> None:
    topic = fresh_name("Topic")

    async def main() -> None:
        app = App(namesrv, fresh_name("app"))
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


def test_a_listener_of_another_cluster_is_named_there_and_one_without_uses_the_applications(
    namesrv: str, fresh_name: FreshName, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = fresh_name("Topic"), fresh_name("shop")
    got: asyncio.Queue[str] = asyncio.Queue()
    caplog.set_level("INFO", "orbitmq.app.app")

    async def main() -> None:
        with EmbeddedBroker() as other:
            app = App(namesrv, group)

            @app.listener(topic, from_where=FIRST)
            async def here(body: str) -> None:
                got.put_nowait(f"here {body}")

            @app.listener(topic, from_where=FIRST, namesrv=other.namesrv)
            async def there(body: str) -> None:
                got.put_nowait(f"there {body}")

            async with app, Producer(other.namesrv, group) as producer:
                await app.send(topic, "one")
                await producer.send(Message(topic, b"two"))
                found = [await asyncio.wait_for(got.get(), LIMIT_S) for _ in range(2)]
            assert sorted(found) == ["here one", "there two"]

    asyncio.run(main())
    assert f"listener here consumes {topic} as {group}_here" in caplog.text
    assert f"listener there consumes {topic} as {group}_there" in caplog.text


def test_a_listener_that_cannot_start_ends_the_start_of_the_application(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    broker.create_topic(topic)

    async def main() -> None:
        app = App(broker.namesrv, fresh_name("shop"))

        @app.listener(topic)
        async def good(body: str) -> None: ...

        @app.listener(topic, selector=Selector.sql("no sql at all"))
        async def bad(body: str) -> None: ...

        with pytest.raises(RequestFailed):
            await app.start()
        with pytest.raises(ClientStateError, match="not running"):
            await app.send(topic, "x")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_the_lifespan_of_a_framework_starts_and_closes_it(
    namesrv: str, fresh_name: FreshName
) -> None:
    async def main() -> None:
        app = App(namesrv, fresh_name("app"))
        async with app.lifespan(object()):
            await app.send(fresh_name("Topic"), b"x")
        with pytest.raises(ClientStateError):
            await app.send("T", b"x")

    asyncio.run(main())


def test_a_framework_that_knows_no_lifespan_runs_the_application_all_the_same(
    namesrv: str, fresh_name: FreshName
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
        app = App(namesrv, fresh_name("app"))
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
    namesrv: str, fresh_name: FreshName
) -> None:
    async def web(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.complete"})
        raise ValueError("later")

    async def send(_event: Any) -> None:
        """Take what the server is told."""

    async def main() -> None:
        app = App(namesrv, fresh_name("app"))
        with pytest.raises(ValueError, match="later"):
            await with_app(app, web)({"type": "lifespan"}, None, send)  # type: ignore[arg-type]  # never called
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_program_that_only_sends_started_all_listeners(
    broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    app = App(broker.namesrv, fresh_name("shop"))
    seen: list[bytes] = []

    @app.listener(topic, group="only_sending", from_where=FIRST)
    def note(body: bytes) -> None:
        seen.append(body)

    async def main() -> None:
        async with app.only_sending() as sender:
            await sender.send(topic, b"one")
        async with Admin(broker.namesrv) as admin:
            assert "only_sending" not in await admin.groups()
        assert not seen
        with pytest.raises(ClientStateError, match="not running"):
            await app.send(topic, b"two")

    asyncio.run(main())
