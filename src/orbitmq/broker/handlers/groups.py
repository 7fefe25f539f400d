"""Consumer groups as operators manage them: make and change (200, 225), delete (207), list (201,
352), and forbid topics to them (353, of 5.x).

In: settings of groups. Out: an answer when the change is saved; tables.

Rules:
1. Names and numbers are checked before anything changes; a list (225) is taken whole or not at all.
2. A deleted group keeps its offsets unless they are to go, too, and its retry topic in any case, as
   in the original. Where groups are made by themselves a heartbeat brings it back with defaults.
"""

import msgspec

from orbitmq.broker.context import Context
from orbitmq.broker.topic_rules import check_count, check_group
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_namesrv import SubscriptionGroupConfig
from orbitmq.wire.bodies_topics import GroupConfigList, GroupForbiddenBody
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import read_request, write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_topics import DeleteGroup, GetGroupConfig, GroupForbidden


def update_group(context: Context, request: Command, _connection: Connection) -> Result:
    """Make a group or change its settings."""
    return _put_all(context, request, [read_request(request.body, SubscriptionGroupConfig)])


def update_groups(context: Context, request: Command, _connection: Connection) -> Result:
    """Make or change several groups at once (5.x)."""
    configs = read_request(request.body, GroupConfigList).group_config_list
    check_count(len(configs), "groups")
    return _put_all(context, request, configs)


def _put_all(context: Context, request: Command, configs: list[SubscriptionGroupConfig]) -> Result:
    for config in configs:
        check_group(config)
    context.groups.check_room(configs)
    for config in configs:
        context.groups.put(config)
    return context.keeper.answer_kept(request)


def delete_group(context: Context, request: Command, _connection: Connection) -> Result:
    """Remove a group's settings and, if asked, its offsets; an unknown one is no error."""
    header = read_header(DeleteGroup, request.fields)
    context.groups.remove(header.group_name)
    if header.remove_offset or header.clean_offset:
        context.offsets.remove_group(header.group_name)
    return context.keeper.answer_kept(request)


def get_all_groups(context: Context, request: Command, connection: Connection) -> Result:
    """Return the whole table."""
    encode = context.groups.contents()
    return context.cold_reads.answer(connection, request, lambda: reply_to(request, body=encode()))


def get_group_config(context: Context, request: Command, _connection: Connection) -> Result:
    """Return one group's settings; an unknown one is made where that is allowed, as in 5.x."""
    group = read_header(GetGroupConfig, request.fields).group
    config = context.groups.find(group)
    if config is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"No group in this broker. group: {group}",
        )
    if config.attributes is None:
        config = msgspec.structs.replace(config, attributes={})
    return reply_to(request, body=write_json(config, standard=False))


def group_forbidden(context: Context, request: Command, _connection: Connection) -> Result:
    """Say whether a group may read a topic, after changing it if asked."""
    header = read_header(GroupForbidden, request.fields)
    if header.readable is not None:
        _check_there(context, header)
        context.groups.set_readable(header.group, header.topic, is_readable=header.readable)
    body = GroupForbiddenBody(
        group=header.group,
        topic=header.topic,
        readable=context.groups.is_readable(header.group, header.topic),
    )
    reply = reply_to(request, body=write_json(body, standard=False))
    return reply if header.readable is None else context.keeper.answer_kept(request, reply)


def _check_there(context: Context, header: GroupForbidden) -> None:
    """Raise RequestFailed for names that nobody has: the table would grow by them."""
    if context.groups.get(header.group) is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{header.group}] does not exist; make it first (updateSubGroup)",
        )
    if context.topics.find(header.topic) is None:
        raise RequestFailed(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{header.topic}] not exist; make it first (updateTopic)",
        )
