"""Batches: many messages of one queue in one request, stored as a whole or not at all.

In: the body of a batch and the header it came with. Out: staged records, or the reason of a
refusal.

Rules:
1. A delay level of one message has no effect and one of the whole is refused, as in the original.
2. A batch is as long as a message may be, and goes into one file. Of one with too many messages no
   more are read than may be.
3. What is stored of the properties says `core.admit_batch`.
"""

from orbitmq.broker.context import Context
from orbitmq.broker.puts import StagedSend, admitted, check_sizes, check_store
from orbitmq.broker.send_checks import Arrival
from orbitmq.core import (
    BATCH_COUNT_MAX,
    BatchColumns,
    BatchStamp,
    Refusal,
    Way,
    admit_batch,
    append_batch,
)
from orbitmq.errors import RemoteProtocolError, RequestFailed
from orbitmq.wire.batch import Batch, decode_batch
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.properties import PROPERTIES_SIZE_MAX
from orbitmq.wire.sysflag import SENDER_BITS, TRANSACTION_MASK


def store_batch(context: Context, arrival: Arrival) -> StagedSend:
    """Stage the messages of a batch."""
    header, body, target, origin = arrival
    shared = header.properties.encode()
    whole = admitted(shared, Way.SEND)
    if whole.delay_level > 0 or header.sys_flag & TRANSACTION_MASK:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal: a batch can neither be delayed nor be part of a transaction",
        )
    if whole.is_transactional:
        raise no_transactions()
    messages = _admitted(context, _cut(context, body), shared)
    queue = context.topics.queue(target.config, target.queue_id)
    size = messages.size_with(origin.fixed_size + len(queue.topic_field))
    if len(messages.bodies) > 1 and size > context.core.body_size_max:
        raise _too_large(size, context.core.body_size_max)
    check_store(context)
    tail = context.core.tail
    tail.advance_clock(context.clock.wall_ms())
    stamp = BatchStamp(header.sys_flag & SENDER_BITS, header.born_ms, header.reconsume_times)
    log_offsets = append_batch(tail, queue, origin, stamp, messages)
    return StagedSend(log_offsets, queue.next_offset - len(log_offsets), whole.waits_for_sync)


def no_transactions() -> RequestFailed:
    """Return the refusal of messages of transactions, which come with a later issue."""
    return RequestFailed(
        ResponseCode.MESSAGE_ILLEGAL,
        "this version of OrbitMQ does not take transactional messages yet",
    )


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


def _admitted(context: Context, cut: Batch, shared: bytes) -> BatchColumns:
    """Return the messages as they are stored; `shared` are properties of the whole."""
    admitted = admit_batch(cut.properties, shared)
    if isinstance(admitted, Refusal):
        raise RequestFailed(admitted.code, admitted.remark)
    cluster = context.core.cluster_property
    columns = BatchColumns(cut.bodies, admitted.owns, cut.flags, admitted.tags_codes, cluster)
    size_max = context.core.body_size_max
    longest = max(map(len, admitted.owns)) + len(cluster)
    if longest > PROPERTIES_SIZE_MAX or max(map(len, cut.bodies)) > size_max:
        for body, own in zip(cut.bodies, admitted.owns, strict=True):
            check_sizes(body, own + cluster, size_max)
    return columns
