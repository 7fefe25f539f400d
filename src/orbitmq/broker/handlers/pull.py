"""Pull messages (11, and 361 of 5.x): every case that the hot path leaves to us.

In: a pull request. Out: its records, the reason why there are none, or a held request.

Rules:
1. The checks come in the original's order, each with its code: broker, group, topic, queue, filter.
2. The offset that comes with a pull is stored once its checks are passed, also when it is held.
3. What 5.x adds beside `maxMsgBytes` says who asked on whose behalf; it changes nothing here.
4. `bulk=true`, which only readers of ours say, asks for larger answers: maxTransferBytesOnBulkPull.
"""

from orbitmq.broker.context import Context
from orbitmq.broker.filter_choice import choose
from orbitmq.broker.handlers.offsets import store_offset
from orbitmq.broker.handlers.resets import answer_reset
from orbitmq.broker.pulls import Pull, Suggestion, found_parts, note_outcome, pull_code
from orbitmq.broker.selecting import look
from orbitmq.core import PullStatus
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.net.later import Later
from orbitmq.wire.bodies_namesrv import PERM_READ, SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import PULL_COMMITS, PULL_SUSPENDS, PullMessage

HOLD_S_MAX = 120.0
"""Clients ask for 15 to 30 s; a connection without a byte for 120 s is closed anyway."""


def pull_message(context: Context, request: Command, connection: Connection) -> Result:
    """Answer a pull now, or hold it until its queue grows."""
    context.overload.check_pull()
    header = read_header(PullMessage, request.fields)
    _check_broker(context)
    group = _checked_group(context, header.consumer_group)
    config = _checked_topic(context, header, connection)
    choice = choose(context, header, group)
    pull = Pull(
        request=request,
        queue=context.topics.queue_to_read(config, header.queue_id),
        queue_offset=header.queue_offset,
        count_max=max(1, header.max_msg_nums),
        codes=choice.codes,
        group=header.consumer_group,
        accepts=choice.accepts,
        may_accept=choice.may_accept,
        bytes_max=_bytes_max(context, header),
        is_bulk=bool(header.is_bulk),
        suggestion=_suggestion(context, group),
    )
    reset = answer_reset(context, pull)
    if reset is not None:
        return reset
    if header.sys_flag & PULL_COMMITS:
        store_offset(
            context, header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
    return _answer(context, header, pull, connection)


def _answer(context: Context, header: PullMessage, pull: Pull, connection: Connection) -> Result:
    clock_s = context.clock.monotonic_s
    begin_s = clock_s()
    found = look(context.core, pull, pull.queue_offset, clock_s)
    if found.status is PullStatus.COLD:
        return context.cold_reads.pull(connection, pull)
    is_held = header.sys_flag & PULL_SUSPENDS and header.suspend_timeout_ms > 0
    if is_held and pull_code(pull, found) is ResponseCode.PULL_NOT_FOUND:
        return _hold(context, pull, header.suspend_timeout_ms)
    note_outcome(context, pull, found, clock_s() - begin_s)
    return found_parts(pull, found)


def _hold(context: Context, pull: Pull, timeout_ms: int) -> Later:
    settings = context.settings
    if not settings.long_polling_enable:
        return context.long_polls.postpone(pull, settings.short_polling_time_mills / 1000)
    return context.long_polls.hold(pull, min(timeout_ms / 1000, HOLD_S_MAX))


def _check_broker(context: Context) -> None:
    settings = context.settings
    if not settings.broker_permission & PERM_READ:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION,
            f"the broker[{context.store_host.ip}] pulling message is forbidden: brokerPermission "
            f"is {settings.broker_permission}, reading needs {PERM_READ}",
        )


def _checked_group(context: Context, group: str) -> SubscriptionGroupConfig:
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


def _checked_topic(context: Context, header: PullMessage, connection: Connection) -> TopicConfig:
    config = context.topics.find(header.topic)
    if config is None:
        raise RequestFailed(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!"
        )
    if not context.groups.is_readable(header.consumer_group, header.topic):
        raise RequestFailed(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]",
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
    return config


def _bytes_max(context: Context, header: PullMessage) -> int | None:
    """Return the client's own limit where it is less than the broker's."""
    asked = header.max_msg_bytes
    _count, allowed = context.core.pull_limits(is_bulk=bool(header.is_bulk))
    return asked if asked is not None and 0 < asked < allowed else None


def _suggestion(context: Context, group: SubscriptionGroupConfig) -> Suggestion | None:
    if not context.settings.slave_read_enable:
        return None
    return Suggestion(
        usual_id=group.broker_id,
        slow_id=group.which_broker_when_consume_slowly,
        slow_offset=context.core.tail.written_offset - context.recent_bytes,
    )
