"""Send a message (10, 310) or a batch (320): every case that the hot path leaves to us.

In: a send in either spelling and serialization. Out: staged records whose answer leaves when the
log has been written, or the reason of a refusal, in the original's order: see `send_checks`. How a
batch is stored says `batches`.

Rules:
1. The field `batch` says what is a batch, not the request's code, and only by `true`, as in the
   original.
2. What is stored of properties and what they ask for says `core.admit`; they are read once.
3. A message with a delay level waits in the schedule topic.
4. Transactional messages come with a later issue: until then they are refused by name, never stored
   as something else.
"""

import struct

from orbitmq.broker.batches import no_transactions, store_batch
from orbitmq.broker.context import Context
from orbitmq.broker.puts import (
    NewMessage,
    StagedSend,
    admitted,
    check_sizes,
    check_store,
    delayed,
    put,
)
from orbitmq.broker.send_checks import Arrival, check_send, retry_target
from orbitmq.core import Admitted, Way, append, append_copies
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.refusals import RefusalKind
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_client import SendMessage, SendMessageAnswer, read_send
from orbitmq.wire.sysflag import SENDER_BITS

_OFFSET_SIZE = 8


def send_message(context: Context, request: Command, connection: Connection) -> Result:
    """Stage a message or a batch; its answer leaves after the write at the end of the turn."""
    header = read_send(request.code, request.fields)
    try:
        return _send(context, request, header, connection)
    except RequestFailed as error:
        trace = "true" if context.settings.trace_on else "false"
        fields = {"MSG_REGION": context.settings.region_id, "TRACE_ON": trace}
        return reply_to(request, error.code, error.remark, fields=fields)


def _send(
    context: Context, request: Command, header: SendMessage, connection: Connection
) -> Result:
    if context.store.refusal_kind in (RefusalKind.BUSY, RefusalKind.BEHIND):
        check_store(context)
    target = check_send(context, header, connection)
    is_batch = _is_batch(request)
    if not is_batch:
        target = retry_target(context, request, header, target)
    arrival = Arrival(header, request.body, target, context.hot.origin(connection))
    stored = store_batch(context, arrival) if is_batch else _store_one(context, arrival)
    answer = SendMessageAnswer(
        msg_id=_message_ids(context.core.store_id.decode(), stored.log_offsets),
        queue_id=target.queue_id,
        queue_offset=stored.queue_offset,
        region_id=context.settings.region_id,
        trace_on=context.settings.trace_on,
    )
    reply = reply_to(request, fields=write_header(answer))
    context.writer.stage_answers(
        connection,
        [] if request.is_oneway else [encode_command(reply)],
        target.config.topic_name,
        waits_for_sync=stored.waits_for_sync,
    )
    return None


def _message_ids(store_id: str, log_offsets: list[int]) -> str:
    """The ids of messages: where the store is, and 16 hexadecimal digits of the log offset."""
    digits = struct.pack(f">{len(log_offsets)}q", *log_offsets).hex(",", _OFFSET_SIZE).upper()
    return store_id + digits.replace(",", "," + store_id)


def _is_batch(request: Command) -> bool:
    name = "batch" if request.code == RequestCode.SEND_MESSAGE else "m"
    return str(request.fields.get(name, "")).lower() == "true"


# --- One message ---


def _store_one(context: Context, arrival: Arrival) -> StagedSend:
    text, lights = arrival.header.properties.encode(), context.topics.light
    message = admitted(text, Way.SEND, takes_lights=lights.is_dispatched)
    if message.is_transactional:
        _check_transaction(context, arrival.header, message)
    store = _append if message.delay_level <= 0 else _delay
    log_offset, queue_offset = store(context, arrival, message)
    return StagedSend([log_offset], queue_offset, message.waits_for_sync)


def _delay(context: Context, arrival: Arrival, message: Admitted) -> tuple[int, int]:
    """Stage a message that waits; return its log offset and its place in the schedule topic."""
    header, target = arrival.header, arrival.target
    check_sizes(arrival.body, b"", context.core.body_size_max)
    check_store(context)
    waiting = NewMessage(
        topic=target.config.topic_name,
        queue_id=target.queue_id,
        body=arrival.body,
        own=message.own,
        flag=header.flag,
        sys_flag=header.sys_flag & SENDER_BITS,
        born_ms=header.born_ms,
        born_host=arrival.origin.born_host,
        reconsume_times=header.reconsume_times,
        tags_code=message.tags_code,
    )
    placed = put(context, delayed(context, waiting, message.delay_level))
    return placed.log_offset, placed.queue_offset


def _append(context: Context, arrival: Arrival, message: Admitted) -> tuple[int, int]:
    """Stage a message that does not wait; return its log offset and its place in its queue."""
    header, body, target, origin = arrival
    light = context.topics.light
    message = light.numbered(header.topic, message)
    stored = message.own + context.core.cluster_property
    check_sizes(body, stored, context.core.body_size_max)
    queue = context.topics.queue(target.config, target.queue_id)
    check_store(context)
    copies = light.queues_of(message)
    tail = context.core.tail
    tail.advance_clock(context.clock.wall_ms())
    stamp = (
        header.flag,
        header.sys_flag & SENDER_BITS,
        header.born_ms,
        header.reconsume_times,
        0,
        message.tags_code,
    )
    log_offset = append(tail, queue, origin, stamp, body, stored)
    if copies:
        append_copies(tail, copies, log_offset, message.tags_code)
    return log_offset, queue.next_offset - 1


def _check_transaction(context: Context, header: SendMessage, message: Admitted) -> None:
    """Refuse half messages; a retry with a delay that says it is one is none any more."""
    if header.reconsume_times > 0 and message.delay_level > 0:
        return
    if context.settings.reject_transaction_message:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION,
            f"the broker[{context.store_host.ip}] sending transaction message is forbidden"
            " (rejectTransactionMessage)",
        )
    raise no_transactions()
