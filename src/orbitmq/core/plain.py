"""The hot path in plain Python: handle-one-read, made of append and gather.

In: the bytes of one read and the state. Out: the bytes used, the answers, the log end they depend
on, the queues that grew, and the first frame that is not ours to handle.

Rules:
1. Only the ordinary case is handled: codes 310, 10, 320 and 11, known topics and queues, no
   property that makes the broker act. Everything else is handed back as the first unknown frame;
   nothing behind that frame is touched, so order is kept.
2. Records are staged only; the answers must not leave before the store has written them.
3. Bytes that cannot be a frame are left alone, neither used nor judged: the connection's decoder
   judges them, after the frames before them were handled.
4. A binary header means what the same fields mean as texts in JSON, and its answer has a binary
   header, too.
"""

import struct
from typing import NamedTuple

import msgspec

from orbitmq.core.admit import Admitted, Refusal, admit
from orbitmq.core.admit_batch import admit_batch
from orbitmq.core.plain_append import Stamp, append, append_copies
from orbitmq.core.plain_batch import BATCH_COUNT_MAX, BatchColumns, BatchStamp, append_batch
from orbitmq.core.plain_filter import SqlFilter
from orbitmq.core.plain_gather import Gathered, PullStatus, gather
from orbitmq.core.plain_rows import file_rows
from orbitmq.core.state import CoreState, LogTail, Origin, Parts, Queue, Subscription, Topic
from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.batch import decode_batch
from orbitmq.wire.command import (
    FLAG_ONEWAY,
    HEADER_SIZE_MAX,
    LANGUAGE,
    VERSION,
    decode_command,
    encode_command,
)
from orbitmq.wire.fields import Int32, Int64
from orbitmq.wire.frame import (
    BINARY,
    COPY_BELOW_BYTES,
    FRAME_SIZE_MAX,
    JSON,
    PREFIX_SIZE,
    Frame,
    cut_frame,
)
from orbitmq.wire.headers_client import PULL_COMMITS, PULL_HAS_SUBSCRIPTION
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX
from orbitmq.wire.sysflag import SENDER_BITS

__all__ = [
    "BatchColumns",
    "BatchStamp",
    "CoreState",
    "Gathered",
    "LogTail",
    "Origin",
    "PullStatus",
    "Queue",
    "ReadResult",
    "SqlFilter",
    "Stamp",
    "Topic",
    "append",
    "append_batch",
    "append_copies",
    "file_rows",
    "gather",
    "handle_one_read",
]

PULLED_SIZE_MAX = 1_048_576
"""Above this much of answers to pulls the rest of a read is left until the caller has looked at
the output."""


class ReadResult(NamedTuple):
    """What one read brought. `used` includes the unknown frame, if there is one."""

    used: int
    answers: Parts
    log_end: int
    grown: set[Queue]
    """The queues that have grown in this turn so far; the store takes them with its write."""
    unknown: Frame | None
    sends: int
    """How many sends were handled, one-way ones included."""
    pulls: int


class _SendFieldsV2(msgspec.Struct, gc=False):
    """The fields of a send that matter here, by their letters in code 310.

    A bound is checked where a number goes into the record; the others are looked at further on.
    """

    a: str  # producer group; required, not read here
    b: str  # topic
    c: str  # template topic; required, not read here
    d: str | int  # its queue count; required, not read here
    e: int  # queue id
    f: int  # sysFlag
    g: Int64  # born time
    h: Int32  # flag
    i: str = ""  # properties
    j: int = 0  # reconsume times
    m: str | bool = False  # batch


class _SendFieldsV1(msgspec.Struct, gc=False):
    """The same under the long names of code 10."""

    a: str = msgspec.field(name="producerGroup")
    b: str = msgspec.field(name="topic")
    c: str = msgspec.field(name="defaultTopic")
    d: str | int = msgspec.field(name="defaultTopicQueueNums")
    e: int = msgspec.field(name="queueId")
    f: int = msgspec.field(name="sysFlag")
    g: Int64 = msgspec.field(name="bornTimestamp")
    h: Int32 = msgspec.field(name="flag")
    i: str = msgspec.field(name="properties", default="")
    j: int = msgspec.field(name="reconsumeTimes", default=0)
    m: str | bool = msgspec.field(name="batch", default=False)


_SendFields = _SendFieldsV1 | _SendFieldsV2


class _PullFields(msgspec.Struct, rename="camel", gc=False):
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    bulk: bool = False


class Header(msgspec.Struct, gc=False):
    """What every request's header has."""

    code: Int32
    extFields: msgspec.Raw  # noqa: N815 - the wire's name
    opaque: Int32
    flag: Int32


decode_header = msgspec.json.Decoder(Header, strict=False).decode
_decode_send_v2 = msgspec.json.Decoder(_SendFieldsV2, strict=False).decode
_decode_send_v1 = msgspec.json.Decoder(_SendFieldsV1, strict=False).decode
_decode_pull = msgspec.json.Decoder(_PullFields, strict=False).decode

