"""A user's application that uses every name of `orbitmq.app` and the test broker, checked by mypy.

In: nothing. Out: one line. It is run and checked by test_every_name.
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated, assert_type

from orbitmq.aio import ReceivedMessage, SendResult
from orbitmq.app import (
    App,
    BodyError,
    DeadLetter,
    Delivery,
    Header,
    ListenerOptions,
    Retry,
    SendOptions,
    TestClient,
    with_app,
)
from orbitmq.testing import EmbeddedBroker

app = App(group="every_name_app", namespace="")
options: ListenerOptions = {"consume_threads": 4, "retries_bad_bodies": False}
tagged: SendOptions = {"tag": "paid", "keys": ["17"]}


@dataclass
class Order:
    """What is ordered."""

    id: int


@app.listener("orders", selector="paid", **options)
async def ship(order: Order, key: int, trace: Annotated[str, Header("trace")] = "none") -> None:
    """Take an order."""
    if key < 0:
        raise Retry(delay_level=2)
    if key != order.id:
        raise DeadLetter(trace)


@app.listener("refunds")
def note(message: ReceivedMessage) -> None:
    """Take a whole message."""
    assert message.topic == "refunds"


async def web(scope: object, receive: object, send: object) -> None:
    """An ASGI application."""


asgi = with_app(app, web)


async def main() -> None:
    """Call handlers without a broker, and with one."""
    assert_type(await ship(Order(17), 17), None)  # a decorated function is still itself
    async with TestClient(app) as client:
        deliveries = await client.deliver("orders", Order(17), **tagged)
        assert_type(deliveries, list[Delivery])
        assert all(one.is_consumed for one in deliveries)
        (bad,) = await client.deliver("orders", b"no order", **tagged)
        assert bad.error is not None
        assert isinstance(bad.error.__cause__, BodyError)
    with EmbeddedBroker() as broker:
        async with App(broker.namesrv, "every_name_app") as running:
            sent = await running.send("orders", Order(17), **tagged)
            assert_type(sent, SendResult)
            await running.send_oneway("orders", Order(18), **tagged)
            many = [running.message("orders", Order(number)) for number in range(3)]
            assert_type(await running.send_batch(many, key="17", timeout=3.0), list[SendResult])
            blocking = asyncio.to_thread(running.send_blocking, "orders", Order(19), timeout=3.0)
            assert_type(await blocking, SendResult)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
