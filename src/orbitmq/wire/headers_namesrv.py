"""Typed headers of the requests that a name server serves, and of its answers.

In and out: see `fields`. A request's class is named after what it asks for, an answer's class after
its request with `Answer` behind it; answers without fields have no class. Wire names appear nowhere
else.
"""

import msgspec

from orbitmq.wire.fields import Header, Int32, Int64

# --- key-value configuration ---


class PutKv(Header, frozen=True, kw_only=True):
    """100 PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class GetKv(Header, frozen=True, kw_only=True):
    """101 GET_KV_CONFIG."""

    namespace: str
    key: str


class GetKvAnswer(Header, frozen=True, kw_only=True):
    """The answer to 101."""

    value: str | None = None


class DeleteKv(Header, frozen=True, kw_only=True):
    """102 DELETE_KV_CONFIG."""

    namespace: str
    key: str


class ListKv(Header, frozen=True, kw_only=True):
    """219 GET_KVLIST_BY_NAMESPACE; the answer's body is a KVTable."""

    namespace: str


# --- brokers ---


class RegisterBroker(Header, frozen=True, kw_only=True):
    """103 REGISTER_BROKER; the body is a RegisterBrokerBody, compressed or not.

    `body_crc32` is of the body as sent; 0 means that it is not to be checked.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = 0
    heartbeat_timeout_ms: Int64 | None = msgspec.field(name="heartbeatTimeoutMillis", default=None)
    enable_acting_master: bool | None = None


class RegisterBrokerAnswer(Header, frozen=True, kw_only=True):
    """The answer to 103; only a slave is told addresses, those of its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(Header, frozen=True, kw_only=True):
    """104 UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersion(Header, frozen=True, kw_only=True):
    """322 QUERY_DATA_VERSION; the bodies of request and answer are a DataVersion."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionAnswer(Header, frozen=True, kw_only=True):
    """The answer to 322."""

    changed: bool


class BrokerHeartbeat(Header, frozen=True, kw_only=True):
    """904 BROKER_HEARTBEAT of 5.x; all but the names serves the controller, which we have not."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_ms: Int64 | None = msgspec.field(name="heartbeatTimeoutMills", default=None)
    election_priority: Int32 | None = None


class GetBrokerMemberGroup(Header, frozen=True, kw_only=True):
    """901 GET_BROKER_MEMBER_GROUP of 5.x; the answer's body is a BrokerMemberGroupBody."""

    cluster_name: str
    broker_name: str


class WipeWritePerm(Header, frozen=True, kw_only=True):
    """205 WIPE_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermAnswer(Header, frozen=True, kw_only=True):
    """The answer to 205: how many topics lost the permission."""

    wipe_topic_count: Int32


class AddWritePerm(Header, frozen=True, kw_only=True):
    """327 ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class AddWritePermAnswer(Header, frozen=True, kw_only=True):
    """The answer to 327: how many topics gained the permission."""

    add_topic_count: Int32


# --- topics ---


class GetRoute(Header, frozen=True, kw_only=True):
    """105 GET_ROUTEINFO_BY_TOPIC; the answer's body is a TopicRoute."""

    topic: str
    accept_standard_json_only: bool | None = None


class DeleteTopicInNamesrv(Header, frozen=True, kw_only=True):
    """216 DELETE_TOPIC_IN_NAMESRV; without a cluster it is deleted in all of them."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicInNamesrv(Header, frozen=True, kw_only=True):
    """217 REGISTER_TOPIC_IN_NAMESRV of 5.x; the body is a TopicRoute."""

    topic: str


class GetTopicsByCluster(Header, frozen=True, kw_only=True):
    """224 GET_TOPICS_BY_CLUSTER; the answer's body is a TopicList."""

    cluster: str
