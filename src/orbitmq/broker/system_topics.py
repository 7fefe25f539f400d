"""The topics that every broker has from its first start.

In: the broker's settings. Out: topic settings with the original's names, queue counts and
permissions. Topics of features that do not exist yet come with them.
Rule: nobody makes or deletes these by a request; `system_topic_names` says which they are.
"""

from orbitmq.config.broker import BrokerSettings
from orbitmq.wire.bodies_namesrv import PERM_INHERIT, PERM_READ_WRITE, TopicConfig
from orbitmq.wire.names import (
    BENCHMARK_TOPIC,
    OFFSET_MOVED_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    TEMPLATE_TOPIC,
    broker_topics,
    is_system_topic,
    reply_topic,
)

SCHEDULE_QUEUE_COUNT = 18
"""As the original gives it, whatever its levels are; a level's queue is used all the same."""

_TEMPLATE = PERM_READ_WRITE | PERM_INHERIT


def system_topics(settings: BrokerSettings) -> list[TopicConfig]:
    """Return the topics that must be there; the template only where topics may be made from it."""
    cluster = settings.broker_cluster_name
    topics = [
        _topic(SELF_TEST_TOPIC, 1, PERM_READ_WRITE),
        _topic(SCHEDULE_TOPIC, SCHEDULE_QUEUE_COUNT, PERM_READ_WRITE),
        _topic(BENCHMARK_TOPIC, 1024, PERM_READ_WRITE),
        _topic(cluster, 16, _template_perm(is_open=settings.cluster_topic_enable)),
        _topic(settings.broker_name, 1, _template_perm(is_open=settings.broker_topic_enable)),
        _topic(OFFSET_MOVED_TOPIC, 1, PERM_READ_WRITE),
        _topic(reply_topic(cluster), 1, PERM_READ_WRITE),
    ]
    if settings.auto_create_topic_enable:
        topics.append(_topic(TEMPLATE_TOPIC, settings.default_topic_queue_nums, _TEMPLATE))
    if settings.trace_topic_enable:
        topics.append(_topic(settings.msg_trace_topic_name, 1, PERM_READ_WRITE))
    return topics


def _template_perm(*, is_open: bool) -> int:
    """A template's permission: one that is closed still makes topics, which nobody can use."""
    return _TEMPLATE if is_open else PERM_INHERIT


def system_topic_names(settings: BrokerSettings) -> set[str]:
    """Return the names that are the system's at this broker."""
    return {*SYSTEM_TOPICS, *broker_topics(settings.broker_cluster_name, settings.broker_name)}


def belongs_to_system(topic: str, settings: BrokerSettings) -> bool:
    """Whether a topic is no operator's business."""
    return is_system_topic(topic) or topic in system_topic_names(settings)


def _topic(name: str, queue_count: int, perm: int) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_count=queue_count, write_queue_count=queue_count, perm=perm
    )
