"""Request code to handler: everything a name server answers, in one table.

In: the shared state. Out: the table for the dispatcher, which answers any other code with 3.
Rule: a code is served by one function, found here by reading from top to bottom.
"""

from functools import partial

from orbitmq.namesrv import on_admin, on_brokers, on_lookups
from orbitmq.namesrv.state import State, StateHandler
from orbitmq.net.connection import Handler
from orbitmq.wire.codes import RequestCode

HANDLERS: dict[RequestCode, StateHandler] = {
    RequestCode.PUT_KV_CONFIG: on_admin.put_kv,
    RequestCode.GET_KV_CONFIG: on_admin.get_kv,
    RequestCode.DELETE_KV_CONFIG: on_admin.delete_kv,
    RequestCode.REGISTER_BROKER: on_brokers.register_broker,
    RequestCode.UNREGISTER_BROKER: on_brokers.unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: on_lookups.get_route,
    RequestCode.GET_BROKER_CLUSTER_INFO: on_lookups.get_cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: on_admin.wipe_write_perm,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: on_lookups.get_all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: on_admin.delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: on_brokers.register_topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: on_admin.list_kv,
    RequestCode.GET_TOPICS_BY_CLUSTER: on_lookups.get_topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: on_lookups.get_system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: on_lookups.get_unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: on_lookups.get_unit_sub_topics,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: on_lookups.get_unit_sub_ununit_topics,
    RequestCode.UPDATE_NAMESRV_CONFIG: on_admin.update_settings,
    RequestCode.GET_NAMESRV_CONFIG: on_admin.get_settings,
    RequestCode.QUERY_DATA_VERSION: on_brokers.query_data_version,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: on_admin.add_write_perm,
    RequestCode.GET_BROKER_MEMBER_GROUP: on_brokers.get_broker_member_group,
    RequestCode.BROKER_HEARTBEAT: on_brokers.broker_heartbeat,
}


def handlers_of(state: State) -> dict[int, Handler]:
    """Return the table with `state` bound to each handler."""
    return {int(code): partial(handler, state) for code, handler in HANDLERS.items()}
