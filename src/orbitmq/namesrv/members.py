"""Who is there: brokers that registered, to whom each entry belongs, and when it ends.

In: registrations, signs of life, closed connections, monotonic seconds. Out: members, those who
left, or RequestFailed. A member is a broker name and an id; those of one name are a group.

Rules:
1. A member belongs to the connections that registered it; they may do everything with it.
2. Another connection may register or refresh it only with the same address and from the same host:
   a broker that restarted before its old connection was found dead. It then belongs to both.
3. Everyone else is refused (16) while it lives: until its last connection closes or it was silent
   for 120 s (or what a 5.x broker asked for). Only its own connections unregister it.
4. Of two data versions with state versions (5.x with a controller) the higher one wins the id: so
   the controller replaces a master that is cut off.
5. An address has one id in its group: registering it under a new one moves it (slave to master).
6. A name stays in its cluster as long as another member of it is there.
"""

from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.errors import RequestFailed
from orbitmq.namesrv.route_limits import name_fault, shown
from orbitmq.wire.advertised import Advertised, Reached
from orbitmq.wire.bodies_namesrv import BrokerData, DataVersion
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_namesrv import RegisterBroker

MASTER_ID = 0

EXPIRY_S = 120.0
"""BROKER_CHANNEL_EXPIRED_TIME of the originals: four missed registrations."""

EXPIRY_S_MIN = 5.0
EXPIRY_S_MAX = 3_600.0
"""Between these a 5.x broker may choose; it sends a sign of life every second then."""

CONNECTIONS_PER_MEMBER_MAX = 8
"""A broker holds one connection; more are old ones that were not found dead yet."""


class Source(NamedTuple):
    """Where a request came from: the connection (compared by identity) and its remote host."""

    connection: object
    host: str


class RegisteredBroker:
    """One registered broker."""

    __slots__ = (
        "address",
        "advertised",
        "broker_id",
        "connections",
        "expiry_s",
        "filter_servers",
        "ha_address",
        "host",
        "seen_s",
        "version",
    )

    def __init__(self, broker_id: int, address: str) -> None:
        self.broker_id = broker_id
        self.address = address
        self.ha_address = ""
        self.host = ""
        self.connections: dict[object, None] = {}  # in the order of their first registration
        self.seen_s = 0.0
        self.expiry_s = EXPIRY_S
        self.version: DataVersion | None = None  # of the newest whole table; None: not known
        self.filter_servers: tuple[str, ...] = ()
        self.advertised: Advertised | None = None

    def address_for(self, reached: Reached | None) -> str:
        """Return the address that a client is told who reached us so; without, the usual one."""
        if self.advertised is None or reached is None:
            return self.address
        return self.advertised.address_for(reached) or self.address

    def belongs_to(self, source: Source, address: str) -> bool:
        """Whether `source`, which says it is at `address`, may speak for this member."""
        if source.connection in self.connections:
            return True
        return address == self.address and source.host == self.host


class Group:
    """The members of one broker name, and what is known of the name as a whole."""

    __slots__ = ("acting_master", "cluster", "mappings", "members", "name", "topics", "zone")

    def __init__(self, name: str, cluster: str) -> None:
        self.name = name
        self.cluster = cluster
        self.members: dict[int, RegisteredBroker] = {}
        self.topics: set[str] = set()
        self.mappings: dict[str, object] = {}  # static topics of 5.x, kept as they came
        self.acting_master: bool | None = None
        self.zone: str | None = None

    def data(self, reached: Reached | None = None) -> BrokerData:
        """Return the group as routes show it to a client."""
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.name,
            broker_addrs={
                number: one.address_for(reached) for number, one in sorted(self.members.items())
            },
            enable_acting_master=self.acting_master,
            zone_name=self.zone,
        )


class Departure(NamedTuple):
    """A member that left and the connections it had; `is_last` when its group went with it."""

    group: Group
    member: RegisteredBroker
    connections: tuple[object, ...]
    is_last: bool


