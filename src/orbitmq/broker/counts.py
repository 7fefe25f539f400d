"""What a broker has done since it began: every event is counted once, here or where it happens.

In: what queues, the core and the store count anyway; what handlers and deliveries tell. Out: totals
for all who show them: windows and rates (`stats`), the runtime table (`runtime_info`) and
Prometheus (`shown_metrics`). None of these counts anything, so they cannot disagree.

Rules:
1. The hot path counts what it must once a record (bytes) or once a pull; all else is looked up.
2. Tables are bounded: KEYS_MAX keys each. What pulls got beyond that, and what was forgotten, is
   kept as one sum: totals never shrink.
3. As in the original, totals begin at zero with the process.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from orbitmq.core import CoreState, Got, Queue, Topic
from orbitmq.store.stats import StoreStats
from orbitmq.store.store import Store

KEYS_MAX = 10_000

Pair = tuple[str, str]
"""Topic and group."""


class Totals(NamedTuple):
    """What was counted since the start. `times` is how often something was added."""

    messages: int = 0
    size: int = 0
    times: int = 0


ZERO = Totals()


class Counts:
    """The totals of one broker."""

    def __init__(self, core: CoreState, store: Store) -> None:
        self._core = core
        self._store = store
        self.missed = 0
        """Pulls that found nothing."""
        self.get_ms_max = 0
        """The longest that a pull was looked up; the hot path takes less than one."""
        self.sent_back: dict[Pair, int] = {}
        self.sent_back_count = 0
        self.delivered: dict[int, Totals] = {}
        """What was delivered of delayed messages, by the queue they waited in."""
        self.latencies: dict[tuple[int, str, str], Totals] = {}
        """How many ms pulls took, by queue, topic and group."""
        self._forgotten = ZERO
        """What pulls got whose own figures were forgotten."""

    # --- Counting ---

    def note_got(self, topic: str, group: str, count: int, size: int) -> None:
        """Count the messages that one pull got."""
        self._core.note_got(topic, group, count, size)

    def note_missed(self) -> None:
        """Count a pull that found nothing."""
        self.missed += 1

    def note_look(self, took_s: float) -> None:
        """Take note of how long a pull was looked up, whatever it found."""
        self.get_ms_max = max(self.get_ms_max, int(took_s * 1000))

    def note_latency(self, queue_id: int, topic: str, group: str, took_s: float) -> None:
        """Count how long a pull took that got something."""
        key = (queue_id, topic, group)
        before = self.latencies.get(key, ZERO)
        if before is not ZERO or len(self.latencies) < KEYS_MAX:
            self.latencies[key] = sum_of(before, Totals(int(took_s * 1000), 0, 1))

    def note_delivered(self, queue_id: int, count: int, size: int) -> None:
        """Count delayed messages that left their queue; `size` is that of what was delivered."""
        before = self.delivered.get(queue_id, ZERO)
        self.delivered[queue_id] = sum_of(before, Totals(count, size, count))

    def note_sent_back(self, topic: str, group: str) -> None:
        """Count a message that a consumer could not deal with."""
        self.sent_back_count += 1
        if (topic, group) in self.sent_back or len(self.sent_back) < KEYS_MAX:
            self.sent_back[topic, group] = self.sent_back.get((topic, group), 0) + 1

    def forget(self, topic: str, group: str) -> None:
        """Count what a group got of a topic, from now on, in no row of its own."""
        got = self._core.got.pop((topic, group), None)
        if got is not None:
            self._forgotten = sum_of(self._forgotten, _got(got))
        self.sent_back.pop((topic, group), None)

    # --- Totals ---

    @property
    def put_count(self) -> int:
        """Messages put that may be seen."""
        return self._store.message_count

    @property
    def writes(self) -> StoreStats:
        """What the log's writes brought, and how long they took."""
        return self._store.stats

    def puts(self) -> Iterator[tuple[Topic, Totals]]:
        """Return the topics, each with what was put into it when it is its turn."""
        for topic in list(self._core.topics.values()):
            yield topic, put_into(topic.queues.values())

    def put(self, topic: str) -> Totals:
        """Return what was put into a topic."""
        known = self._core.topics.get(topic)
        return ZERO if known is None else put_into(known.queues.values())

    def gots(self) -> Iterator[tuple[Pair, Totals]]:
        """Return what groups got, by topic and group, as far as that is counted apart."""
        for pair, got in list(self._core.got.items()):
            yield pair, _got(got)

    def got(self, topic: str, group: str) -> Totals | None:
        """Return what a group got of a topic; None: nothing that is counted apart."""
        got = self._core.got.get((topic, group))
        return None if got is None else _got(got)

    def got_in_all(self) -> Totals:
        """Return what all pulls got; nothing that is forgotten is missing."""
        rest = (self._forgotten, _got(self._core.got_other))
        return sum_of(*chain(rest, (got for _, got in self.gots())))

    def delivered_in_all(self) -> Totals:
        """Return what was delivered of delayed messages."""
        return sum_of(ZERO, *self.delivered.values())


def put_into(queues: Iterable[Queue]) -> Totals:
    """Return what was put into queues."""
    count = size = 0
    for queue in queues:
        count += queue.put_count
        size += queue.put_bytes
    return Totals(count, size, count)


def _got(got: Got) -> Totals:
    return Totals(got.count, got.size, got.pulls)


def sum_of(*all_totals: Totals) -> Totals:
    """Return the sum of totals."""
    return Totals(*map(sum, zip(*all_totals, strict=True)))
