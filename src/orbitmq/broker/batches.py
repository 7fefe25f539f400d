"""Batches: many messages of one queue in one request, stored as a whole or not at all.

In: the body of a batch and the header it came with. Out: staged records, or the reason of a
refusal.

Rules:
1. A delay level of one message has no effect and one of the whole is refused, as in the original.
2. A batch is as long as a message may be, and goes into one file. Of one with too many messages no
   more are read than may be.
3. Without anything odd in a batch no message needs a look of its own. Where there is, only the
   messages that have it are looked at exactly.
4. WAIT stays in the properties, as in the original.
"""

from orbitmq.broker.context import Context
from orbitmq.broker.puts import check_sizes, check_store
from orbitmq.broker.send_checks import Target
from orbitmq.broker.send_properties import (
    check_properties,
    delay_level,
    is_text,
    needs_check,
    unsupported,
)
from orbitmq.core import BatchColumns, BatchStamp, append_batch
from orbitmq.errors import RemoteProtocolError, RequestFailed
from orbitmq.net.connection import Connection
from orbitmq.store.follow import properties_code, properties_codes
from orbitmq.wire import properties as names
from orbitmq.wire.batch import Batch, decode_batch
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_client import SendMessage
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.sysflag import SENDER_BITS, TRANSACTION_MASK

BATCH_COUNT_MAX = 16_384
"""Messages of one batch: they are stored in one piece, and the loop does nothing else meanwhile.
How long that takes, docs/performance.md says; broker/test_long_frames.py has the limit."""

_CLUSTER = names.CLUSTER.encode() + b"\x01"
_TAGS = names.TAGS.encode() + b"\x01"
_END = b"\x02"


def store_batch(
    context: Context, body: bytes, header: SendMessage, place: tuple[Target, Connection]
) -> tuple[list[int], int]:
    """Stage the messages; give their log offsets and the queue offset of the first."""
    properties = parse_properties(header.properties)
    if delay_level(properties) > 0 or header.sys_flag & TRANSACTION_MASK:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal: a batch can neither be delayed nor be part of a transaction",
        )
    if properties.get(names.TRAN_MSG, "").lower() == "true":
        raise unsupported("transactional messages")
    target, connection = place
    origin = context.origin(connection)
    cut = _cut(context, body)
    messages = stored_columns(context, cut, header.properties.encode())
    queue = context.topics.queue(target.config, target.queue_id)
    size = messages.size_with(origin.fixed_size + len(queue.topic_field))
    if len(cut.bodies) > 1 and size > context.core.body_size_max:
        raise _too_large(size, context.core.body_size_max)
    check_store(context)
    tail = context.core.tail
    tail.advance_clock(context.clock.wall_ms())
    stamp = BatchStamp(header.sys_flag & SENDER_BITS, header.born_ms, header.reconsume_times)
    log_offsets = append_batch(tail, queue, origin, stamp, messages)
    return log_offsets, queue.next_offset - len(log_offsets)


def _cut(context: Context, body: bytes) -> Batch:
    """Return the messages of a batch; of one with too many, no more are read than may be."""
    size_max = context.core.body_size_max
    try:
        cut = decode_batch(body, BATCH_COUNT_MAX)
    except RemoteProtocolError as error:
        raise RequestFailed(ResponseCode.MESSAGE_ILLEGAL, error.detail) from None
    if len(cut.bodies) > BATCH_COUNT_MAX:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch of more than {BATCH_COUNT_MAX} messages: send them as several batches",
        )
    if len(cut.bodies) > 1 and len(body) > size_max:
        raise _too_large(len(body), size_max)
    return cut


def _too_large(size: int, size_max: int) -> RequestFailed:
    return RequestFailed(
        ResponseCode.MESSAGE_ILLEGAL,
        f"a batch of {size} bytes, limit {size_max} (maxMessageSize, and what fits a file of"
        " mappedFileSizeCommitLog)",
    )


# --- Properties as they are stored ---


def stored_columns(context: Context, cut: Batch, shared: bytes) -> BatchColumns:
    """Check the messages and give them as they are stored; `shared` are properties of the whole."""
    cluster = context.core.cluster_property.encode()
    everything = _END.join((*cut.properties, shared))
    if needs_check(everything) or not is_text(everything):
        return _judged_one_by_one(context, cut, shared, cluster)
    owns = cut.properties
    is_tidy = _END + _END not in everything and not everything.startswith(_END)
    if not is_tidy:  # one of them is empty, or has a separator around it
        owns = [own.strip(_END) for own in owns]
    stored, ending = owns, _END + _joined(shared.rstrip(_END), cluster)
    if _CLUSTER in everything:  # messages that were consumed elsewhere, and sent again as they are
        texts = [own.rstrip(_END) + _END + shared for own in cut.properties]
        stored, ending = [_joined(_without_cluster(text), cluster) for text in texts], b""
    elif not (is_tidy or all(owns)):
        alone = _joined(shared.strip(_END), cluster)
        stored, ending = [own + ending if own else alone for own in owns], b""
    codes = [0] * len(owns)
    if _TAGS in everything:
        codes = properties_codes([own + _END + shared for own in owns] if _TAGS in shared else owns)
    columns = BatchColumns(cut.bodies, stored, cut.flags, codes, ending)
    _check_all_sizes(context, columns)
    return columns


def _joined(own: bytes, cluster: bytes) -> bytes:
    return own + _END + cluster if own else cluster


def _without_cluster(text: bytes) -> bytes:
    """Leave out a cluster name that a message brings along, and separators around it all."""
    if _CLUSTER in text:
        entries = text.split(_END)
        text = _END.join([entry for entry in entries if not entry.startswith(_CLUSTER)])
    return text.strip(_END)


def _judged_one_by_one(context: Context, cut: Batch, shared: bytes, cluster: bytes) -> BatchColumns:
    """Return what `stored_columns` gives; what is refused is the first message that must be."""
    stored, codes = list[bytes](), list[int]()
    for body, own in zip(cut.bodies, cut.properties, strict=True):
        text = own.rstrip(_END) + _END + shared
        if needs_check(text):
            check_properties(text, parse_properties(text))
        if not text.isascii():
            text = text.decode(errors="replace").encode()
        codes.append(properties_code(text))
        stored.append(_joined(_without_cluster(text), cluster))
        check_sizes(body, stored[-1], context.core.body_size_max)
    return BatchColumns(cut.bodies, stored, cut.flags, codes)


def _check_all_sizes(context: Context, columns: BatchColumns) -> None:
    size_max = context.core.body_size_max
    bodies, stored, ending = columns.bodies, columns.properties, columns.ending
    longest = max(columns.property_sizes) + len(ending)
    if longest > names.PROPERTIES_SIZE_MAX or max(columns.body_sizes) > size_max:
        for body, text in zip(bodies, stored, strict=True):
            check_sizes(body, text + ending, size_max)
