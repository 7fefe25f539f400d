"""The first message of a queue that was stored at a time or later.

In: times by queue, and the offsets that each queue holds. Out: offsets.

Rules:
1. The broker's own answer is the first guess: 5.x means the same, 4.9 gives a near one, and any of
   those that were stored in the same millisecond.
2. Stored times are looked at in single messages, by halves; two looks do where the guess is right.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from orbitmq.spark.cluster import Cluster
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_options import TopicOptions
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
