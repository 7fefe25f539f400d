"""Pull messages (11): every case that the hot path leaves to us.

In: a pull request. Out: its records, the reason why there are none, or a held request.
The checks come in the original's order, each with its code.
"""

from orbitmq.broker.context import Context
from orbitmq.broker.pulls import Pull, found_parts, pull_code
from orbitmq.core import PullStatus, gather
from orbitmq.errors import RemoteProtocolError, RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_client import TAG, MessageModel
from orbitmq.wire.bodies_namesrv import PERM_READ, SubscriptionGroupConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.expression import TagFilter
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import (
    PULL_COMMITS,
    PULL_HAS_SUBSCRIPTION,
    PULL_SUSPENDS,
    PullMessage,
)

HOLD_S_MAX = 120.0
"""Clients ask for 15 to 30 s; a connection without a byte for 120 s is closed anyway."""


def pull_message(context: Context, request: Command, connection: Connection) -> Result:
    """Answer a pull now, or hold it until its queue grows."""
    header = read_header(PullMessage, request.fields)
    group = _check_group(context, header.consumer_group)
    _check_topic(context, header, connection)
    codes = _codes(context, header, group)
    config = context.topics.find(header.topic)
    if config is None:  # _check_topic has just seen it
        raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, f"the topic [{header.topic}] is gone")
    pull = Pull(
        request=request,
        queue=context.topics.queue(config, header.queue_id),
        queue_offset=header.queue_offset,
        count_max=max(1, header.max_msg_nums),
        codes=codes,
    )
    if header.sys_flag & PULL_COMMITS:
        context.offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
    found = gather(context.core, pull.queue, pull.queue_offset, pull.count_max, codes)
    if found.status is PullStatus.COLD:
        return context.cold_reads.pull(pull)
    is_held = header.sys_flag & PULL_SUSPENDS and header.suspend_timeout_ms > 0
    if is_held and pull_code(pull, found) is ResponseCode.PULL_NOT_FOUND:
        return context.long_polls.hold(pull, min(header.suspend_timeout_ms / 1000, HOLD_S_MAX))
    return found_parts(pull, found)


def _check_group(context: Context, group: str) -> SubscriptionGroupConfig:
    config = context.groups.find(group)
    if config is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{group}] does not exist; make it first, or set "
            "autoCreateSubscriptionGroup=true",
        )
    if not config.consume_enable:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
        )
    return config


def _check_topic(context: Context, header: PullMessage, connection: Connection) -> None:
    config = context.topics.find(header.topic)
    if config is None:
        raise RequestFailed(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!"
        )
    if not config.perm & PERM_READ:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden"
        )
    if not 0 <= header.queue_id < config.read_queue_count:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{config.read_queue_count}] consumer:[{connection.peer}]",
        )


def _codes(
    context: Context, header: PullMessage, group: SubscriptionGroupConfig
) -> frozenset[int] | None:
    """Give the tag codes to filter by, None for all."""
    if header.sys_flag & PULL_HAS_SUBSCRIPTION:
        return _requested_codes(header)
    live = context.clients.consumer_group(header.consumer_group)
    if live is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            "the consumer's group info not exist: no heartbeat of this group has come",
        )
    if live.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
        )
    data = live.subscriptions.get(header.topic)
    if data is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's subscription not exist: {header.consumer_group} has not subscribed to "
            f"{header.topic}",
        )
    if data.sub_version < header.sub_version:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
        )
    return _tag_codes(data.expression_type, data.sub_string)


def _requested_codes(header: PullMessage) -> frozenset[int] | None:
    return _tag_codes(header.expression_type or TAG, header.subscription)


def _tag_codes(expression_type: str, expression: str | None) -> frozenset[int] | None:
    if expression_type != TAG:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by " + expression_type,
        )
    try:
        tags = TagFilter.parse(expression)
    except RemoteProtocolError as error:
        raise RequestFailed(ResponseCode.SUBSCRIPTION_PARSE_FAILED, error.detail) from None
    return None if tags.is_all else tags.codes


HANDLERS = {RequestCode.PULL_MESSAGE: pull_message}
