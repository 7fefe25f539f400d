"""Consumer offsets: query (14), update (15), compare (308), clone (314), and all of them (43, 45).

In: groups, topics and queues. Out: where the groups go on. What a group without a stored offset
gets depends on how young the queue is, not on what the client wishes.

Difference: comparing while leaving out groups (308 with filterGroups) makes the original forget the
offsets of the groups that are left out; ours only leaves them out.
"""

from orbitmq.broker.context import Context
from orbitmq.core import Queue
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import LimitExceeded, RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.reading import snapshot
from orbitmq.wire.bodies_consume import CorrectionOffsets
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_client import (
    QueryConsumerOffset,
    QueryConsumerOffsetAnswer,
    UpdateConsumerOffset,
)
from orbitmq.wire.headers_consume import CloneGroupOffset, QueryCorrectionOffset

LONG_MAX = 2**63 - 1
"""What 308 gives for a queue in which the group is behind all others: no correction."""


def query_consumer_offset(context: Context, request: Command, connection: Connection) -> Result:
    """Return the stored offset; 0 for a group without one on a young queue, whatever it asks for.

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
    return _zero_if_young(context, request, queue, connection)


def _zero_if_young(
    context: Context, request: Command, queue: Queue, connection: Connection
) -> Result:
    """Answer 0 if the first message ever sent to the queue is recent; a file may have to say."""
    view = snapshot(queue, 0, 1)
    recent_offset = context.core.tail.written_offset - context.recent_bytes

    def look() -> Command:
        entry = context.store.reader.entries(view, 0, 1)
        if len(entry) != ENTRY_SIZE or ENTRY.unpack(entry)[0] < recent_offset:
            raise _not_found()
        return _found(request, 0)

    return context.cold_reads.answer(connection, request, look)


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
    is_taken = store_offset(
        context, header.consumer_group, header.topic, header.queue_id, header.commit_offset
    )
    return reply_to(request, remark=None if is_taken else "Offset has been previously reset")


def store_offset(context: Context, group: str, topic: str, queue_id: int, offset: int) -> bool:
    """Store an offset; False when it is ignored because it was reset here."""
    try:
        return context.offsets.commit(group, topic, queue_id, offset)
    except LimitExceeded as error:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, str(error)) from None


def query_correction_offset(context: Context, request: Command, _connection: Connection) -> Result:
    """Return per queue of a topic the least offset of all groups that is still in the queue.

    For a queue in which the compared group is behind even that, it is LONG_MAX.
    """
    header = read_header(QueryCorrectionOffset, request.fields)
    left_out = set((header.filter_groups or "").split(","))
    least: dict[int, int] = {}
    for group in context.offsets.groups_of(header.topic):
        if group in left_out:
            continue
        for queue_id, offset in context.offsets.find_all(group, header.topic).items():
            queue = context.store.find_queue(header.topic, queue_id)
            if offset >= (0 if queue is None else queue.min_offset):
                least[queue_id] = min(offset, least.get(queue_id, LONG_MAX))
    for queue_id, offset in context.offsets.find_all(header.compare_group, header.topic).items():
        if least.get(queue_id, -1) > offset:
            least[queue_id] = LONG_MAX
    return reply_to(
        request, body=write_json(CorrectionOffsets(correction_offsets=least), standard=False)
    )


def clone_group_offset(context: Context, request: Command, _connection: Connection) -> Result:
    """Let a group stand where another one does; topics that are not there any more are left out.

    Unless it is said to be offline, only topics count to which the other one subscribes now.
    """
    header = read_header(CloneGroupOffset, request.fields)
    if context.groups.find(header.dest_group) is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{header.dest_group}] does not exist: no offset is stored",
        )
    live = context.clients.consumer_group(header.src_group)
    subscribed = live.subscriptions if live is not None and not header.offline else {}
    topics = [header.topic] if header.topic else context.offsets.topics_of(header.src_group)
    for topic in topics:
        if context.topics.find(topic) is None or (subscribed and topic not in subscribed):
            continue
        try:
            context.offsets.clone(header.src_group, header.dest_group, topic)
        except LimitExceeded as error:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return reply_to(request)


def get_all_consumer_offsets(context: Context, request: Command, connection: Connection) -> Result:
    """Return the whole table, as its file has it: slaves copy it."""
    encode = context.offsets.contents()
    return context.cold_reads.answer(connection, request, lambda: reply_to(request, body=encode()))


def get_all_delay_offsets(context: Context, request: Command, _connection: Connection) -> Result:
    """Return how far each delay level was delivered, as its file has it: slaves copy it."""
    return reply_to(request, body=write_json(context.delays.snapshot(), standard=False))
