"""Looking into a queue: query consume queue (321).

In: a queue, where to begin and how many entries. Out: the entries as they stand in its files and,
for a group that is online, whether its subscription lets each pass.

Rule: the original's odd answers stay as they are: success without a body for an index that is not
there, and the group's state as a sentence in `filterData`.
"""

from collections.abc import Callable

from orbitmq.broker.context import Context
from orbitmq.core.state import ENTRY, ENTRY_SIZE
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.reading import QueueView, snapshot
from orbitmq.wire.bodies_client import TAG, SubscriptionData
from orbitmq.wire.bodies_topics import QueueEntries, QueueEntry
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_topics import QueryConsumeQueue

COUNT_MAX = 4_096
"""Entries in one answer."""


def query_consume_queue(context: Context, request: Command, connection: Connection) -> Result:
    """Return entries of a queue."""
    header = read_header(QueryConsumeQueue, request.fields)
    where = f"{header.queue_id}@{header.topic}"
    config = context.topics.find(header.topic)
    queue = context.store.find_queue(header.topic, header.queue_id)
    if queue is None:
        if config is None or not 0 <= header.queue_id < config.write_queue_count:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"{where} is not exist!")
        queue = context.store.queue(header.topic, header.queue_id)
    view = snapshot(queue)
    if not view.min_offset <= header.index < view.readable_offset:
        return reply_to(request, remark=f"Index {header.index} of {where} is not exist!")
    subscription, state, passes = _filter(context, header)

    def read() -> Command:
        body = QueueEntries(
            subscription_data=subscription,
            filter_data=state,
            queue_data=_entries(context, view, header, passes),
            max_queue_index=view.readable_offset,
            min_queue_index=view.min_offset,
        )
        return reply_to(request, body=write_json(body, standard=False))

    return context.cold_reads.answer(connection, request, read)


def _filter(
    context: Context, header: QueryConsumeQueue
) -> tuple[SubscriptionData | None, str | None, Callable[[int], bool]]:
    """Return what a group has subscribed to, a sentence about it, and whether a code passes."""
    group = header.consumer_group
    if not group:
        return None, None, lambda _code: False
    live = context.clients.consumer_group(group)
    data = live.subscriptions.get(header.topic) if live is not None else None
    if data is None:
        return None, f"{group}@{header.topic} is not online!", lambda _code: False
    if data.expression_type != TAG:
        return data, None, lambda _code: False
    codes = frozenset(data.code_set)
    return data, None, lambda code: not codes or code in codes


def _entries(
    context: Context, view: QueueView, header: QueryConsumeQueue, passes: Callable[[int], bool]
) -> list[QueueEntry]:
    left, at = min(max(0, header.count), COUNT_MAX), header.index
    found: list[QueueEntry] = []
    while left > 0:
        entries = context.store.reader.entries(view, at, left)
        if not entries:
            break
        for log_offset, size, code in ENTRY.iter_unpack(entries):
            found.append(
                QueueEntry(log_offset=log_offset, size=size, tags_code=code, is_passed=passes(code))
            )
        count = len(entries) // ENTRY_SIZE
        at, left = at + count, left - count
    return found
