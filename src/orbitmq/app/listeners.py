"""Listeners: functions that consume a topic, and what their outcome means.

In: a decorated function and its options, a received message. Out: the function called with the
message's parts; a return is success, an exception a retry, DeadLetter the end of its tries.

Rules:
1. A body or header that cannot be read goes to the dead letters at once: the next try would read
   the same. `retries_bad_bodies=True` lets it be tried again.
2. Topic, group, selector and name server may hold placeholders, which are read at the start; a
   listener without a name server uses the application's.
3. A coroutine function runs on the loop, a plain one in the consumer's threads. A plain one that
   gives a coroutine has done nothing: that is a failure, not a success.
"""

import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from orbitmq.app.bodies import BodyError
from orbitmq.app.calling import Call
from orbitmq.app.placeholders import resolved
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
    namesrv: str = ""
    """Empty: the application's."""
    retries_bad_bodies: bool = False
    options: dict[str, Any] = {}
    """Further options of its PushConsumer."""

    def with_settings(self, settings: ListenerSettings, group: str) -> "Listener":
        """Return the listener as file and environment want it; raises SettingError."""
        options = dict(self.options)
        if settings.concurrency is not None:
            options["consume_threads"] = settings.concurrency
        expression = self.selector.expression if settings.selector is None else settings.selector
        environment = os.environ
        return msgspec.structs.replace(
            self,
            topic=resolved(settings.topic or self.topic, environment),
            group=resolved(settings.group or self.group or f"{group}_{self.name}", environment),
            namesrv=resolved(settings.namesrv or self.namesrv, environment),
            selector=msgspec.structs.replace(
                self.selector, expression=resolved(expression, environment)
            ),
            options=options,
        )

    def handler(self) -> Callable[[ReceivedMessage], Any]:
        """Return what a PushConsumer calls with each message."""
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
