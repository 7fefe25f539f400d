"""Which queues of a topic are whose: the strategies by which a group divides them.

In: all queues of a topic and all client ids of the group, both sorted. Out: the queues of one
client.

Rules:
1. Every member computes its own share from the same two lists, so a strategy must be a function of
   its arguments alone, and all members must use the same one. Each one here gives what the
   original's class of that name gives, so Java and Python members share a group.
2. A client that is not in the list gets nothing; empty lists are refused.
3. Own strategies are objects with `name` and `allocate`.
"""

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Protocol

from orbitmq.errors import LocalProtocolError
from orbitmq.wire.bodies_client import MessageQueue

VIRTUAL_NODES = 10
"""How often each client stands on the ring of ConsistentHash, by default."""

ROOM_END = "@"
"""Parts the machine room from the rest of a broker's name, for ByMachineRoom."""


class AllocateStrategy(Protocol):
    """What a consumer asks of a strategy, ours or a program's own."""

    @property
    def name(self) -> str:
        """Its name, as brokers and tools see it."""
        ...

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """Return the queues of `client_id`; both lists are sorted."""
        ...


def _place(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> int | None:
    """Return the client's place in the list, or None (rule 2)."""
    if not client_id or not queues or not client_ids:
        raise LocalProtocolError(
            "a strategy needs the client's id, at least one queue and at least one client; "
            f"given were {client_id!r}, {len(queues)} queues and {len(client_ids)} clients"
        )
    return client_ids.index(client_id) if client_id in client_ids else None


class _ByPlace(ABC):
    """A strategy by which a client's share follows from its place in the list."""

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """Return the queues of `client_id`."""
        place = _place(client_id, queues, client_ids)
        return [] if place is None else self._share(place, queues, client_ids)

    @abstractmethod
    def _share(
        self, place: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of the client at a place."""


class Averagely(_ByPlace):
    """Runs of neighbouring queues, as equal as can be; the default.

    Seven queues for three clients: 0 1 2, 3 4, 5 6.
    """

    name = "AVG"

    def _share(
        self, place: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        least, more = divmod(len(queues), len(client_ids))
        start = place * least + min(place, more)
        return list(queues[start : start + least + (place < more)])


class AveragelyByCircle(_ByPlace):
    """Queues dealt out one by one. Seven queues for three clients: 0 3 6, 1 4, 2 5."""

    name = "AVG_BY_CIRCLE"

    def _share(
        self, place: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues[place :: len(client_ids)])


class ConsistentHash(_ByPlace):
    """Clients on a ring of hashes: when one comes or goes, the others keep most of their queues.

    Shares are less equal than with the other strategies. `virtual_nodes` is how often each client
    stands on the ring; all members of a group must use the same number.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 1:
            raise LocalProtocolError(f"virtual_nodes is {virtual_nodes}, the least is 1")
        self.virtual_nodes = virtual_nodes

    def _share(
        self, place: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        ring = {
            _ring_hash(f"{each}-{number}"): each
            for each in client_ids
            for number in range(self.virtual_nodes)
        }
        nodes = sorted(ring)
        return [queue for queue in queues if ring[_next_node(nodes, queue)] == client_ids[place]]


def _next_node(nodes: list[int], queue: MessageQueue) -> int:
    """Return the first node at or behind a queue's place on the ring."""
    # The text that Java's MessageQueue.toString gives.
    text = (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
    found = bisect_left(nodes, _ring_hash(text))
    return nodes[found if found < len(nodes) else 0]


def _ring_hash(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


class ByConfig:
    """The queues that this client was told, whatever the others have."""

    name = "CONFIG"

    def __init__(self, queues: Collection[MessageQueue]) -> None:
        self.queues = tuple(queues)

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """Return the queues of the configuration."""
        return list(self.queues)


class ByMachineRoom(_ByPlace):
    """Queues of brokers in some machine rooms; brokers there are called `room@name`."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self.rooms = frozenset(rooms)

    def _share(
        self, place: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        near = [queue for queue in queues if self._is_in_rooms(queue)]
        least, more = divmod(len(near), len(client_ids))
        own = near[place * least : (place + 1) * least]
        return own + near[least * len(client_ids) :][place : place + 1] if place < more else own

    def _is_in_rooms(self, queue: MessageQueue) -> bool:
        # Java's split drops empty parts at the end.
        parts = queue.broker_name.rstrip(ROOM_END).split(ROOM_END)
        return len(parts) == 2 and parts[0] in self.rooms


class MachineRooms(Protocol):
    """Says in which machine room brokers and clients are, for MachineRoomNearby."""

    def of_queue(self, queue: MessageQueue) -> str:
        """Return the room of a queue's broker."""
        ...

    def of_client(self, client_id: str) -> str:
        """Return the room of a client."""
        ...


class MachineRoomNearby:
    """Queues go to clients in the same machine room; rooms without clients are shared by all.

    `strategy` divides the queues of each room.
    """

    def __init__(self, strategy: AllocateStrategy, rooms: MachineRooms) -> None:
        self._strategy = strategy
        self._rooms = rooms

    @property
    def name(self) -> str:
        """`MACHINE_ROOM_NEARBY-` and the name of the strategy within rooms."""
        return f"MACHINE_ROOM_NEARBY-{self._strategy.name}"

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """Return the queues of `client_id`."""
        if _place(client_id, queues, client_ids) is None:
            return []
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_in.setdefault(_named(self._rooms.of_queue(queue), queue), []).append(queue)
        clients_in: dict[str, list[str]] = {}
        for each in client_ids:
            clients_in.setdefault(_named(self._rooms.of_client(each), each), []).append(each)
        own_room = self._rooms.of_client(client_id)
        shares = [(own_room, clients_in[own_room])] if own_room in queues_in else []
        shares += [(room, list(client_ids)) for room in sorted(queues_in) if room not in clients_in]
        return [
            queue
            for room, clients in shares
            for queue in self._strategy.allocate(group, client_id, queues_in[room], clients)
        ]


def _named(room: str, what: object) -> str:
    if not room:
        raise LocalProtocolError(f"the machine rooms say nothing of {what}; each needs a room")
    return room
