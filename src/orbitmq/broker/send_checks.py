"""What a send must pass before it is stored, in the original's order.

In: the header of a send. Out: the topic and the queue it goes to, or RequestFailed with the
original's code: not accepting yet (1), broker not writable for an order topic (16), topic name (1),
system topic (16), no such topic (17), queue id (1); then, for retry topics, the group (26), and
whether the message has been tried often enough.

Rules:
1. A topic that does not exist is made from the template that the sender names; a retry topic is
   made without one, too.
2. A message that was tried as often as it may goes to the dead-letter topic of its group. What it
   says of a delay still counts, as in the original.
"""

from typing import NamedTuple

import msgspec

from orbitmq.broker.context import Context
from orbitmq.broker.topic_rules import check_text
from orbitmq.broker.topics import send_queue_count
from orbitmq.core import Origin
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies_namesrv import (
    PERM_READ,
    PERM_WRITE,
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_client import SendMessage
from orbitmq.wire.names import (
    RETRY_PREFIX,
    dead_letter_topic,
    is_closed_to_clients,
    is_retry_topic,
)

DEAD_LETTER_QUEUE_COUNT = 1

VERSION_WITH_MAX_RECONSUME_TIMES = 121
"""Clients of 3.4.9 and newer mean it when they name a greatest number of retries."""


class Target(NamedTuple):
    """Where a message goes."""

    config: TopicConfig
    queue_id: int


class Arrival(NamedTuple):
    """A message or a batch that a client sends, and where it comes from and goes to."""

    header: SendMessage
    body: bytes
    target: Target
    origin: Origin


def check_send(context: Context, header: SendMessage, connection: Connection) -> Target:
    """Return where the message goes by its header alone; raises RequestFailed."""
    _check_time(context)
    topic = header.topic
    known = context.topics.find(topic)
    if known is not None and known.order and not is_writable(context):
        raise not_writable(context)
    _check_name(topic)
    config = known or _made(context, header)
    count = send_queue_count(config)
    if header.queue_id >= count:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"request queueId[{header.queue_id}] is illegal, {_shown(config)} Producer: "
            f"{connection.peer}; the topic's queues are 0 to {count - 1}",
        )
    if header.queue_id < 0:
        return Target(config, context.chance.below(config.write_queue_count))
    return Target(config, header.queue_id)


def retry_target(context: Context, request: Command, header: SendMessage, target: Target) -> Target:
    """Where a message goes that is tried again: its retry topic, or the dead-letter topic."""
    if not is_retry_topic(header.topic):
        return target
    group = context.groups.find(header.topic[len(RETRY_PREFIX) :])
    if group is None:
        raise no_group(header.topic[len(RETRY_PREFIX) :])
    count_max = count_max_of(group, request, header.max_reconsume_times)
    if header.reconsume_times < count_max:
        return target
    return Target(dead_letters(context, group.group_name), 0)


def count_max_of(group: SubscriptionGroupConfig, request: Command, asked: int | None) -> int:
    """Return how often a message may be tried again: the client may say so if it is new enough."""
    if asked is not None and request.version >= VERSION_WITH_MAX_RECONSUME_TIMES:
        return asked
    return group.retry_max_times


def dead_letters(context: Context, group: str) -> TopicConfig:
    """Return the topic of what a group could not consume at all, made when it is not there."""
    return context.topics.ensure(dead_letter_topic(group), DEAD_LETTER_QUEUE_COUNT)


def no_group(group: str) -> RequestFailed:
    """Say that a group does not exist."""
    return RequestFailed(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group not exist, {group[:255]}: make it with `mqadmin updateSubGroup`, or"
        " let the broker make groups by itself (autoCreateSubscriptionGroup)",
    )


def is_writable(context: Context) -> bool:
    """Whether the broker takes messages at all (brokerPermission)."""
    return bool(context.settings.broker_permission & PERM_WRITE)


def not_writable(context: Context) -> RequestFailed:
    """Say that it takes none."""
    return RequestFailed(
        ResponseCode.NO_PERMISSION,
        f"the broker[{context.store_host.ip}] sending message is forbidden: brokerPermission is"
        f" {context.settings.broker_permission}",
    )


def _check_time(context: Context) -> None:
    start_ms = context.settings.start_accept_send_request_time_stamp
    if context.clock.wall_ms() >= start_ms:
        return
    stamp = str(context.clock.file_stamp(start_ms))
    day, hours = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}", f"{stamp[8:10]}:{stamp[10:12]}"
    raise RequestFailed(
        ResponseCode.SYSTEM_ERROR,
        f"broker unable to service, until {day} {hours}:{stamp[12:14]},{stamp[14:]}"
        " (startAcceptSendRequestTimeStamp)",
    )


def _check_name(topic: str) -> None:
    check_text(topic)
    if is_closed_to_clients(topic):
        raise RequestFailed(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
        )


def _made(context: Context, header: SendMessage) -> TopicConfig:
    """Make the topic as its sender and the template allow."""
    topic, is_retry = header.topic, is_retry_topic(header.topic)
    sys_flag = 0
    if header.unit_mode:
        sys_flag = UNIT_SUBSCRIPTION_FLAG if is_retry else UNIT_FLAG
    config = context.topics.make_from_template(
        topic, header.default_topic, header.default_topic_queue_count
    )
    if config is None and is_retry:
        return context.topics.ensure(topic, 1, sys_flag=sys_flag)
    if config is None:
        raise RequestFailed(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{topic}] not exist, apply first please! It is not made by itself: "
            f"{header.default_topic} is no template topic (autoCreateTopicEnable), or "
            f"{header.default_topic_queue_count} is no number of queues",
        )
    if sys_flag:
        config = msgspec.structs.replace(config, topic_sys_flag=sys_flag)
        context.topics.put(config)
    return config


def _shown(config: TopicConfig) -> str:
    """Return a topic as the original shows it."""
    perm = "".join(
        letter if config.perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", 1))
    )
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_count},"
        f" writeQueueNums={config.write_queue_count}, perm={perm},"
        f" topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag},"
        f" order={'true' if config.order else 'false'}]"
    )
