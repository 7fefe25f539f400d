"""Messages that the broker itself stores: retries, dead letters, delayed ones, events.

In: a message as it is to be stored. Out: its place in the log, staged; it is written at the end of
the loop's turn, or refused with the reason.

Rules:
1. A message keeps its birth: time, address and flags are those of its first sender.
2. A delayed message waits in queue level - 1 of SCHEDULE_TOPIC_XXXX; its properties say where it
   belongs. A level above the highest is the highest, also in its properties. The code of its queue
   entry is when it is due; `store.follow` has the rule, for rebuilding finds the same code.
3. Properties come as `core.admit` gives them; the cluster's name is added when they are staged.
4. What is stored here was taken from a sender before, or goes to one's topic: maxMessageSize, which
   may have been lowered since, is for senders. Only what no file can hold is refused.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from orbitmq.core import Admitted, Origin, Queue, Refusal, Way, admit, append, with_entries
from orbitmq.errors import RequestFailed
from orbitmq.store.follow import due_code
from orbitmq.store.refusals import RefusalKind
from orbitmq.store.store import largest_body
from orbitmq.wire import properties as names
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.host import Host, pack_host
from orbitmq.wire.names import SCHEDULE_TOPIC, TOPIC_LENGTH_MAX
from orbitmq.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

if TYPE_CHECKING:
    from orbitmq.broker.context import Context


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to store."""

    topic: str
    queue_id: int
    body: bytes
    own: bytes
    """Its properties: see `Admitted.own`."""
    flag: int = 0
    sys_flag: int = 0
    born_ms: int
    born_host: bytes
    """Packed, as `wire.host.pack_host` gives it."""
    reconsume_times: int = 0
    prepared_offset: int = 0
    tags_code: int


class Stored(Protocol):
    """What a record, read whole or in part, says of its message."""

    @property
    def body(self) -> bytes: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_ms(self) -> int: ...
    @property
    def born_host(self) -> Host | bytes: ...
    @property
    def reconsume_times(self) -> int: ...


class StagedSend(NamedTuple):
    """Where a message or a batch that a client sent was staged."""

    log_offsets: list[int]
    queue_offset: int
    """Of the first one."""
    waits_for_sync: bool


class Placed(NamedTuple):
    """Where a message was put."""

    log_offset: int
    queue: Queue
    queue_offset: int


def admitted(properties: bytes, way: Way, *, takes_lights: bool = False) -> Admitted:
    """Return what is stored of properties and what they ask for; raises RequestFailed."""
    found = admit(properties, way, takes_lights=takes_lights)
    if isinstance(found, Refusal):
        raise RequestFailed(found.code, found.remark)
    return found


def again(record: Stored, topic: str, queue_id: int, admitted: Admitted) -> NewMessage:
    """Return the message of a record for another place; it keeps its birth (rule 1)."""
    born_host = record.born_host
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=record.body,
        own=admitted.own,
        flag=record.flag,
        sys_flag=record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6),
        born_ms=record.born_ms,
        born_host=born_host if isinstance(born_host, bytes) else pack_host(born_host),
        reconsume_times=record.reconsume_times,
        tags_code=admitted.tags_code,
    )


def put(context: "Context", message: NewMessage) -> Placed:
    """Stage a message. Raises RequestFailed when the store takes nothing or it does not fit."""
    check_store(context, is_own=True)
    _check_topic(message.topic)
    properties = message.own + context.core.cluster_property
    tail = context.core.tail
    check_sizes(message.body, properties, largest_body(tail.file_size))
    tail.advance_clock(context.clock.wall_ms())
    code = message.tags_code
    if message.topic == SCHEDULE_TOPIC:
        code = due_code(properties, tail.store_ms, context.delays.delays_ms) or code
    stamp = (  # a Stamp, but made at a quarter of its price
        message.flag,
        message.sys_flag,
        message.born_ms,
        message.reconsume_times,
        message.prepared_offset,
        code,
    )
    queue = _queue(context, message.topic, message.queue_id)
    origin = origin_of(message.born_host, context.packed_store_host)
    log_offset = append(tail, queue, origin, stamp, message.body, properties)
    context.writer.request_write()
    return Placed(log_offset, queue, queue.next_offset - 1)


def delayed(context: "Context", message: NewMessage, level: int) -> NewMessage:
    """Return a message as it waits for its time; its properties say where it goes then.

    Raises RequestFailed when it could not go there.
    """
    _check_topic(message.topic)
    level = context.delays.clamp(level)
    place = {
        names.DELAY: str(level),
        names.REAL_TOPIC: message.topic,
        names.REAL_QID: str(message.queue_id),
    }
    return msgspec.structs.replace(
        message,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        own=with_entries(message.own, place),
    )


def check_store(context: "Context", *, is_own: bool = False) -> None:
    """Refuse while the store takes nothing: the cause is the store's, the code says what helps.

    What is the broker's own goes on while it is merely busy.
    """
    if not context.core.tail.refusal:
        return
    kind = context.store.refusal_kind
    if kind is None or (is_own and kind is RefusalKind.BUSY):
        return
    code = ResponseCode.SERVICE_NOT_AVAILABLE
    if kind in (RefusalKind.BEHIND, RefusalKind.BUSY):
        code = ResponseCode.SYSTEM_BUSY
        context.overload.note_refused()
    raise RequestFailed(code, context.core.tail.refusal)


def check_sizes(body: bytes, stored_properties: bytes, body_size_max: int) -> None:
    """Refuse what a record cannot hold or a message may not have."""
    if len(stored_properties) > names.PROPERTIES_SIZE_MAX:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            f"message properties of {len(stored_properties)} bytes, limit"
            f" {names.PROPERTIES_SIZE_MAX}; move what is large into the body",
        )
    if len(body) > body_size_max:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            f"message body of {len(body)} bytes, limit {body_size_max} "
            "(maxMessageSize, and what fits a file of mappedFileSizeCommitLog)",
        )


def _check_topic(topic: str) -> None:
    if len(topic.encode()) > TOPIC_LENGTH_MAX:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            f"topic {topic[:40]}… has more than {TOPIC_LENGTH_MAX} characters; a group whose"
            " messages are tried again needs a name of at most 120",
        )


def _queue(context: "Context", topic: str, queue_id: int) -> Queue:
    """Return the queue; also that of a topic that was removed while messages were on their way."""
    config = context.topics.find(topic)
    if config is None:
        return context.store.queue(topic, queue_id)
    return context.topics.queue(config, queue_id)


@lru_cache(maxsize=4_096)
def origin_of(born_host: bytes, store_host: bytes) -> Origin:
    """Return how records of messages that came from a host begin."""
    return Origin(born_host, store_host)
