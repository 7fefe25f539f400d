"""Which queue a message goes to.

In: the queues a topic may be published to, the broker that failed last, a key. Out: a queue.

Rules:
1. Queues are taken in turn from a random start; a retry skips the broker that failed, if another
   one has queues (P-2).
2. A key chooses by Java's hash, so that messages of one key meet in one queue whatever client sent
   them: `abs(hashCode) % count`, as the original's SelectMessageQueueByHash.
3. With avoidance on, a broker that failed or was slow is left out for a while: see `Faults`. When
   all are to be avoided, one of the better half is taken (P-3 to P-5).
"""

from collections.abc import Callable, Sequence

import msgspec

from orbitmq.client.message import Message
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.java import string_hash
from orbitmq.world.chance import Chance, SystemChance

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""A program's own choice: the topic's queues and the message in, one of the queues out."""

START_RANGE = 2**31
_CHANCE = SystemChance()

AVOIDED_S = (
    (15.0, 600.0),
    (3.0, 180.0),
    (2.0, 120.0),
    (1.0, 60.0),
    (0.55, 30.0),
)
"""From which latency on, and for how long. What is quicker is not avoided."""

FAILURE_LATENCY_S = 30.0
"""A broker that failed is avoided as if it had taken so long."""


def key_hash(key: str | int) -> int:
    """Return Java's hash of a String, an Integer or (beyond 32 bits) a Long."""
    if isinstance(key, str):
        return string_hash(key)
    if -(2**31) <= key < 2**31:
        return key
    folded = (key ^ ((key & (2**64 - 1)) >> 32)) & (2**32 - 1)
    return folded - 2**32 if folded >= 2**31 else folded


def queue_of_key(queues: Sequence[MessageQueue], key: str | int) -> MessageQueue:
    """Return the queue of a key; the same for as long as the queues are the same."""
    return queues[abs(key_hash(key)) % len(queues)]


def random_queue(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Choose any queue: `send(message, selector=random_queue)`, as SelectMessageQueueByRandom."""
    return queues[_CHANCE.below(len(queues))]


class Turns:
    """Takes the queues of one topic in turn."""

    __slots__ = ("_position",)

    def __init__(self, chance: Chance) -> None:
        self._position = chance.below(START_RANGE)

    def next(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Return the next queue."""
        self._position += 1
        return queues[self._position % len(queues)]

    def next_elsewhere(
        self, queues: Sequence[MessageQueue], failed_broker: str | None
    ) -> MessageQueue:
        """Return the next queue that is not at a broker, or the next one if all are."""
        for _ in range(len(queues)):
            queue = self.next(queues)
            if queue.broker_name != failed_broker:
                return queue
        return self.next(queues)


class _Fault(msgspec.Struct):
    latency_s: float
    avoided_until_s: float


class Faults:
    """How brokers have answered, and which to avoid."""

    def __init__(self, now_s: Callable[[], float], chance: Chance) -> None:
        self._now_s = now_s
        self._chance = chance
        self._faults: dict[str, _Fault] = {}
        self._picks = 0

    def note(self, broker_name: str, latency_s: float, *, has_failed: bool = False) -> None:
        """Remember how an attempt went."""
        judged_s = FAILURE_LATENCY_S if has_failed else latency_s
        avoided_s = next((wait_s for from_s, wait_s in AVOIDED_S if judged_s >= from_s), 0.0)
        self._faults[broker_name] = _Fault(latency_s, self._now_s() + avoided_s)

    def is_available(self, broker_name: str) -> bool:
        """Whether a broker is not to be avoided; one that is not known is not."""
        fault = self._faults.get(broker_name)
        return fault is None or self._now_s() >= fault.avoided_until_s

    def forget(self, broker_name: str) -> None:
        """Forget a broker that is gone."""
        self._faults.pop(broker_name, None)

    def least_bad(self) -> str | None:
        """Return a broker of the better half of those that are known; None when none is."""
        names = self._shuffled()
        names.sort(key=lambda name: (not self.is_available(name), *self._rank(name)))
        if not names:
            return None
        half = len(names) // 2
        self._picks += 1
        return names[self._picks % half] if half else names[0]

    def _rank(self, name: str) -> tuple[float, float]:
        fault = self._faults[name]
        return fault.latency_s, fault.avoided_until_s

    def _shuffled(self) -> list[str]:
        names = list(self._faults)
        for index in range(len(names) - 1, 0, -1):
            other = self._chance.below(index + 1)
            names[index], names[other] = names[other], names[index]
        return names

    def choose(
        self, turns: Turns, queues: Sequence[MessageQueue], failed_broker: str | None
    ) -> MessageQueue:
        """Return the next queue of a broker that is not to be avoided, or of the least bad one."""
        for _ in range(len(queues)):
            queue = turns.next(queues)
            if queue.broker_name != failed_broker and self.is_available(queue.broker_name):
                return queue
        least_bad = self.least_bad()
        theirs = [queue for queue in queues if queue.broker_name == least_bad]
        if theirs:
            return turns.next(theirs)
        if least_bad is not None:
            self.forget(least_bad)
        return turns.next_elsewhere(queues, failed_broker)