class Members:
    """The table of members, by broker name and id, and by connection."""

    def __init__(self, brokers_max: int) -> None:
        self._brokers_max = brokers_max
        self._groups: dict[str, Group] = {}
        self._by_connection: dict[object, set[tuple[str, int]]] = {}
        self.count = 0

    def group(self, name: str) -> Group | None:
        """Return the group of a broker name."""
        return self._groups.get(name)

    def groups(self) -> Iterator[Group]:
        """Return all groups in the order in which they came."""
        return iter(self._groups.values())

    def clusters(self) -> dict[str, list[str]]:
        """Return the broker names of each cluster."""
        clusters: dict[str, list[str]] = {}
        for group in self._groups.values():
            clusters.setdefault(group.cluster, []).append(group.name)
        return clusters

    # --- coming ---

    def claim(
        self, header: RegisterBroker, version: DataVersion, source: Source, now_s: float
    ) -> tuple[Group, RegisteredBroker, bool]:
        """Return the member that `header` registers, made or taken over, and whether its id is new.

        Afterwards it belongs to `source` and counts as seen now. Raises RequestFailed by the rules.
        """
        _check_names(header)
        group = self._groups.get(header.broker_name)
        displaced = self._displaced(group, header, version, source)
        self._check_cluster(group, header, displaced)
        is_first = group is None or header.broker_id not in group.members
        for member in displaced:
            self._detach(header.broker_name, member)
        if group is None:
            group = self._groups[header.broker_name] = Group(
                header.broker_name, header.cluster_name
            )
        group.cluster = header.cluster_name
        member = group.members.get(header.broker_id) or self._add(group, header)
        member.ha_address = header.ha_server_addr
        member.expiry_s = _expiry_s(header)
        self.renew(group, member, source, now_s)
        return group, member, is_first

    def renew(self, group: Group, member: RegisteredBroker, source: Source, now_s: float) -> None:
        """Note a sign of life of `member` from `source`, which is one of its owners from now on."""
        member.seen_s = now_s
        member.host = source.host
        key = (group.name, member.broker_id)
        if source.connection not in member.connections:
            if len(member.connections) == CONNECTIONS_PER_MEMBER_MAX:
                self._forget_connection(key, member, next(iter(member.connections)))
            member.connections[source.connection] = None
            self._by_connection.setdefault(source.connection, set()).add(key)

    def _displaced(
        self, group: Group | None, header: RegisterBroker, version: DataVersion, source: Source
    ) -> list[RegisteredBroker]:
        """Return the members that this registration replaces; raises when one is not its own."""
        if group is None:
            return []
        displaced = []
        for member in group.members.values():
            is_same_id = member.broker_id == header.broker_id
            is_same_address = member.address == header.broker_addr
            if not is_same_id and not is_same_address:
                continue
            if not member.belongs_to(source, header.broker_addr) and not (
                is_same_id and _is_superseded(member, version)
            ):
                raise _not_yours(group, member, "register")
            if not (is_same_id and is_same_address):
                displaced.append(member)
        return displaced

    def _check_cluster(
        self, group: Group | None, header: RegisterBroker, displaced: list[RegisteredBroker]
    ) -> None:
        if group is None or group.cluster == header.cluster_name:
            return
        others = [
            member
            for member in group.members.values()
            if member not in displaced and member.broker_id != header.broker_id
        ]
        if others:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"broker name {group.name} belongs to cluster {group.cluster}, where"
                f" {others[0].address} is registered under it; give this broker another brokerName"
                " or the same brokerClusterName",
            )

    def _add(self, group: Group, header: RegisterBroker) -> RegisteredBroker:
        if self.count >= self._brokers_max:
            if not group.members:
                del self._groups[group.name]
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"{self.count} brokers are registered, the limit is {self._brokers_max}"
                " (setting brokersMax of the name server)",
            )
        member = group.members[header.broker_id] = RegisteredBroker(
            header.broker_id, header.broker_addr
        )
        self.count += 1
        return member

    # --- staying ---

    def find(self, broker_name: str, address: str) -> tuple[Group, RegisteredBroker] | None:
        """Return the member of a group that has this address."""
        group = self._groups.get(broker_name)
        if group is None:
            return None
        for member in group.members.values():
            if member.address == address:
                return group, member
        return None

    # --- leaving ---

    def release(self, broker_name: str, broker_id: int, source: Source) -> Departure | None:
        """Remove a member at its own wish; None when there is none. Raises by rule 3."""
        group = self._groups.get(broker_name)
        member = group.members.get(broker_id) if group else None
        if group is None or member is None:
            return None
        if source.connection not in member.connections:
            raise _not_yours(group, member, "unregister")
        return self._depart(group, member)

    def expire(self, now_s: float) -> list[Departure]:
        """Remove every member that was silent for longer than it may be."""
        silent = [
            (group, member)
            for group in self._groups.values()
            for member in group.members.values()
            if now_s - member.seen_s > member.expiry_s
        ]
        return [self._depart(group, member) for group, member in silent]

    def connection_closed(self, connection: object) -> list[Departure]:
        """Remove the members whose last connection this was."""
        departures = []
        for key in sorted(self._by_connection.get(connection, ())):
            group = self._groups[key[0]]
            member = group.members[key[1]]
            self._forget_connection(key, member, connection)
            if not member.connections:
                departures.append(self._depart(group, member))
        return departures

    def owns_nothing(self, connection: object) -> bool:
        """Whether no member belongs to this connection."""
        return connection not in self._by_connection

    def _depart(self, group: Group, member: RegisteredBroker) -> Departure:
        connections = tuple(member.connections)
        self._detach(group.name, member)
        if not group.members:
            del self._groups[group.name]
        return Departure(group, member, connections, not group.members)

    def _detach(self, broker_name: str, member: RegisteredBroker) -> None:
        key = (broker_name, member.broker_id)
        for connection in list(member.connections):
            self._forget_connection(key, member, connection)
        del self._groups[broker_name].members[member.broker_id]
        self.count -= 1

    def _forget_connection(
        self, key: tuple[str, int], member: RegisteredBroker, connection: object
    ) -> None:
        del member.connections[connection]
        keys = self._by_connection[connection]
        keys.discard(key)
        if not keys:
            del self._by_connection[connection]


