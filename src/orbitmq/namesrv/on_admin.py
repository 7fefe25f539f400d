"""Requests of administrators: key-value settings, write permission, deletion, settings.

In: requests 100 to 102, 205, 216, 219, 318, 319 and 327. Out: their answers, those that write a
file once it is written.
"""

import logging

from orbitmq.config import render_properties
from orbitmq.errors import RequestFailed
from orbitmq.namesrv.route_limits import shown
from orbitmq.namesrv.state import State
from orbitmq.net.connection import Connection, Result
from orbitmq.net.saving import Save
from orbitmq.wire.bodies_namesrv import KVTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_namesrv import (
    AddWritePerm,
    AddWritePermAnswer,
    DeleteKv,
    DeleteTopicInNamesrv,
    GetKv,
    GetKvAnswer,
    ListKv,
    PutKv,
    WipeWritePerm,
    WipeWritePermAnswer,
)

logger = logging.getLogger("orbitmq.namesrv")


def put_kv(state: State, request: Command, _connection: Connection) -> Result:
    """100: set one key."""
    header = read_header(PutKv, request.fields)
    return state.savers.kv.save(
        request, lambda: state.kv.put(header.namespace, header.key, header.value)
    )


def get_kv(state: State, request: Command, _connection: Connection) -> Command:
    """101: read one key."""
    header = read_header(GetKv, request.fields)
    value = state.kv.get(header.namespace, header.key)
    if value is None:
        raise RequestFailed(
            ResponseCode.QUERY_NOT_FOUND,
            f"No config item, Namespace: {shown(header.namespace)} Key: {shown(header.key)}",
        )
    return reply_to(request, fields=write_header(GetKvAnswer(value=value)))


def delete_kv(state: State, request: Command, _connection: Connection) -> Result:
    """102: remove one key; no error when it is not there."""
    header = read_header(DeleteKv, request.fields)
    return state.savers.kv.save(request, lambda: state.kv.delete(header.namespace, header.key))


def list_kv(state: State, request: Command, _connection: Connection) -> Command:
    """219: all keys of a namespace."""
    header = read_header(ListKv, request.fields)
    table = state.kv.namespace(header.namespace)
    if table is None:
        raise RequestFailed(
            ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {shown(header.namespace)}"
        )
    return reply_to(request, body=write_json(KVTable(table=table), standard=True))


def wipe_write_perm(state: State, request: Command, connection: Connection) -> Command:
    """205: take write permission from a broker's topics, in routes only."""
    name = read_header(WipeWritePerm, request.fields).broker_name
    count = state.routes.wipe_write_perm(name)
    logger.info(
        "write permission of %s wiped, %d topics, by %s", shown(name), count, connection.peer
    )
    return reply_to(
        request,
        remark=_if_unknown(state, name),
        fields=write_header(WipeWritePermAnswer(wipe_topic_count=count)),
    )


def add_write_perm(state: State, request: Command, connection: Connection) -> Command:
    """327: give a broker's topics read and write permission, in routes only."""
    name = read_header(AddWritePerm, request.fields).broker_name
    count = state.routes.add_write_perm(name)
    logger.info(
        "write permission of %s added, %d topics, by %s", shown(name), count, connection.peer
    )
    return reply_to(
        request,
        remark=_if_unknown(state, name),
        fields=write_header(AddWritePermAnswer(add_topic_count=count)),
    )


def _if_unknown(state: State, broker_name: str) -> str | None:
    if state.routes.has_broker(broker_name):
        return None
    return f"no broker {shown(broker_name)} is registered; nothing was changed"


def delete_topic(state: State, request: Command, connection: Connection) -> Command:
    """216: remove a topic from routes; no error when it is not there."""
    header = read_header(DeleteTopicInNamesrv, request.fields)
    now_s = state.clock.monotonic_s()
    count = state.routes.delete_topic(header.topic, header.cluster_name, now_s)
    logger.info(
        "topic %s deleted at %d brokers, by %s", shown(header.topic), count, connection.peer
    )
    return reply_to(request)


def update_settings(state: State, request: Command, connection: Connection) -> Result:
    """318: change settings that are marked changeable."""

    def prepare() -> Save | None:
        save = state.settings.change(request.body)
        if save is not None:
            logger.info("settings changed by %s", connection.peer)
        return save

    return state.savers.settings.save(request, prepare)


def get_settings(state: State, request: Command, _connection: Connection) -> Command:
    """319: all settings, as properties text."""
    return reply_to(request, body=render_properties(state.settings.now).encode())
