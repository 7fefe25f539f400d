"""The hot path in plain, tuned Python: handle-one-read, made of append and gather.

In: the bytes of one read and the state. Out: the bytes used, the answers, the log end they depend
on, the queues that grew, and the first frame that is not ours to handle.

Rules:
1. Only the ordinary case is handled: JSON headers of codes 310, 10 and 11, known topics and queues,
   no property that makes the broker act. Everything else is handed back as the first unknown frame;
   nothing behind that frame is touched, so order is kept.
2. Records are staged only; the answers must not leave before the store has written them.
3. The order of header keys is used for speed only: a frame that begins otherwise is unknown, not
   wrong.
4. Bytes that cannot be a frame are left alone, neither used nor judged: the connection's decoder
   judges them, after the frames before them were handled.
"""

import struct
from typing import NamedTuple

import msgspec

from orbitmq.core.admit import Refusal, admit
from orbitmq.core.plain_append import Stamp, append, append_copies
from orbitmq.core.plain_batch import ID_END, BatchColumns, BatchStamp, append_batch, leading_ids
from orbitmq.core.plain_gather import Gathered, PullStatus, gather
from orbitmq.core.plain_known import LEARNING_COST, MISS_COST, PREFIXES, learn, take_known
from orbitmq.core.state import CoreState, Origin, Parts, Queue, Subscription
from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.command import FLAG_ONEWAY, HEADER_SIZE_MAX, LANGUAGE, VERSION
from orbitmq.wire.fields import Int32, Int64
from orbitmq.wire.frame import COPY_BELOW_BYTES, FRAME_SIZE_MAX, Frame, cut_frame
from orbitmq.wire.headers_client import PULL_COMMITS, PULL_HAS_SUBSCRIPTION
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX
from orbitmq.wire.sysflag import SENDER_BITS

__all__ = [
    "ID_END",
    "BatchColumns",
    "BatchStamp",
    "Gathered",
    "PullStatus",
    "ReadResult",
    "Stamp",
    "append",
    "append_batch",
    "append_copies",
    "gather",
    "handle_one_read",
    "leading_ids",
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


_NO_TEXT = msgspec.Raw(b'""')


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
    i: msgspec.Raw = _NO_TEXT  # properties, as JSON: most of them are known in that form
    j: int = 0  # reconsume times
    m: bool = False  # batch


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
    i: msgspec.Raw = msgspec.field(name="properties", default=_NO_TEXT)
    j: int = msgspec.field(name="reconsumeTimes", default=0)
    m: bool = msgspec.field(name="batch", default=False)


class _SendV2(msgspec.Struct, gc=False):
    extFields: _SendFieldsV2  # noqa: N815 - the wire's name
    opaque: Int32
    flag: int


class _SendV1(msgspec.Struct, gc=False):
    extFields: _SendFieldsV1  # noqa: N815 - the wire's name
    opaque: Int32
    flag: int


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


class _Pull(msgspec.Struct, gc=False):
    extFields: _PullFields  # noqa: N815 - the wire's name
    opaque: Int32
    flag: int


_decode_send_v2 = msgspec.json.Decoder(_SendV2, strict=False).decode
_decode_send_v1 = msgspec.json.Decoder(_SendV1, strict=False).decode
_decode_pull = msgspec.json.Decoder(_Pull, strict=False).decode
_decode_text = msgspec.json.Decoder(str, strict=False).decode

_SEND_V2 = b'{"code":310,'
_SEND_V1 = b'{"code":10,'
_SENDS = (_SEND_V2, _SEND_V1)
_PULL = b'{"code":11,'
_BAD_HEADER = (msgspec.DecodeError, ValueError, RecursionError)

_PULL_ANSWER = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%d","minOffset":"%d",'
    b'"maxOffset":"%d"},"flag":1,"language":"'
    + LANGUAGE.encode()
    + b'","opaque":%%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
)
_UNIQ_MARK = b"UNIQ_KEY\x01"
_UNIQ_SIZE = 32
_JSON_MARK = rb'"UNIQ_KEY\u0001'
_JSON_START = len(_JSON_MARK)
_JSON_END = _JSON_START + _UNIQ_SIZE
JUDGED_MAX = 1_024
JUDGED_SIZE_MAX = 512
"""What is kept of properties that were judged: so many, so long."""

