"""Which queues are read: topics by name or pattern, or single queues.

In: options, and what the cluster says there is. Out: queues, sorted.

Rules:
1. A topic that is named must exist; `waitForTopicMs` waits for it. A pattern may match nothing yet.
2. A pattern matches whole names; topics of the system only if they are asked for. One that is
   known already, from a checkpoint, is chosen by its name alone.
3. Queues that `assign` lists must exist.
"""

import re

from orbitmq.errors import RouteNotFound, SettingError
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.data_loss import name_of
from orbitmq.spark.offsets import read_assign
from orbitmq.spark.topic_options import FORMAT, TopicOptions
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.world.clock import Clock, SystemClock

WAIT_S = 0.2
"""Between two looks for a topic that does not exist yet."""


def is_chosen(options: TopicOptions, queue: MessageQueue) -> bool:
    """Whether the options ask for a queue that was read before (rule 2); raises SettingError."""
    if options.assign:
        return queue in read_assign("assign", options.assign)
    if options.topics_pattern:
        return _pattern(options).fullmatch(queue.topic) is not None
    return queue.topic in _topics_named(options)


def _topics_named(options: TopicOptions) -> set[str]:
    names = (options.topic, *options.topics.split(","))
    return {name.strip() for name in names if name.strip()}


def _pattern(options: TopicOptions) -> re.Pattern[str]:
    try:
        return re.compile(options.topics_pattern)
    except re.error as error:
        raise SettingError(
            f"{FORMAT}: option 'topicsPattern': {options.topics_pattern!r} is no regular "
            f"expression: {error}"
        ) from None


def topics_of(cluster: Cluster, options: TopicOptions) -> list[str]:
    """Return the topics that are read, as the cluster has them now.

    Raises SettingError for a pattern that is none, MQError when nobody answers.
    """
    if options.assign:
        return sorted({queue.topic for queue in read_assign("assign", options.assign)})
    if not options.topics_pattern:
        return sorted(_topics_named(options))
    pattern = _pattern(options)
    known = cluster.topics(with_system=options.include_system_topics)
    return [name for name in known if pattern.fullmatch(name)]


def queues_to_read(
    cluster: Cluster, options: TopicOptions, clock: Clock | None = None
) -> list[MessageQueue]:
    """Return the queues that are read, as the cluster has them now (rules 1 and 3).

    Raises SettingError that names the option, topic and queue, ConnectFailed.
    """
    clock = clock if clock is not None else SystemClock()
    deadline_s = clock.monotonic_s() + options.wait_for_topic_ms / 1000
    found: list[MessageQueue] = []
    for topic in topics_of(cluster, options):
        found += _awaited(cluster, options, topic, clock, deadline_s)
    if options.assign:
        return _assigned(options, found)
    return sorted(found)


def _awaited(
    cluster: Cluster, options: TopicOptions, topic: str, clock: Clock, deadline_s: float
) -> list[MessageQueue]:
    while True:
        try:
            return _named(topic, cluster.queues(topic))
        except RouteNotFound as error:
            if options.topics_pattern:
                return []  # it was deleted just now
            if clock.monotonic_s() >= deadline_s:
                raise SettingError(
                    f"{FORMAT}: option {_spelt(options)!r}: topic {topic} does not exist: {error}; "
                    "'waitForTopicMs' waits for one"
                ) from None
        cluster.pause(WAIT_S)


def _spelt(options: TopicOptions) -> str:
    named = {"topic": options.topic, "topics": options.topics, "assign": options.assign}
    return next(name for name, value in named.items() if value)


def _assigned(options: TopicOptions, there: list[MessageQueue]) -> list[MessageQueue]:
    wanted = read_assign("assign", options.assign)
    for queue in wanted:
        if queue not in there:
            has = [
                f"{each.broker_name}:{each.queue_id}" for each in there if each.topic == queue.topic
            ]
            raise SettingError(
                f"{FORMAT}: option 'assign': there is no {name_of(queue)}; the topic has "
                f"{', '.join(has) or 'no queue'}"
            )
    return wanted


def queues_there_now(cluster: Cluster, options: TopicOptions) -> list[MessageQueue]:
    """Return the queues that can be seen now, for a stream that has begun: absence is no error.

    Raises MQError when nobody answers.
    """
    found: list[MessageQueue] = []
    for topic in topics_of(cluster, options):
        try:
            found += _named(topic, cluster.queues(topic))
        except RouteNotFound:
            continue
    if options.assign:
        wanted = set(read_assign("assign", options.assign))
        return sorted(queue for queue in found if queue in wanted)
    return sorted(found)


def _named(topic: str, queues: tuple[MessageQueue, ...]) -> list[MessageQueue]:
    """Return queues with the user's name of the topic."""
    return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in queues]
