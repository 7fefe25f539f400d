"""The table of requests: everything that a broker answers, and why it refuses the rest.

In: a request code. Out: the row that says who serves it, what right it needs for what, and who asks
(see `net.requests`). What is not here is answered with code 3, and with its reason from `REFUSED`.
Sends and pulls (10, 11, 310) come here only when the hot core handed them back.

Rules:
1. The rights are the originals': 4.9's where its access control knows one, else those of 5.x. What
   5.x calls to get, list, create, update and delete is the administrator's here.
2. Consumers ask for the bounds of queues (29 to 32): the right to subscribe is enough for these.
3. What needs no name to be found (33, by its place in the log) is about the whole cluster.
"""

from collections.abc import Iterable, Mapping

from orbitmq.broker.context import Context
from orbitmq.broker.handlers import (
    cleaning,
    client_calls,
    clients,
    connections,
    consume_stats,
    filters,
    groups,
    locks,
    lookups,
    offsets,
    pull,
    queues,
    resets,
    runtime,
    send,
    send_back,
    settings,
    topics,
)
from orbitmq.net.requests import (
    CLUSTER,
    Asker,
    Kind,
    Request,
    admin,
    group,
    in_body,
    publish,
    subscribe,
    topic,
)
from orbitmq.wire.bodies_client import read_heartbeat
from orbitmq.wire.bodies_consume import LockBatch
from orbitmq.wire.bodies_filter import CheckClient
from orbitmq.wire.bodies_namesrv import SubscriptionGroupConfig
from orbitmq.wire.bodies_topics import GroupConfigList, TopicConfigList
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.fastjson import read_request

# --- what bodies are about ---


def _subscribed_groups(body: bytes) -> Iterable[str]:
    return (consumer.group_name for consumer in read_heartbeat(body).consumer_data_set)


def _subscribed_topics(body: bytes) -> Iterable[str]:
    for consumer in read_heartbeat(body).consumer_data_set:
        yield from (subscription.topic for subscription in consumer.subscription_data_set)


def _locking_group(body: bytes) -> Iterable[str]:
    yield read_request(body, LockBatch).consumer_group


def _locked_topics(body: bytes) -> Iterable[str]:
    return (queue.topic for queue in read_request(body, LockBatch).queues)


def _checked_group(body: bytes) -> Iterable[str]:
    yield read_request(body, CheckClient).group


def _checked_topic(body: bytes) -> Iterable[str]:
    subscription = read_request(body, CheckClient).subscription_data
    return () if subscription is None else (subscription.topic,)


def _topics_made(body: bytes) -> Iterable[str]:
    return (one.topic_name for one in read_request(body, TopicConfigList).topic_config_list)


def _group_made(body: bytes) -> Iterable[str]:
    yield read_request(body, SubscriptionGroupConfig).group_name


def _groups_made(body: bytes) -> Iterable[str]:
    return (one.group_name for one in read_request(body, GroupConfigList).group_config_list)


# --- the table ---

CLIENTS_AND_TOOLS = (Asker.CLIENT, Asker.ADMIN)
TOOLS_AND_BROKERS = (Asker.ADMIN, Asker.BROKER)
TOOLS = (Asker.ADMIN,)
BROKERS = (Asker.BROKER,)

