"""A pull that passed its checks, and how its outcome is answered.

In: what to look for in which queue, and what was gathered. Out: the answer's bytes, records as
views of the log. One table maps the outcome of a look to the response code.
"""

import msgspec

from orbitmq.core import Gathered, PullStatus, Queue
from orbitmq.net.connection import Parts
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_client import PullMessageAnswer

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


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """What a checked pull asks for."""

    request: Command
    queue: Queue
    queue_offset: int
    count_max: int
    codes: frozenset[int] | None


def pull_code(pull: Pull, found: Gathered) -> ResponseCode:
    """Give the response code for what a look into the queue found."""
    if found.status is PullStatus.NO_MESSAGE_IN_QUEUE:
        if pull.queue_offset == 0:
            return ResponseCode.PULL_NOT_FOUND
        return ResponseCode.PULL_OFFSET_MOVED
    return _CODES[found.status]


def found_parts(pull: Pull, found: Gathered) -> Parts:
    """Give the whole answer: one frame in pieces, the records not copied."""
    reply = reply_to(
        pull.request,
        pull_code(pull, found),
        found.status.value,
        fields=write_header(
            PullMessageAnswer(
                suggested_broker_id=0,
                next_begin_offset=found.next_offset,
                min_offset=pull.queue.min_offset,
                max_offset=pull.queue.readable_offset,
            )
        ),
    )
    frame = encode_command(reply)
    length = int.from_bytes(frame[:4], "big") + found.size
    return [length.to_bytes(4, "big") + frame[4:], *found.parts]
