"""Topics as operators manage them: make and change (17, 18), delete (215), list (21, 305, 351),
look at their queues (202), and clean up what no topic needs any more (306, 316).

In: settings of topics. Out: an answer when the change is saved and name servers know it; tables.

Rules:
1. Names and numbers are checked before anything changes; a list (18) is taken whole or not at all.
2. The system's topics are made and changed by nobody.
3. A deleted topic takes its queues, its held pulls and its consumer offsets along. 4.9.7 keeps the
   offsets, and groups then pass over what comes into the topic once it is made again.
4. Fewer queues than before hide the others; their messages come back with the old number.
"""

import msgspec

from orbitmq.broker.context import Context
from orbitmq.broker.system_topics import belongs_to_system, system_topic_names
from orbitmq.broker.topic_rules import check_config, check_count, check_name, with_attributes
from orbitmq.core import Queue
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.reading import entry_store_ms, snapshot
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_namesrv import TopicConfig, TopicList
from orbitmq.wire.bodies_topics import TopicConfigList, TopicOffset, TopicStats
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import read_request, write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_topics import CreateTopic, DeleteTopic, GetTopicConfig, GetTopicStats
from orbitmq.wire.light_queues import is_light

STATS_QUEUES_MAX = 16_384
"""Queues in one answer: less than 2 MB."""


def update_topic(context: Context, request: Command, _connection: Connection) -> Result:
    """Make a topic or change its settings."""
    header = read_header(CreateTopic, request.fields)
    before = context.topics.find(header.topic)
    config = TopicConfig(
        topic_name=header.topic,
        read_queue_count=header.read_queue_count,
        write_queue_count=header.write_queue_count,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=before.attributes if before is not None else None,
    )
    return _put_all(context, request, [with_attributes(config, header.attributes)])


def update_topics(context: Context, request: Command, _connection: Connection) -> Result:
    """Make or change several topics at once (5.x)."""
    configs = read_request(request.body, TopicConfigList).topic_config_list
    check_count(len(configs), "topics")
    return _put_all(context, request, configs)


def _put_all(context: Context, request: Command, configs: list[TopicConfig]) -> Result:
    topics, settings = context.topics, context.settings
    for config in configs:
        check_name(config.topic_name, settings)
        check_config(config)
    topics.check_room(configs)
    for config in configs:
        topics.put(config)
    return context.keeper.answer_kept(request)


def delete_topic(context: Context, request: Command, _connection: Connection) -> Result:
    """Remove a topic with all it has; one that is not there is no error."""
    topic = read_header(DeleteTopic, request.fields).topic
    if not context.topics.light.has(topic):
        check_name(topic, context.settings)
    _remove(context, [topic])
    return context.keeper.answer_kept(request)


def _remove(context: Context, topics: list[str]) -> None:
    gone = [
        queue
        for topic in topics
        for queue in _queues(context, topic)  # held reads are in these only
    ]
    context.topics.remove(topics)
    for topic in topics:
        context.offsets.remove_topic(topic)
    for queue in gone:
        context.held_reads.end_queue(queue, f"topic[{queue.topic}] not exist, apply first please!")


def _queues(context: Context, topic: str) -> list[Queue]:
    known = context.core.topics.get(topic)
    if known is not None:
        return list(known.queues.values())
    return [context.topics.light.to_read(topic)] if context.topics.light.has(topic) else []


def clean_unused(context: Context, request: Command, _connection: Connection) -> Result:
    """Remove the queues of topics that are not in the table any more (306 and 316).

    Here a topic and its queues go together, so that there are none; in a folder of the original
    there may be.
    """
    known = context.topics.find
    unused = [
        topic
        for topic in context.store.queue_counts()
        if known(topic) is None
        and not is_light(topic)
        and not belongs_to_system(topic, context.settings)
    ]
    if not unused:
        return reply_to(request)
    _remove(context, unused)
    return context.keeper.answer_kept(request)


def get_all_topics(context: Context, request: Command, connection: Connection) -> Result:
    """Return the whole table."""
    encode = context.topics.contents()
    return context.cold_reads.answer(connection, request, lambda: reply_to(request, body=encode()))


def get_topic_config(context: Context, request: Command, _connection: Connection) -> Result:
    """Return one topic's settings."""
    topic = read_header(GetTopicConfig, request.fields).topic
    config = context.topics.find(topic)
    if config is None:
        raise RequestFailed(
            ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}"
        )
    if config.attributes is None:  # only 5.x asks, and expects a table
        config = msgspec.structs.replace(config, attributes={})
    return reply_to(request, body=write_json(config, standard=False))


def get_system_topics(context: Context, request: Command, _connection: Connection) -> Result:
    """Return the names that are the system's."""
    names = sorted(system_topic_names(context.settings))
    return reply_to(request, body=write_json(TopicList(topic_list=names), standard=False))


def get_topic_stats(context: Context, request: Command, connection: Connection) -> Result:
    """Return where each write queue of a topic begins and ends, and when it was written to last."""
    topic = read_header(GetTopicStats, request.fields).topic
    config = context.topics.find(topic)
    if config is None:
        raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    store, name = context.store, context.settings.broker_name
    count = min(config.write_queue_count, STATS_QUEUES_MAX)
    queues = {number: store.find_queue(topic, number) for number in range(count)}
    views = {
        number: snapshot(queue, max(0, queue.readable_offset - 1), 1)
        for number, queue in queues.items()
        if queue is not None
    }

    def look() -> Command:
        table: dict[MessageQueue, TopicOffset] = {}
        for number in range(count):
            offset, view = TopicOffset(), views.get(number)
            if view is not None:
                last_offset = view.readable_offset - 1
                offset = TopicOffset(
                    last_update_ms=max(0, entry_store_ms(store.reader, view, last_offset)),
                    max_offset=view.readable_offset,
                    min_offset=view.min_offset,
                )
            table[MessageQueue(topic=topic, broker_name=name, queue_id=number)] = offset
        return reply_to(request, body=write_json(TopicStats(offset_table=table), standard=False))

    return context.cold_reads.answer(connection, request, look)
