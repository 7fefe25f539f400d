"""Reset a group's offsets in a topic by time (222).

In: a tool's wish. Out: the new offsets, to the tool and (220) to every member of the group.

Rules:
1. Each queue that can be written is looked at: by time, or its end when the time is -1. Unless it
   is forced an offset only goes back; else the queue keeps the one it has.
2. As in 4.9 the members move themselves and commit: the broker stores nothing. A group of which
   nobody is online is refused (206), and tools then set each queue's offset (15).
3. With useServerSideResetOffset it is as in 5.x: the offsets are stored here, also for a group that
   is offline, and the next pull of each queue is answered 21 with the offset to go on from.

Difference: 220 says whether the reset was forced; the original always says it was not.
"""

from orbitmq.broker.clients import ConsumerGroup
from orbitmq.broker.context import Context
from orbitmq.broker.forwarding import answer_later
from orbitmq.broker.handlers.client_calls import check_versions
from orbitmq.broker.pulls import Pull
from orbitmq.core import Queue
from orbitmq.errors import LimitExceeded, RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.reading import QueueView, offset_by_time, snapshot
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_consume import ResetOffsetList, ResetOffsets, ResetQueue
from orbitmq.wire.bodies_namesrv import TopicConfig
from orbitmq.wire.codes import Language, RequestCode, ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, Command, encode_command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_client import PullMessageAnswer
from orbitmq.wire.headers_consume import (
    NO_OFFSET,
    TO_THE_END,
    ResetClientOffset,
    ResetOffset,
)

TIMEOUT_S = 20.0

Offsets = dict[int, int]
"""Queue to offset."""


def reset_offset(context: Context, request: Command, connection: Connection) -> Result:
    """Move a group in a topic to a time."""
    header = read_header(ResetOffset, request.fields)
    is_here = context.settings.use_server_side_reset_offset
    reset = _reset_here if is_here else _reset_members
    return answer_later(request, lambda: reset(context, request, connection, header), TIMEOUT_S)


# --- As in 4.9: the members do it ---


async def _reset_members(
    context: Context, request: Command, connection: Connection, header: ResetOffset
) -> Command:
    config = context.topics.find(header.topic)
    if config is None:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
        )
    stored = context.offsets.find_all(header.consumer_group, header.topic)
    queue_ids = range(config.write_queue_count)
    for queue_id in queue_ids:
        if queue_id not in stored:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"THe consumer group <{header.consumer_group}> not exist: it has no offset for"
                f" queue {queue_id} of {header.topic}",
            )
    found = await _find_offsets(context, connection, header, queue_ids)
    if not header.is_force:
        found = {queue_id: min(offset, stored[queue_id]) for queue_id, offset in found.items()}
    group = context.clients.consumer_group(header.consumer_group)
    if group is None:
        raise RequestFailed(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {header.consumer_group}"
            f" Topic: {header.topic} Timestamp: {header.timestamp_ms}",
        )
    check_versions(group)
    offsets = _by_queue(context, header.topic, found)
    _tell_members(group, header, offsets, is_cpp=request.language == Language.CPP.name)
    return _done(request, offsets)


def _tell_members(
    group: ConsumerGroup,
    header: ResetOffset,
    offsets: dict[MessageQueue, int],
    *,
    is_cpp: bool,
) -> None:
    """Send 220 to all, in the form that the language of whoever asked can read."""
    if is_cpp:
        rows = [
            ResetQueue(
                broker_name=queue.broker_name,
                offset=offset,
                queue_id=queue.queue_id,
                topic=queue.topic,
            )
            for queue, offset in offsets.items()
        ]
        body = write_json(ResetOffsetList(offset_table=rows), standard=True)
    else:
        body = write_json(ResetOffsets(offset_table=offsets), standard=False)
    fields = ResetClientOffset(
        topic=header.topic,
        consumer_group=header.consumer_group,
        timestamp_ms=header.timestamp_ms,
        is_force=header.is_force,
    )
    notice = Command(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        flag=FLAG_ONEWAY,
        fields=write_header(fields),
        body=body,
    )
    frame = encode_command(notice)
    for connection in group.members:
        connection.send(frame)


