"""A stream's progress as the offsets of a consumer group: lag, for the usual tools.

In: options of a source, and offsets as Spark reports them. Out: offsets at the brokers.

Rules:
1. What a query reads next is in its checkpoint. The group's offsets are for those who look on.
2. Tools such as mqadmin find a group by its retry topic, which brokers make when a consumer says
   that it is there. Nobody does so here: it would be a member, and others would leave queues to it.
   The topic is made once, where it is missing. Whoever may not make it is not shown by those tools.
"""

import logging
from weakref import WeakKeyDictionary

from orbitmq.errors import MQError, RouteNotFound
from orbitmq.spark.cluster import Cluster, Retries, cluster_of
from orbitmq.spark.offsets import Offsets
from orbitmq.spark.topic_options import TopicOptions
from orbitmq.wire.names import retry_topic

log = logging.getLogger(__name__)

ONCE = Retries(0, 0.0)

_shown: WeakKeyDictionary[Cluster, set[tuple[str, str]]] = WeakKeyDictionary()
"""The groups that were looked after at each broker."""


def store_progress(options: TopicOptions, offsets: Offsets) -> None:
    """Have brokers keep the group's offsets; raises MQError when one of them does not."""
    cluster = cluster_of(options)
    failed = cluster.try_group_offsets(options.group, offsets, ONCE)
    brokers = {queue.broker_name for queue in offsets if queue not in failed}
    shown = _shown.setdefault(cluster, set())
    missing = {broker for broker in brokers if (options.group, broker) not in shown}
    if missing:
        _show(cluster, options.group, missing)
        shown |= {(options.group, broker) for broker in missing}
    if failed:
        raise next(iter(failed.values()))


def _show(cluster: Cluster, group: str, brokers: set[str]) -> None:
    """Make a group's retry topic at the brokers that have none (rule 2)."""
    topic = retry_topic(group)

    async def make() -> None:
        admin = await cluster.admin()
        for broker in sorted(brokers - there):
            await admin.create_topic(topic, broker=broker, queue_count=1)

    try:
        there = _brokers_of(cluster, topic)
        cluster.wait(make())
    except MQError as error:
        log.info("mqadmin's consumerProgress does not show group %s: %s", group, error)


def _brokers_of(cluster: Cluster, topic: str) -> set[str]:
    try:
        return {queue.broker_name for queue in cluster.queues(topic)}
    except RouteNotFound:
        return set()
