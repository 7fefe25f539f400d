"""A small application for tests: orders are paid, shipped, and refused."""

from dataclasses import dataclass
from typing import Annotated

from orbitmq.aio import ReceivedMessage, Selector
from orbitmq.app import App, DeadLetter, Header, Retry


@dataclass
class Order:
    """What is ordered."""

    id: int
    amount: float = 0.0


app = App(group="shop")
seen: list[object] = []


@app.listener("orders", selector="paid", group="shipping")
async def ship(order: Order, key: str, region: str = "nowhere") -> None:
    """Ship what is paid, and say so."""
    seen.append((order, key, region))
    await app.send("shipments", {"order": order.id}, keys=[key])


@app.listener("orders", selector=Selector.sql("amount > 100"), name="large")
def note_large(message: ReceivedMessage, amount: Annotated[float, Header("amount")]) -> None:
    """A plain function: called in a thread."""
    seen.append((message.topic, amount))


@app.listener("refusals")
async def refuse(body: str, tag: str, reconsume_times: int) -> None:
    """Fail in all ways there are."""
    if tag == "never":
        raise DeadLetter("no")
    if tag == "later":
        raise Retry(delay_level=1)
    if reconsume_times < 1:
        raise ValueError(body)
    seen.append((body, reconsume_times))
