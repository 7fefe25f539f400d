"""Answers to sends: kept until they are true, and turned when they turn out not to be.

In: answers that say "stored", and how far the disk is. Out: the same answers, later, or others that
say why not.

Rules:
1. Our own answers are read again here, the cold way, so the hot path need not remember who asked.
   The limits of what peers send do not hold for them: the ids of a large batch make a long header.
2. Only answers to sends are turned; answers to pulls that wait beside them stay as they are.
3. An answer leaves once: when it is true, as timed out or as failed (see `watermark`).
4. Answers that cannot be turned close their own connection, which learns nothing, and hold up
   nobody else's.
"""

import logging
from collections.abc import Callable
from functools import partial

from orbitmq.errors import StoreError
from orbitmq.metrics import Counter
from orbitmq.net.connection import Connection, Parts
from orbitmq.watermark import Waiter
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, decode_command, encode_command, reply_to
from orbitmq.wire.frame import FRAME_SIZE_MAX, FrameDecoder

log = logging.getLogger(__name__)


class SentWhenTrue(Waiter):
    """Answers of one turn to one connection that wait until their records may be seen."""

    __slots__ = ("_answers", "_connection", "_late_count")

    def __init__(self, connection: Connection, answers: Parts, late_count: Counter) -> None:
        super().__init__()
        self._connection = connection
        self._answers = answers
        self._late_count = late_count

    def reached(self) -> None:
        """Let them go: they are true now."""
        self._connection.send_parts(self._answers)

    def failed(self, error: StoreError) -> None:
        """Answer with a failure: the records may be there or not."""
        send_turned(self._connection, self._answers, partial(as_failed, cause=str(error)))

    def late(self) -> None:
        """Answer as timed out, never as stored."""
        self._late_count.value += 1
        send_turned(self._connection, self._answers, as_timed_out)


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
