"""The topics that every broker has from its first start.

In: the broker's settings. Out: topic settings with the original's names, queue counts and
permissions. Topics of features that do not exist yet come with them.
"""

from orbitmq.config.broker import BrokerSettings
from orbitmq.wire.bodies_namesrv import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from orbitmq.wire.names import (
    BENCHMARK_TOPIC,
    OFFSET_MOVED_TOPIC,
    SELF_TEST_TOPIC,
    TEMPLATE_TOPIC,
    reply_topic,
)

_READ_WRITE = PERM_READ | PERM_WRITE
_TEMPLATE = _READ_WRITE | PERM_INHERIT


def system_topics(settings: BrokerSettings) -> list[TopicConfig]:
    """Give the topics that must be there; the template only where topics may be made from it."""
    cluster = settings.broker_cluster_name
    topics = [
        _topic(SELF_TEST_TOPIC, 1, _READ_WRITE),
        _topic(BENCHMARK_TOPIC, 1024, _READ_WRITE),
        _topic(cluster, 16, _TEMPLATE),
        _topic(settings.broker_name, 1, _TEMPLATE),
        _topic(OFFSET_MOVED_TOPIC, 1, _READ_WRITE),
        _topic(reply_topic(cluster), 1, _READ_WRITE),
    ]
    if settings.auto_create_topic_enable:
        topics.append(_topic(TEMPLATE_TOPIC, settings.default_topic_queue_nums, _TEMPLATE))
    return topics


def _topic(name: str, queue_count: int, perm: int) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_count=queue_count, write_queue_count=queue_count, perm=perm
    )
