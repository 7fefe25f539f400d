"""The route table: which broker has which topic, as a pure data structure.

In: registrations, administration, closed connections, and monotonic seconds. Out: routes, lists and
counts as the values that travel, or RequestFailed. No I/O, no clock of its own.

Rules (who may speak for a broker is in `members`):
1. Only a master (id 0) changes topics, and only when its id is new or its data version changed.
2. A topic that a registration lacks stays (unless `drops_missing`); it leaves with the last member
   of its broker name or by deletion. No topic is listed without a broker.
3. A registration with exactly one topic is a change of that topic, never the whole table. It does
   not set the broker's data version, so the next whole table is applied whatever came before. (The
   originals send one after each change; two that overtake each other stay wrong there.)
4. A topic with an impossible name, queue count or permission, or one too many, is refused alone;
   the others of its registration are taken. The reason is told to the broker and to whoever asks
   for that topic's route.
5. Taking away or giving write permission lasts until the broker registers a newer data version.
6. Everything that a peer can make grow has a limit (`admission`).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import msgspec

from orbitmq.errors import RequestFailed
from orbitmq.namesrv.members import MASTER_ID, Departure, Group, Members, RegisteredBroker, Source
from orbitmq.namesrv.route_limits import (
    FILTER_SERVERS_MAX,
    MAPPING_SIZE_MAX,
    RouteLimits,
    name_fault,
    queues_fault,
    shown,
)
from orbitmq.wire.advertised import Advertised, Reached
from orbitmq.wire.bodies_namesrv import (
    PERM_READ_WRITE,
    PERM_WRITE,
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicRoute,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_namesrv import (
    BrokerHeartbeat,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
)
from orbitmq.wire.names import TEMPLATE_TOPIC

REMEMBERED_MAX = 1_000
"""How many deleted and refused topics are remembered, to say why there is no route."""

V = TypeVar("V")


class RegistrationRequest(NamedTuple):
    """What a broker registers: its header, its topics, its zone (5.x), its addresses (ours)."""

    header: RegisterBroker
    body: RegisterBrokerBody
    zone: str | None = None
    drops_missing: bool = False
    advertised: Advertised | None = None


class Taken(NamedTuple):
    """What became of the topics of a registration."""

    new_topics: list[str]
    """Each new topic with its queues and permission, as the log shows it."""
    refused: list[str]
    """A sentence for each topic that was refused."""


class Registered(NamedTuple):
    """What a registration led to; a slave is told its master's addresses."""

    is_new: bool
    master_address: str | None
    master_ha_address: str | None
    topics: Taken


