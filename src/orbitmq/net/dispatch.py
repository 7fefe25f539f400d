"""The one place that turns an unknown code or an exception into a response.

In: a request and the table of handlers. Out: what the handler gave, or the response that says why
there is nothing better.

Rules:
1. What a handler raises on purpose keeps its code and its text: RequestFailed its own, a field that
   cannot be read 1 with the field's name, a StoreError 14.
2. Anything else is a bug of ours: 1 with type and text, counted, and logged with its traceback the
   first, second, fourth, eighth ... time, so that no peer can fill a disk with it.
3. A one-way request never gets an answer, not even an error; the connection sees to that.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from orbitmq.errors import RemoteProtocolError, RequestFailed, StoreError
from orbitmq.metrics import Registry
from orbitmq.wire.codes import RequestCode, ResponseCode, code_text
from orbitmq.wire.command import Command, reply_to

if TYPE_CHECKING:
    from orbitmq.net.connection import Connection, Result

    Handler = Callable[[Command, "Connection"], "Result"]

logger = logging.getLogger(__name__)

REMARK_SIZE_MAX = 4_096
"""An error's text may quote what the peer sent; the answer must not grow with it."""


class Failures:
    """Turns an exception into a response."""

    def __init__(self, registry: Registry) -> None:
        self._unforeseen = registry.counters(
            "orbitmq_handler_errors_total",
            "Requests that failed for a reason no handler foresaw, by request code.",
            "code",
        )

    def reply(self, request: Command, error: Exception) -> Command:
        """Return the response to a request whose handling raised `error`."""
        code: int = ResponseCode.SYSTEM_ERROR
        if isinstance(error, RequestFailed):
            code, remark = error.code, error.remark
        elif isinstance(error, RemoteProtocolError):
            remark = error.detail
        elif isinstance(error, StoreError):
            code, remark = ResponseCode.SERVICE_NOT_AVAILABLE, str(error)
        else:
            self._report(request, error)
            remark = f"{type(error).__name__}: {error}"
        return reply_to(request, code, remark[:REMARK_SIZE_MAX])

    def _report(self, request: Command, error: Exception) -> None:
        self._unforeseen.add(request.code)
        count = self._unforeseen.total()
        if count & (count - 1) == 0:
            logger.error(
                "request %s failed unforeseen (%d such failures so far)",
                code_text(request.code),
                count,
                exc_info=error,
            )


class Dispatcher:
    """A table of handlers as one handler."""

    def __init__(
        self,
        handlers: "Mapping[int, Handler]",
        registry: Registry,
        refused: Mapping[RequestCode, str] = MappingProxyType({}),
    ) -> None:
        """`refused` says why some codes are not served."""
        self._handlers = {int(code): handler for code, handler in handlers.items()}
        self._reasons = {int(code): reason for code, reason in refused.items()}
        self._failures = Failures(registry)

    def __call__(self, request: Command, connection: "Connection") -> "Result":
        """Return what the request's handler gives, or a response that names the failure."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = self._refusal(request.code)
            return reply_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        try:
            return handler(request, connection)
        except Exception as error:  # rule 2: no handler's bug ends a connection
            return self._failures.reply(request, error)

    def _refusal(self, code: int) -> str:
        """Return the original's words, and the reason if there is one."""
        text, reason = f" request type {code} not supported", self._reasons.get(code)
        return text if reason is None else f"{text}, {RequestCode(code).name}: {reason}"
