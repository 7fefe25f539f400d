"""A pull that passed its checks, and how its outcome is answered.

In: what to look for in which queue, and what was gathered. Out: the answer's bytes, records as
views of the log; the figures and the event that go with it. One table maps the outcome of a look to
the response code.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from orbitmq.broker.offset_moved import note_offset_moved
from orbitmq.core import Gathered, PullStatus, Queue, RecordFilter
from orbitmq.net.connection import Parts
from orbitmq.store.queue_ext import UnitFilter
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_client import PullMessageAnswer
from orbitmq.wire.record import log_offset_of

if TYPE_CHECKING:
    from orbitmq.broker.context import Context

_CODES = {
    PullStatus.FOUND: ResponseCode.SUCCESS,
    PullStatus.COLD: ResponseCode.PULL_RETRY_IMMEDIATELY,  # a held pull; asked again it is read
    PullStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    PullStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    PullStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    PullStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """Which broker a consumer is told to ask next (slaveReadEnable)."""

    usual_id: int
    slow_id: int
    """For those that read records before `slow_offset`, which are on the disk only."""
    slow_offset: int


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """What a checked pull asks for."""

    request: Command
    queue: Queue
    queue_offset: int
    count_max: int
    codes: frozenset[int] | None
    group: str = ""
    accepts: RecordFilter | None = None
    may_accept: UnitFilter | None = None
    bytes_max: int | None = None
    """When the client wants less than the broker allows."""
    is_bulk: bool = False
    suggestion: Suggestion | None = None


def pull_code(pull: Pull, found: Gathered) -> ResponseCode:
    """Return the response code for what a look into the queue found."""
    if found.status is PullStatus.NO_MESSAGE_IN_QUEUE:
        if pull.queue_offset == 0:
            return ResponseCode.PULL_NOT_FOUND
        return ResponseCode.PULL_OFFSET_MOVED
    return _CODES[found.status]


def found_parts(pull: Pull, found: Gathered) -> Parts:
    """Return the whole answer: one frame in pieces, the records not copied."""
    reply = reply_to(
        pull.request,
        pull_code(pull, found),
        found.status.value,
        fields=write_header(
            PullMessageAnswer(
                suggested_broker_id=_suggested_id(pull.suggestion, found),
                next_begin_offset=found.next_offset,
                min_offset=pull.queue.min_offset,
                max_offset=pull.queue.readable_offset,
            )
        ),
    )
    frame = encode_command(reply)
    length = int.from_bytes(frame[:4], "big") + found.size
    return [length.to_bytes(4, "big") + frame[4:], *found.parts]


Note = Callable[[Pull, Gathered, float], None]
"""Told of the outcome of a pull, and how many seconds it was looked up."""


def note_outcome(context: "Context", pull: Pull, found: Gathered, took_s: float) -> None:
    """Count what a pull got, and tell of an offset that its queue does not have."""
    topic = pull.queue.topic
    context.counts.note_look(took_s)
    if found.status is PullStatus.FOUND:
        context.counts.note_got(topic, pull.group, found.message_count, found.size)
        context.counts.note_latency(pull.queue.queue_id, topic, pull.group, took_s)
        return
    context.counts.note_missed()
    if pull_code(pull, found) is ResponseCode.PULL_OFFSET_MOVED:
        queue = MessageQueue(topic, context.settings.broker_name, pull.queue.queue_id)
        note_offset_moved(context, pull.group, queue, pull.queue_offset, found.next_offset)


def _suggested_id(suggestion: Suggestion | None, found: Gathered) -> int:
    """Return the master, unless slaves may be read and the records are far behind."""
    if suggestion is None:
        return 0
    if found.parts and log_offset_of(found.parts[-1]) < suggestion.slow_offset:
        return suggestion.slow_id
    return suggestion.usual_id
