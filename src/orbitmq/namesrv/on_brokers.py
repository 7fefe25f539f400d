"""Requests of brokers: register, unregister, heartbeat, data version, one topic.

In: requests 103, 104, 217, 322, 901 and 904. Out: their answers; the route table has changed.
Refusals by the rules of `members` and `routes` are RequestFailed, which the dispatcher answers.
"""

import logging

from orbitmq.errors import RequestFailed, SettingError
from orbitmq.namesrv.route_limits import shown
from orbitmq.namesrv.routes import Registered, RegistrationRequest
from orbitmq.namesrv.state import State
from orbitmq.net.connection import Connection
from orbitmq.wire import advertised
from orbitmq.wire.bodies_namesrv import (
    ORDER_TOPIC_NAMESPACE,
    BrokerMemberGroupBody,
    DataVersion,
    KVTable,
    TopicRoute,
    body_crc32,
    read_register_body,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.fields import read_header, write_header
from orbitmq.wire.headers_namesrv import (
    BrokerHeartbeat,
    GetBrokerMemberGroup,
    QueryDataVersion,
    QueryDataVersionAnswer,
    RegisterBroker,
    RegisterBrokerAnswer,
    RegisterTopicInNamesrv,
    UnregisterBroker,
)

logger = logging.getLogger("orbitmq.namesrv")

ZONE_FIELD = "__ZONE_NAME"
"""The ext field in which a 5.x broker names its zone; it is in no header class of the original."""

REFUSED_SHOWN_MAX = 3
NAMES_LOGGED_MAX = 50


def register_broker(state: State, request: Command, connection: Connection) -> Command:
    """103: a broker and all its topics, at start, every 30 s and after each change of a topic."""
    header = read_header(RegisterBroker, request.fields)
    if header.body_crc32 and header.body_crc32 != body_crc32(request.body):
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    body = read_register_body(request.body, compressed=header.compressed)
    settings = state.settings.now
    registration = RegistrationRequest(
        header,
        body,
        request.fields.get(ZONE_FIELD),
        settings.delete_topic_with_broker_registration,
        _advertised(request),
    )
    registered = state.routes.register(
        registration, state.source(connection), state.clock.monotonic_s()
    )
    _log(registration, registered, connection)
    answer = RegisterBrokerAnswer(
        ha_server_addr=registered.master_ha_address, master_addr=registered.master_address
    )
    plans = state.kv.namespace(ORDER_TOPIC_NAMESPACE)
    has_plans = plans is not None and settings.return_order_topic_config_to_broker
    return reply_to(
        request,
        remark=_remark(registered.topics.refused),
        fields=write_header(answer),
        body=write_json(KVTable(table=plans or {}), standard=True) if has_plans else b"",
    )


def _advertised(request: Command) -> advertised.Advertised | None:
    """Return the addresses that the broker has for clients from elsewhere."""
    try:
        return advertised.read_advertised(request.fields.get(advertised.FIELD) or "")
    except SettingError as error:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, str(error)) from None


def _log(registration: RegistrationRequest, registered: Registered, connection: Connection) -> None:
    header = registration.header
    if registered.is_new:
        others = f", advertised {registration.advertised}" if registration.advertised else ""
        logger.info(
            "new broker registered, %s id %d at %s HAServer: %s, by %s%s",
            header.broker_name,
            header.broker_id,
            header.broker_addr,
            header.ha_server_addr,
            connection.peer,
            others,
        )
    new_topics, refused = registered.topics
    if new_topics:
        names = ", ".join(new_topics[:NAMES_LOGGED_MAX])
        more = len(new_topics) - NAMES_LOGGED_MAX
        more_text = f" and {more} more" if more > 0 else ""
        logger.info("new topic registered by %s, %s%s", header.broker_name, names, more_text)
    if refused:
        logger.warning("%s", _remark(refused))


def _remark(refused: list[str]) -> str | None:
    if not refused:
        return None
    more = len(refused) - REFUSED_SHOWN_MAX
    shown_ones = "; ".join(refused[:REFUSED_SHOWN_MAX])
    return f"{shown_ones}; and {more} more topics" if more > 0 else shown_ones


def unregister_broker(state: State, request: Command, connection: Connection) -> Command:
    """104: a broker leaves."""
    header = read_header(UnregisterBroker, request.fields)
    departure = state.routes.unregister(header, state.source(connection))
    if departure is None:
        return reply_to(
            request,
            remark=f"no broker {shown(header.broker_name)} id {header.broker_id} at"
            f" {shown(header.broker_addr)} is registered; nothing was removed",
        )
    state.report([departure], "unregistered")
    return reply_to(request)


def query_data_version(state: State, request: Command, connection: Connection) -> Command:
    """322: whether a broker's topics changed since it registered; if not, it counts as seen."""
    header = read_header(QueryDataVersion, request.fields)
    version = read_json(request.body, DataVersion)
    known = state.routes.data_version(header)
    is_changed = not version.is_same(known)
    if not is_changed:
        state.routes.refresh(header, state.source(connection), state.clock.monotonic_s())
    return reply_to(
        request,
        fields=write_header(QueryDataVersionAnswer(changed=is_changed)),
        body=write_json(known, standard=True) if known else b"",
    )


def broker_heartbeat(state: State, request: Command, connection: Connection) -> Command:
    """904: a sign of life of a 5.x broker; answered with 0 whoever sends it, as the original."""
    header = read_header(BrokerHeartbeat, request.fields)
    state.routes.refresh(header, state.source(connection), state.clock.monotonic_s())
    return reply_to(request)


def get_broker_member_group(state: State, request: Command, _connection: Connection) -> Command:
    """901: the members of a broker name."""
    header = read_header(GetBrokerMemberGroup, request.fields)
    group = state.routes.member_group(header.cluster_name, header.broker_name)
    body = write_json(BrokerMemberGroupBody(broker_member_group=group), standard=True)
    return reply_to(request, body=body)


def register_topic(state: State, request: Command, connection: Connection) -> Command:
    """217: one topic, from one of the brokers that have it."""
    header = read_header(RegisterTopicInNamesrv, request.fields)
    if request.body:
        route = read_json(request.body, TopicRoute)
        state.routes.register_topic(header.topic, route.queue_datas, state.source(connection))
    return reply_to(request)
