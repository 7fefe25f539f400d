"""What the producer's tests share: a loop that must end empty, and reading back what was stored.

In: a scenario, or the result of a send. Out: the scenario's end with nothing left of it, or the
record that the broker has.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from orbitmq.client.message import ReceivedMessage, received
from orbitmq.client.send_result import SendResult
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.wire.record import decode_record
from tests.wire_client import WireClient

VIEW_MESSAGE = 33
LIMIT_S = 30.0


def run(scenario: Coroutine[Any, Any, None], limit_s: float = LIMIT_S) -> None:
    """Run a scenario to its end; nothing but it may be left then."""

    async def alone() -> None:
        async with asyncio.timeout(limit_s):
            await scenario
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    asyncio.run(alone())


def stored(broker: str, results: Sequence[SendResult]) -> list[ReceivedMessage]:
    """Return what a broker has for these results, looked up by their offset ids."""
    with WireClient(broker) as client:
        return [_view(client, result) for result in results]


def _view(client: WireClient, result: SendResult) -> ReceivedMessage:
    place = decode_offset_id(result.offset_id)
    answer = client.ask(VIEW_MESSAGE, offset=place.log_offset)
    assert answer.code == 0, answer.remark
    return received(decode_record(answer.body)[0], result.queue.broker_name)
