"""Send a message (10, 310) or a batch (320): every case that the hot path leaves to us.

In: a send in either spelling and serialization. Out: staged records whose answer leaves when the
log has been written, or the reason of a refusal, in the original's order: see `send_checks`. How a
batch is stored says `batches`.

Rules:
1. The field `batch` says what is a batch, not the request's code, and only by `true`, as in the
   original.
2. A message with a delay level waits in the schedule topic.
3. Transactional and timed messages come with a later issue: until then they are refused by name,
   never stored as something else.
"""

import struct
from typing import NamedTuple

from orbitmq.broker.batches import store_batch
from orbitmq.broker.context import Context
from orbitmq.broker.puts import (
    NewMessage,
    check_sizes,
    check_store,
    closed,
    delayed,
    put,
    without_cluster,
)
from orbitmq.broker.send_checks import Target, check_send, retry_target
from orbitmq.broker.send_properties import check_properties, delay_level, tags_code_of, unsupported
from orbitmq.core import append, append_copies, stored_properties
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.refusals import RefusalKind
from orbitmq.wire import properties as names
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_client import SendMessage, SendMessageAnswer, read_send
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.sysflag import SENDER_BITS

_OFFSET_SIZE = 8


class _Stored(NamedTuple):
    """Where a message or a batch was staged."""

    log_offsets: list[int]
    queue_offset: int


def send_message(context: Context, request: Command, connection: Connection) -> Result:
    """Stage a message or a batch; its answer leaves after the write at the end of the turn."""
    header = read_send(request.code, request.fields)
    try:
        return _send(context, request, header, connection)
    except RequestFailed as error:
        trace = "true" if context.settings.trace_on else "false"
        fields = {"MSG_REGION": context.region, "TRACE_ON": trace}
        return reply_to(request, error.code, error.remark, fields=fields)


def _send(
    context: Context, request: Command, header: SendMessage, connection: Connection
) -> Result:
    if context.store.refusal_kind in (RefusalKind.BUSY, RefusalKind.BEHIND):
        check_store(context)
    target = check_send(context, header, connection)
    if _is_batch(request):
        stored = _Stored(*store_batch(context, request.body, header, (target, connection)))
    else:
        target = retry_target(context, request, header, target)
        stored = _store_one(context, request, header, (target, connection))
    answer = SendMessageAnswer(
        msg_id=_message_ids(context.core.store_id.decode(), stored.log_offsets),
        queue_id=target.queue_id,
        queue_offset=stored.queue_offset,
        region_id=context.region,
        trace_on=context.settings.trace_on,
    )
    reply = reply_to(request, fields=write_header(answer))
    context.stage_answers(
        connection,
        [] if request.is_oneway else [encode_command(reply)],
        target.config.topic_name,
        waits_for_sync=parse_properties(header.properties).get(names.WAIT) != "false",
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


def _store_one(
    context: Context, request: Command, header: SendMessage, place: tuple[Target, Connection]
) -> _Stored:
    properties = parse_properties(header.properties)
    level = delay_level(properties)
    _check_transaction(context, header, properties, level)
    if level <= 0:
        return _append(context, request.body, header, place)
    target, connection = place
    check_properties(header.properties.encode(), properties)
    check_sizes(request.body, b"", context.core.body_size_max)
    check_store(context)
    waiting = NewMessage(
        topic=target.config.topic_name,
        queue_id=target.queue_id,
        body=request.body,
        properties=header.properties,
        flag=header.flag,
        sys_flag=header.sys_flag & SENDER_BITS,
        born_ms=header.born_ms,
        born_host=context.origin(connection).born_host,
        reconsume_times=header.reconsume_times,
        tags_code=tags_code_of(properties),
    )
    placed = put(context, delayed(context, waiting, level))
    return _Stored([placed.log_offset], placed.queue_offset)


def _append(
    context: Context, body: bytes, header: SendMessage, place: tuple[Target, Connection]
) -> _Stored:
    """Check a message that does not wait, and stage it."""
    text = header.properties.lstrip(names.ENTRY_END)
    properties = parse_properties(text)
    target, connection = place
    light_names = context.topics.light.names_of(header.topic, properties)
    check_properties(text.encode(), properties, is_light=bool(light_names))
    if light_names:
        numbers = context.topics.light.numbers(light_names)
        text = closed(text) + f"{names.INNER_MULTI_QUEUE_OFFSET}{names.NAME_END}{numbers}"
    stored = stored_properties(context.core, without_cluster(text)).encode()
    check_sizes(body, stored, context.core.body_size_max)
    queue = context.topics.queue(target.config, target.queue_id)
    check_store(context)
    lights = context.topics.light.to_write(light_names) if light_names else []
    tail = context.core.tail
    tail.advance_clock(context.clock.wall_ms())
    flags = (header.flag, header.sys_flag & SENDER_BITS, header.born_ms, header.reconsume_times)
    stamp = (*flags, 0, tags_code_of(properties))
    log_offset = append(tail, queue, context.origin(connection), stamp, body, stored)
    if lights:
        append_copies(tail, lights, log_offset, stamp[-1])
    return _Stored([log_offset], queue.next_offset - 1)


def _check_transaction(
    context: Context, header: SendMessage, properties: dict[str, str], level: int
) -> None:
    """Refuse half messages; a retry with a delay that says it is one is none any more."""
    if properties.get(names.TRAN_MSG, "").lower() != "true":
        return
    if header.reconsume_times > 0 and level > 0:
        return
    if context.settings.reject_transaction_message:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION,
            f"the broker[{context.store_host.ip}] sending transaction message is forbidden"
            " (rejectTransactionMessage)",
        )
    raise unsupported("transactional messages")
