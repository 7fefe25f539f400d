"""Consumer offsets: query (14) and update (15).

In: a group, a topic and a queue. Out: where the group goes on. What a group without a stored offset
gets depends on how young the queue is, not on what the client wishes.
"""

from orbitmq.broker.context import Context
from orbitmq.core.state import ENTRY
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_client import (
    QueryConsumerOffset,
    QueryConsumerOffsetAnswer,
    UpdateConsumerOffset,
)


def query_consumer_offset(context: Context, request: Command, _connection: Connection) -> Result:
    """Give the stored offset; 0 for a group without one on a young queue, whatever it asks for.

    So does the original: a group that starts at the end would lose what was sent before its start.
    """
    header = read_header(QueryConsumerOffset, request.fields)
    offset = context.offsets.find(header.consumer_group, header.topic, header.queue_id)
    if offset is None and header.set_zero_if_not_found is not False:
        offset = 0 if _is_young(context, header.topic, header.queue_id) else None
    if offset is None:
        raise RequestFailed(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )
    return reply_to(request, fields=write_header(QueryConsumerOffsetAnswer(queue_offset=offset)))


def _is_young(context: Context, topic: str, queue_id: int) -> bool:
    """Whether the first message ever sent to the queue is still there and recent."""
    queue = context.store.find_queue(topic, queue_id)
    if queue is None or queue.readable_offset == 0:
        return True
    if queue.min_offset > 0:
        return False
    first_log_offset, _, _ = ENTRY.unpack(queue.read_entries(0, 1))
    return bool(context.core.tail.written_offset - first_log_offset <= context.recent_bytes)


def update_consumer_offset(context: Context, request: Command, _connection: Connection) -> Result:
    """Store where a group goes on."""
    header = read_header(UpdateConsumerOffset, request.fields)
    config = context.topics.find(header.topic)
    if config is None:
        raise RequestFailed(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist: no offset is stored"
        )
    if not 0 <= header.queue_id < max(config.read_queue_count, config.write_queue_count):
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR, f"topic[{header.topic}] has no queue {header.queue_id}"
        )
    if context.groups.find(header.consumer_group) is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{header.consumer_group}] does not exist: no offset is stored",
        )
    context.offsets.commit(
        header.consumer_group, header.topic, header.queue_id, header.commit_offset
    )
    return reply_to(request)
