"""What brokers send, made short for tests: headers, topics, bodies, origins, and a hand clock."""

from typing import Any

from orbitmq.namesrv.members import Source
from orbitmq.namesrv.routes import RegistrationRequest
from orbitmq.wire.bodies_namesrv import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
)
from orbitmq.wire.headers_namesrv import (
    BrokerHeartbeat,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
)

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"
OTHER = "10.0.0.9:10911"


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now_s * 1_000)

    def monotonic_s(self) -> float:
        return self.now_s

    def file_stamp(self, wall_ms: int) -> int:
        return wall_ms


class Wire:
    """Stands for one connection; told apart by identity."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Wire({self.name})"


def source(host: str = "10.0.0.1", connection: object | None = None) -> Source:
    """A fresh connection from `host`, or a known one."""
    return Source(connection or Wire(host), host)


def topic(name: str, queues: int = 4, perm: int = 6, flag: int = 0, **more: Any) -> TopicConfig:
    """A topic as a broker registers it."""
    counts = {"read_queue_count": queues, "write_queue_count": queues, **more}
    return TopicConfig(topic_name=name, perm=perm, topic_sys_flag=flag, **counts)


def version(counter: int = 1, timestamp_ms: int = 1, state: int | None = None) -> DataVersion:
    return DataVersion(counter=counter, timestamp_ms=timestamp_ms, state_version=state)


def body(
    *topics: TopicConfig,
    data_version: DataVersion | None = None,
    filters: tuple[str, ...] = (),
    mappings: dict[str, Any] | None = None,
) -> RegisterBrokerBody:
    """A register body."""
    table = TopicConfigTable(
        data_version=data_version or version(),
        topic_config_table={one.topic_name: one for one in topics},
        topic_queue_mapping_info_map=mappings,
    )
    return RegisterBrokerBody(topics=table, filter_server_list=list(filters))


def header(
    name: str = "broker-a",
    address: str = MASTER,
    broker_id: int = 0,
    cluster: str = "C1",
    **more: Any,
) -> RegisterBroker:
    return RegisterBroker(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=more.pop("ha", "ha-" + address),
        broker_id=broker_id,
        **more,
    )


TWO = (topic("T1"), topic("T2", 8))
"""Two topics: a registration that is not taken for a change of one."""


def registration(
    *topics: TopicConfig,
    head: RegisterBroker | None = None,
    drops_missing: bool = False,
    **more: Any,
) -> RegistrationRequest:
    """A registration; without topics, of TWO."""
    return RegistrationRequest(
        head or header(), body(*(topics or TWO), **more), None, drops_missing
    )


def unregister(head: RegisterBroker) -> UnregisterBroker:
    return UnregisterBroker(
        broker_name=head.broker_name,
        broker_addr=head.broker_addr,
        cluster_name=head.cluster_name,
        broker_id=head.broker_id,
    )


def query(head: RegisterBroker) -> QueryDataVersion:
    return QueryDataVersion(
        broker_name=head.broker_name,
        broker_addr=head.broker_addr,
        cluster_name=head.cluster_name,
        broker_id=head.broker_id,
    )


def heartbeat(head: RegisterBroker) -> BrokerHeartbeat:
    return BrokerHeartbeat(
        cluster_name=head.cluster_name,
        broker_addr=head.broker_addr,
        broker_name=head.broker_name,
        broker_id=head.broker_id,
    )
