"""Send a message (10, 310) or a batch (320): every case that the hot path leaves to us.

In: a send in either spelling and serialization. Out: staged records whose answer leaves when the
log has been written, or the reason of a refusal, in the original's order: see `send_checks`. A
batch is taken as a whole or not at all.

Rules:
1. The field `batch` says what is a batch, not the request's code, and only by `true`, as in the
   original.
2. A message with a delay level waits in the schedule topic. In a batch a level of one message has
   no effect and one of the whole is refused, as in the original.
3. Transactional and timed messages come with a later issue: until then they are refused by name,
   never stored as something else.
"""

import re
from typing import NamedTuple

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
from orbitmq.core import BatchEntry, Stamp, append_batch, stored_properties
from orbitmq.errors import RemoteProtocolError, RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.follow import parse_level, properties_code
from orbitmq.store.refusals import RefusalKind
from orbitmq.wire import properties as names
from orbitmq.wire.batch import MESSAGE_SIZE_MIN, BatchMessage, count_batch, decode_batch
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.wire.expression import tag_code
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_client import SendMessage, SendMessageAnswer, read_send
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.sysflag import SENDER_BITS, TRANSACTION_MASK

BATCH_COUNT_MAX = 32_768
"""Messages of one batch: what is taken is stored in one piece, and the loop does nothing else."""

_SPECIAL = re.compile(rb"\0|TIMER_|INNER_|CLUSTER\x01|[^\x00-\x7f]")
"""What asks for an exact look at properties; without it their bytes are stored as they are."""

_TIMED = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


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
        stored = _store_batch(context, request, header, (target, connection))
    else:
        target = retry_target(context, request, header, target)
        stored = _store_one(context, request, header, (target, connection))
    store_id = context.core.store_id.decode()
    answer = SendMessageAnswer(
        msg_id=",".join(f"{store_id}{log_offset:016X}" for log_offset in stored.log_offsets),
        queue_id=target.queue_id,
        queue_offset=stored.queue_offset,
        region_id=context.region,
        trace_on=context.settings.trace_on,
    )
    reply = reply_to(request, fields=write_header(answer))
    context.stage_answers(
        connection,
        [] if request.is_oneway else [encode_command(reply)],
        waits_for_sync=parse_properties(header.properties).get(names.WAIT) != "false",
    )
    return None


def _is_batch(request: Command) -> bool:
    name = "batch" if request.code == RequestCode.SEND_MESSAGE else "m"
    return str(request.fields.get(name, "")).lower() == "true"


# --- One message ---


def _store_one(
    context: Context, request: Command, header: SendMessage, place: tuple[Target, Connection]
) -> _Stored:
    properties = parse_properties(header.properties)
    level = _level(properties)
    _check_transaction(context, header, properties, level)
    message = BatchMessage(request.body, header.properties.encode(), header.flag)
    if level <= 0:
        return _append(context, place, [_entry(context, header, message)])
    target, connection = place
    _check_properties(message, properties)
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
        tags_code=_tags_code(properties),
    )
    placed = put(context, delayed(context, waiting, level))
    return _Stored([placed.log_offset], placed.queue_offset)


def _level(properties: dict[str, str]) -> int:
    """Give the delay level, 0 without one."""
    text = properties.get(names.DELAY)
    if text is None:
        return 0
    level = parse_level(text)
    if level is None:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"property {names.DELAY} is {text[:40]!r}: a delay level is a whole number",
        )
    return level


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
    raise _unsupported("transactional messages")


# --- A batch ---


def _store_batch(
    context: Context, request: Command, header: SendMessage, place: tuple[Target, Connection]
) -> _Stored:
    properties = parse_properties(header.properties)
    if _level(properties) > 0 or header.sys_flag & TRANSACTION_MASK:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal: a batch can neither be delayed nor be part of a transaction",
        )
    if properties.get(names.TRAN_MSG, "").lower() == "true":
        raise _unsupported("transactional messages")
    shared = header.properties.encode()
    shared_size = len(without_cluster(header.properties).strip(names.ENTRY_END).encode())
    messages = _batch_messages(context, request.body, shared_size, place)
    return _append(context, place, _batch_entries(context, header, messages, shared))


def _batch_entries(
    context: Context, header: SendMessage, messages: list[BatchMessage], shared: bytes
) -> list[BatchEntry]:
    """Check the messages of a batch and give them as they are stored.

    A batch has thousands. Without anything special in it, no message needs a look of its own.
    """
    texts = [own.rstrip(b"\x02") + b"\x02" + shared for _, own, _ in messages]
    if _SPECIAL.search(b"\x02".join(texts)) is not None:
        return [
            _batch_entry(context, header, BatchMessage(body, text, flag))
            for (body, _, flag), text in zip(messages, texts, strict=True)
        ]
    sys_flag, cluster = header.sys_flag & SENDER_BITS, context.core.cluster_property.encode()
    size_max, entries = context.core.body_size_max, list[BatchEntry]()
    for (body, _, flag), text in zip(messages, texts, strict=True):
        own = text.strip(b"\x02")
        stored = own + b"\x02" + cluster if own else cluster
        if len(stored) > names.PROPERTIES_SIZE_MAX or len(body) > size_max:
            check_sizes(body, stored, size_max)
        code = properties_code(own)
        stamp = (flag, sys_flag, header.born_ms, header.reconsume_times, 0, code)
        entries.append((tuple.__new__(Stamp, stamp), body, stored))
    return entries