_SEND_V2, _SEND_V1, _SEND_BATCH, _PULL = 310, 10, 320, 11
_SENDS = (_SEND_V2, _SEND_V1, _SEND_BATCH)
CODES = frozenset((*_SENDS, _PULL))
"""What is answered here, before the table of requests is asked."""
_BAD_HEADER = (msgspec.DecodeError, ValueError, RecursionError, RemoteProtocolError)

PULL_ANSWER = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%d","minOffset":"%d",'
    b'"maxOffset":"%d"},"flag":1,"language":"'
    + LANGUAGE.encode()
    + b'","opaque":%%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
)
_PREFIX = struct.Struct(">iI")


def handle_one_read(
    state: CoreState, data: bytes, start: int, origin: Origin, now_ms: int
) -> ReadResult:
    """Handle the frames of `data` from `start` on, up to the first one that is not ours.

    `now_ms` is the wall clock.
    """
    tail, position, end = state.tail, start, len(data)
    tail.advance_clock(now_ms)
    answers: Parts = []
    sends = pulls = pulled_size = 0
    while end - position >= 8 and not origin.is_guarded:
        length, kind, header_size = _cut_prefix(data, position)
        is_whole = header_size <= length - 4 <= FRAME_SIZE_MAX - 8
        if kind > BINARY or header_size > HEADER_SIZE_MAX or not is_whole:
            break  # too much, or no frame at all
        frame_end = position + 4 + length
        if frame_end > end or pulled_size > PULLED_SIZE_MAX:
            end = position  # nothing more is ours for now
            break
        body_start = position + 8 + header_size
        try:
            header = _read_header(kind, data[position + 8 : body_start])
        except _BAD_HEADER:
            break
        count = len(answers)
        if header.code == _PULL:
            size = plain_pull(state, header, answers)
            if not size:
                break
            pulls += 1
            pulled_size += size
        elif header.code in _SENDS:  # a long body of another request is not copied for nothing
            answer = _send(state, header, data[body_start:frame_end], origin)
            if answer is None:
                break
            sends += 1
            if answer:
                answers.append(answer)
        else:
            break
        if kind == BINARY and len(answers) > count:
            answers[count] = _in_binary(bytes(answers[count]))
        position = frame_end
    unknown = next_frame(data, position) if position < end else None
    if unknown is not None:
        position = end_of(unknown, position)
    return ReadResult(position, answers, tail.end_offset, tail.grown, unknown, sends, pulls)


def end_of(frame: Frame, start: int) -> int:
    """Return where a frame ends that begins at `start`."""
    return start + 8 + len(frame.header) + len(frame.body)


def next_frame(data: bytes, position: int) -> Frame | None:
    """Return the frame at a position; None: it is not all there, or it is none."""
    try:
        return cut_frame(data, position)
    except RemoteProtocolError:
        return None  # rule 3


def _cut_prefix(data: bytes, position: int) -> tuple[int, int, int]:
    """Return the length of a frame, the kind of its header, and the header's size."""
    length, word = _PREFIX.unpack_from(data, position)
    return length, word >> 24, word & 0xFFFFFF


def _read_header(kind: int, data: bytes) -> Header:
    if kind == JSON:
        return decode_header(data)
    command = decode_command(Frame(kind, data, b""))
    fields = msgspec.Raw(msgspec.json.encode(command.fields))
    return Header(command.code, fields, command.opaque, command.flag)


def _in_binary(answer: bytes) -> bytes:
    """Return the same answer, or the beginning of one, with a binary header."""
    length, _, json_size = _cut_prefix(answer, 0)
    body_start = PREFIX_SIZE + json_size
    command = decode_command(Frame(JSON, answer[PREFIX_SIZE:body_start], b""), FRAME_SIZE_MAX)
    command.serialization = BINARY
    header = encode_command(command)[PREFIX_SIZE:]
    prefix = _PREFIX.pack(length - json_size + len(header), BINARY << 24 | len(header))
    return b"".join((prefix, header, answer[body_start:]))


def _send(state: CoreState, header: Header, body: bytes, origin: Origin) -> bytes | None:
    """Stage a message and return its answer (empty for a one-way send); None if it is not ours."""
    decode = _decode_send_v1 if header.code == _SEND_V1 else _decode_send_v2
    try:
        fields: _SendFields = decode(header.extFields)
    except _BAD_HEADER:
        return None
    topic = state.topics.get(fields.b)
    queue = topic.queues.get(fields.e) if topic is not None and topic.is_plain else None
    sys_flag = fields.f
    if (
        topic is None
        or queue is None
        or fields.e >= topic.send_queue_count
        or state.tail.refusal
        or state.tail.store_ms < state.send_from_ms
        or fields.j
        or sys_flag & ~SENDER_BITS
        or header.flag & ~FLAG_ONEWAY
        or len(body) > state.body_size_max
    ):
        return None
    try:
        admitted = admit(fields.i.encode())
    except UnicodeEncodeError:
        return None
    if isinstance(admitted, Refusal) or not admitted.is_ordinary:
        return None
    if state.is_sync_flush and not admitted.waits_for_sync:
        return None
    if str(fields.m).lower() == "true":
        log_offsets = _stage_batch(state, queue, origin, fields, body)
    else:
        log_offsets = _stage_one(state, queue, origin, fields, (admitted, body))
    if not log_offsets:
        return None
    if header.flag:
        return b""
    answer = state.send_answer % (
        b",".join(b"%b%016X" % (state.store_id, log_offset) for log_offset in log_offsets),
        queue.queue_id,
        queue.next_offset - len(log_offsets),
        header.opaque,
    )
    return _PREFIX.pack(4 + len(answer), len(answer)) + answer


