"""Random registrations, closes, expiries and administration against a model of a few lines.

The model keeps flat dictionaries and applies the rules of `members` and `routes` one by one,
without groups, indexes or counters; after every step the table must show what the model holds.
"""

from typing import NamedTuple

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.errors import RequestFailed
from orbitmq.namesrv.members import EXPIRY_S, Source
from orbitmq.namesrv.routes import RouteTable
from tests.namesrv.registering import Wire, header, query, registration, topic, unregister, version

NAMES = ("broker-a", "broker-b")
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
ADDRESSES = tuple(f"{host}:10911" for host in HOSTS)
TOPICS = ("T1", "T2", "T3", "T4")
CONNECTION_COUNT = 5

names = strategies.sampled_from(NAMES)
ids = strategies.integers(0, 2)
addresses = strategies.sampled_from(ADDRESSES)
connections = strategies.integers(0, CONNECTION_COUNT - 1)
counters = strategies.integers(1, 3)
topic_tables = strategies.dictionaries(
    strategies.sampled_from(TOPICS), strategies.integers(1, 3), max_size=3
)
clusters = strategies.sampled_from(("C1", "C1", "C1", "C2"))


class Entry(NamedTuple):
    """What the model knows of one broker."""

    address: str
    cluster: str
    host: str
    owners: frozenset[Wire]
    seen_s: float
    counter: int | None


class Call(NamedTuple):
    """One registration."""

    name: str
    broker_id: int
    address: str
    cluster: str
    counter: int
    topics: dict[str, int]
    source: Source


