"""The table of requests: everything that a name server answers, and why it refuses the rest.

In: a request code. Out: the row that says who serves it, what right it needs for what, and who asks
(see `net.requests`). What is not here is answered with code 3.

Rule: who looks up routes and names needs no right, as at both originals. What brokers ask needs the
administrator's: it decides where clients go.
"""

from collections.abc import Mapping

from orbitmq.namesrv import on_admin, on_brokers, on_lookups
from orbitmq.namesrv.state import State
from orbitmq.net.requests import CLUSTER, Asker, Request, admin, free
from orbitmq.wire.codes import RequestCode as Code

CLIENTS = (Asker.CLIENT, Asker.ADMIN)
TOOLS = (Asker.ADMIN,)
BROKERS = (Asker.BROKER,)

SERVED: tuple[Request[State], ...] = (
    admin(Code.PUT_KV_CONFIG, on_admin.put_kv, CLUSTER),
    admin(Code.GET_KV_CONFIG, on_admin.get_kv, CLUSTER),
    admin(Code.DELETE_KV_CONFIG, on_admin.delete_kv, CLUSTER),
    admin(Code.REGISTER_BROKER, on_brokers.register_broker, CLUSTER, by=BROKERS),
    admin(Code.UNREGISTER_BROKER, on_brokers.unregister_broker, CLUSTER, by=BROKERS),
    free(Code.GET_ROUTEINFO_BY_TOPIC, on_lookups.get_route, by=CLIENTS),
    free(Code.GET_BROKER_CLUSTER_INFO, on_lookups.get_cluster_info, by=CLIENTS),
    admin(Code.WIPE_WRITE_PERM_OF_BROKER, on_admin.wipe_write_perm, CLUSTER),
    free(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, on_lookups.get_all_topics, by=TOOLS),
    admin(Code.DELETE_TOPIC_IN_NAMESRV, on_admin.delete_topic, CLUSTER),
    admin(Code.REGISTER_TOPIC_IN_NAMESRV, on_brokers.register_topic, CLUSTER, by=BROKERS),
    admin(Code.GET_KVLIST_BY_NAMESPACE, on_admin.list_kv, CLUSTER),
    free(Code.GET_TOPICS_BY_CLUSTER, on_lookups.get_topics_by_cluster, by=TOOLS),
    free(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, on_lookups.get_system_topics, by=TOOLS),
    free(Code.GET_UNIT_TOPIC_LIST, on_lookups.get_unit_topics, by=TOOLS),
    free(Code.GET_HAS_UNIT_SUB_TOPIC_LIST, on_lookups.get_unit_sub_topics, by=TOOLS),
    free(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, on_lookups.get_unit_sub_ununit_topics, by=TOOLS),
    admin(Code.UPDATE_NAMESRV_CONFIG, on_admin.update_settings, CLUSTER),
    admin(Code.GET_NAMESRV_CONFIG, on_admin.get_settings, CLUSTER),
    admin(Code.QUERY_DATA_VERSION, on_brokers.query_data_version, CLUSTER, by=BROKERS),
    admin(Code.ADD_WRITE_PERM_OF_BROKER, on_admin.add_write_perm, CLUSTER),
    admin(Code.GET_BROKER_MEMBER_GROUP, on_brokers.get_broker_member_group, CLUSTER, by=BROKERS),
    admin(Code.BROKER_HEARTBEAT, on_brokers.broker_heartbeat, CLUSTER, by=BROKERS),
)

REFUSED: Mapping[Code, str] = dict.fromkeys(
    (
        Code.CONTROLLER_ALTER_SYNC_STATE_SET,
        Code.CONTROLLER_ELECT_MASTER,
        Code.CONTROLLER_REGISTER_BROKER,
        Code.CONTROLLER_GET_REPLICA_INFO,
        Code.CONTROLLER_GET_METADATA_INFO,
        Code.CONTROLLER_GET_SYNC_STATE_DATA,
        Code.UPDATE_CONTROLLER_CONFIG,
        Code.GET_CONTROLLER_CONFIG,
        Code.CLEAN_BROKER_DATA,
        Code.CONTROLLER_GET_NEXT_BROKER_ID,
        Code.CONTROLLER_APPLY_BROKER_ID,
        Code.BROKER_CLOSE_CHANNEL_REQUEST,
        Code.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        Code.GET_BROKER_LIVE_INFO_REQUEST,
        Code.GET_SYNC_STATE_DATA_REQUEST,
        Code.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
    ),
    "there is no controller: masters are not elected",
)
"""Codes that a name server of 5.x with a controller serves, with what their askers are told."""
