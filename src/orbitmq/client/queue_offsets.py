"""Offsets that brokers know: a queue's first and next, one at a time, and a group's.

In: an instance and a queue (with its namespace). Out: numbers, or the MQError that says why not.

Rules:
1. What a queue holds is asked of its master; a group's offset of any member, as the original does.
2. A group that has no offset is None, never a number: 0 would mean the queue's beginning.
"""

from typing import TypeVar

from orbitmq.client.instance import Instance
from orbitmq.client.remote import request
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fields import Header, read_header
from orbitmq.wire.headers_client import (
    GetEarliestStoreTime,
    GetEarliestStoreTimeAnswer,
    GetMaxOffset,
    GetMaxOffsetAnswer,
    GetMinOffset,
    GetMinOffsetAnswer,
    QueryConsumerOffset,
    QueryConsumerOffsetAnswer,
    SearchOffset,
    SearchOffsetAnswer,
    UpdateConsumerOffset,
)

A = TypeVar("A", bound=Header)

_STORED_OR_NOT = (int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND))


async def max_offset(
    instance: Instance, queue: MessageQueue, timeout_s: float | None = None
) -> int:
    """Return the offset that the queue's next message will get."""
    header = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
    asked = RequestCode.GET_MAX_OFFSET, header
    return (await _ask_master(instance, queue, asked, GetMaxOffsetAnswer, timeout_s)).queue_offset


async def min_offset(
    instance: Instance, queue: MessageQueue, timeout_s: float | None = None
) -> int:
    """Return the offset of the oldest message that the queue still has."""
    header = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)
    asked = RequestCode.GET_MIN_OFFSET, header
    return (await _ask_master(instance, queue, asked, GetMinOffsetAnswer, timeout_s)).queue_offset


async def offset_for_time(
    instance: Instance, queue: MessageQueue, timestamp_ms: int, timeout_s: float | None = None
) -> int:
    """Return the offset of the message that was stored about then (see protocol: 4.9 and 5.x)."""
    header = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms)
    asked = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header
    return (await _ask_master(instance, queue, asked, SearchOffsetAnswer, timeout_s)).queue_offset


async def earliest_store_ms(
    instance: Instance, queue: MessageQueue, timeout_s: float | None = None
) -> int:
    """Return when the queue's oldest message was stored; -1 for an empty queue."""
    header = GetEarliestStoreTime(topic=queue.topic, queue_id=queue.queue_id)
    asked = RequestCode.GET_EARLIEST_MSG_STORETIME, header
    answer = await _ask_master(instance, queue, asked, GetEarliestStoreTimeAnswer, timeout_s)
    return answer.timestamp_ms


async def group_offset(
    instance: Instance,
    group: str,
    queue: MessageQueue,
    timeout_s: float | None = None,
    *,
    zero_if_young: bool = True,
) -> int | None:
    """Return where a group is in a queue, as its broker has it; None when it has nothing.

    Brokers say 0 for a group that has nothing in a young queue. Without `zero_if_young` those of
    5.x say that it has nothing; those of 4.9 do not know the difference.
    """
    header = QueryConsumerOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=None if zero_if_young else False,
    )
    answer = await instance.remote.ask(
        await instance.routes.address(queue),
        request(RequestCode.QUERY_CONSUMER_OFFSET, header),
        timeout_s=timeout_s,
        expected=_STORED_OR_NOT,
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return read_header(QueryConsumerOffsetAnswer, answer.fields).queue_offset


async def store_group_offset(
    instance: Instance,
    group: str,
    queue: MessageQueue,
    offset: int,
    timeout_s: float | None = None,
) -> None:
    """Have a broker keep where a group is in a queue; returns when it has it."""
    header = UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await instance.remote.ask(
        await instance.routes.address(queue),
        request(RequestCode.UPDATE_CONSUMER_OFFSET, header),
        timeout_s=timeout_s,
    )


async def _ask_master(
    instance: Instance,
    queue: MessageQueue,
    asked: tuple[RequestCode, Header],
    answer_type: type[A],
    timeout_s: float | None,
) -> A:
    address = await instance.routes.master_address(queue)
    answer = await instance.remote.ask(address, request(*asked), timeout_s=timeout_s)
    return read_header(answer_type, answer.fields)