def _batch_messages(
    context: Context, body: bytes, shared_size: int, place: tuple[Target, Connection]
) -> list[BatchMessage]:
    """Give the messages of a batch; one that is too large or too many is refused unread.

    `shared_size` is what each of them is stored with of the properties of the whole.
    """
    target, connection = place
    size_max, origin = context.core.body_size_max, context.origin(connection)
    around = origin.fixed_size + len(target.config.topic_name) + shared_size
    around += len(context.core.cluster_property)
    try:
        count = count_batch(body, BATCH_COUNT_MAX)
        if count > BATCH_COUNT_MAX:
            raise RequestFailed(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of more than {BATCH_COUNT_MAX} messages: send them as several batches",
            )
        size_least = len(body) + count * (around - MESSAGE_SIZE_MIN)
        if count > 1 and size_least > size_max:
            raise _too_large(size_least, size_max)
        return decode_batch(body)
    except RemoteProtocolError as error:
        raise RequestFailed(ResponseCode.MESSAGE_ILLEGAL, error.detail) from None


# --- Both ---


def _append(
    context: Context, place: tuple[Target, Connection], entries: list[BatchEntry]
) -> _Stored:
    target, connection = place
    queue = context.topics.queue(target.config, target.queue_id)
    origin = context.origin(connection)
    _check_fits(context, entries, origin.fixed_size + len(queue.topic_field))
    check_store(context)
    tail = context.core.tail
    tail.store_ms = max(tail.store_ms, context.clock.wall_ms())
    log_offsets = append_batch(tail, queue, origin, entries)
    return _Stored(log_offsets, queue.next_offset - len(entries))


def _entry(context: Context, header: SendMessage, message: BatchMessage) -> BatchEntry:
    """Check one message and give it as it is stored."""
    text = message.properties.decode(errors="replace").lstrip("\x02")
    properties = parse_properties(text)
    _check_properties(message, properties)
    stored = stored_properties(context.core, without_cluster(text)).encode()
    return _checked(context, header, message, stored, _tags_code(properties))


def _batch_entry(context: Context, header: SendMessage, message: BatchMessage) -> BatchEntry:
    """Check one message of a batch and give it as it is stored: WAIT stays, as in the original."""
    if _SPECIAL.search(message.properties) is None:
        own = message.properties.strip(b"\x02")
        code = properties_code(own)
    else:
        text = message.properties.decode(errors="replace").lstrip("\x02")
        properties = parse_properties(text)
        _check_properties(message, properties)
        own = closed(without_cluster(text)).encode()[:-1]
        code = _tags_code(properties)
    stored = (own + b"\x02" if own else b"") + context.core.cluster_property.encode()
    return _checked(context, header, message, stored, code)


def _checked(
    context: Context, header: SendMessage, message: BatchMessage, stored: bytes, code: int
) -> BatchEntry:
    check_sizes(message.body, stored, context.core.body_size_max)
    sys_flag = header.sys_flag & SENDER_BITS
    stamp = Stamp(message.flag, sys_flag, header.born_ms, header.reconsume_times, 0, code)
    return stamp, message.body, stored


def _check_properties(message: BatchMessage, properties: dict[str, str]) -> None:
    if b"\0" in message.properties:
        # A CRC covers the body only: zeros in properties look like a record that a crash cut short.
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message's properties contain a NUL character (U+0000); send it without",
        )
    is_timed = b"TIMER_" in message.properties  # seldom: a cheap look before the exact one
    if is_timed and any(properties.get(name, "0") != "0" for name in _TIMED):
        raise _unsupported("timed messages")
    for name in properties if b"INNER_" in message.properties else ():
        if name.startswith("INNER_"):
            raise RequestFailed(
                ResponseCode.MESSAGE_ILLEGAL, f"property {name} is reserved for the broker"
            )


def _check_fits(context: Context, entries: list[BatchEntry], around: int) -> None:
    """Refuse a batch that is longer than a message may be: it goes into one file as a whole.

    What records need `around` their bodies and properties counts: small messages are mostly that.
    """
    size = sum(around + len(body) + len(properties) for _, body, properties in entries)
    if len(entries) > 1 and size > context.core.body_size_max:
        raise _too_large(size, context.core.body_size_max)


def _too_large(size: int, size_max: int) -> RequestFailed:
    return RequestFailed(
        ResponseCode.MESSAGE_ILLEGAL,
        f"a batch of {size} bytes, limit {size_max} (maxMessageSize, and what fits a file of"
        " mappedFileSizeCommitLog)",
    )


def _tags_code(properties: dict[str, str]) -> int:
    tag = properties.get(names.TAGS)
    return tag_code(tag) if tag else 0


def _unsupported(kind: str) -> RequestFailed:
    return RequestFailed(
        ResponseCode.MESSAGE_ILLEGAL, f"this version of OrbitMQ does not take {kind} yet"
    )


HANDLERS = {
    RequestCode.SEND_MESSAGE: send_message,
    RequestCode.SEND_MESSAGE_V2: send_message,
    RequestCode.SEND_BATCH_MESSAGE: send_message,
}
