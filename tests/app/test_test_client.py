"""Handlers called without a network: what would come to them, and what becomes of it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.app import App, DeadLetter, Retry, TestClient
from orbitmq.app.bodies import BodyError
from orbitmq.errors import ClientStateError, LocalProtocolError, NotFound
from tests.app import shop
from tests.app.shop import Order


def _with_client(act: Callable[[TestClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with TestClient(shop.app) as client:
            await act(client)

    asyncio.run(main())


def test_a_handler_gets_its_arguments_and_sends() -> None:
    async def act(client: TestClient) -> None:
        headers = {"region": "north"}
        (delivery,) = await client.deliver(
            "orders", Order(1, 5.0), tag="paid", keys=["1"], headers=headers
        )
        assert delivery.is_consumed
        assert shop.seen == [(Order(1, 5.0), "1", "north")]
        (sent,) = client.sent
        assert (sent.topic, sent.body, sent.keys) == ("shipments", b'{"order":1}', ["1"])

    _with_client(act)


def test_selectors_decide_by_tag_and_by_sql() -> None:
    async def act(client: TestClient) -> None:
        assert await client.deliver("orders", Order(1), tag="open") == []
        (large,) = await client.deliver("orders", b"", tag="open", headers={"amount": "150"})
        assert large.listener == "large"
        assert shop.seen == [("orders", 150.0)]

    _with_client(act)


def test_what_a_handler_raises_is_told() -> None:
    async def act(client: TestClient) -> None:
        (dead,) = await client.deliver("refusals", "x", tag="never")
        (later,) = await client.deliver("refusals", "x", tag="later")
        (failed,) = await client.deliver("refusals", "x")
        (again,) = await client.deliver("refusals", "x", reconsume_times=1)
        assert (dead.is_dead_letter, dead.is_retried) == (True, False)
        assert isinstance(dead.error, DeadLetter)
        assert isinstance(later.error, Retry)
        assert later.is_retried
        assert isinstance(failed.error, ValueError)
        assert failed.is_retried
        assert again.is_consumed
        assert shop.seen == [("x", 1)]

    _with_client(act)


def test_a_body_that_cannot_be_read_is_a_dead_letter_at_once() -> None:
    async def act(client: TestClient) -> None:
        (delivery,) = await client.deliver("orders", "no order", tag="paid")
        assert delivery.is_dead_letter
        assert isinstance(delivery.error, DeadLetter)
        assert isinstance(delivery.error.__cause__, BodyError)

    _with_client(act)


def test_an_application_that_does_not_run_does_not_send() -> None:
    async def main() -> None:
        with pytest.raises(ClientStateError, match="not running"):
            await shop.app.send("orders", Order(1))

    asyncio.run(main())


def test_a_plain_handler_sends_under_a_test_client() -> None:
    app = App(group="plain")

    @app.listener("orders")
    def forward(order: str) -> None:
        app.send_blocking("notes", order)

    async def main() -> None:
        async with TestClient(app) as client:
            (delivery,) = await client.deliver("orders", "one")
            assert delivery.is_consumed, delivery.error
            assert [(one.topic, one.body) for one in client.sent] == [("notes", b"one")]
        with pytest.raises(ClientStateError, match="not running"):
            await asyncio.to_thread(app.send_blocking, "notes", "too late")

    asyncio.run(main())


def test_what_no_producer_would_send_no_handler_sends() -> None:
    """The test passed, and the program failed."""

    async def main() -> None:
        async with TestClient(shop.app) as client:
            with pytest.raises(LocalProtocolError, match="empty"):
                await shop.app.send("shipments", b"")
            with pytest.raises(LocalProtocolError, match="' ' at position 1"):
                await shop.app.send("a b", b"x")
            with pytest.raises(LocalProtocolError, match="empty"):
                await shop.app.send_oneway("shipments", b"")
            good = shop.app.message("shipments", b"x")
            for bad in (
                shop.app.message("others", b"x"),
                shop.app.message("shipments", b""),
                shop.app.message("shipments", b"x", delay_level=1),
                shop.app.message("shipments", b"x", headers={"KEYS": "x"}),
            ):
                with pytest.raises(LocalProtocolError):
                    await shop.app.send_batch([good, bad])
            assert client.sent == []
            results = await shop.app.send_batch([good, good])
            assert client.sent == [good, good]
            assert len({result.message_id for result in results}) == 2

    asyncio.run(main())


def test_a_plain_function_that_gives_a_coroutine_has_not_consumed_its_message() -> None:
    app = App(group="coroutines")

    async def ship(_body: bytes) -> None:
        raise AssertionError("nobody runs this")

    @app.listener("orders")
    def wrapped(body: bytes) -> object:
        return ship(body)

    async def main() -> None:
        async with TestClient(app) as client:
            (delivery,) = await client.deliver("orders", b"x")
        assert delivery.is_retried
        assert "write it, and what is around it, as async def" in str(delivery.error)

    asyncio.run(main())


def test_delivering_to_a_mistyped_topic_gave_an_empty_list() -> None:
    app = App("127.0.0.1:1")

    @app.listener("orders", selector="paid")
    def ship(body: str) -> None:
        """Consume."""

    async def main() -> None:
        async with TestClient(app) as client:
            with pytest.raises(NotFound, match=r"no listener of topic oders.*consumes orders"):
                await client.deliver("oders", "x")
            assert await client.deliver("orders", "x", tag="open") == []

    asyncio.run(main())
