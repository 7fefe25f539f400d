"""Hooks around the handler, and how one call of it is described to them.

In: the calls of a handler. Out: calls of the hooks, before and after.
Rule: a hook that fails is logged and does not change what becomes of the messages.
"""

import logging
from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec

from orbitmq.client.message import ReceivedMessage
from orbitmq.wire.bodies_client import MessageQueue

log = logging.getLogger(__name__)


class ConsumeReturn(Enum):
    """How a call of the handler ended, in the original's words."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"
    """It took longer than `consume_timeout_s`, whatever it said then."""
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"
    """Java's handlers may return null; in Python that is success, so this never comes."""
    FAILED = "FAILED"
    """It raised Retry or DeadLetter."""


class ConsumeContext(msgspec.Struct, kw_only=True):
    """One call of the handler."""

    group: str
    namespace: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    is_success: bool = False
    """After the call: whether the messages were consumed."""
    returned: ConsumeReturn | None = None
    """After the call: how it ended."""
    error: BaseException | None = None
    """After the call: what the handler raised."""
    notes: dict[str, Any] = {}
    """For the hook itself, from before to after."""


class ConsumeHook(Protocol):
    """What a program may have called around its handler, for tracing and the like.

    With a handler that is a plain function both run in the handler's thread.
    """

    def before_consume(self, context: ConsumeContext) -> None:
        """See messages before the handler gets them."""
        ...

    def after_consume(self, context: ConsumeContext) -> None:
        """See what came of it."""
        ...


def call_before(hooks: Sequence[ConsumeHook], context: ConsumeContext) -> None:
    """Call all hooks before the handler."""
    for hook in hooks:
        try:
            hook.before_consume(context)
        except Exception:  # the program's own
            log.exception("a hook failed before messages were consumed; it does not stop them")


def call_after(hooks: Sequence[ConsumeHook], context: ConsumeContext) -> None:
    """Call all hooks after the handler."""
    for hook in hooks:
        try:
            hook.after_consume(context)
        except Exception:  # the program's own
            log.exception("a hook failed after messages were consumed; it changes nothing")
