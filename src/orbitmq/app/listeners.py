"""Listeners: functions that consume a topic, and what their outcome means.

In: a decorated function and its options, a received message. Out: the function called with the
message's parts; a return is success, an exception a retry, DeadLetter the end of its tries.

Rules:
1. A body or header that cannot be read goes to the dead letters at once: the next try would read
   the same. `retries_bad_bodies=True` lets it be tried again.
2. A coroutine function runs on the loop, a plain one in the consumer's threads. A plain one that
   gives a coroutine has done nothing: that is a failure, not a success.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from orbitmq.app.bodies import BodyError
from orbitmq.app.calling import Call
from orbitmq.app.settings import ListenerSettings
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.outcomes import DeadLetter
from orbitmq.client.subscriptions import Selector

F = TypeVar("F", bound=Callable[..., Any])


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """One decorated function."""

    name: str
    """What settings call it; the function's name unless given."""
    topic: str
    group: str
    """Empty: the application's group and the listener's name."""
    selector: Selector
    call: Call
    retries_bad_bodies: bool = False
    options: dict[str, Any] = {}
    """Further options of its PushConsumer."""

    def with_settings(self, settings: ListenerSettings, group: str) -> "Listener":
        """Give the listener as file and environment want it."""
        options = dict(self.options)
        if settings.concurrency is not None:
            options["consume_threads"] = settings.concurrency
        selector = self.selector
        if settings.selector is not None:
            selector = msgspec.structs.replace(selector, expression=settings.selector)
        return msgspec.structs.replace(
            self,
            topic=settings.topic or self.topic,
            group=settings.group or self.group or f"{group}_{self.name}",
            selector=selector,
            options=options,
        )

    def handler(self) -> Callable[[ReceivedMessage], Any]:
        """Give what a PushConsumer calls with each message."""
        return self._consume_async if self.call.is_async else self._consume

    async def _consume_async(self, message: ReceivedMessage) -> None:
        await self.call.function(**self._arguments(message))

    def _consume(self, message: ReceivedMessage) -> None:
        answer = self.call.function(**self._arguments(message))
        if isinstance(answer, Coroutine):
            answer.close()
            raise TypeError(
                f"listener {self.name} is a plain function that gives a coroutine, which nobody "
                "runs; write it, and what is around it, as async def"
            )

    def _arguments(self, message: ReceivedMessage) -> dict[str, Any]:
        try:
            return self.call.arguments(message)
        except BodyError as error:
            if self.retries_bad_bodies:
                raise
            raise DeadLetter(f"listener {self.name}: {error}") from error
