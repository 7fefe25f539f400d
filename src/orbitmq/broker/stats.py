"""What a broker has done: messages taken in, given out and sent back, by topic and group.

In: counts that queues and the core keep anyway, and those of the handlers. Out: totals, rates and
the figures that tools ask for by name (315).

Rules:
1. The hot path counts what it must once a record (bytes) or once a pull; all else is looked up when
   sampled, in slices that hold up nobody.
2. Tables are bounded: SERIES_MAX topics and as many pairs of topic and group. Above half of it the
   figures of what is gone, or idle for a day, are forgotten; else with autoDeleteUnusedStats only.
3. As in the original, totals begin at zero with the process.
4. Of the original's names these are kept: puts by topic, gets and messages sent back by topic and
   group, puts and gets of the broker, puts and gets by queue of the delay levels, whose consumer is
   SCHEDULE_CONSUMER. Fallen behind and accounting answer "not exist", as there.
5. GROUP_GET_LATENCY, in whole ms, is that of pulls which the hot path leaves to the handlers. Its
   own take less than one each: they add nothing to the sum, and the average leaves them out.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orbitmq.broker.stats_windows import SAMPLE_S, ZERO, Series, Totals
from orbitmq.core import CoreState, Queue
from orbitmq.store.store import Store
from orbitmq.wire.bodies_runtime import BrokerStatsData
from orbitmq.wire.names import SCHEDULE_CONSUMER, SCHEDULE_TOPIC

SERIES_MAX = 10_000
SLICE = 500
"""Topics or groups that are sampled in one go: less than a millisecond's work."""

RATE_SPANS_S = (10, 60, 600)
_RATES_LENGTH = RATE_SPANS_S[-1] // SAMPLE_S + 2

_COUNT, _SIZE = 0, 1
_NAMES = {
    "TOPIC_PUT_NUMS": ("topic", _COUNT),
    "TOPIC_PUT_SIZE": ("topic", _SIZE),
    "GROUP_GET_NUMS": ("group", _COUNT),
    "GROUP_GET_SIZE": ("group", _SIZE),
    "SNDBCK_PUT_NUMS": ("sent_back", _COUNT),
    "BROKER_PUT_NUMS": ("broker_put", _COUNT),
    "BROKER_GET_NUMS": ("broker_get", _COUNT),
    "QUEUE_PUT_NUMS": ("queue", _COUNT),
    "QUEUE_PUT_SIZE": ("queue", _SIZE),
    "QUEUE_GET_NUMS": ("queue_got", _COUNT),
    "QUEUE_GET_SIZE": ("queue_got", _SIZE),
    "GROUP_GET_LATENCY": ("latency", _COUNT),
}
"""The original's names: which table, and which of its totals."""

_DELAYED = (SCHEDULE_TOPIC, SCHEDULE_CONSUMER)


class Moment(NamedTuple):
    """The broker's totals at one time."""

    at_s: float
    put: int = 0
    got: int = 0
    """Messages that pulls got."""
    found: int = 0
    """Pulls that got any."""
    missed: int = 0


class Rate(NamedTuple):
    """What was done a second, over some time; the names are those of Moment."""

    put: float
    got: float
    found: float
    missed: float


