"""Strategies by themselves: the tables of the specification, and what must hold for all of them.

`tests/foreign/test_shares.py` compares each with the original's own class.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.strategies import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from orbitmq.errors import LocalProtocolError
from orbitmq.wire.bodies_client import MessageQueue

AVERAGE = [
    (6, 3, [[0, 1], [2, 3], [4, 5]]),
    (9, 3, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
    (7, 2, [[0, 1, 2, 3], [4, 5, 6]]),
    (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    (2, 3, [[0], [1], []]),
]
CIRCLE = [
    (6, 3, [[0, 3], [1, 4], [2, 5]]),
    (7, 2, [[0, 2, 4, 6], [1, 3, 5]]),
    (2, 3, [[0], [1], []]),
]


class FirstPart:
    """The room is what stands before the first `@`."""

    def of_queue(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("@")[0]

    def of_client(self, client_id: str) -> str:
        return client_id.partition("@")[0]


def queues_of(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("orders", broker, number) for number in range(count)]


def shares(
    strategy: AllocateStrategy, queues: list[MessageQueue], clients: list[str]
) -> list[list[int]]:
    return [
        [queues.index(queue) for queue in strategy.allocate("group", client, queues, clients)]
        for client in clients
    ]


@pytest.mark.parametrize(("queue_count", "client_count", "expected"), AVERAGE)
def test_averagely_gives_runs_of_neighbours(
    queue_count: int, client_count: int, expected: list[list[int]]
) -> None:
    clients = [f"c{number}" for number in range(client_count)]
    assert shares(Averagely(), queues_of(queue_count), clients) == expected


@pytest.mark.parametrize(("queue_count", "client_count", "expected"), CIRCLE)
def test_by_circle_deals_queues_out_one_by_one(
    queue_count: int, client_count: int, expected: list[list[int]]
) -> None:
    clients = [f"c{number}" for number in range(client_count)]
    assert shares(AveragelyByCircle(), queues_of(queue_count), clients) == expected


def test_by_config_gives_what_it_was_told() -> None:
    told = queues_of(2, "broker-b")
    assert ByConfig(told).allocate("group", "c0", queues_of(4), ["c0", "c1"]) == told


def test_by_machine_room_leaves_other_rooms_alone() -> None:
    queues = [*queues_of(5, "north@a"), *queues_of(3, "south@a"), *queues_of(2, "plain")]
    assert shares(ByMachineRoom(["north"]), queues, ["c0", "c1"]) == [[0, 1, 4], [2, 3]]


def test_nearby_shares_rooms_without_clients_among_all() -> None:
    queues = [*queues_of(2, "east@a"), *queues_of(4, "north@a"), *queues_of(2, "south@a")]
    clients = ["north@1", "north@2", "south@1"]
    strategy = MachineRoomNearby(Averagely(), FirstPart())
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    assert shares(strategy, queues, clients) == [[2, 3, 0], [4, 5, 1], [6, 7]]


def test_a_room_that_is_not_known_is_an_error_that_names_it() -> None:
    strategy = MachineRoomNearby(Averagely(), FirstPart())
    with pytest.raises(LocalProtocolError, match="say nothing of @nowhere"):
        strategy.allocate("group", "@nowhere", queues_of(1), ["@nowhere"])


def test_when_a_client_leaves_the_others_keep_their_queues_on_the_ring() -> None:
    queues, strategy = queues_of(64), ConsistentHash()
    before = {
        queue: client
        for client in ("c0", "c1", "c2")
        for queue in strategy.allocate("group", client, queues, ["c0", "c1", "c2"])
    }
    for client in ("c0", "c1"):
        now = strategy.allocate("group", client, queues, ["c0", "c1"])
        assert {queue for queue, owner in before.items() if owner == client} <= set(now)


ALL = [
    Averagely(),
    AveragelyByCircle(),
    ConsistentHash(),
    ConsistentHash(1),
    MachineRoomNearby(Averagely(), FirstPart()),
    ByMachineRoom([f"r{number}" for number in range(10)]),
]
NAMES = st.sets(st.from_regex(r"r[0-9]@[a-z]{1,3}", fullmatch=True), min_size=1, max_size=8)


@given(strategy=st.sampled_from(ALL), brokers=NAMES, clients=NAMES, queue_count=st.integers(1, 9))
def test_each_queue_has_exactly_one_owner(
    strategy: AllocateStrategy, brokers: set[str], clients: set[str], queue_count: int
) -> None:
    queues = sorted(queue for broker in brokers for queue in queues_of(queue_count, broker))
    members = sorted(clients)
    owned = Counter(
        queue for member in members for queue in strategy.allocate("group", member, queues, members)
    )
    assert owned == Counter(queues)


@given(queue_count=st.integers(1, 100), client_count=st.integers(1, 40))
def test_average_shares_differ_by_one_at_most(queue_count: int, client_count: int) -> None:
    clients = [f"c{number:02}" for number in range(client_count)]
    for strategy in (Averagely(), AveragelyByCircle()):
        sizes = [len(share) for share in shares(strategy, queues_of(queue_count), clients)]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("strategy", ALL, ids=lambda each: each.name)
def test_a_client_that_is_not_in_the_list_gets_nothing(strategy: AllocateStrategy) -> None:
    assert strategy.allocate("group", "r1@gone", queues_of(4, "r1@a"), ["r1@a"]) == []


@pytest.mark.parametrize("strategy", ALL, ids=lambda each: each.name)
def test_empty_lists_are_refused(strategy: AllocateStrategy) -> None:
    for client, queues, clients in (
        ("", queues_of(1), ["c0"]),
        ("c0", [], ["c0"]),
        ("c0", queues_of(1), []),
    ):
        with pytest.raises(LocalProtocolError, match="a strategy needs"):
            strategy.allocate("group", client, queues, clients)


def test_a_ring_without_nodes_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="virtual_nodes is 0, the least is 1"):
        ConsistentHash(0)
