"""Requests of those who look something up: routes, the cluster, lists of topics.

In: requests 105, 106, 206, 224, 304 and 311 to 313. Out: their answers; nothing changes.
Bodies are standard JSON for whoever asks for it or is new enough; older clients get integer keys
without quotes, as from the original. Where brokers have advertised addresses, each client is told
the one for the way on which it came.
"""

import msgspec

from orbitmq.errors import RequestFailed
from orbitmq.namesrv.route_limits import shown
from orbitmq.namesrv.state import State
from orbitmq.net.connection import Connection
from orbitmq.wire.advertised import Reached
from orbitmq.wire.bodies_namesrv import (
    ORDER_TOPIC_NAMESPACE,
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    TopicList,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_namesrv import GetRoute, GetTopicsByCluster

STANDARD_JSON_VERSION = 401
"""4.9.4: from this version on clients of the original want standard JSON."""


def get_route(state: State, request: Command, connection: Connection) -> Command:
    """105: where a topic's queues are."""
    header = read_header(GetRoute, request.fields)
    settings = state.settings.now
    now_s = state.clock.monotonic_s()
    if settings.need_wait_for_service:
        _refuse_early(now_s - state.started_s, settings.wait_seconds_for_service)
    route = state.routes.route(header.topic, _reached(connection))
    if route is None:
        raise RequestFailed(
            ResponseCode.TOPIC_NOT_EXIST,
            f"No topic route info in name server for the topic: {shown(header.topic)}\n"
            + state.routes.why_no_route(header.topic, now_s),
        )
    if settings.order_message_enable:
        plan = state.kv.get(ORDER_TOPIC_NAMESPACE, header.topic)
        route = msgspec.structs.replace(route, order_topic_conf=plan)
    is_standard = bool(header.accept_standard_json_only) or _is_new(request)
    return reply_to(request, body=write_json(route, standard=is_standard))


def _refuse_early(age_s: float, wait_s: int) -> None:
    if age_s < wait_s:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"name server not ready: it waits {wait_s - age_s:.0f} s more for brokers to register"
            " (needWaitForService, waitSecondsForService)",
        )


def _is_new(request: Command) -> bool:
    return request.version >= STANDARD_JSON_VERSION


def _reached(connection: Connection) -> Reached:
    return Reached(connection.local_address[0], connection.peer_address[0])


def get_cluster_info(state: State, request: Command, connection: Connection) -> Command:
    """106: all brokers and clusters."""
    clusters = state.routes.cluster_info(_reached(connection))
    return reply_to(request, body=write_json(clusters, standard=_is_new(request)))


def get_all_topics(state: State, request: Command, _connection: Connection) -> Command:
    """206: the names of all topics."""
    if not state.settings.now.enable_all_topic_list:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, "disable: enableAllTopicList is false here")
    return _listing(request, state.routes.topics())


def get_topics_by_cluster(state: State, request: Command, _connection: Connection) -> Command:
    """224: the names of a cluster's topics."""
    _refuse_lists(state)
    header = read_header(GetTopicsByCluster, request.fields)
    return _listing(request, state.routes.topics_of_cluster(header.cluster))


def get_system_topics(state: State, request: Command, connection: Connection) -> Command:
    """304: cluster and broker names, and the address of one broker that knows more."""
    _refuse_lists(state)
    return _listing(request, state.routes.system_topics(_reached(connection)))


def get_unit_topics(state: State, request: Command, _connection: Connection) -> Command:
    """311: topics of units."""
    _refuse_lists(state)
    return _listing(request, state.routes.topics_with_flags(UNIT_FLAG))


def get_unit_sub_topics(state: State, request: Command, _connection: Connection) -> Command:
    """312: topics that units subscribe to."""
    _refuse_lists(state)
    return _listing(request, state.routes.topics_with_flags(UNIT_SUBSCRIPTION_FLAG))


def get_unit_sub_ununit_topics(state: State, request: Command, _connection: Connection) -> Command:
    """313: topics that units subscribe to and that are not units' own."""
    _refuse_lists(state)
    topics = state.routes.topics_with_flags(UNIT_SUBSCRIPTION_FLAG, unwanted=UNIT_FLAG)
    return _listing(request, topics)


def _refuse_lists(state: State) -> None:
    if not state.settings.now.enable_topic_list:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, "disable: enableTopicList is false here")


def _listing(request: Command, topics: TopicList) -> Command:
    return reply_to(request, body=write_json(topics, standard=True))
