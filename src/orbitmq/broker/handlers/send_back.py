"""A consumer gives a message back (36): it comes again later, or goes to the dead letters.

In: the log offset of the message, the group, a delay level. Out: a new message in the group's retry
topic, on its way through the schedule topic, or in its dead-letter topic; the answer leaves when it
is written.

Rules:
1. The order of the checks and the codes are the original's. A group without retry queues
   (retryQueueNums) wants nothing back: the answer is a success, and nothing is stored.
2. The message is read from the log in a thread: it may be old. All its properties stay; added are
   where it came from (RETRY_TOPIC), its first id (ORIGIN_MESSAGE_ID), the level, and WAIT=false.
3. Level 0 lets the broker choose: 3 and one more with each time. A level below 0, or as many tries
   as the group or the client allows, makes it a dead letter. Its property DLQ_REASON then holds the
   reason that the consumer gave, if it gave one and there is room.
4. A group of which the broker can make no topic (its name) is unknown: 26. The original stores its
   messages in a topic that nobody can ask for.
"""

import asyncio
from functools import partial
from typing import NamedTuple

import msgspec

from orbitmq.broker.context import Context
from orbitmq.broker.puts import NewMessage, admitted, again, delayed, put
from orbitmq.broker.send_checks import (
    count_max_of,
    dead_letters,
    is_writable,
    no_group,
    not_writable,
)
from orbitmq.core import Way, with_entries
from orbitmq.errors import RequestFailed, StoreError
from orbitmq.net.connection import Connection, Result
from orbitmq.net.later import Later
from orbitmq.store.reading import record_by_offset
from orbitmq.wire import properties as names
from orbitmq.wire.bodies_namesrv import PERM_WRITE, UNIT_SUBSCRIPTION_FLAG, SubscriptionGroupConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import SendMessageBack
from orbitmq.wire.message_id import encode_offset_id
from orbitmq.wire.names import group_fault, is_dead_letter_topic, retry_topic
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX, reason_text, stored_property
from orbitmq.wire.record import Record, decode_record

TIMEOUT_S = 20.0
FIRST_LEVEL = 3
"""The level of the first retry when the broker chooses."""


class _Back(NamedTuple):
    """A message that is to be given back."""

    request: Command
    header: SendMessageBack
    group: SubscriptionGroupConfig
    queue_id: int
    later: Later


def send_back(context: Context, request: Command, connection: Connection) -> Result:
    """Read the message, store it again for later; answered when that is written."""
    header = read_header(SendMessageBack, request.fields)
    group = (
        None if group_fault(header.consumer_group) else context.groups.find(header.consumer_group)
    )
    if group is None:
        raise no_group(header.consumer_group)
    if not is_writable(context):
        raise not_writable(context)
    if group.retry_queue_count <= 0:
        return reply_to(request)
    topic = retry_topic(group.group_name)
    sys_flag = UNIT_SUBSCRIPTION_FLAG if header.unit_mode else 0
    config = context.topics.ensure(topic, group.retry_queue_count, sys_flag=sys_flag)
    if not config.perm & PERM_WRITE:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden"
        )
    reader, visible_offset = context.store.reader, context.core.tail.visible_offset
    read = partial(record_by_offset, reader, header.log_offset, visible_offset)
    reading = context.cold_reads.value(connection, read)
    later = Later(TIMEOUT_S, lambda: _too_slow(request, reading), lambda: _give_up(reading))
    queue_id = context.chance.below(group.retry_queue_count)
    back = _Back(request, header, group, queue_id, later)
    reading.add_done_callback(lambda done: _store(context, back, done))
    return later


def _give_up(reading: "asyncio.Future[bytes | None]") -> None:
    reading.cancel()


def _too_slow(request: Command, reading: "asyncio.Future[bytes | None]") -> Command:
    if reading.done():
        cause = f"the disk took more than {TIMEOUT_S:g} s to store the message; it may be stored"
        return reply_to(request, ResponseCode.SYSTEM_ERROR, cause)
    reading.cancel()
    return reply_to(
        request,
        ResponseCode.SYSTEM_ERROR,
        f"the disk took more than {TIMEOUT_S:g} s to read the message; it was not taken back",
    )


def _store(context: Context, back: _Back, done: "asyncio.Future[bytes | None]") -> None:
    """Store what was read; called on the loop."""
    if done.cancelled():
        return
    request, later = back.request, back.later
    refused = done.exception()
    if isinstance(refused, RequestFailed):  # too many wait for the disk
        later.answer(reply_to(request, refused.code, refused.remark))
        return
    try:
        record = _record(back, done)
        message = _again(context, back, record)
        put(context, message)
    except RequestFailed as failed:
        later.answer(reply_to(request, ResponseCode.SYSTEM_ERROR, failed.remark))
        return
    retried = stored_property(record.properties, names.RETRY_TOPIC.encode())
    topic = retried or record.topic
    group = back.group.group_name

    def written(refused: StoreError | None) -> None:
        if refused is None:
            context.counts.note_sent_back(topic, group)
            made = message.topic if is_dead_letter_topic(message.topic) else retry_topic(group)
            context.writer.when_saved(made, lambda: later.answer(reply_to(request)))
        else:
            later.answer(reply_to(request, ResponseCode.SYSTEM_ERROR, str(refused)))

    context.writer.after_write(written)


def _record(back: _Back, done: "asyncio.Future[bytes | None]") -> Record:
    cause = done.exception() or "it was removed, or no message begins there"
    data = done.result() if done.exception() is None else None
    if data is None:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {back.header.log_offset}: {cause}",
        )
    return decode_record(data)[0]


def _again(context: Context, back: _Back, record: Record) -> NewMessage:
    """Return the message as it is stored now: on its way to another try, or as a dead letter."""
    header, group = back.header, back.group
    carried = admitted(record.properties, Way.AGAIN)
    first_id = encode_offset_id(record.store_host, record.log_offset)
    count_max = count_max_of(group, back.request, header.max_reconsume_times)
    is_dead = record.reconsume_times >= count_max or header.delay_level < 0
    level = 0 if is_dead else header.delay_level or FIRST_LEVEL + record.reconsume_times
    entries = {
        names.RETRY_TOPIC: carried.values.get(names.RETRY_TOPIC, record.topic),
        names.ORIGIN_MESSAGE_ID: carried.values.get(names.ORIGIN_MESSAGE_ID, first_id),
        names.WAIT: "false",
        names.DELAY: str(level),
    }
    if is_dead:
        topic, queue_id = dead_letters(context, group.group_name).topic_name, 0
        if header.reason and len(record.properties) <= PROPERTIES_SIZE_MAX // 2:
            entries[names.DLQ_REASON] = reason_text(header.reason) or "?"
    else:
        topic, queue_id = retry_topic(group.group_name), back.queue_id
    message = msgspec.structs.replace(
        again(record, topic, queue_id, carried),
        own=with_entries(carried.own, entries),
        reconsume_times=record.reconsume_times + 1,
    )
    return message if is_dead else delayed(context, message, level)