_PREFIX = struct.Struct(">iI")


def handle_one_read(
    state: CoreState, data: bytes, start: int, origin: Origin, now_ms: int
) -> ReadResult:
    """Handle the frames of `data` from `start` on, up to the first one that is not ours.

    `now_ms` is the wall clock.
    """
    tail = state.tail
    answers: Parts = []
    if now_ms > tail.store_ms:
        tail.store_ms = now_ms
    if origin.is_guarded:
        return _hand_back(state, data, start)
    position = take_known(state, data, start, origin, answers) if origin.shapes else start
    if position != len(data):
        return _handle_others(state, data, position, origin, answers)
    # ReadResult(...) would cost three times as much, and a read may bring one message only.
    return tuple.__new__(
        ReadResult, (position, answers, tail.end_offset, tail.grown, None, len(answers), 0)
    )


def _handle_others(
    state: CoreState, data: bytes, position: int, origin: Origin, answers: Parts
) -> ReadResult:
    """Go on at a frame that is not a known send; `answers` are those to known ones before it."""
    tail, end = state.tail, len(data)
    sends, pulls, pulled_size = len(answers), 0, 0
    while end - position >= 8:
        length, header_size = _PREFIX.unpack_from(data, position)
        if header_size > HEADER_SIZE_MAX or not header_size <= length - 4 <= FRAME_SIZE_MAX - 8:
            break  # a binary header (its type is in the upper byte), too much, or no frame at all
        frame_end = position + 4 + length
        if frame_end > end or pulled_size > PULLED_SIZE_MAX:
            end = position  # nothing more is ours for now
            break
        body_start = position + 8 + header_size
        header = data[position + 8 : body_start]
        if header.startswith(_PULL):
            size = _pull(state, header, answers)
            if not size:
                break
            pulls += 1
            pulled_size += size
        elif header.startswith(_SENDS):  # a long body of another request is not copied for nothing
            answer = _send(state, header, data[body_start:frame_end], origin)
            if answer is None:
                break
            sends += 1
            if answer:
                answers.append(answer)
        else:
            break
        position = frame_end
        if origin.shapes:
            count = len(answers)
            position = take_known(state, data, position, origin, answers)
            sends += len(answers) - count
    unknown = _next_frame(data, position) if position < end else None
    if unknown is not None:
        position = _end_of(unknown, position)
    return tuple.__new__(
        ReadResult, (position, answers, tail.end_offset, tail.grown, unknown, sends, pulls)
    )


def _hand_back(state: CoreState, data: bytes, start: int) -> ReadResult:
    """Handle nothing: return the first frame as unknown."""
    unknown = _next_frame(data, start)
    used = start if unknown is None else _end_of(unknown, start)
    return ReadResult(used, [], state.tail.end_offset, state.tail.grown, unknown, 0, 0)


def _end_of(frame: Frame, start: int) -> int:
    return start + 8 + len(frame.header) + len(frame.body)


def _next_frame(data: bytes, position: int) -> Frame | None:
    try:
        return cut_frame(data, position)
    except RemoteProtocolError:
        return None  # rule 4


