"""A producer of the kill loop: 50 requests in flight on one connection, of every kind.

In: where the broker is, a seed. Out: sent messages, and a history of what became of each.
Run as `python -m tests.reliability.load_producer`; it ends by SIGTERM when nothing is under way.

Rules:
1. Kinds: single messages, batches, delayed ones, and ordered ones, of which each lane has one under
   way and sends it again until it is acknowledged, before the next.
2. Whatever is under way when the connection ends is unknown. Half of it is sent again under the
   same id, as clients do.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from typing import NamedTuple

from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.command import Command
from tests.behaviour.requests import send_request
from tests.reliability.audit import SCHEDULE_TOPIC
from tests.reliability.load_client import (
    BATCHED,
    DELAYED,
    GONE,
    ORDERED,
    PLAIN,
    QUEUE_COUNT,
    Client,
    body_of,
    client_arguments,
    hash_of,
)
from tests.wire_client import WireClient

IN_FLIGHT = 50
LANES = 4
BATCH_COUNT_MAX = 8
LEVELS = 3
ANSWER_LIMIT_S = 30.0
REFUSED_CODES = (2, 14)
"""System busy, service not available: it is not stored. All others leave that open."""
BATCH_CODE = 320


class Order(NamedTuple):
    """Messages that go in one request."""

    topic: str
    queue_id: int
    names: list[str]
    bodies: list[bytes]
    level: int = 0

    @property
    def is_ordered(self) -> bool:
        return self.topic == ORDERED

    def request(self) -> Command:
        """Return the request that sends them."""
        keys = [f"UNIQ_KEY\x01{name}\x02TAGS\x01A" for name in self.names]
        if self.topic == BATCHED:
            pairs = zip(self.bodies, keys, strict=True)
            body = encode_batch([BatchMessage(body, key.encode()) for body, key in pairs])
            request = send_request(self.topic, body, e=self.queue_id, m="true", i="")
            request.code = BATCH_CODE
            return request
        delay = f"\x02DELAY\x01{self.level}" if self.level else ""
        return send_request(self.topic, self.bodies[0], e=self.queue_id, i=keys[0] + delay)


class Producer(Client):
    """Sends until it is to end."""

    def __init__(self, arguments: list[str]) -> None:
        parsed = client_arguments(arguments)
        super().__init__(parsed)
        self._chance = random.Random(parsed.seed)
        self._count = 0
        self._again: deque[Order] = deque()
        self._lanes: deque[int] = deque(range(LANES))
        """Those that have nothing under way."""
        self._under_way: dict[int, Order] = {}

    def run(self) -> None:
        """Send over one connection after the other."""
        while (client := self.connect()) is not None:
            with client:
                try:
                    self._send(client)
                except GONE:
                    self._give_up()
        self._give_up()
        self.log.flush()

    def _send(self, client: WireClient) -> None:
        while not self.is_ending or self._under_way:
            self._fill(client)
            self._take(client.receive(ANSWER_LIMIT_S))
            while (arrived := client.arrived()) is not None:
                self._take(arrived)
            self.log.flush()

    def _fill(self, client: WireClient) -> None:
        """Let 50 requests be under way; each is in the history before it is sent."""
        orders: list[Order] = []
        while not self.is_ending and len(orders) + len(self._under_way) < IN_FLIGHT:
            orders.append(self._again.popleft() if self._again else self._new_order())
        for order in orders:
            for name, body in zip(order.names, order.bodies, strict=True):
                place = order.topic, order.queue_id, -1
                self.log.add("invoke", "send", *place, name, hash_of(body))
        self.log.flush()
        for number, order in enumerate(orders):
            try:
                self._under_way[client.send(order.request())] = order
            except GONE:
                for late, unsent in enumerate(orders[number:]):
                    self._under_way[-1 - late] = unsent  # part of it may have got through
                raise

    def _new_order(self) -> Order:
        kind = self._chance.random()
        if self._lanes and kind < 0.3:
            return self._order(ORDERED, self._lanes.popleft())
        queue_id = self._chance.randrange(QUEUE_COUNT)
        if kind < 0.45:
            return self._order(DELAYED, queue_id, level=1 + self._chance.randrange(LEVELS))
        if kind < 0.55:
            return self._order(BATCHED, queue_id, 1 + self._chance.randrange(BATCH_COUNT_MAX))
        return self._order(PLAIN, queue_id)

    def _order(self, topic: str, queue_id: int, count: int = 1, level: int = 0) -> Order:
        numbers = range(self._count, self._count + count)
        self._count += count
        names = [f"{self.log.process}-{number}" for number in numbers]
        bodies = [body_of(name, number) for name, number in zip(names, numbers, strict=True)]
        return Order(topic, queue_id, names, bodies, level)

    def _take(self, answer: Command) -> None:
        """Note an answer."""
        order = self._under_way.pop(answer.opaque, None)
        if order is None or not answer.is_response:
            return
        if answer.code in REFUSED_CODES:
            self._note(order, "fail")
            if order.is_ordered:
                self._again.append(order)
        elif answer.code != 0:
            self._unknown(order)
        else:
            self._note(order, "ok", int(answer.fields["queueOffset"]))
            if order.is_ordered:
                self._lanes.append(order.queue_id)

    def _note(self, order: Order, kind: str, offset: int = -1) -> None:
        topic, queue_id = order.topic, order.queue_id
        if order.level and kind == "ok":
            topic, queue_id = SCHEDULE_TOPIC, order.level - 1
        for number, (name, body) in enumerate(zip(order.names, order.bodies, strict=True)):
            at = offset + number if offset >= 0 else -1
            self.log.add(kind, "send", topic, queue_id, at, name, hash_of(body))

    def _unknown(self, order: Order) -> None:
        self._note(order, "unknown")
        if order.is_ordered or self._chance.random() < 0.5:
            self._again.append(order)

    def _give_up(self) -> None:
        """The connection is gone: nobody knows what became of what was under way."""
        orders = list(self._under_way.values())
        self._under_way.clear()
        for order in orders:
            self._unknown(order)
        self.log.flush()


if __name__ == "__main__":
    Producer(sys.argv[1:]).run()