class RoutesAgainstModel(RuleBasedStateMachine):
    """Drives the route table and the model side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_s = 0.0
        self.wires = [Wire(str(number)) for number in range(CONNECTION_COUNT)]
        self.entries: dict[tuple[str, int], Entry] = {}
        self.queues: dict[tuple[str, str], tuple[int, int]] = {}  # topic, name: queues, perm

    def source(self, number: int) -> Source:
        return Source(self.wires[number], HOSTS[number % len(HOSTS)])

    # --- the model's rules ---

    def is_refused(self, call: Call) -> bool:
        others_cluster = None
        for (name, broker_id), entry in self.entries.items():
            if name != call.name:
                continue
            is_touched = broker_id == call.broker_id or entry.address == call.address
            if is_touched and not self.may_speak(entry, call.address, call.source):
                return True
            if not is_touched:
                others_cluster = entry.cluster
        return others_cluster not in (None, call.cluster)

    def may_speak(self, entry: Entry, address: str, source: Source) -> bool:
        is_same_place = entry.address == address and entry.host == source.host
        return source.connection in entry.owners or is_same_place

    def apply(self, call: Call) -> None:
        key = (call.name, call.broker_id)
        known = self.entries.get(key)
        is_same = known is not None and known.address == call.address
        for other, entry in list(self.entries.items()):
            if other[0] == call.name and other != key and entry.address == call.address:
                del self.entries[other]
        counter = known.counter if known and is_same else None
        owners = known.owners if known and is_same else frozenset()
        is_partial = len(call.topics) == 1
        is_older = counter is not None and call.counter < counter
        is_news = known is None or counter is None or call.counter != counter
        if call.broker_id == 0 and is_news and not (is_partial and is_older and known):
            for name, count in call.topics.items():
                self.queues[name, call.name] = (count, 6)
        assert isinstance(call.source.connection, Wire)
        self.entries[key] = Entry(
            call.address,
            call.cluster,
            call.source.host,
            owners | {call.source.connection},
            self.now_s,
            counter if is_partial else call.counter,
        )

    def forget(self, key: tuple[str, int]) -> None:
        del self.entries[key]
        if not any(name == key[0] for name, _ in self.entries):
            for pair in [pair for pair in self.queues if pair[1] == key[0]]:
                del self.queues[pair]

    # --- the steps ---

    @rule(
        name=names,
        broker_id=ids,
        address=addresses,
        number=connections,
        counter=counters,
        topics=topic_tables,
        cluster=clusters,
    )
    def register(
        self,
        name: str,
        broker_id: int,
        address: str,
        number: int,
        counter: int,
        topics: dict[str, int],
        cluster: str,
    ) -> None:
        call = Call(name, broker_id, address, cluster, counter, topics, self.source(number))
        head = header(name, address, broker_id, cluster)
        made = registration(head=head, data_version=version(counter, 7))
        table = made.body.topics.topic_config_table
        table.clear()
        table.update({one: topic(one, count) for one, count in topics.items()})
        is_refused = self.is_refused(call)
        try:
            self.table.register(made, call.source, self.now_s)
        except RequestFailed:
            assert is_refused
            return
        assert not is_refused
        self.apply(call)

    @rule(name=names, broker_id=ids, address=addresses, number=connections)
    def unregister(self, name: str, broker_id: int, address: str, number: int) -> None:
        entry = self.entries.get((name, broker_id))
        source = self.source(number)
        head = unregister(header(name, address, broker_id))
        is_there = entry is not None and entry.address == address
        is_own = entry is not None and source.connection in entry.owners
        try:
            departure = self.table.unregister(head, source)
        except RequestFailed:
            assert is_there
            assert not is_own
            return
        assert (departure is not None) == (is_there and is_own)
        if departure is not None:
            self.forget((name, broker_id))

    @rule(number=connections)
    def close(self, number: int) -> None:
        wire = self.wires[number]
        self.wires[number] = Wire(f"{wire.name}'")
        self.table.connection_closed(wire)
        for key, entry in list(self.entries.items()):
            if wire not in entry.owners:
                continue
            left = entry.owners - {wire}
            self.entries[key] = entry._replace(owners=left)
            if not left:
                self.forget(key)

    @rule(name=names, address=addresses, number=connections)
    def refresh(self, name: str, address: str, number: int) -> None:
        source = self.source(number)
        is_done = self.table.refresh(query(header(name, address)), source, self.now_s)
        found = [
            (key, entry)
            for key, entry in self.entries.items()
            if key[0] == name and entry.address == address
        ]
        assert is_done == any(self.may_speak(entry, address, source) for _, entry in found)
        if is_done:
            ((key, entry),) = found
            assert isinstance(source.connection, Wire)
            owners = entry.owners | {source.connection}
            self.entries[key] = entry._replace(seen_s=self.now_s, owners=owners, host=source.host)

    @rule(seconds=strategies.sampled_from((1.0, 50.0, 121.0)))
    def wait_and_expire(self, seconds: float) -> None:
        self.now_s += seconds
        self.table.expire(self.now_s)
        for key, entry in list(self.entries.items()):
            if self.now_s - entry.seen_s > EXPIRY_S:
                self.forget(key)

    @rule(name=strategies.sampled_from(TOPICS), cluster=strategies.sampled_from((None, "C1", "C2")))
    def delete_topic(self, name: str, cluster: str | None) -> None:
        self.table.delete_topic(name, cluster, self.now_s)
        homes = {broker: entry.cluster for (broker, _), entry in self.entries.items()}
        for pair in [pair for pair in self.queues if pair[0] == name]:
            if cluster in (None, homes[pair[1]]):
                del self.queues[pair]

    @rule(name=names)
    def wipe(self, name: str) -> None:
        count = self.table.wipe_write_perm(name)
        pairs = [pair for pair in self.queues if pair[1] == name]
        assert count == len(pairs)
        for pair in pairs:
            self.queues[pair] = (self.queues[pair][0], 4)

    # --- what must hold ---

    @invariant()
    def shows_the_same_brokers(self) -> None:
        shown = {
            (name, broker_id): (address, data.cluster)
            for name, data in self.table.cluster_info().broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        }
        expected = {key: (one.address, one.cluster) for key, one in self.entries.items()}
        assert shown == expected
        assert self.table.broker_count == len(expected)

    @invariant()
    def shows_the_same_routes(self) -> None:
        shown = {}
        for name in self.table.topics().topic_list:
            route = self.table.route(name)
            assert route is not None
            assert route.broker_datas, "a topic must not be listed without a broker"
            for queues in route.queue_datas:
                shown[name, queues.broker_name] = (queues.read_queue_count, queues.perm)
        assert shown == self.queues

    @invariant()
    def knows_the_same_owners(self) -> None:
        owners = {wire for entry in self.entries.values() for wire in entry.owners}
        for wire in self.wires:
            assert self.table.owns_nothing(wire) == (wire not in owners)


TestRoutesAgainstModel = RoutesAgainstModel.TestCase
TestRoutesAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
