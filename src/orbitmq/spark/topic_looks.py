"""What single messages of a queue tell: when they were stored, which they are, how large.

In: queues, and offsets or times. Out: offsets, marks, or the mean size of a record in bytes.

Rules:
1. The first message since a time: the broker's answer is the first guess, and single messages are
   looked at by halves. 4.9 answers nearly that, 5.x exactly.
2. A mark is when the last message before an offset was stored. A topic that was deleted and made
   again has newer messages at the same offsets; so has a broker that lost its newest messages.
3. A message that is gone or cannot be had now makes no mark, and is no proof of anything.
4. Where messages are others, reading goes on with the first one that is not older than the mark.
5. Sizes are estimates, by one pull in the middle of a few ranges. A deleted topic has none.
"""

import asyncio
from collections.abc import Collection, Mapping

import msgspec

from orbitmq.arrow.starts import walk
from orbitmq.errors import CorruptRecord
from orbitmq.spark.cluster import Cluster, QueueFailed
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_loss import is_unknown_topic
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.spark.topic_planning import Range
from orbitmq.spark.topic_pulls import QueuePulls
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.record import decode_record


def first_since(
    cluster: Cluster,
    options: TopicOptions,
    times_ms: Mapping[MessageQueue, int],
    spans: Mapping[MessageQueue, range],
) -> Offsets:
    """Return where each queue's messages of its time begin; the span's end if there is none.

    Raises QueueFailed that names the queue that cannot be asked.
    """
    guesses = cluster.offsets_for_times(times_ms, options.retries)
    unfiltered = msgspec.structs.replace(options, tags="", sql92="")

    async def look(queue: MessageQueue) -> int:
        pulls = QueuePulls(cluster, unfiltered, queue)
        return await _first(pulls, times_ms[queue], spans[queue], guesses[queue])

    async def look_everywhere() -> list[int]:
        return await asyncio.gather(*map(look, times_ms))

    return dict(zip(times_ms, cluster.wait(look_everywhere()), strict=True))


async def _first(pulls: QueuePulls, time_ms: int, span: range, guess: int) -> int:
    first, last = span.start, span.stop
    probes = [guess, guess - 1]
    while first < last:
        probe = probes.pop() if probes else (first + last) // 2
        if not first <= probe < last:
            probe = (first + last) // 2
        answer = await pulls.pull(probe, 1)
        if not answer.body:  # gone meanwhile, with all before it
            first = min(last, max(probe + 1, answer.next_offset))
        elif decode_record(answer.body)[0].store_ms < time_ms:
            first = probe + 1
        else:
            last = probe
    return first


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


SAMPLED_RANGES_MAX = 8
SAMPLE_COUNT = 32
UNKNOWN_BYTES = 1_024
"""Of what cannot be looked at."""


def record_bytes(cluster: Cluster, options: TopicOptions, ranges: Collection[Range]) -> int:
    """Return the mean size of the records of the largest ranges; raises QueueFailed."""
    unfiltered = msgspec.structs.replace(options, tags="", sql92="")
    largest = sorted(ranges, key=lambda each: -each.length)[:SAMPLED_RANGES_MAX]

    async def look(each: Range) -> bytes:
        pulls = QueuePulls(cluster, unfiltered, each.queue)
        try:
            return (await pulls.pull((each.begin + each.end) // 2, SAMPLE_COUNT)).body
        except QueueFailed as error:
            if not is_unknown_topic(error.cause):
                raise
            return b""

    async def look_everywhere() -> list[bytes]:
        return await asyncio.gather(*(look(each) for each in largest if each.length > 0))

    bodies = cluster.wait(look_everywhere())
    count = sum(len(walk(body).positions) for body in bodies)
    return max(1, sum(map(len, bodies)) // count) if count else UNKNOWN_BYTES
