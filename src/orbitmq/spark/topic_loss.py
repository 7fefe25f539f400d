"""What cannot be read any more: topics that were deleted, and messages that queues lost.

In: queues that do not answer; ranges, and the offsets that queues hold. Out: the queues whose topic
was deleted; the ranges that can be read.

Rules:
1. Name servers forget a topic that was deleted, and one whose last broker went: only a queue's own
   broker knows which it is. One that cannot be asked is away, and is waited for.
2. The master is asked, where name servers have it now, by a pull: whoever reads may do that. A
   broker of another name at that address proves nothing: addresses are given out again.
3. Messages before a queue's first offset are removed, those behind its end were never there or went
   with a topic that was deleted and made again: all of that is a loss (see `data_loss`).
4. A range that ends where it begins, or before, is empty.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Protocol

from orbitmq.client.instance import Instance
from orbitmq.client.pulling import peek_request
from orbitmq.client.remote import request
from orbitmq.config.properties import parse_properties
from orbitmq.errors import BrokerNotFound, MQError, RequestFailed, RouteNotFound
from orbitmq.spark.cluster import Cluster, QueueFailed
from orbitmq.spark.data_loss import behind_end, removed, report_loss, topic_deleted
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.spark.topic_planning import Range
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode

log = logging.getLogger(__name__)

ANSWER_S = 2.0


def may_be_deleted(error: object) -> bool:
    """Whether a queue that failed so may be one of a deleted topic."""
    cause = error.cause if isinstance(error, QueueFailed) else error
    return isinstance(cause, (RouteNotFound, BrokerNotFound)) or is_unknown_topic(cause)


def is_unknown_topic(error: object) -> bool:
    """Whether a broker has answered that it has no such topic."""
    return isinstance(error, RequestFailed) and error.code == ResponseCode.TOPIC_NOT_EXIST


def deleted_queues(
    cluster: Cluster, options: TopicOptions, queues: Collection[MessageQueue]
) -> set[MessageQueue]:
    """Return the queues whose topic was deleted at their broker (rules 1 to 3)."""
    one_of_each = {(queue.topic, queue.broker_name): queue for queue in queues}
    if not one_of_each:
        return set()
    asked = cluster.wait(_lacking(cluster, cluster.wrap(options.group), one_of_each.values()))
    lacking = {(queue.topic, queue.broker_name) for queue in asked}
    return {queue for queue in queues if (queue.topic, queue.broker_name) in lacking}


def without_deleted(
    cluster: Cluster, options: TopicOptions, ranges: Collection[Range]
) -> list[Range]:
    """Return the ranges whose topics are still there; raises DataLoss if that is to be an error."""
    gone = deleted_queues(cluster, options, [each.queue for each in ranges])
    for each in ranges:
        if each.queue in gone:
            report_loss(each.queue, topic_deleted(each.begin), fails=options.fail_on_data_loss)
    return [each for each in ranges if each.queue not in gone]


async def _lacking(
    cluster: Cluster, group: str, queues: Collection[MessageQueue]
) -> list[MessageQueue]:
    """Return the queues whose master says that it has no such topic."""
    try:
        clusters = await (await cluster.admin()).clusters()
    except MQError as error:
        log.debug("nobody says which brokers there are: %s", error)
        return []
    masters = {broker.name: broker.master for each in clusters for broker in each.brokers}
    instance = await cluster.instance()

    async def lacks(queue: MessageQueue) -> bool:
        address = masters.get(queue.broker_name)
        try:
            return address is not None and await _lacks(
                instance, group, cluster.wire_queue(queue), address
            )
        except MQError as error:
            log.debug("broker %s is away: %s", queue.broker_name, error)
            return False

    found = zip(queues, await asyncio.gather(*map(lacks, queues)), strict=True)
    return [queue for queue, is_lacking in found if is_lacking]


async def _lacks(instance: Instance, group: str, queue: MessageQueue, address: str) -> bool:
    remote = instance.remote
    answer = await remote.call(address, peek_request(queue, 0, 1, group), ANSWER_S)
    if answer.code != ResponseCode.TOPIC_NOT_EXIST:
        return False
    answer = await remote.call(address, request(RequestCode.GET_BROKER_CONFIG), ANSWER_S)
    if answer.code != ResponseCode.SUCCESS:  # not everybody may ask for that
        return True
    return parse_properties(answer.body).get("brokerName") == queue.broker_name


class HeldOffsets(Protocol):
    """Says what queues hold."""

    @property
    def first(self) -> Offsets:
        """The offsets of the oldest messages."""
        ...

    @property
    def last(self) -> Offsets:
        """The offsets behind the newest messages."""
        ...


def readable(ranges: Collection[Range], bounds: HeldOffsets, *, fails: bool) -> list[Range]:
    """Return what can be read of ranges; raises DataLoss if something is gone and `fails`."""
    found = [_readable(each, bounds, fails=fails) for each in ranges if each.length > 0]
    return [each for each in found if each.length > 0]


def _readable(whole: Range, bounds: HeldOffsets, *, fails: bool) -> Range:
    queue, begin, end = whole
    first, last = bounds.first[queue], bounds.last[queue]
    if end > last:
        report_loss(queue, behind_end(end, last), fails=fails)
        end = last
    if begin < first:
        report_loss(queue, removed(begin, min(first, end)), fails=fails)
        begin = first
    return Range(queue, begin, max(begin, end))
