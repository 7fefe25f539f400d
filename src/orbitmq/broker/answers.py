"""Answers to sends: kept until they are true, and turned when they turn out not to be.

In: answers that say "stored", and how far the disk is. Out: the same answers, later, or others that
say why not.

Rules:
1. Our own answers are read again here, the cold way, so the hot path need not remember who asked.
   The limits of what peers send do not hold for them: the ids of a large batch make a long header.
2. Only answers to sends are turned; answers to pulls that wait beside them stay as they are.
3. An answer leaves once: released, timed out or failed.
4. Answers that cannot be turned close their own connection, which learns nothing, and hold up
   nobody else's.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from orbitmq.net.connection import Connection, Parts
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, decode_command, encode_command, reply_to
from orbitmq.wire.frame import FRAME_SIZE_MAX, FrameDecoder

log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    log_end: int
    deadline_s: float
    connection: Connection
    answers: Parts


class WaitingAnswers:
    """Answers that wait until the log is synced so far."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        """How many turns' answers wait."""
        return len(self._waiting)

    @property
    def next_deadline_s(self) -> float | None:
        """When the first of them has waited long enough."""
        return self._waiting[0].deadline_s if self._waiting else None

    def add(self, log_end: int, deadline_s: float, connection: Connection, answers: Parts) -> None:
        """Keep answers until the log is synced up to `log_end`."""
        self._waiting.append(_Waiting(log_end, deadline_s, connection, answers))

    def release(self, durable_offset: int) -> None:
        """Let the answers go that are true now."""
        waiting = self._waiting
        while waiting and waiting[0].log_end <= durable_offset:
            one = waiting.popleft()
            one.connection.send_parts(one.answers)

    def expire(self, now_s: float) -> int:
        """Answer those that waited too long as timed out, never as stored; give their number."""
        count = 0
        waiting = self._waiting
        while waiting and waiting[0].deadline_s <= now_s:
            one = waiting.popleft()
            send_turned(one.connection, one.answers, as_timed_out)
            count += 1
        return count

    def fail(self, cause: str) -> None:
        """Answer all with a failure: the records may be there or not."""
        while self._waiting:
            one = self._waiting.popleft()
            send_turned(one.connection, one.answers, lambda answers: as_failed(answers, cause))


def send_turned(connection: Connection, answers: Parts, turn: Callable[[Parts], Parts]) -> None:
    """Send what `turn` makes of answers; raises nothing (rule 4)."""
    try:
        connection.send_parts(turn(answers))
    except Exception:  # a bug of ours: its peer must not take it for stored, nor others wait for it
        log.exception("answers to %s could not be turned; its connection is closed", connection)
        connection.drop("internal-error")


def as_refused(answers: Parts, cause: str) -> Parts:
    """Turn "stored" into "not taken"."""
    return _turned(answers, ResponseCode.SERVICE_NOT_AVAILABLE, cause, keeps_fields=False)


def as_failed(answers: Parts, cause: str) -> Parts:
    """Turn "stored" into "who knows"."""
    return _turned(answers, ResponseCode.SYSTEM_ERROR, cause, keeps_fields=False)


def as_timed_out(answers: Parts) -> Parts:
    """Turn "stored" into "the disk was too slow", which keeps the message's place."""
    cause = "the log was not synced in time (syncFlushTimeout); the message may be lost"
    return _turned(answers, ResponseCode.FLUSH_DISK_TIMEOUT, cause, keeps_fields=True)


def _turned(answers: Parts, code: ResponseCode, cause: str, *, keeps_fields: bool) -> Parts:
    turned: Parts = []
    for frame in FrameDecoder().feed(b"".join(answers)):
        answer = decode_command(frame, header_size_max=FRAME_SIZE_MAX)
        if answer.code == ResponseCode.SUCCESS and "msgId" in answer.fields:
            answer = _with_code(answer, code, cause, keeps_fields=keeps_fields)
        turned.append(encode_command(answer))
    return turned


def _with_code(answer: Command, code: ResponseCode, cause: str, *, keeps_fields: bool) -> Command:
    if keeps_fields:
        return reply_to(answer, code, cause, fields=answer.fields)
    return reply_to(answer, code, cause)