def _stage_one(
    state: CoreState,
    queue: Queue,
    origin: Origin,
    fields: _SendFields,
    message: tuple[Admitted, bytes],
) -> list[int]:
    """Stage a message and return its log offset; nothing if it is not ours."""
    admitted, body = message
    stored = admitted.own + state.cluster_property
    if len(stored) > PROPERTIES_SIZE_MAX:
        return []
    stamp = (fields.h, fields.f, fields.g, 0, 0, admitted.tags_code)
    return [append(state.tail, queue, origin, stamp, body, stored)]


def _stage_batch(
    state: CoreState, queue: Queue, origin: Origin, fields: _SendFields, body: bytes
) -> list[int]:
    """Stage the messages of a batch and return their log offsets; nothing if it is not ours."""
    try:
        batch = decode_batch(body, BATCH_COUNT_MAX)
    except RemoteProtocolError:
        return []
    admitted = admit_batch(batch.properties, fields.i.encode())
    if isinstance(admitted, Refusal) or len(batch.bodies) > BATCH_COUNT_MAX:
        return []
    ending = state.cluster_property
    messages = BatchColumns(batch.bodies, admitted.owns, batch.flags, admitted.tags_codes, ending)
    longest = max(map(len, admitted.owns)) + len(ending)
    size = messages.size_with(origin.fixed_size + len(queue.topic_field))
    if longest > PROPERTIES_SIZE_MAX or size > state.body_size_max:
        return []
    stamp = BatchStamp(fields.f, fields.g, 0)
    return append_batch(state.tail, queue, origin, stamp, messages)


def plain_pull(state: CoreState, header: Header, answers: Parts) -> int:
    """Add the answer to a pull that finds something, and return its size; 0 if it is not ours."""
    try:
        fields = _decode_pull(header.extFields)
    except _BAD_HEADER:
        return 0
    name, queue_id, count_max = fields.topic, fields.queue_id, fields.max_msg_nums
    topic = state.topics.get(name)
    if topic is None or not topic.is_readable or header.flag or not state.is_pull_plain:
        return 0
    bytes_max, is_bulk = fields.max_msg_bytes, fields.bulk
    if bytes_max is not None and bytes_max < state.pull_limits(is_bulk=is_bulk)[1]:
        return 0
    queue = topic.queues.get(queue_id)
    if queue is None or queue_id >= topic.read_queue_count:
        return 0
    subscription = _subscription(state, fields)
    if subscription is None or count_max <= 0:
        return 0
    codes = subscription.codes
    found = gather(state, queue, fields.queue_offset, count_max, codes, is_bulk=is_bulk)
    status, next_offset, parts, size, message_count = found
    if status is not PullStatus.FOUND:
        return 0
    if fields.sys_flag & PULL_COMMITS and not _commit(state, fields):
        return 0
    state.note_got(name, fields.consumer_group, message_count, size)
    answer = PULL_ANSWER % (next_offset, queue.min_offset, queue.readable_offset, header.opaque)
    prefix = _PREFIX.pack(4 + len(answer) + size, len(answer))
    if size >= len(parts) * COPY_BELOW_BYTES:
        answers.append(prefix + answer)
        answers += parts
    else:
        answers.append(b"".join((prefix, answer, *parts)))
    return 8 + len(answer) + size


EVERYTHING = Subscription(0, None)


def _subscription(state: CoreState, fields: _PullFields) -> Subscription | None:
    """Return what the pull asks for, or None when the answer needs more than a look."""
    group = fields.consumer_group
    if fields.sys_flag & ~7 or group not in state.groups:
        return None
    if fields.sys_flag & PULL_HAS_SUBSCRIPTION:
        is_all = fields.subscription == "*" and fields.expression_type in (None, "TAG")
        return EVERYTHING if is_all else None
    subscription = state.subscriptions.get((group, fields.topic))
    if subscription is None or subscription.version < fields.sub_version:
        return None
    return subscription if subscription.accepts is None else None


def _commit(state: CoreState, fields: _PullFields) -> bool:
    """Store the offset that came with the pull; False when its queue has none yet."""
    queues = state.offsets.get(f"{fields.topic}@{fields.consumer_group}")
    if queues is None or fields.commit_offset < 0:
        return False
    queues[fields.queue_id] = fields.commit_offset
    return True
