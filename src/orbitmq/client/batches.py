"""Many messages in few requests: which go together, and the body they make.

In: messages, in order, and how large a request may be. Out: runs of them, each one request.

Rules:
1. A batch has one topic and one answer to `waits_for_store`, no delays and no retry topic, as in
   the original; else LocalProtocolError says which message does not fit.
2. Order is kept: the runs, one after the other, are the messages as they were given. A run is as
   long as it can be.
3. A message is counted as large as the record it becomes at a broker at most, since brokers
   judge a batch by that.
4. One message that is larger than the limit is a run of its own; no run has more than
   `RUN_COUNT_MAX`.
"""

from collections.abc import Iterator, Sequence

from orbitmq.client.message import Message
from orbitmq.errors import LocalProtocolError
from orbitmq.wire.names import is_retry_topic

RUN_COUNT_MAX = 8_192
"""A broker's answer has an id of 33 characters for each."""

RECORD_OVERHEAD = 512
"""What a record has beside body, properties and topic, what brokers add to properties included."""


def check_batch(messages: Sequence[Message]) -> None:
    """Raise LocalProtocolError when these messages cannot be a batch (rule 1)."""
    if not messages:
        raise LocalProtocolError("a batch needs at least one message")
    first = messages[0]
    if is_retry_topic(first.topic):
        raise LocalProtocolError(f"topic {first.topic} takes no batches: retry topics never do")
    for number, message in enumerate(messages):
        fault = _misfit(first, message)
        if fault is not None:
            raise LocalProtocolError(f"message {number} does not fit the batch: {fault}")


def _misfit(first: Message, message: Message) -> str | None:
    if message.topic != first.topic:
        return f"its topic is {message.topic}, that of the first is {first.topic}"
    if message.delay_level:
        return f"it has delay level {message.delay_level}, and batches cannot be delayed"
    if message.waits_for_store != first.waits_for_store:
        return "its waits_for_store is not that of the first"
    return None


def record_size(message: Message, properties: bytes) -> int:
    """Return how many bytes a message takes at a broker, at most (rule 3)."""
    return RECORD_OVERHEAD + len(message.topic) + len(message.body) + len(properties)


def split(sizes: Sequence[int], bytes_max: int, count_max: int = RUN_COUNT_MAX) -> Iterator[slice]:
    """Return the runs of messages of these sizes, as slices.

    >>> list(split([4, 4, 4, 9], 8))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    start, held_bytes = 0, 0
    for index, size in enumerate(sizes):
        if index > start and (held_bytes + size > bytes_max or index - start >= count_max):
            yield slice(start, index)
            start, held_bytes = index, 0
        held_bytes += size
    if start < len(sizes):
        yield slice(start, len(sizes))
