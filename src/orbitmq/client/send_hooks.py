"""What a program may look at before and after each attempt to send.

In: hooks that a program adds to a producer. Out: calls of them.

Rules:
1. `before` runs when queue and broker are chosen, `after` when the attempt has an answer or has
   failed; both for every attempt, also of one-way sends and batches.
2. What a hook raises is logged and does no harm to the send.
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from orbitmq.client.message import Message
from orbitmq.client.send_result import SendResult
from orbitmq.wire.bodies_client import MessageQueue

log = logging.getLogger(__name__)


class SendMode(Enum):
    """How a message was sent."""

    SEND = "send"
    SUBMIT = "submit"
    ONEWAY = "oneway"


class SendContext(msgspec.Struct, kw_only=True):
    """One attempt. The same object goes to `before` and `after`; `memo` is the hooks' own."""

    group: str
    mode: SendMode
    messages: tuple[Message, ...]
    """One, or those of a batch."""
    queue: MessageQueue
    broker_address: str
    client_ip: str
    result: SendResult | None = None
    """For a batch, that of its first message."""
    error: Exception | None = None
    memo: dict[str, object] = {}


class SendHook(Protocol):
    """What a program adds to `producer.send_hooks`."""

    def before(self, context: SendContext) -> None:
        """Look at an attempt that is about to be made."""
        ...

    def after(self, context: SendContext) -> None:
        """Look at its result or error."""
        ...


def run_hooks(hooks: list[Callable[[SendContext], None]], context: SendContext) -> None:
    """Call all of them, whatever one raises."""
    for hook in hooks:
        try:
            hook(context)
        except Exception:  # a program's own code
            log.exception("a send hook failed; the message is sent all the same")