def _send(state: CoreState, header: bytes, body: bytes, origin: Origin) -> bytes | None:
    """Stage a message and give its answer (empty for a one-way send); None if it is not ours."""
    known = state.known
    if known.credit >= 0 and len(header) in origin.shapes:
        known.credit -= MISS_COST  # it was looked for among the known ones
    try:
        if header.startswith(_SEND_V2):
            request: _SendV2 | _SendV1 = _decode_send_v2(header)
        else:
            request = _decode_send_v1(header)
    except _BAD_HEADER:
        return None
    fields = request.extFields
    topic = state.topics.get(fields.b)
    queue = topic.queues.get(fields.e) if topic is not None and topic.is_plain else None
    sys_flag = fields.f
    if (
        topic is None
        or queue is None
        or fields.e >= topic.send_queue_count
        or state.tail.refusal
        or state.tail.store_ms < state.send_from_ms
        or fields.m
        or fields.j
        or sys_flag & ~SENDER_BITS
        or request.flag & ~FLAG_ONEWAY
        or len(body) > state.body_size_max
    ):
        return None
    # Java clients write the id first, and what follows is the same for many messages.
    properties = bytes(fields.i)
    unique, judged = properties[_JSON_START:_JSON_END], state.judged.get(properties[_JSON_END:])
    if judged is not None and properties.startswith(_JSON_MARK) and unique.isalnum():
        code, behind = judged
        stored = _UNIQ_MARK + unique + behind
    else:
        judged = _judge(state, properties)
        if judged is None:
            return None
        code, stored = judged
    stamp = (fields.h, sys_flag, fields.g, 0, 0, code)
    log_offset = append(state.tail, queue, origin, stamp, body, stored)
    if known.credit >= LEARNING_COST:
        learn(state, origin, header, (fields.b, fields.e, sys_flag))
    else:
        known.credit += 1
    if request.flag:
        return b""
    answer = state.send_answer % (
        state.store_id,
        log_offset,
        queue.queue_id,
        queue.next_offset - 1,
        request.opaque,
    )
    return PREFIXES[len(answer)] + answer


def _judge(state: CoreState, json_text: bytes) -> tuple[int, bytes] | None:
    """Return the tag's code and the properties as they are stored; None if they are not ours."""
    try:
        admitted = admit(_decode_text(json_text).encode())
    except _BAD_HEADER:
        return None
    if isinstance(admitted, Refusal) or not admitted.is_ordinary:
        return None
    if state.is_sync_flush and not admitted.waits_for_sync:
        return None
    code, stored = admitted.tags_code, admitted.own + state.cluster_property
    if len(stored) > PROPERTIES_SIZE_MAX:
        return None
    _remember(state, json_text, code, stored)
    return code, stored


def _remember(state: CoreState, json_text: bytes, code: int, stored: bytes) -> None:
    """Keep what follows an id, as it is stored: with another id it is the same."""
    unique, behind = json_text[_JSON_START:_JSON_END], json_text[_JSON_END:]
    if (
        not json_text.startswith(_JSON_MARK)
        or not unique.isalnum()
        or not behind.startswith(rb"\u0002")
        or len(behind) > JUDGED_SIZE_MAX
    ):
        return
    if len(state.judged) >= JUDGED_MAX:
        state.judged.clear()
    state.judged[behind] = (code, stored[len(_UNIQ_MARK) + _UNIQ_SIZE :])


def _pull(state: CoreState, header: bytes, answers: Parts) -> int:
    """Add the answer to a pull that finds something, and give its size; 0 if it is not ours."""
    try:
        request = _decode_pull(header)
    except _BAD_HEADER:
        return 0
    fields = request.extFields
    name, queue_id, count_max = fields.topic, fields.queue_id, fields.max_msg_nums
    topic = state.topics.get(name)
    if topic is None or not topic.is_readable or request.flag or not state.is_pull_plain:
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
    answer = _PULL_ANSWER % (next_offset, queue.min_offset, queue.readable_offset, request.opaque)
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
    return subscription


def _commit(state: CoreState, fields: _PullFields) -> bool:
    """Store the offset that came with the pull; False when its queue has none yet."""
    queues = state.offsets.get(f"{fields.topic}@{fields.consumer_group}")
    if queues is None or fields.commit_offset < 0:
        return False
    queues[fields.queue_id] = fields.commit_offset
    return True
