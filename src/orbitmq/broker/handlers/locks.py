"""Locks of queues for ordered consumption: lock (41), unlock (42).

In: a client, its group and queues. Out: the queues that it may consume now. See `queue_locks`.

Rule: names come from the wire and are kept, so they are checked; whether the queues exist is not
asked, as in the original.
"""

from orbitmq.broker.context import Context
from orbitmq.errors import LimitExceeded, RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_consume import LockBatch, LockedQueues
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import read_request, write_json
from orbitmq.wire.names import RETRY_TOPIC_LENGTH_MAX, group_fault, topic_fault

QUEUES_PER_REQUEST_MAX = 2_000
"""A client asks for its share of one broker's queues; more would hold up everybody else."""

CLIENT_ID_CHARS_MAX = 1_024


def lock_batch(context: Context, request: Command, _connection: Connection) -> Result:
    """Lock queues for a client, or renew its locks; give those it holds now."""
    batch = _read_batch(request)
    now_s = context.clock.monotonic_s()
    try:
        held = context.queue_locks.lock(batch.consumer_group, batch.client_id, batch.queues, now_s)
    except LimitExceeded as error:
        raise RequestFailed(ResponseCode.SYSTEM_BUSY, str(error)) from None
    return reply_to(request, body=write_json(LockedQueues(queues=held), standard=True))


def unlock_batch(context: Context, request: Command, _connection: Connection) -> Result:
    """Give up a client's locks; those of others stay."""
    batch = _read_batch(request)
    context.queue_locks.unlock(batch.consumer_group, batch.client_id, batch.queues)
    return reply_to(request)


def _read_batch(request: Command) -> LockBatch:
    batch = read_request(request.body, LockBatch)
    faults = [group_fault(batch.consumer_group)]
    if not 0 < len(batch.client_id) <= CLIENT_ID_CHARS_MAX:
        faults.append(f"clientId has {len(batch.client_id)} characters, 1-{CLIENT_ID_CHARS_MAX}")
    if len(batch.queues) > QUEUES_PER_REQUEST_MAX:
        faults.append(f"{len(batch.queues)} queues, limit {QUEUES_PER_REQUEST_MAX} a request")
    else:
        faults += [topic_fault(queue.topic, RETRY_TOPIC_LENGTH_MAX) for queue in batch.queues]
        faults += [_broker_fault(queue.broker_name) for queue in batch.queues]
    for fault in filter(None, faults):
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)
    return batch


def _broker_fault(name: str) -> str | None:
    if len(name) <= CLIENT_ID_CHARS_MAX:
        return None
    return f"brokerName {name[:40]}… has {len(name)} characters, limit {CLIENT_ID_CHARS_MAX}"