class BrokerStats:
    """The figures of one broker."""

    def __init__(
        self,
        core: CoreState,
        store: Store,
        cluster: str,
        now_s: float,
        *,
        has_queues: bool = True,
    ) -> None:
        """`has_queues`: whether there are figures by queue, too (enableDetailStat)."""
        self._has_queues = has_queues
        self._core = core
        self._store = store
        self._cluster = cluster
        self._sent_back: dict[str, int] = {}
        self._sent_back_count = 0
        self._missed = 0
        self._delivered: dict[int, Totals] = {}
        """What was delivered of delayed messages, by the queue they waited in."""
        self._latencies: dict[str, Totals] = {}
        """How many ms pulls took, by queue, topic and group."""
        self.get_ms_max = 0
        """The longest that a pull was looked up; the hot path takes less than one."""
        self._forgotten = ZERO
        """What pulls got whose own figures were forgotten."""
        self._tables: dict[str, dict[str, Series]] = {table: {} for table, _ in _NAMES.values()}
        self._number = 0
        self._moments = deque([Moment(now_s)], maxlen=_RATES_LENGTH)
        self._put_counts_us = list(store.stats.put_counts_us)
        self.put_ms_percentiles = (0.0, 0.0)
        """How long 99 and 99.9 % of the puts of the last whole minute took at most."""
        self._day = 0
        self.put_mornings = (0, 0)
        """What was put until yesterday's and until this morning."""
        self.got_mornings = (0, 0)

    # --- Counting ---

    def note_got(self, topic: str, group: str, count: int, size: int) -> None:
        """Count the messages that one pull got."""
        self._core.note_got(topic, group, count, size)

    def note_missed(self) -> None:
        """Count a pull that found nothing."""
        self._missed += 1

    def note_look(self, took_s: float) -> None:
        """Take note of how long a pull was looked up, whatever it found."""
        self.get_ms_max = max(self.get_ms_max, int(took_s * 1000))

    def note_latency(self, queue_id: int, topic: str, group: str, took_s: float) -> None:
        """Count how long a pull took that got something."""
        took_ms = int(took_s * 1000)
        key = f"{queue_id}@{topic}@{group}"
        before = self._latencies.get(key, ZERO)
        if before is not ZERO or len(self._latencies) < SERIES_MAX:
            self._latencies[key] = Totals(before.messages + took_ms, 0, before.times + 1)

    def note_delivered(self, queue_id: int, count: int, size: int) -> None:
        """Count delayed messages that left their queue; `size` is that of what was delivered."""
        before = self._delivered.get(queue_id, ZERO)
        self._delivered[queue_id] = _sum(before, Totals(count, size, count))

    def note_sent_back(self, topic: str, group: str) -> None:
        """Count a message that a consumer could not deal with."""
        key = f"{topic}@{group}"
        self._sent_back_count += 1
        if key in self._sent_back or len(self._sent_back) < SERIES_MAX:
            self._sent_back[key] = self._sent_back.get(key, 0) + 1

    # --- Totals and rates ---

    def totals(self, now_s: float) -> Moment:
        """Return the broker's totals now."""
        gots = [*self._core.got.values(), self._core.got_other]
        return Moment(
            now_s,
            self._store.message_count,
            self._forgotten.messages + sum(got.count for got in gots),
            self._forgotten.times + sum(got.pulls for got in gots),
            self._missed,
        )

    def rates(self, now_s: float) -> list[Rate]:
        """Return the rates of the last 10 s, minute and 10 minutes, or of the time since the start.

        The time looked at is up to 10 s longer: it begins with a sampling.
        """
        now = self.totals(now_s)
        return [_rate(self._before(now_s - span_s), now) for span_s in RATE_SPANS_S]

    def _before(self, at_s: float) -> Moment:
        """Return the last moment that is not after `at_s`, or the first one there is."""
        return next((one for one in reversed(self._moments) if one.at_s <= at_s), self._moments[0])

    # --- Figures by name ---

    def view(self, name: str | None, key: str | None) -> BrokerStatsData | None:
        """Return a figure of the original's name, or None when nothing was counted under it."""
        if name not in _NAMES or key is None:
            return None
        table, place = _NAMES[name]
        series = self._tables[table].get(key)
        if series is not None:
            return series.view(place)
        return BrokerStatsData() if self._is_counted(table, key) else None

    def _is_counted(self, table: str, key: str) -> bool:
        """Whether there is something that the next sampling will show."""
        if table == "topic":
            topic = self._core.topics.get(key)
            return topic is not None and _put(topic.queues.values()).messages > 0
        if table == "group":
            topic_name, _, group = key.rpartition("@")
            return (topic_name, group) in self._core.got or self._is_delayed(topic_name, group)
        if table == "latency":
            queue_id, _, pair = key.partition("@")
            return queue_id.isascii() and queue_id.isdecimal() and self._is_got(int(queue_id), pair)
        if table == "sent_back":
            return key in self._sent_back
        return table.startswith("broker") and key == self._cluster

    def _is_delayed(self, topic: str, group: str) -> bool:
        return bool(self._delivered) and (topic, group) == _DELAYED

    def _is_got(self, queue_id: int, pair: str) -> bool:
        """Whether a group, `topic@group`, got something of a topic that has this queue."""
        topic_name, _, group = pair.rpartition("@")
        topic = self._core.topics.get(topic_name)
        return (
            topic is not None and queue_id in topic.queues and (topic_name, group) in self._core.got
        )

    # --- Sampling ---

    def sampling(self, now_s: float, now_ms: int, *, is_forgetful: bool) -> Iterator[None]:
        """Sample everything; yields between slices, so that others get their turn.

        `is_forgetful` forgets topics and groups that are gone. Call it each SAMPLE_S seconds.
        """
        self._number += 1
        self._moments.append(moment := self.totals(now_s))
        # 36 puts a message that its delivery puts again: the original counts the latter only.
        put = Totals(moment.put - self._sent_back_count)
        self._sample("broker_put", self._cluster, now_ms, put)
        self._sample("broker_get", self._cluster, now_ms, Totals(moment.got))
        for key, count in list(self._sent_back.items()):
            self._sample("sent_back", key, now_ms, Totals(count, 0, count))
        yield
        for number, topic in enumerate(list(self._core.topics.values())):
            self._sample("topic", topic.name, now_ms, _put(topic.queues.values()))
            if number % SLICE == SLICE - 1:
                yield
        for number, ((name, group), got) in enumerate(list(self._core.got.items())):
            if (name, group) != _DELAYED:
                totals = Totals(got.count, got.size, got.pulls)
                self._sample("group", f"{name}@{group}", now_ms, totals)
            if number % SLICE == SLICE - 1:
                yield
        for number, (key, totals) in enumerate(list(self._latencies.items())):
            self._sample("latency", key, now_ms, totals)
            if number % SLICE == SLICE - 1:
                yield
        self._sample_delivered(now_ms)
        if self._has_queues:
            self._sample_delay_levels(now_ms)
        if self._number % (60 // SAMPLE_S) == 0:
            self._note_put_times()
        yield
        self._forget(is_forgetful=is_forgetful)

    def _sample(self, table: str, key: str, now_ms: int, totals: Totals) -> None:
        rows = self._tables[table]
        series = rows.get(key)
        if series is None:
            if totals == ZERO or len(rows) >= SERIES_MAX:
                return
            series = rows[key] = Series()
        series.sample(self._number, now_ms, totals)

    def _sample_delay_levels(self, now_ms: int) -> None:
        topic = self._core.topics.get(SCHEDULE_TOPIC)
        for queue in list(topic.queues.values()) if topic is not None else ():
            key = f"{SCHEDULE_TOPIC}@{queue.queue_id}"
            self._sample("queue", key, now_ms, _put([queue]))
        for queue_id, totals in self._delivered.items():
            key = f"{SCHEDULE_TOPIC}@{queue_id}@{SCHEDULE_CONSUMER}"
            self._sample("queue_got", key, now_ms, totals)

    def _sample_delivered(self, now_ms: int) -> None:
        """Sample what the delay levels' consumer got, with what a client got in its name."""
        got = self._core.got.get(_DELAYED)
        totals = ZERO if got is None else Totals(got.count, got.size, got.pulls)
        self._sample("group", "@".join(_DELAYED), now_ms, _sum(totals, *self._delivered.values()))

    def _note_put_times(self) -> None:
        counts = list(self._store.stats.put_counts_us)
        grown = [after - before for before, after in zip(self._put_counts_us, counts, strict=True)]
        self._put_counts_us = counts
        self.put_ms_percentiles = (_percentile_ms(grown, 0.99), _percentile_ms(grown, 0.999))

    def _forget(self, *, is_forgetful: bool) -> None:
        topics = self._tables["topic"]
        is_tight = len(topics) * 2 > SERIES_MAX
        for key in list(topics) if is_forgetful or is_tight else ():
            if key not in self._core.topics:
                del topics[key]
        got = self._core.got
        is_tight = len(got) * 2 > SERIES_MAX
        for topic, group in list(got) if is_forgetful or is_tight else ():
            is_gone = topic not in self._core.topics or group not in self._core.groups
            series = self._tables["group"].get(f"{topic}@{group}")
            if is_gone or (is_tight and series is not None and series.is_idle):
                self._forget_group(topic, group)
        is_tight = len(self._latencies) * 2 > SERIES_MAX
        for key in list(self._latencies) if is_forgetful or is_tight else ():
            topic, _, group = key.partition("@")[2].rpartition("@")
            series = self._tables["latency"].get(key)
            if (topic, group) not in got or (is_tight and series is not None and series.is_idle):
                del self._latencies[key]
                self._tables["latency"].pop(key, None)

    def _forget_group(self, topic: str, group: str) -> None:
        got, before = self._core.got.pop((topic, group)), self._forgotten
        self._forgotten = Totals(
            before.messages + got.count, before.size + got.size, before.times + got.pulls
        )
        self._tables["group"].pop(f"{topic}@{group}", None)
        self._tables["sent_back"].pop(f"{topic}@{group}", None)
        self._sent_back.pop(f"{topic}@{group}", None)

    def note_day(self, day: int) -> None:
        """Keep the totals of a morning when `day`, a date as a number, is another one."""
        if self._day and day != self._day:
            now = self.totals(0.0)
            self.put_mornings = (self.put_mornings[1], now.put)
            self.got_mornings = (self.got_mornings[1], now.got)
        self._day = day


def _put(queues: Iterable[Queue]) -> Totals:
    count = size = 0
    for queue in queues:
        count += queue.put_count
        size += queue.put_bytes
    return Totals(count, size, count)


def _sum(*all_totals: Totals) -> Totals:
    return Totals(*map(sum, zip(*all_totals, strict=True)))


def _percentile_ms(counts: list[int], part: float) -> float:
    """Return an upper bound of what `part` of the values is below; `counts` is by bits of them."""
    wanted, seen = sum(counts) * part, 0
    for bits, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return float(1 << bits) / 1000
    return 0.0


def _rate(first: Moment, last: Moment) -> Rate:
    took_s = max(last.at_s - first.at_s, 1e-3)
    return Rate(
        put=(last.put - first.put) / took_s,
        got=(last.got - first.got) / took_s,
        found=(last.found - first.found) / took_s,
        missed=(last.missed - first.missed) / took_s,
    )
