"""Send a message (10, 310): every case that the hot path leaves to us.

In: a send in either spelling and serialization. Out: a staged record whose answer leaves when the
log has been written, or the reason of a refusal. The checks come in the original's order.

Delayed, timed, transactional, batch and retry sends come with the broker issue: until then they are
refused by name, never stored as something else.
"""

from orbitmq.broker.context import Context
from orbitmq.broker.topics import TOPIC_COUNT_MAX
from orbitmq.core import Stamp, append, stored_properties
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.wire import properties as names
from orbitmq.wire.bodies_namesrv import TopicConfig
from orbitmq.wire.codes import ResponseCode
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
    """Stage a message; its answer leaves after the write at the end of the turn."""
    header = read_send(request.code, request.fields)
    config = _topic(context, header)
    queue_id = _queue_id(context.chance, header, config)
    properties = parse_properties(header.properties)
    _check_message(context, header, properties, request.body)
    stored = stored_properties(context.core, _without_cluster(header.properties)).encode()
    if len(stored) > names.PROPERTIES_SIZE_MAX:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            f"message properties of {len(stored)} bytes, limit {names.PROPERTIES_SIZE_MAX}",
        )
    tag = properties.get(names.TAGS)
    stamp = Stamp(
        flag=header.flag,
        sys_flag=header.sys_flag & SENDER_BITS,
        born_ms=header.born_ms,
        reconsume_times=header.reconsume_times,
        prepared_offset=0,
        tags_code=tag_code(tag) if tag else 0,
    )
    queue = context.topics.queue(config, queue_id)
    context.core.tail.store_ms = max(context.core.tail.store_ms, context.clock.wall_ms())
    log_offset = append(
        context.core.tail, queue, context.origin(connection), stamp, request.body, stored
    )
    answer = SendMessageAnswer(
        msg_id=encode_offset_id(context.store_host, log_offset),
        queue_id=queue_id,
        queue_offset=queue.next_offset - 1,
        region_id=context.region,
        trace_on=True,
    )
    reply = reply_to(request, fields=write_header(answer))
    context.stage_answers(connection, [] if request.is_oneway else [encode_command(reply)])
    return None


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


def _check_message(
    context: Context, header: SendMessage, properties: dict[str, str], body: bytes
) -> None:
    for name, kind in _NOT_YET.items():
        if properties.get(name, "0") not in ("0", "false"):
            raise _unsupported(kind)
    if header.batch:
        raise _unsupported("batches")
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
