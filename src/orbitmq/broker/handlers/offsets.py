"""Consumer offsets: query (14) and update (15).

In: a group, a topic and a queue. Out: where the group goes on. What a group without a stored offset
gets depends on how young the queue is, not on what the client wishes.
"""

from orbitmq.broker.context import Context
from orbitmq.core import Queue
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.reading import snapshot
from orbitmq.wire.codes import RequestCode, ResponseCode
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
    if offset is not None:
        return _found(request, offset)
    if header.set_zero_if_not_found is False:
        raise _not_found()
    queue = context.store.find_queue(header.topic, header.queue_id)
    if queue is None or queue.readable_offset == 0:
        return _found(request, 0)
    if queue.min_offset > 0:
        raise _not_found()
    if context.core.tail.written_offset - context.store.first_offset <= context.recent_bytes:
        return _found(request, 0)  # the whole log is recent
    return _zero_if_young(context, request, queue)


def _zero_if_young(context: Context, request: Command, queue: Queue) -> Result:
    """Answer 0 if the first message ever sent to the queue is recent; a file may have to say."""
    view = snapshot(queue, 0, 1)
    recent_offset = context.core.tail.written_offset - context.recent_bytes

    def look() -> Command:
        entry = context.store.reader.entries(view, 0, 1)
        if len(entry) != ENTRY_SIZE or ENTRY.unpack(entry)[0] < recent_offset:
            raise _not_found()
        return _found(request, 0)

    return context.cold_reads.answer(request, look)


def _found(request: Command, offset: int) -> Command:
    return reply_to(request, fields=write_header(QueryConsumerOffsetAnswer(queue_offset=offset)))


def _not_found() -> RequestFailed:
    return RequestFailed(
        ResponseCode.QUERY_NOT_FOUND,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    )


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


HANDLERS = {
    RequestCode.QUERY_CONSUMER_OFFSET: query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: update_consumer_offset,
}
