"""Requests that take several steps: a task does them, its outcome is the answer.

In: what gives the answer to a request, and how long it may take. Out: the Later that is owed. Used
where a broker asks a client before it can answer, or acts on what was read from files.

Rule: the task ends with the answer, with its time, or with the connection that asked; so their
number is bounded by that of the Laters.
"""

import asyncio
from collections.abc import Awaitable, Callable

from orbitmq.errors import ConnectionClosed, LimitExceeded, RequestFailed, StoreError
from orbitmq.net.later import Later
from orbitmq.wire.codes import ResponseCode, code_text
from orbitmq.wire.command import Command, reply_to

Work = Callable[[], Awaitable[Command]]


class _Forwarded:
    """One request and the task that makes its answer."""

    def __init__(self, request: Command, work: Work, timeout_s: float) -> None:
        self._request = request
        self._timeout_s = timeout_s
        self.later = Later(timeout_s, self._give_up, self._cancel)
        self._task = asyncio.get_running_loop().create_task(self._answer(work))

    async def _answer(self, work: Work) -> None:
        try:
            reply = await work()
        except RequestFailed as error:
            reply = reply_to(self._request, error.code, error.remark)
        except (StoreError, ConnectionClosed, LimitExceeded) as error:
            reply = reply_to(self._request, ResponseCode.SYSTEM_ERROR, str(error))
        except Exception as error:  # a bug of ours: who asked must not wait for the time-out
            text = f"{type(error).__name__}: {error}"
            self.later.answer(reply_to(self._request, ResponseCode.SYSTEM_ERROR, text))
            raise
        self.later.answer(reply)

    def _cancel(self) -> None:
        self._task.cancel()

    def _give_up(self) -> Command:
        self._cancel()
        return reply_to(
            self._request,
            ResponseCode.SYSTEM_ERROR,
            f"request {code_text(self._request.code)} took more than {self._timeout_s:g} s and was"
            " given up",
        )


def answer_later(request: Command, work: Work, timeout_s: float) -> Later:
    """Begin the work; return the answer that is owed."""
    return _Forwarded(request, work, timeout_s).later
