"""An application's handlers called without a network, for its tests.

In: a value for a topic. Out: what became of it at each listener, and what handlers sent.

Rules:
1. A message goes the way it would go: through its body, its properties, each listener's selector
   (tags and SQL) and parameters. Only the broker is missing.
2. Nothing is tried again and nothing delivered onward by itself: the test does that if it wants.
"""

import asyncio
import inspect
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from orbitmq.app.app import App, SendOptions
from orbitmq.app.listeners import Listener
from orbitmq.client.batches import check_batch
from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.client.outcomes import DeadLetter
from orbitmq.client.outgoing import check_body, check_sendable
from orbitmq.client.producer_settings import ProducerSettings
from orbitmq.client.send_result import SendResult, SendStatus
from orbitmq.client.subscriptions import Selector
from orbitmq.errors import NotFound
from orbitmq.sql import compile_expression
from orbitmq.wire import properties as names
from orbitmq.wire.bodies_client import SQL92, MessageQueue
from orbitmq.wire.expression import TagFilter
from orbitmq.wire.host import Host
from orbitmq.wire.properties import encode_properties
from orbitmq.world.clock import SystemClock

BROKER = "test-client"
NOWHERE = Host("127.0.0.1", 0)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener made of a message."""

    listener: str
    error: Exception | None = None
    """What it raised; None when it consumed the message."""

    @property
    def is_consumed(self) -> bool:
        """Whether it returned in order."""
        return self.error is None

    @property
    def is_dead_letter(self) -> bool:
        """Whether the message would go to the dead letters at once."""
        return isinstance(self.error, DeadLetter)

    @property
    def is_retried(self) -> bool:
        """Whether the message would come again."""
        return self.error is not None and not self.is_dead_letter


class TestClient:
    """Calls an application's listeners; `sent` is what they sent.

    >>> async with TestClient(app) as client:
    ...     await client.deliver("orders", Order(id=1), tag="paid", keys=["1"])
    ...     assert client.sent[0].topic == "shipments"
    """

    __test__ = False  # for pytest: this is no test

    def __init__(self, app: App) -> None:
        self.sent: list[Message] = []
        self._app = app
        self._clock = SystemClock()
        self._stack = AsyncExitStack()
        self._count = 0

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._app.sending_through(self))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def send(self, message: Message, *, timeout: float | None = None) -> SendResult:
        """Take what a handler sends (called by the application)."""
        del timeout  # nothing is waited for here
        _check(message)
        self.sent.append(message)
        received = self._received(message, reconsume_times=0)
        return SendResult(
            status=SendStatus.SEND_OK,
            message_id=received.message_id,
            offset_id=received.offset_id,
            queue=received.queue,
            queue_offset=received.queue_offset,
        )

    async def send_oneway(self, message: Message) -> None:
        """Take what a handler sends without waiting."""
        await self.send(message)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout: float | None = None,
        key: str | int | None = None,
    ) -> list[SendResult]:
        """Take what a handler sends together; all of it, or nothing if one cannot be sent."""
        del timeout, key
        check_batch(messages)
        for message in messages:
            _check(message)
        return [await self.send(message) for message in messages]

    async def deliver(
        self,
        topic: str,
        value: Any = b"",
        /,
        *,
        reconsume_times: int = 0,
        **options: Unpack[SendOptions],
    ) -> list[Delivery]:
        """Hand a message to every listener that would get it; return what each made of it.

        Raises NotFound when no listener that is switched on consumes the topic.
        """
        received = self._received(self._app.message(topic, value, **options), reconsume_times)
        there = self._app.listeners()
        listeners = [one for one in there if one.topic == topic]
        if not listeners:
            topics = ", ".join(sorted({one.topic for one in there})) or "no topic"
            raise NotFound("listener", f"of topic {topic}", f"the application consumes {topics}")
        listeners = [one for one in listeners if _selects(one.selector, received)]
        return [await _consume(one, received) for one in listeners]

    def _received(self, message: Message, reconsume_times: int) -> ReceivedMessage:
        properties = message.wire_properties()
        self._count += 1
        properties.setdefault(names.UNIQ_KEY, f"{self._count:032X}")
        now_ms = self._clock.wall_ms()
        return ReceivedMessage(
            topic=message.topic,
            body=message.body,
            stored_properties=encode_properties(properties),
            queue=MessageQueue(message.topic, BROKER, 0),
            queue_offset=self._count,
            log_offset=self._count,
            born_ms=now_ms,
            born_host=NOWHERE,
            store_ms=now_ms,
            store_host=NOWHERE,
            reconsume_times=reconsume_times,
            flag=message.flag,
        )


def _check(message: Message) -> None:
    """Refuse what no producer would send."""
    check_sendable(message.topic)
    check_body(message.body, ProducerSettings().message_bytes_max)
    message.wire_properties()


def _selects(selector: Selector, message: ReceivedMessage) -> bool:
    if selector.kind == SQL92:
        return compile_expression(selector.expression).accepts(message.properties)
    return TagFilter.parse(selector.expression).matches_tag(message.tag)


async def _consume(listener: Listener, message: ReceivedMessage) -> Delivery:
    """Call a listener as its consumer would: a plain function in a thread."""
    handler = listener.handler()
    try:
        if inspect.iscoroutinefunction(handler):
            await handler(message)
        else:
            await asyncio.to_thread(handler, message)
    except Exception as error:  # whatever the program raises is an outcome
        return Delivery(listener=listener.name, error=error)
    return Delivery(listener=listener.name)