SERVED: tuple[Request[Context], ...] = (
    publish(Code.SEND_MESSAGE, send.send_message, topic("topic")),
    subscribe(
        Code.PULL_MESSAGE,
        pull.pull_message,
        topic("topic"),
        group("consumerGroup"),
        by=CLIENTS_AND_TOOLS,
    ),
    subscribe(Code.QUERY_MESSAGE, lookups.query_message, topic("topic"), by=CLIENTS_AND_TOOLS),
    subscribe(
        Code.QUERY_CONSUMER_OFFSET,
        offsets.query_consumer_offset,
        topic("topic"),
        group("consumerGroup"),
        by=CLIENTS_AND_TOOLS,
    ),
    subscribe(
        Code.UPDATE_CONSUMER_OFFSET,
        offsets.update_consumer_offset,
        topic("topic"),
        group("consumerGroup"),
        by=CLIENTS_AND_TOOLS,
    ),
    admin(Code.UPDATE_AND_CREATE_TOPIC, topics.update_topic, topic("topic")),
    admin(
        Code.UPDATE_AND_CREATE_TOPIC_LIST, topics.update_topics, in_body(Kind.TOPIC, _topics_made)
    ),
    admin(Code.GET_ALL_TOPIC_CONFIG, topics.get_all_topics, CLUSTER, by=TOOLS_AND_BROKERS),
    admin(Code.UPDATE_BROKER_CONFIG, settings.change_settings, CLUSTER),
    admin(Code.GET_BROKER_CONFIG, settings.get_settings, CLUSTER),
    admin(Code.GET_BROKER_RUNTIME_INFO, runtime.get_runtime_info, CLUSTER),
    subscribe(
        Code.SEARCH_OFFSET_BY_TIMESTAMP, lookups.search_offset, topic("topic"), by=CLIENTS_AND_TOOLS
    ),
    subscribe(Code.GET_MAX_OFFSET, lookups.get_max_offset, topic("topic"), by=CLIENTS_AND_TOOLS),
    subscribe(Code.GET_MIN_OFFSET, lookups.get_min_offset, topic("topic"), by=CLIENTS_AND_TOOLS),
    subscribe(
        Code.GET_EARLIEST_MSG_STORETIME,
        lookups.get_earliest_store_time,
        topic("topic"),
        by=CLIENTS_AND_TOOLS,
    ),
    admin(Code.VIEW_MESSAGE_BY_ID, lookups.view_message, CLUSTER, by=CLIENTS_AND_TOOLS),
    subscribe(
        Code.HEART_BEAT,
        clients.heart_beat,
        in_body(Kind.GROUP, _subscribed_groups),
        in_body(Kind.TOPIC, _subscribed_topics),
    ),
    subscribe(Code.UNREGISTER_CLIENT, clients.unregister_client, group("consumerGroup")),
    subscribe(Code.CONSUMER_SEND_MSG_BACK, send_back.send_back, group("group")),
    subscribe(Code.GET_CONSUMER_LIST_BY_GROUP, clients.get_consumer_list, group("consumerGroup")),
    subscribe(
        Code.LOCK_BATCH_MQ,
        locks.lock_batch,
        in_body(Kind.GROUP, _locking_group),
        in_body(Kind.TOPIC, _locked_topics),
    ),
    subscribe(
        Code.UNLOCK_BATCH_MQ,
        locks.unlock_batch,
        in_body(Kind.GROUP, _locking_group),
        in_body(Kind.TOPIC, _locked_topics),
    ),
    admin(Code.GET_ALL_CONSUMER_OFFSET, offsets.get_all_consumer_offsets, CLUSTER, by=BROKERS),
    admin(Code.GET_ALL_DELAY_OFFSET, offsets.get_all_delay_offsets, CLUSTER, by=BROKERS),
    subscribe(
        Code.CHECK_CLIENT_CONFIG,
        filters.check_client_config,
        in_body(Kind.GROUP, _checked_group),
        in_body(Kind.TOPIC, _checked_topic),
    ),
    admin(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        groups.update_group,
        in_body(Kind.GROUP, _group_made),
    ),
    admin(
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups.get_all_groups, CLUSTER, by=TOOLS_AND_BROKERS
    ),
    admin(Code.GET_TOPIC_STATS_INFO, topics.get_topic_stats, topic("topic")),
    admin(
        Code.GET_CONSUMER_CONNECTION_LIST,
        connections.get_consumer_connections,
        group("consumerGroup"),
    ),
    admin(Code.GET_PRODUCER_CONNECTION_LIST, connections.get_producer_connections, CLUSTER),
    admin(Code.DELETE_SUBSCRIPTIONGROUP, groups.delete_group, group("groupName")),
    admin(
        Code.GET_CONSUME_STATS,
        consume_stats.get_consume_stats,
        group("consumerGroup"),
        topic("topic"),
        topic("topicList", ";"),
    ),
    admin(Code.DELETE_TOPIC_IN_BROKER, topics.delete_topic, topic("topic")),
    admin(Code.INVOKE_BROKER_TO_RESET_OFFSET, resets.reset_offset, topic("topic"), group("group")),
    admin(
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        client_calls.get_consumer_status,
        topic("topic"),
        group("group"),
    ),
    admin(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        groups.update_groups,
        in_body(Kind.GROUP, _groups_made),
    ),
    admin(Code.QUERY_TOPIC_CONSUME_BY_WHO, connections.query_groups_of_topic, topic("topic")),
    admin(
        Code.QUERY_CONSUME_TIME_SPAN,
        consume_stats.query_consume_time_span,
        topic("topic"),
        group("group"),
    ),
    admin(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, topics.get_system_topics, CLUSTER),
    admin(Code.CLEAN_EXPIRED_CONSUMEQUEUE, topics.clean_unused, CLUSTER),
    admin(
        Code.GET_CONSUMER_RUNNING_INFO,
        client_calls.get_consumer_running_info,
        group("consumerGroup"),
    ),
    admin(
        Code.QUERY_CORRECTION_OFFSET,
        offsets.query_correction_offset,
        topic("topic"),
        group("compareGroup"),
    ),
    subscribe(
        Code.CONSUME_MESSAGE_DIRECTLY,
        client_calls.consume_message_directly,
        group("consumerGroup"),
        topic("topic"),
        by=TOOLS,
    ),
    publish(Code.SEND_MESSAGE_V2, send.send_message, topic("b")),
    admin(
        Code.CLONE_GROUP_OFFSET,
        offsets.clone_group_offset,
        group("srcGroup"),
        group("destGroup"),
        topic("topic"),
    ),
    admin(Code.VIEW_BROKER_STATS_DATA, runtime.view_broker_stats, CLUSTER),
    admin(Code.CLEAN_UNUSED_TOPIC, topics.clean_unused, CLUSTER),
    admin(Code.GET_BROKER_CONSUME_STATS, consume_stats.get_broker_consume_stats, CLUSTER),
    publish(Code.SEND_BATCH_MESSAGE, send.send_message, topic("b")),
    admin(
        Code.QUERY_CONSUME_QUEUE, queues.query_consume_queue, topic("topic"), group("consumerGroup")
    ),
    admin(Code.GET_ALL_PRODUCER_INFO, connections.get_all_producers, CLUSTER),
    admin(Code.DELETE_EXPIRED_COMMITLOG, cleaning.delete_expired_log, CLUSTER),
    admin(Code.QUERY_TOPICS_BY_CONSUMER, connections.query_topics_of_group, group("group")),
    admin(
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
        connections.query_subscription,
        group("group"),
        topic("topic"),
    ),
    admin(Code.GET_TOPIC_CONFIG, topics.get_topic_config, topic("topic")),
    admin(Code.GET_SUBSCRIPTIONGROUP_CONFIG, groups.get_group_config, group("group")),
    admin(
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN, groups.group_forbidden, group("group"), topic("topic")
    ),
    subscribe(Code.LITE_PULL_MESSAGE, pull.pull_message, topic("topic"), group("consumerGroup")),
)