# --- As in 5.x: the broker does it ---


async def _reset_here(
    context: Context, request: Command, connection: Connection, header: ResetOffset
) -> Command:
    config = context.topics.find(header.topic)
    if config is None:
        raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
    if not context.groups.get(header.consumer_group):
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"Group {header.consumer_group} does not exist",
        )
    found = await _find_offsets(context, connection, header, _asked_queues(config, header))
    group = header.consumer_group
    try:
        for queue_id, offset in found.items():
            context.offsets.reset(group, header.topic, queue_id, offset)
    except LimitExceeded as error:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, str(error)) from None
    finally:
        context.groups.withhold(group, is_withheld=context.offsets.has_resets(group))
    return _done(request, _by_queue(context, header.topic, found))


def _asked_queues(config: TopicConfig, header: ResetOffset) -> range:
    if header.queue_id < 0:
        return range(config.write_queue_count)
    if header.queue_id >= config.write_queue_count:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"topic[{header.topic}] has no queue {header.queue_id}",
        )
    return range(header.queue_id, header.queue_id + 1)


def answer_reset(context: Context, pull: Pull) -> Command | None:
    """Send a pull elsewhere if its queue was reset here and nobody has heard of it yet."""
    queue, group = pull.queue, pull.group
    offset = context.offsets.take_reset(group, queue.topic, queue.queue_id)
    if context.groups.is_withheld(group) and not context.offsets.has_resets(group):
        context.groups.withhold(group, is_withheld=False)
    if offset is None:
        return None
    answer = PullMessageAnswer(
        suggested_broker_id=0,
        next_begin_offset=offset,
        min_offset=queue.min_offset,
        max_offset=queue.readable_offset,
    )
    return reply_to(
        pull.request, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", fields=write_header(answer)
    )


# --- Offsets ---


async def _find_offsets(
    context: Context, connection: Connection, header: ResetOffset, queue_ids: range
) -> Offsets:
    """Return where each queue goes on; times are looked up in a thread."""
    queues = {queue_id: context.store.find_queue(header.topic, queue_id) for queue_id in queue_ids}
    if header.queue_id >= 0 and header.queue_offset != NO_OFFSET:
        return {header.queue_id: _checked(header.queue_offset, queues.get(header.queue_id))}
    if header.timestamp_ms == TO_THE_END:
        return {queue_id: _end(queue) for queue_id, queue in queues.items()}
    views = {queue_id: snapshot(queue) for queue_id, queue in queues.items() if queue is not None}
    found = await context.cold_reads.value(
        connection, lambda: _by_time(context, views, header.timestamp_ms)
    )
    return {queue_id: found.get(queue_id, 0) for queue_id in queue_ids}


def _by_time(context: Context, views: dict[int, QueueView], timestamp_ms: int) -> Offsets:
    reader = context.store.reader
    return {
        queue_id: max(0, offset_by_time(reader, view, timestamp_ms))
        for queue_id, view in views.items()
    }


def _end(queue: Queue | None) -> int:
    return 0 if queue is None else queue.readable_offset


def _checked(queue_offset: int, queue: Queue | None) -> int:
    first, end = (0, 0) if queue is None else (queue.min_offset, queue.readable_offset)
    if not first <= queue_offset <= end:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"Target offset {queue_offset} not in consume queue range [{first}-{end}]",
        )
    return queue_offset


def _by_queue(context: Context, topic: str, offsets: Offsets) -> dict[MessageQueue, int]:
    name = context.settings.broker_name
    return {MessageQueue(topic, name, queue_id): offset for queue_id, offset in offsets.items()}


def _done(request: Command, offsets: dict[MessageQueue, int]) -> Command:
    return reply_to(request, body=write_json(ResetOffsets(offset_table=offsets), standard=False))
