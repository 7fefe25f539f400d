"""Send a message (10, 310) or a batch (320): every case that the hot path leaves to us.

In: a send in either spelling and serialization. Out: staged records whose answer leaves when the
log has been written, or the reason of a refusal. The checks come in the original's order. A batch
is taken as a whole or not at all.

Delayed, timed, transactional and retry sends come with the broker issue: until then they are
refused by name, never stored as something else.
"""

from orbitmq.broker.context import Context
from orbitmq.broker.topics import TOPIC_COUNT_MAX
from orbitmq.core import BatchEntry, Stamp, append_batch, stored_properties
from orbitmq.errors import RemoteProtocolError, RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.refusals import RefusalKind
from orbitmq.wire import properties as names
from orbitmq.wire.batch import BatchMessage, decode_batch
from orbitmq.wire.bodies_namesrv import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, encode_command, reply_to
from orbitmq.wire.expression import tag_code
from orbitmq.wire.fields import write_header
from orbitmq.wire.headers_client import SendMessage, SendMessageAnswer, read_send
from orbitmq.wire.message_id import encode_offset_id
from orbitmq.wire.names import is_closed_to_clients, is_retry_topic, topic_fault
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.sysflag import SENDER_BITS
from orbitmq.world.chance import Chance

_NOT_YET = {
    names.DELAY: "delayed messages",
    names.TIMER_DELAY_SEC: "timed messages",
    names.TIMER_DELAY_MS: "timed messages",
    names.TIMER_DELIVER_MS: "timed messages",
    names.TRAN_MSG: "transactional messages",
}


def send_message(context: Context, request: Command, connection: Connection) -> Result:
    """Stage a message or a batch; its answer leaves after the write at the end of the turn."""
    header = read_send(request.code, request.fields)
    _check_store(context)
    config = _topic(context, header)
    queue_id = _queue_id(context.chance, header, config)
    is_batch = request.code == RequestCode.SEND_BATCH_MESSAGE or header.batch
    messages = _batch(header, request) if is_batch else [_single(header, request)]
    entries = [_entry(context, header, message, is_batch=is_batch) for message in messages]
    queue = context.topics.queue(config, queue_id)
    origin = context.origin(connection)
    _check_fits(context, entries, origin.fixed_size + len(queue.topic_field))
    context.core.tail.store_ms = max(context.core.tail.store_ms, context.clock.wall_ms())
    log_offsets = append_batch(context.core.tail, queue, origin, entries)
    answer = SendMessageAnswer(
        msg_id=",".join(encode_offset_id(context.store_host, offset) for offset in log_offsets),
        queue_id=queue_id,
        queue_offset=queue.next_offset - len(entries),
        region_id=context.region,
        trace_on=True,
    )
    reply = reply_to(request, fields=write_header(answer))
    context.stage_answers(
        connection,
        [] if request.is_oneway else [encode_command(reply)],
        waits_for_sync=parse_properties(header.properties).get(names.WAIT) != "false",
    )
    return None


def _single(header: SendMessage, request: Command) -> BatchMessage:
    return BatchMessage(request.body, header.properties.encode(), header.flag)


def _batch(header: SendMessage, request: Command) -> list[BatchMessage]:
    """Give the messages of a batch; each gets the properties of the whole, too."""
    try:
        messages = decode_batch(request.body)
    except RemoteProtocolError as error:
        raise RequestFailed(ResponseCode.MESSAGE_ILLEGAL, error.detail) from None
    shared = header.properties.encode()
    return [
        message._replace(properties=message.properties.rstrip(b"\x02") + b"\x02" + shared)
        for message in messages
    ]