class RouteTable:
    """All brokers and topics that a name server knows."""

    def __init__(self, limits: RouteLimits | None = None) -> None:
        self._limits = limits or RouteLimits()
        self._members = Members(self._limits.brokers_max)
        self._topics: dict[str, dict[str, QueueData]] = {}  # topic, broker name
        self._route_count = 0
        self._deleted_s: OrderedDict[str, float] = OrderedDict()
        self._refused: OrderedDict[str, str] = OrderedDict()

    @property
    def broker_count(self) -> int:
        """How many brokers are registered."""
        return self._members.count

    @property
    def topic_count(self) -> int:
        """How many topics have a route."""
        return len(self._topics)

    def has_broker(self, broker_name: str) -> bool:
        """Whether a broker of this name is registered."""
        return self._members.group(broker_name) is not None

    # --- brokers come, stay and leave ---

    def register(
        self, registration: RegistrationRequest, source: Source, now_s: float
    ) -> Registered:
        """Take a registration; raises RequestFailed when it is not the broker's own to make."""
        header, body = registration.header, registration.body
        topics = body.topics
        group, member, is_first = self._members.claim(header, topics.data_version, source, now_s)
        if header.enable_acting_master is not None:  # a 4.9 member of the group says nothing
            group.acting_master = header.enable_acting_master
        group.zone = registration.zone
        member.advertised = registration.advertised
        if body.filter_server_list is not None:
            member.filter_servers = _filter_servers(body.filter_server_list)
        taken = Taken([], [])
        if header.broker_id == MASTER_ID and _is_news(member, topics, is_first=is_first):
            taken = self._take_topics(group, topics)
            if registration.drops_missing and len(topics.topic_config_table) > 1:
                missing = group.topics - topics.topic_config_table.keys()
                self._remove_topics(group, missing)
        if len(topics.topic_config_table) != 1:
            member.version = topics.data_version
        master = None if header.broker_id == MASTER_ID else group.members.get(MASTER_ID)
        return Registered(
            is_first,
            master.address if master else None,
            master.ha_address if master else None,
            taken,
        )

    def unregister(self, header: UnregisterBroker, source: Source) -> Departure | None:
        """Remove a broker at its own wish; None when no such broker is registered."""
        found = self._members.find(header.broker_name, header.broker_addr)
        if found is None or found[1].broker_id != header.broker_id:
            return None
        departure = self._members.release(header.broker_name, header.broker_id, source)
        return self._clean_up([departure])[0] if departure else None

    def refresh(
        self, header: BrokerHeartbeat | QueryDataVersion, source: Source, now_s: float
    ) -> bool:
        """Note a sign of life; False when there is no such broker or it is not the sender's."""
        found = self._members.find(header.broker_name, header.broker_addr)
        if found is None or not found[1].belongs_to(source, header.broker_addr):
            return False
        self._members.renew(*found, source, now_s)
        return True

    def data_version(self, header: QueryDataVersion) -> DataVersion | None:
        """Return the version of the newest whole table that this broker registered."""
        found = self._members.find(header.broker_name, header.broker_addr)
        return found[1].version if found else None

    def expire(self, now_s: float) -> list[Departure]:
        """Remove brokers that were silent for too long."""
        return self._clean_up(self._members.expire(now_s))

    def connection_closed(self, connection: object) -> list[Departure]:
        """Remove the brokers whose last connection this was."""
        return self._clean_up(self._members.connection_closed(connection))

    def owns_nothing(self, connection: object) -> bool:
        """Whether no broker belongs to this connection."""
        return self._members.owns_nothing(connection)

    def _clean_up(self, departures: list[Departure]) -> list[Departure]:
        for departure in departures:
            if departure.is_last:
                self._remove_topics(departure.group, list(departure.group.topics))
        return departures

    # --- topics ---

    def _take_topics(self, group: Group, topics: TopicConfigTable) -> Taken:
        """Put every topic of a registration into the table."""
        taken = Taken([], [])
        mappings = topics.topic_queue_mapping_info_map or {}
        for topic, config in topics.topic_config_table.items():
            is_new = topic not in self._topics
            queues = _queue_data(group.name, config)
            reason = self._put(topic, queues)
            if reason is None:
                group.topics.add(topic)
                self._take_mapping(group, topic, mappings.get(topic))
                if is_new:
                    counts = f"{queues.read_queue_count}/{queues.write_queue_count}"
                    taken.new_topics.append(f"{topic} {counts} perm {queues.perm}")
            else:
                sentence = f"broker {group.name} cannot have topic {shown(topic)}: {reason}"
                _remember(self._refused, topic, sentence)
                taken.refused.append(sentence)
        return taken

    def _put(self, topic: str, queues: QueueData) -> str | None:
        """Put one topic's queues at one broker into the table, or say why not."""
        fault = name_fault("topic", topic) or queues_fault(queues, self._limits)
        if fault is not None:
            return fault
        by_broker = self._topics.get(topic)
        if by_broker is None and len(self._topics) >= self._limits.topics_max:
            return f"{len(self._topics)} topics are there, the limit (setting topicsMax)"
        if by_broker is None or queues.broker_name not in by_broker:
            if self._route_count >= self._limits.routes_max:
                return f"{self._route_count} routes are there, the limit (setting routesMax)"
            self._route_count += 1
        self._topics.setdefault(topic, {})[queues.broker_name] = queues
        self._deleted_s.pop(topic, None)
        self._refused.pop(topic, None)
        return None

    def _take_mapping(self, group: Group, topic: str, mapping: object) -> None:
        if mapping is None:
            group.mappings.pop(topic, None)
        elif len(msgspec.json.encode(mapping)) <= MAPPING_SIZE_MAX:
            group.mappings[topic] = mapping

    def _remove_topics(self, group: Group, topics: Iterable[str]) -> None:
        for topic in topics:
            by_broker = self._topics[topic]
            del by_broker[group.name]
            self._route_count -= 1
            if not by_broker:
                del self._topics[topic]
            group.topics.discard(topic)
            group.mappings.pop(topic, None)

    def delete_topic(self, topic: str, cluster: str | None, now_s: float) -> int:
        """Remove a topic, in one cluster or in all; return the number of brokers that had it."""
        names = list(self._topics.get(topic, ()))
        groups = [group for name in names if (group := self._members.group(name)) is not None]
        chosen = [group for group in groups if not cluster or group.cluster == cluster]
        for group in chosen:
            self._remove_topics(group, [topic])
        if chosen and topic not in self._topics:
            _remember(self._deleted_s, topic, now_s)
        return len(chosen)

    def register_topic(self, topic: str, queue_datas: list[QueueData], source: Source) -> None:
        """Take one topic from a 5.x broker; all of it, or RequestFailed and nothing of it."""
        groups = [self._own_group(queues.broker_name, source) for queues in queue_datas]
        for queues in queue_datas:
            fault = name_fault("topic", topic) or queues_fault(queues, self._limits)
            if fault is not None:
                raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"topic {shown(topic)}: {fault}")
        for group, queues in zip(groups, queue_datas, strict=True):
            reason = self._put(topic, queues)
            if reason is not None:
                raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"topic {shown(topic)}: {reason}")
            group.topics.add(topic)

    def _own_group(self, broker_name: str, source: Source) -> Group:
        group = self._members.group(broker_name)
        if group is None:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"broker {shown(broker_name)} is not registered; a topic needs a registered broker",
            )
        if not any(source.connection in one.connections for one in group.members.values()):
            raise RequestFailed(
                ResponseCode.NO_PERMISSION,
                f"broker {shown(broker_name)} is registered over another connection; only a broker"
                " itself registers its topics",
            )
        return group

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take write permission from all topics of a broker; give their number."""
        return self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Set the permission of all topics of a broker to 6, as the original; give their number."""
        return self._set_perm(broker_name, lambda _perm: PERM_READ_WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        group = self._members.group(broker_name)
        if group is None:
            return 0
        for topic in group.topics:
            by_broker = self._topics[topic]
            queues = by_broker[broker_name]
            by_broker[broker_name] = msgspec.structs.replace(queues, perm=change(queues.perm))
        return len(group.topics)

    # --- lookups ---

    def route(self, topic: str, reached: Reached | None = None) -> TopicRoute | None:
        """Return where a topic's queues are for a client, or None when no broker has it."""
        by_broker = self._topics.get(topic)
        if by_broker is None:
            return None
        groups = [group for name in by_broker if (group := self._members.group(name)) is not None]
        members = [member for group in groups for member in group.members.values()]
        mappings = {
            group.name: group.mappings[topic] for group in groups if topic in group.mappings
        }
        return TopicRoute(
            broker_datas=[group.data(reached) for group in groups],
            filter_server_table={
                one.address_for(reached): list(one.filter_servers)
                for one in members
                if one.filter_servers
            },
            queue_datas=list(by_broker.values()),
            topic_queue_mapping_by_broker=mappings or None,
        )

    def cluster_info(self, reached: Reached | None = None) -> ClusterInfo:
        """Return all brokers and clusters, as a client sees them."""
        return ClusterInfo(
            broker_addr_table={group.name: group.data(reached) for group in self._members.groups()},
            cluster_addr_table=self._members.clusters(),
        )

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """Return the members of a broker name; none when it is not registered in that cluster."""
        group = self._members.group(broker_name)
        if group is None or group.cluster != cluster:
            return BrokerMemberGroup(cluster=cluster, broker_name=broker_name)
        addresses = group.data().broker_addrs
        return BrokerMemberGroup(cluster=cluster, broker_name=broker_name, broker_addrs=addresses)

    def topics(self) -> TopicList:
        """Return the names of all topics."""
        return TopicList(topic_list=list(self._topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """Return the names of the topics that some broker of the cluster has."""
        names: dict[str, None] = {}
        for group in self._members.groups():
            if group.cluster == cluster:
                names.update(dict.fromkeys(sorted(group.topics)))
        return TopicList(topic_list=list(names))

    def system_topics(self, reached: Reached | None = None) -> TopicList:
        """The cluster and broker names, which are topics as well, and one broker's address."""
        names: dict[str, None] = {}
        for cluster, brokers in self._members.clusters().items():
            names.update(dict.fromkeys([cluster, *brokers]))
        addresses = (
            one.address_for(reached)
            for group in self._members.groups()
            for one in group.members.values()
        )
        return TopicList(topic_list=list(names), broker_addr=next(addresses, None))

    def topics_with_flags(self, wanted: int, unwanted: int = 0) -> TopicList:
        """Return the topics whose flags have all bits of `wanted` and none of `unwanted`."""
        names = [
            topic
            for topic, by_broker in self._topics.items()
            if _has_flags(next(iter(by_broker.values())), wanted, unwanted)
        ]
        return TopicList(topic_list=names)

    def why_no_route(self, topic: str, now_s: float) -> str:
        """Say why a topic has no route, and what to do."""
        if topic in self._refused:
            return self._refused[topic]
        if topic in self._deleted_s:
            age_s = max(0, round(now_s - self._deleted_s[topic]))
            return f"It was deleted here {age_s} s ago; create it again with mqadmin updateTopic."
        groups = list(self._members.groups())
        if not groups:
            return (
                "No broker is registered here: start one whose namesrvAddr names this name server,"
                " or wait for its next registration (every 30 s)."
            )
        names = ", ".join(shown(group.name) for group in groups[:3])
        more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""
        return f"No registered broker ({names}{more}) has this topic. {self._how_to_create()}"

    def _how_to_create(self) -> str:
        if TEMPLATE_TOPIC in self._topics:
            return (
                "Create it with mqadmin updateTopic, or send to it: brokers with"
                " autoCreateTopicEnable=true create it with the first message."
            )
        return (
            "Create it with mqadmin updateTopic: no registered broker creates topics by itself"
            " (autoCreateTopicEnable=false)."
        )


def _is_news(member: RegisteredBroker, topics: TopicConfigTable, *, is_first: bool) -> bool:
    """Whether a master's topics are to be taken (rules 1 and 3)."""
    version, known = topics.data_version, member.version
    if is_first or known is None:
        return True
    is_partial = len(topics.topic_config_table) == 1
    is_older = version.counter < known.counter and version.timestamp_ms <= known.timestamp_ms
    return not version.is_same(known) and not (is_partial and is_older)


def _filter_servers(servers: list[str]) -> tuple[str, ...]:
    bounded = servers[:FILTER_SERVERS_MAX]
    return tuple(server for server in bounded if name_fault("filter server", server) is None)


def _queue_data(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_count=config.read_queue_count,
        write_queue_count=config.write_queue_count,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


def _has_flags(queues: QueueData, wanted: int, unwanted: int) -> bool:
    flags = queues.topic_sys_flag
    return flags & wanted == wanted and not flags & unwanted


def _remember(table: OrderedDict[str, V], topic: str, value: V) -> None:
    """Note something about a topic that is not there, forgetting the oldest notes."""
    if name_fault("topic", topic) is not None:
        return
    table[topic] = value
    table.move_to_end(topic)
    while len(table) > REMEMBERED_MAX:
        table.popitem(last=False)
