"""What an instance asks of its members: the producers and consumers that share it.

In: nothing. Out: the two protocols that producer and consumer classes fulfil.
Rule: an instance knows its members by these words only; groups carry their namespace.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from orbitmq.wire.bodies_client import ConsumerData, MessageQueue
from orbitmq.wire.record import Record


class ProducerMember(Protocol):
    """A producer, as its instance sees it."""

    @property
    def group(self) -> str:
        """The producer group."""
        ...

    def topics(self) -> Collection[str]:
        """Return the topics whose routes it needs."""
        ...


class ConsumerMember(Protocol):
    """A consumer, as its instance and the requests of brokers see it."""

    @property
    def group(self) -> str:
        """The consumer group."""
        ...

    def topics(self) -> Collection[str]:
        """Return the topics whose routes it needs, its retry topic included."""
        ...

    def heartbeat(self) -> ConsumerData:
        """Return what a heartbeat says of it."""
        ...

    def rebalance_soon(self) -> None:
        """Look at once who has which queue: the group's members or a route have changed."""
        ...

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets (request 220 of a broker)."""
        ...

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return how far it has come in the queues that it has (request 221)."""
        ...

    def running_info(self) -> bytes:
        """Return the body that answers request 307."""
        ...

    async def consume_directly(self, record: Record, broker_name: str) -> bytes:
        """Consume one message now; return the body that answers request 309."""
        ...