def _expiry_s(header: RegisterBroker) -> float:
    """Return how long the broker may be silent, as it asked within our bounds."""
    if header.heartbeat_timeout_ms is None:
        return EXPIRY_S
    return min(EXPIRY_S_MAX, max(EXPIRY_S_MIN, header.heartbeat_timeout_ms / 1_000))


def _check_names(header: RegisterBroker) -> None:
    fault = (
        name_fault("brokerName", header.broker_name)
        or name_fault("brokerAddr", header.broker_addr)
        or name_fault("clusterName", header.cluster_name)
        or (name_fault("haServerAddr", header.ha_server_addr) if header.ha_server_addr else None)
    )
    if fault is None and header.broker_id < 0:
        fault = f"brokerId {header.broker_id}, allowed 0 to {2**63 - 1}"
    if fault is not None:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)


def _is_superseded(member: RegisteredBroker, version: DataVersion) -> bool:
    before = (member.version and member.version.state_version) or 0
    return 0 < before < (version.state_version or 0)


def _not_yours(group: Group, member: RegisteredBroker, action: str) -> RequestFailed:
    ways_out = {
        "register": f"Stop that broker, or wait until it is silent for {member.expiry_s:g} s, or"
        " use another brokerName or brokerId",
        "unregister": "Only that broker can do it, over the connection that it registered with",
    }
    return RequestFailed(
        ResponseCode.NO_PERMISSION,
        f"cannot {action} broker {shown(group.name)} id {member.broker_id}: it is registered by"
        f" {shown(member.address)} over another connection, which is alive. {ways_out[action]}",
    )
