"""Whether a queue still holds what was read of it: marks that a checkpoint keeps with its offsets.

In: offsets of queues. Out: when the messages before them were stored, and which queues have others
there now.

Rules:
1. A mark is when the last message before an offset was stored. A topic that was deleted and made
   again has newer messages at the same offsets, also when it has grown past them; so has a broker
   that lost its newest messages with its machine.
2. A message that is gone or cannot be had now makes no mark, and is no proof of anything.
3. Where messages are others, reading goes on with the first one that is not older than the mark:
   the beginning of a topic that was made again.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from orbitmq.errors import CorruptRecord
from orbitmq.spark.cluster import Cluster, QueueFailed
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.spark.topic_pulls import QueuePulls
from orbitmq.spark.topic_times import first_since
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.record import decode_record

PULL_TIMEOUT_MS = 2_000
"""So long at most a mark is waited for."""


def marks_at(
    cluster: Cluster, options: TopicOptions, offsets: Mapping[MessageQueue, int]
) -> Offsets:
    """Return when the message before each offset was stored, as far as it can be had (rule 2)."""
    plain = msgspec.structs.replace(
        options, tags="", sql92="", pull_timeout_ms=min(PULL_TIMEOUT_MS, options.pull_timeout_ms)
    )
    wanted = {queue: offset - 1 for queue, offset in offsets.items() if offset > 0}

    async def look(queue: MessageQueue, offset: int) -> int | None:
        try:
            answer = await QueuePulls(cluster, plain, queue).pull(offset, 1)
            record = decode_record(answer.body, is_crc_checked=False)[0] if answer.body else None
        except (QueueFailed, CorruptRecord):
            return None
        return record.store_ms if record is not None and record.queue_offset == offset else None

    async def look_everywhere() -> list[int | None]:
        return await asyncio.gather(*(look(queue, at) for queue, at in wanted.items()))

    if not wanted:
        return {}
    found = zip(wanted, cluster.wait(look_everywhere()), strict=True)
    return {queue: store_ms for queue, store_ms in found if store_ms is not None}


def others(
    cluster: Cluster,
    options: TopicOptions,
    offsets: Mapping[MessageQueue, int],
    marks: Mapping[MessageQueue, int],
) -> list[MessageQueue]:
    """Return the queues that have another message before their offset than the marks say."""
    marked = {queue: offset for queue, offset in offsets.items() if queue in marks}
    found = marks_at(cluster, options, marked)
    return [queue for queue, store_ms in found.items() if store_ms != marks[queue]]


def begin_again(
    cluster: Cluster, options: TopicOptions, queue: MessageQueue, mark: int, end: int
) -> int:
    """Return where reading goes on in a queue with other messages (rule 3); raises QueueFailed."""
    first = cluster.min_offsets([queue], options.retries)[queue]
    return first_since(cluster, options, {queue: mark}, {queue: range(first, end)})[queue]
