"""How far groups are: one group (208), all of them (317), and by time (303).

In: a group, a topic, or nothing. Out: per queue its end, the group's offset, and when the last
message that the group consumed was stored.

Rules:
1. 208 goes over the queues that can be read, 317 and 303 over those that can be written, as in the
   original. A topic that a live group does not subscribe to any more is left out.
2. Offsets are taken on the loop, in slices, store times in a thread. An answer has at most ROWS_MAX
   queues; a broker that has more is asked group by group.
3. Tools of 5.x also read how far a group has pulled. That is not counted here: they are given the
   group's offset, so that nothing is shown as under way.

Difference: 303 counts a group without an offset from the queue's first message, and an empty queue
as not delayed; the original takes the time of a message that is not there for -1.
"""

import asyncio
from datetime import UTC, datetime
from typing import NamedTuple

from orbitmq.broker.context import Context
from orbitmq.broker.forwarding import answer_later
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.reading import NO_TIME, QueueView, earliest_store_ms, entry_store_ms, snapshot
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_consume import (
    BrokerConsumeStats,
    ConsumeStats,
    QueueProgress,
    QueueTimeSpan,
    TimeSpans,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_consume import (
    GetBrokerConsumeStats,
    GetConsumeStats,
    QueryConsumeTimeSpan,
)
from orbitmq.wire.versions import V5_0_0

TIMEOUT_S = 45.0
"""Tools wait 15 s for 208, 50 s for 317."""

ROWS_MAX = 50_000
"""Queues in one answer: about 8 MB."""

SLICE = 500
"""Queues that are looked at in one go: about a millisecond's work."""


class _Row(NamedTuple):
    """How far a group is in one queue; `view` has the entry of the last consumed message."""

    queue: MessageQueue
    end_offset: int
    queue_offset: int
    view: QueueView | None


class _Topic(NamedTuple):
    """How far a group is in a topic."""

    tps: float
    rows: list[_Row]


# --- One group ---


def get_consume_stats(context: Context, request: Command, connection: Connection) -> Result:
    """Return how far a group is, in one topic, in several, or in all that it has offsets in."""
    header = read_header(GetConsumeStats, request.fields)
    group = header.consumer_group
    asked = [header.topic] if header.topic else (header.topic_list or "").split(";")
    topics = list(filter(None, asked)) or context.offsets.topics_of(group)

    async def answer() -> Command:
        found: list[_Topic] = []
        left = ROWS_MAX
        for topic in topics:
            config = context.topics.find(topic)
            if config is not None and _is_current(context, group, topic):
                one = await _look(context, group, topic, config.read_queue_count, left)
                left -= len(one.rows)
                found.append(one)
        return await context.cold_reads.value(
            connection, lambda: _stats_answer(context, request, found)
        )

    return answer_later(request, answer, TIMEOUT_S)


def _stats_answer(context: Context, request: Command, found: list[_Topic]) -> Command:
    stats = ConsumeStats(
        offset_table={
            row.queue: _progress(context, row, is_v5=request.version >= V5_0_0)
            for topic in found
            for row in topic.rows
        },
        consume_tps=sum((topic.tps for topic in found), 0.0),
    )
    return reply_to(request, body=write_json(stats, standard=False))


# --- All groups ---


def get_broker_consume_stats(context: Context, request: Command, connection: Connection) -> Result:
    """Return how far every group is in each topic that it has offsets in."""
    is_order = read_header(GetBrokerConsumeStats, request.fields).is_order

    async def answer() -> Command:
        found: dict[str, list[_Topic]] = {}
        row_count = 0
        for group in context.groups.names():
            found[group] = []
            for topic in context.offsets.topics_of(group):
                config = context.topics.find(topic)
                if config is None or (is_order and not config.order):
                    continue
                if _is_current(context, group, topic):
                    left = ROWS_MAX - row_count
                    one = await _look(context, group, topic, config.write_queue_count, left)
                    row_count += len(one.rows)
                    found[group].append(one)
            await _give_way(len(found))
        return await context.cold_reads.value(
            connection, lambda: _all_answer(context, request, found)
        )

    return answer_later(request, answer, TIMEOUT_S)


def _all_answer(context: Context, request: Command, found: dict[str, list[_Topic]]) -> Command:
    is_v5 = request.version >= V5_0_0
    rows = [row for topics in found.values() for topic in topics for row in topic.rows]
    stats = BrokerConsumeStats(
        consume_stats_list=[
            {
                group: [
                    ConsumeStats(
                        offset_table={
                            row.queue: _progress(context, row, is_v5=is_v5) for row in topic.rows
                        },
                        consume_tps=topic.tps,
                    )
                    for topic in topics
                ]
            }
            for group, topics in found.items()
        ],
        broker_addr=str(context.store_host),
        total_diff=sum(row.end_offset - row.queue_offset for row in rows),
        total_inflight_diff=0 if is_v5 else None,
    )
    return reply_to(request, body=write_json(stats, standard=False))


# --- Looking ---


def _is_current(context: Context, group: str, topic: str) -> bool:
    """Whether the group subscribes to the topic, as far as that is known."""
    live = context.clients.consumer_group(group)
    return live is None or not live.subscriptions or topic in live.subscriptions


async def _look(
    context: Context, group: str, topic: str, queue_count: int, row_count_max: int
) -> _Topic:
    figures = context.stats.view("GROUP_GET_NUMS", f"{topic}@{group}")
    tps = 0.0 if figures is None else figures.stats_minute.tps
    rows: list[_Row] = []
    for queue_id in range(min(queue_count, row_count_max)):
        rows.append(_row(context, group, topic, queue_id))
        await _give_way(len(rows))
    return _Topic(tps, rows)


def _row(context: Context, group: str, topic: str, queue_id: int) -> _Row:
    name = MessageQueue(topic, context.settings.broker_name, queue_id)
    offset = context.offsets.find(group, topic, queue_id) or 0
    queue = context.store.find_queue(topic, queue_id)
    if queue is None:
        return _Row(name, 0, offset, None)
    view = snapshot(queue, offset - 1, 1) if offset > 0 else None
    return _Row(name, queue.readable_offset, offset, view)


def _progress(context: Context, row: _Row, *, is_v5: bool) -> QueueProgress:
    consumed_ms = NO_TIME
    if row.view is not None:
        consumed_ms = entry_store_ms(context.store.reader, row.view, row.queue_offset - 1)
    return QueueProgress(
        broker_offset=row.end_offset,
        consumer_offset=row.queue_offset,
        consumed_ms=max(0, consumed_ms),
        pull_offset=row.queue_offset if is_v5 else None,
    )


async def _give_way(count: int) -> None:
    """Let others have their turn now and then."""
    if count % SLICE == 0:
        await asyncio.sleep(0)


# --- By time ---


class _Span(NamedTuple):
    """A queue as it stood, and where the group was."""

    queue: MessageQueue
    view: QueueView
    queue_offset: int


def query_consume_time_span(context: Context, request: Command, connection: Connection) -> Result:
    """Return from when to when a topic's queues have messages, and how late a group is in each."""
    header = read_header(QueryConsumeTimeSpan, request.fields)
    config = context.topics.find(header.topic)
    if config is None:
        raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
    queue_count = config.write_queue_count
    now_ms = context.clock.wall_ms()

    async def answer() -> Command:
        spans: list[_Span] = []
        for queue_id in range(min(queue_count, ROWS_MAX)):
            spans.append(_span_of(context, header, queue_id))
            await _give_way(len(spans))
        return await context.cold_reads.value(
            connection, lambda: _spans_answer(context, request, spans, now_ms)
        )

    return answer_later(request, answer, TIMEOUT_S)


def _span_of(context: Context, header: QueryConsumeTimeSpan, queue_id: int) -> _Span:
    name = MessageQueue(header.topic, context.settings.broker_name, queue_id)
    queue = context.store.find_queue(header.topic, queue_id)
    stored = context.offsets.find(header.consumer_group, header.topic, queue_id)
    if queue is None:
        return _Span(name, QueueView(header.topic, queue_id, 0, 0, 0, b""), 0)
    return _Span(name, snapshot(queue), max(stored or 0, queue.min_offset))


def _spans_answer(context: Context, request: Command, spans: list[_Span], now_ms: int) -> Command:
    body = TimeSpans(consume_time_span_set=[_time_span(context, span, now_ms) for span in spans])
    return reply_to(request, body=write_json(body, standard=False))


def _time_span(context: Context, span: _Span, now_ms: int) -> QueueTimeSpan:
    reader, view, offset = context.store.reader, span.view, span.queue_offset
    min_ms = earliest_store_ms(reader, view)
    max_ms = entry_store_ms(reader, view, view.readable_offset - 1)
    is_begun = offset > view.min_offset
    consumed_ms = entry_store_ms(reader, view, offset - 1) if is_begun else min_ms
    next_ms = entry_store_ms(reader, view, offset)
    return QueueTimeSpan(
        message_queue=span.queue,
        min_ms=min_ms,
        min_text=_time_text(min_ms),
        max_ms=max_ms,
        max_text=_time_text(max_ms),
        consumed_ms=consumed_ms,
        consumed_text=_time_text(consumed_ms),
        delay_ms=0 if next_ms == NO_TIME else max(0, now_ms - next_ms),
    )


def _time_text(time_ms: int) -> str:
    """Write a time as the original does, in the machine's zone."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    return f"{at:%Y-%m-%d#%H:%M:%S}:{time_ms % 1000:03d}"
