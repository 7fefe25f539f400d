"""Looking for messages and offsets: by key (12), time (29), ends (30, 31, 32), message id (33).

In: a topic and what to look for. Out: records, an offset or a time. What needs files is read in a
thread. A topic or queue that does not exist has the offsets of an empty one, as in the original.
"""

from orbitmq.broker.context import Context
from orbitmq.core import Queue
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Parts, Result
from orbitmq.store.reading import (
    NO_TIME,
    earliest_store_ms,
    offset_by_time,
    record_by_offset,
    snapshot,
)
from orbitmq.store.store import KeyQuery
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_client import (
    GetEarliestStoreTime,
    GetEarliestStoreTimeAnswer,
    GetMaxOffset,
    GetMaxOffsetAnswer,
    GetMinOffset,
    GetMinOffsetAnswer,
    QueryMessage,
    QueryMessageAnswer,
    SearchOffset,
    SearchOffsetAnswer,
    ViewMessage,
)

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
ANSWER_SIZE_MAX = 8 * 1_048_576
"""An answer must fit a frame; behind the first message, what does not fit any more is left out."""


def get_max_offset(context: Context, request: Command, _connection: Connection) -> Result:
    """Return the offset that the next message of a queue will get."""
    header = read_header(GetMaxOffset, request.fields)
    queue = _find(context, header.topic, header.queue_id)
    offset = 0 if queue is None else queue.readable_offset
    return reply_to(request, fields=write_header(GetMaxOffsetAnswer(queue_offset=offset)))


def get_min_offset(context: Context, request: Command, _connection: Connection) -> Result:
    """Return the first offset of a queue that still has its message."""
    header = read_header(GetMinOffset, request.fields)
    queue = _find(context, header.topic, header.queue_id)
    offset = 0 if queue is None else queue.min_offset
    return reply_to(request, fields=write_header(GetMinOffsetAnswer(queue_offset=offset)))


def search_offset(context: Context, request: Command, connection: Connection) -> Result:
    """Return the offset of the message stored nearest to a time."""
    header = read_header(SearchOffset, request.fields)
    queue = _find(context, header.topic, header.queue_id)
    if queue is None:
        return reply_to(request, fields=write_header(SearchOffsetAnswer(queue_offset=0)))
    view = snapshot(queue)

    def search() -> Command:
        offset = offset_by_time(context.store.reader, view, header.timestamp_ms)
        return reply_to(request, fields=write_header(SearchOffsetAnswer(queue_offset=offset)))

    return context.cold_reads.answer(connection, request, search)


def get_earliest_store_time(context: Context, request: Command, connection: Connection) -> Result:
    """Return when the first message that a queue still has was stored; -1 when there is none."""
    header = read_header(GetEarliestStoreTime, request.fields)
    queue = _find(context, header.topic, header.queue_id)
    if queue is None:
        answer = GetEarliestStoreTimeAnswer(timestamp_ms=NO_TIME)
        return reply_to(request, fields=write_header(answer))
    view = snapshot(queue)

    def search() -> Command:
        time_ms = earliest_store_ms(context.store.reader, view)
        answer = GetEarliestStoreTimeAnswer(timestamp_ms=time_ms)
        return reply_to(request, fields=write_header(answer))

    return context.cold_reads.answer(connection, request, search)


def view_message(context: Context, request: Command, connection: Connection) -> Result:
    """Return the record at a log offset, which a message id carries."""
    header = read_header(ViewMessage, request.fields)
    visible_offset = context.core.tail.visible_offset

    def read() -> Parts:
        record = record_by_offset(context.store.reader, header.log_offset, visible_offset)
        if record is None:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {header.log_offset}: it was removed, or no"
                " message begins there",
            )
        return [encode_command(reply_to(request, body=record))]

    return context.cold_reads.answer(connection, request, read)


def query_message(context: Context, request: Command, connection: Connection) -> Result:
    """Return the newest messages of a topic that have a key, in the order of the log."""
    header = read_header(QueryMessage, request.fields)
    is_unique = request.fields.get(UNIQUE_KEY_QUERY) == "true"
    settings = context.settings
    count_max = max(0, min(header.count_max, settings.max_msgs_num_batch))
    if is_unique:  # as the original: whatever is asked for
        count_max = settings.default_query_max_num
    find = context.store.lookup(
        KeyQuery(header.topic, header.key, header.begin_ms, header.end_ms, count_max)
    )
    visible_offset = context.core.tail.visible_offset
    index = context.store.index_state()
    answer = QueryMessageAnswer(
        index_end_ms=index.index_end_ms, index_end_offset=index.index_end_offset
    )

    def read() -> Parts:
        records: list[bytes] = []
        size = 0
        for log_offset in find():
            record = record_by_offset(context.store.reader, log_offset, visible_offset)
            if record is not None and (not size or size + len(record) <= ANSWER_SIZE_MAX):
                records.append(record)
                size += len(record)
        if not records:
            raise RequestFailed(
                ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct"
            )
        body = b"".join(reversed(records))
        return [encode_command(reply_to(request, fields=write_header(answer), body=body))]

    return context.cold_reads.answer(connection, request, read)


def _find(context: Context, topic: str, queue_id: int) -> Queue | None:
    return context.store.find_queue(topic, queue_id)
