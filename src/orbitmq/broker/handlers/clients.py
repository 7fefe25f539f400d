"""Heartbeats (34), goodbyes (35), member lists (38), and telling members of changes (40).

In: what clients say of themselves. Out: membership, the groups, filters and retry topics that come
with it, and one-way notifications to every member of a group that changed.

Rules:
1. Clients of 5.x are told that they may leave out their subscriptions, and when not to; an answer
   to any other client is that of 4.9: without fields.
2. Members are told of a change if the broker and the group are set so (both
   notifyConsumerIdsChangedEnable), in slices: a big group holds up nobody.
3. A heartbeat is taken, too, when there is no room for its group's retry topic; without it nothing
   is consumed again, and the broker's log says what to do.
"""

import asyncio
import contextlib

from orbitmq.broker.clients import Member
from orbitmq.broker.context import Context
from orbitmq.broker.filters import COMPILED_CHARS_MAX
from orbitmq.errors import LimitExceeded, RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_client import (
    ConsumerData,
    ConsumerList,
    Heartbeat,
    MessageModel,
    read_heartbeat,
)
from orbitmq.wire.bodies_namesrv import UNIT_SUBSCRIPTION_FLAG
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, Command, encode_command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_client import (
    GetConsumerList,
    HeartbeatAnswer,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from orbitmq.wire.names import group_fault, retry_topic
from orbitmq.wire.versions import V5_0_0

NAME_CHARS_MAX = 1_024
"""Of client ids and producer groups: traces make long ones."""

NOTICE_SLICE = 500
"""Members told in one turn: about a millisecond's work."""


def heart_beat(context: Context, request: Command, connection: Connection) -> Result:
    """Take in a client's groups and subscriptions; the client is registered when we answer."""
    context.overload.check_heartbeat()
    heartbeat = read_heartbeat(request.body)
    _check_names(heartbeat)
    member = Member(
        heartbeat.client_id,
        request.language,
        request.version,
        context.clock.monotonic_s(),
        connection.peer,
    )
    try:
        heard = context.clients.heartbeat(connection, heartbeat, member)
    except LimitExceeded as error:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, str(error)) from None
    chars_left = COMPILED_CHARS_MAX
    for consumer in heartbeat.consumer_data_set:
        _prepare_group(context, consumer)
        if not heartbeat.without_sub:
            chars_left = context.filters.register(
                consumer.group_name, consumer.subscription_data_set, chars_left
            )
    for group, topic in heard.resubscribed:
        context.long_polls.renew(group, topic)
    notify_changed(context, heard.changed)
    if request.version < V5_0_0 and not heartbeat.heartbeat_fingerprint:
        return reply_to(request)
    answer = HeartbeatAnswer(is_support_v2=True, is_sub_change=heard.is_sub_change)
    return reply_to(request, fields=write_header(answer))


def unregister_client(context: Context, request: Command, connection: Connection) -> Result:
    """Take the client on this connection out of the groups it names."""
    header = read_header(UnregisterClient, request.fields)
    changed = context.clients.leave(connection, header.producer_group, header.consumer_group)
    notify_changed(context, changed)
    return reply_to(request)


def get_consumer_list(context: Context, request: Command, _connection: Connection) -> Result:
    """Return the client ids of a group: what every member computes its share from."""
    group = read_header(GetConsumerList, request.fields).consumer_group
    members = context.clients.member_ids(group)
    if not members:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
    return reply_to(request, body=write_json(ConsumerList(consumer_id_list=members), standard=True))


def notify_changed(context: Context, groups: set[str]) -> None:
    """Tell every member of these groups that its members or topics have changed."""
    for name in groups:
        group = context.clients.consumer_group(name)
        if group is None:
            context.filters.unregister(name)
            context.groups.note_model(name, is_broadcasting=False)
        elif _is_notified(context, name):
            notice = Command(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                flag=FLAG_ONEWAY,
                fields=write_header(NotifyConsumerIdsChanged(consumer_group=name)),
            )
            _tell(list(group.members), encode_command(notice))


def _is_notified(context: Context, group: str) -> bool:
    config = context.groups.find(group)
    is_on = context.settings.notify_consumer_ids_changed_enable
    return is_on and config is not None and config.notify_consumer_ids_changed_enable


def _tell(members: list[Connection], frame: bytes) -> None:
    for connection in members[:NOTICE_SLICE]:
        connection.send(frame)
    rest = members[NOTICE_SLICE:]
    if rest:
        asyncio.get_running_loop().call_soon(_tell, rest, frame)


def _check_names(heartbeat: Heartbeat) -> None:
    names = [heartbeat.client_id, *(data.group_name for data in heartbeat.producer_data_set)]
    faults = [group_fault(data.group_name) for data in heartbeat.consumer_data_set]
    faults += [f"{name[:40]}… is too long a name" for name in names if len(name) > NAME_CHARS_MAX]
    for fault in filter(None, faults):
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)


def _prepare_group(context: Context, consumer: ConsumerData) -> None:
    """Make sure of the group and of its retry topic, through whose route tools find the group."""
    name = consumer.group_name
    config = context.groups.find(name)
    is_broadcasting = consumer.message_model is MessageModel.BROADCASTING
    context.groups.note_model(name, is_broadcasting=is_broadcasting)
    topic = retry_topic(name)
    if config is None or context.topics.find(topic) is not None:
        return
    sys_flag = UNIT_SUBSCRIPTION_FLAG if consumer.unit_mode else 0
    with contextlib.suppress(RequestFailed):  # no room: the table has said so in the log
        context.topics.ensure(topic, config.retry_queue_count, sys_flag=sys_flag)