def _entry(
    context: Context, header: SendMessage, message: BatchMessage, *, is_batch: bool
) -> BatchEntry:
    """Check one message and give it as it is stored; in a batch WAIT stays, as in the original."""
    if b"\0" in message.properties:
        # A CRC covers the body only: zeros in properties look like a record that a crash cut short.
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message's properties contain a NUL character (U+0000); send it without",
        )
    text = message.properties.decode(errors="replace").lstrip("\x02")
    properties = parse_properties(text)
    _check_message(context, properties, message.body)
    own = _without_cluster(text)
    if is_batch:
        own = own.rstrip("\x02") + "\x02" if own.strip("\x02") else ""
        stored = (own + context.core.cluster_property).encode()
    else:
        stored = stored_properties(context.core, own).encode()
    if len(stored) > names.PROPERTIES_SIZE_MAX:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            f"message properties of {len(stored)} bytes, limit {names.PROPERTIES_SIZE_MAX}",
        )
    tag = properties.get(names.TAGS)
    stamp = Stamp(
        flag=message.flag,
        sys_flag=header.sys_flag & SENDER_BITS,
        born_ms=header.born_ms,
        reconsume_times=header.reconsume_times,
        prepared_offset=0,
        tags_code=tag_code(tag) if tag else 0,
    )
    return stamp, message.body, stored


def _check_fits(context: Context, entries: list[BatchEntry], around: int) -> None:
    """Refuse a batch that is longer than a message may be: it goes into one file as a whole.

    What records need `around` their bodies and properties counts: small messages are mostly that.
    """
    size = sum(around + len(body) + len(properties) for _, body, properties in entries)
    if len(entries) > 1 and size > context.core.body_size_max:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch of {size} bytes, limit {context.core.body_size_max} (maxMessageSize, and"
            " what fits a file of mappedFileSizeCommitLog)",
        )


def _check_store(context: Context) -> None:
    """Refuse while the store takes nothing: the cause is the store's, the code says what helps."""
    kind = context.store.refusal_kind
    if kind is None:
        return
    code = ResponseCode.SERVICE_NOT_AVAILABLE
    if kind is RefusalKind.BEHIND:
        code = ResponseCode.SYSTEM_BUSY
    raise RequestFailed(code, context.core.tail.refusal)


def _topic(context: Context, header: SendMessage) -> TopicConfig:
    """Find the topic or make it from the template that the sender names."""
    topic = header.topic
    fault = topic_fault(topic)
    if fault is not None:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)
    if is_closed_to_clients(topic):
        raise RequestFailed(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
        )
    if is_retry_topic(topic):
        raise _unsupported("messages to retry topics")
    config = context.topics.find(topic)
    if config is None:
        config = context.topics.make_from_template(
            topic, header.default_topic, header.default_topic_queue_count
        )
    if config is None:
        raise RequestFailed(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{topic}] not exist, apply first please! It is not made by itself: "
            f"{header.default_topic} is no template topic (autoCreateTopicEnable), "
            f"{header.default_topic_queue_count} is no number of queues, or the broker has "
            f"{TOPIC_COUNT_MAX} topics already",
        )
    return config


def _queue_id(chance: Chance, header: SendMessage, config: TopicConfig) -> int:
    count = max(config.read_queue_count, config.write_queue_count)
    if header.queue_id >= count or config.write_queue_count <= 0:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"request queueId[{header.queue_id}] is illegal, topic [{header.topic}] has {count} "
            "queues",
        )
    if header.queue_id < 0:
        return chance.below(config.write_queue_count)
    return header.queue_id


def _check_message(context: Context, properties: dict[str, str], body: bytes) -> None:
    for name, kind in _NOT_YET.items():
        if properties.get(name, "0") not in ("0", "false"):
            raise _unsupported(kind)
    for name in properties:
        if name.startswith("INNER_"):
            raise RequestFailed(
                ResponseCode.MESSAGE_ILLEGAL, f"property {name} is reserved for the broker"
            )
    if len(body) > context.core.body_size_max:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            f"message body of {len(body)} bytes, limit {context.core.body_size_max} "
            "(maxMessageSize, and what fits a file of mappedFileSizeCommitLog)",
        )


def _without_cluster(properties: str) -> str:
    """Leave out a cluster name that a message brings along: the broker adds its own."""
    entries = properties.split("\x02")
    return "\x02".join(entry for entry in entries if not entry.startswith("CLUSTER\x01"))


def _unsupported(kind: str) -> RequestFailed:
    return RequestFailed(
        ResponseCode.MESSAGE_ILLEGAL, f"this version of OrbitMQ does not take {kind} yet"
    )


HANDLERS = {
    RequestCode.SEND_MESSAGE: send_message,
    RequestCode.SEND_MESSAGE_V2: send_message,
    RequestCode.SEND_BATCH_MESSAGE: send_message,
}
