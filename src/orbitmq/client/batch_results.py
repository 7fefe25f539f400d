"""What became of a batch: the answers to its requests, told of each message.

In: the requests of a batch, under way, and why the rest was not sent. Out: a SendResult for each
message, in their order; or BatchFailed or BatchUnknown, with what became of each.

Rule: what the program itself raised (a selector, a hook) is raised as it is.
"""

import asyncio
from collections.abc import Sequence

from orbitmq.client.send_result import SendResult
from orbitmq.client.sending import Sending
from orbitmq.errors import BatchFailed, BatchUnknown, MQError, OutcomeUnknown

Run = tuple[Sending, slice]
"""A request, and which of the batch's messages are in it."""


async def batch_results(
    topic: str, unique_ids: Sequence[str], sendings: list[Run], unsent: MQError | None
) -> list[SendResult]:
    """Wait for all requests of a batch; return one result for each message.

    `unsent` is why the messages behind those of the last request were not sent.
    """
    answers = await asyncio.gather(
        *(sending.future for sending, _ in sendings), return_exceptions=True
    )
    outcomes: list[SendResult | BaseException] = []
    for answer, (_, run) in zip(answers, sendings, strict=True):
        outcomes += _outcomes(answer, unique_ids[run])
    if unsent is not None:
        outcomes += [unsent] * (len(unique_ids) - len(outcomes))
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if not failures:
        return [outcome for outcome in outcomes if isinstance(outcome, SendResult)]
    for failure in failures:
        if not isinstance(failure, MQError):
            raise failure
    is_unknown = any(isinstance(failure, OutcomeUnknown) for failure in failures)
    error = BatchUnknown if is_unknown else BatchFailed
    raise error(topic, outcomes) from failures[0]


def _outcomes(
    answer: SendResult | BaseException, unique_ids: Sequence[str]
) -> list[SendResult | BaseException]:
    """Return what one request's answer says of each of its messages."""
    if isinstance(answer, BaseException):
        return [answer] * len(unique_ids)
    offset_ids = answer.offset_id.split(",")
    if len(offset_ids) != len(unique_ids):
        offset_ids = [""] * len(unique_ids)  # a 5.x broker may name the whole batch only
    return [
        SendResult(
            answer.status,
            unique_id,
            offset_id,
            answer.queue,
            answer.queue_offset + number,
            answer.transaction_id,
            answer.region_id,
        )
        for number, (unique_id, offset_id) in enumerate(zip(unique_ids, offset_ids, strict=True))
    ]