REFUSED: Mapping[Code, str] = {
    code: reason
    for reason, codes in {
        "transactions are not there yet": (
            Code.END_TRANSACTION,
            Code.CHECK_TRANSACTION_STATE,
            Code.RESUME_CHECK_HALF_MESSAGE,
        ),
        "access control is not there yet": (
            Code.UPDATE_AND_CREATE_ACL_CONFIG,
            Code.DELETE_ACL_CONFIG,
            Code.GET_BROKER_CLUSTER_ACL_INFO,
            Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            Code.GET_BROKER_CLUSTER_ACL_CONFIG,
            Code.AUTH_CREATE_USER,
            Code.AUTH_UPDATE_USER,
            Code.AUTH_DELETE_USER,
            Code.AUTH_GET_USER,
            Code.AUTH_LIST_USER,
            Code.AUTH_CREATE_ACL,
            Code.AUTH_UPDATE_ACL,
            Code.AUTH_DELETE_ACL,
            Code.AUTH_GET_ACL,
            Code.AUTH_LIST_ACL,
        ),
        "request-reply is not there yet": (
            Code.SEND_REPLY_MESSAGE,
            Code.SEND_REPLY_MESSAGE_V2,
            Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
        ),
        "timed messages are not there yet": (
            Code.GET_TIMER_CHECK_POINT,
            Code.GET_TIMER_METRICS,
            Code.RECALL_MESSAGE,
            Code.SWITCH_TIMER_ENGINE,
        ),
        "pop consumption is not there yet": (
            Code.QUERY_ASSIGNMENT,
            Code.SET_MESSAGE_REQUEST_MODE,
            Code.GET_ALL_MESSAGE_REQUEST_MODE,
            Code.POP_MESSAGE,
            Code.ACK_MESSAGE,
            Code.PEEK_MESSAGE,
            Code.CHANGE_MESSAGE_INVISIBLETIME,
            Code.NOTIFICATION,
            Code.POLLING_INFO,
            Code.POP_ROLLBACK,
            Code.BATCH_ACK_MESSAGE,
        ),
        "lite topics are not there yet": (
            Code.POP_LITE_MESSAGE,
            Code.LITE_SUBSCRIPTION_CTL,
            Code.ACK_LITE_MESSAGE,
            Code.NOTIFY_UNSUBSCRIBE_LITE,
            Code.GET_BROKER_LITE_INFO,
            Code.GET_PARENT_TOPIC_INFO,
            Code.GET_LITE_TOPIC_INFO,
            Code.GET_LITE_CLIENT_INFO,
            Code.GET_LITE_GROUP_INFO,
            Code.TRIGGER_LITE_DISPATCH,
        ),
        "replication is not there yet": (
            Code.NOTIFY_MIN_BROKER_ID_CHANGE,
            Code.EXCHANGE_BROKER_HA_INFO,
            Code.GET_BROKER_HA_STATUS,
            Code.RESET_MASTER_FLUSH_OFFSET,
            Code.GET_BROKER_EPOCH_CACHE,
            Code.NOTIFY_BROKER_ROLE_CHANGED,
        ),
        "brokers are not added to a process while it runs": (Code.ADD_BROKER, Code.REMOVE_BROKER),
        "there are no static topics": (Code.UPDATE_AND_CREATE_STATIC_TOPIC,),
        "nothing is kept in RocksDB": (
            Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        ),
        "how much is read from old files is a matter of settings (maxTransfer...InDisk)": (
            Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            Code.GET_COLD_DATA_FLOW_CTR_INFO,
            Code.SET_COMMITLOG_READ_MODE,
        ),
    }.items()
    for code in codes
}
"""Codes that brokers of 4.9.7 or 5.x serve and this one does not, with what its askers are told."""

UNUSED = frozenset(
    {
        Code.QUERY_BROKER_OFFSET,
        Code.GET_TOPIC_CONFIG_LIST,
        Code.GET_TOPIC_NAME_LIST,
        Code.TRIGGER_DELETE_FILES,
        Code.GET_CLIENT_CONFIG,
        Code.SUSPEND_CONSUMER,
        Code.RESUME_CONSUMER,
        Code.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        Code.RESET_CONSUMER_OFFSET_IN_BROKER,
        Code.ADJUST_CONSUMER_THREAD_POOL,
        Code.WHO_CONSUME_THE_MESSAGE,
        Code.REGISTER_FILTER_SERVER,
        Code.REGISTER_MESSAGE_FILTER_CLASS,
    }
)
"""Codes that the originals only name: they answer them as we do, and in the same words."""
